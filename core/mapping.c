/* SPDX-License-Identifier: MIT */
/*
 * mapping.c - the mapping table: slots in a file, and a treap over them.
 *
 * The treap's priorities are a hash of the slot's number, so that the index
 * needs nothing that could not be made anew from the slots.  A record that
 * changes has an odd sequence number meanwhile, for readers in other
 * processes; the order of stores is all they rely on.
 */
#include "core/mapping.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "core/atomic.h"
#include "core/sys.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Slots get their memory this many at a time. */
#define CHUNK 64u

static uint32_t priority(uint32_t index)
{
	uint32_t x = index * 0x9e3779b1u;

	x ^= x >> 15;
	x *= 0x85ebca77u;
	return x ^ x >> 13;
}

static uint64_t start_of(const struct mt_map *map, uint32_t i)
{
	return load_relaxed(&map->slots[i].start);
}

static uint64_t end_of(const struct mt_map *map, uint32_t i)
{
	return load_relaxed(&map->slots[i].end);
}

static void read_slot(const struct mt_map *map, uint32_t i,
		      struct mt_range *range)
{
	const struct mt_map_slot *slot = &map->slots[i];

	range->start = load_relaxed(&slot->start);
	range->end = load_relaxed(&slot->end);
	range->type = (enum mt_map_type)load_relaxed(&slot->type);
	range->group = load_relaxed(&slot->group);
	range->state = load_relaxed(&slot->state);
	range->object = load_relaxed(&slot->object);
	range->offset = load_relaxed(&slot->offset);
}

static void write_slot(struct mt_map *map, uint32_t i,
		       const struct mt_range *range)
{
	struct mt_map_slot *slot = &map->slots[i];
	uint32_t seq = load_relaxed(&slot->seq) | 1;

	store_relaxed(&slot->seq, seq);
	fence_release();
	store_relaxed(&slot->start, range->start);
	store_relaxed(&slot->end, range->end);
	store_relaxed(&slot->group, range->group);
	store_relaxed(&slot->state, range->state);
	store_relaxed(&slot->object, range->object);
	store_relaxed(&slot->offset, range->offset);
	store_relaxed(&slot->type, (uint32_t)range->type);
	store_release(&slot->seq, seq + 1);
}

bool mt_map_kind(const struct mt_range *range, enum mt_kind *ret_kind)
{
	if (!(range->state & MT_MAP_ACCOUNT))
		return false;
	switch (range->type) {
	case MT_MAP_ANON:
		*ret_kind = MT_ANON;
		return true;
	case MT_MAP_FILE:
		*ret_kind = MT_FILE;
		return true;
	case MT_MAP_SHMEM:
		*ret_kind = MT_SHMEM;
		return true;
	case MT_MAP_BRK:
		*ret_kind = MT_BRK;
		return true;
	default:
		return false;
	}
}

static void report(const struct mt_map *map, const struct mt_range *range,
		   int sign, mt_map_account_fn fn, void *arg)
{
	int64_t pages = (int64_t)((range->end - range->start) / map->page_size);
	enum mt_kind kind;

	if (mt_map_kind(range, &kind))
		fn(arg, range->group, kind, sign * pages);
}

/* Treap: split by address into what starts below @at and the rest. */
static void split(struct mt_map *map, uint32_t root, uint64_t at,
		  uint32_t *ret_below, uint32_t *ret_rest)
{
	uint32_t *below = ret_below;
	uint32_t *rest = ret_rest;

	while (root) {
		struct mt_map_node *node = &map->nodes[root - 1];

		if (start_of(map, root - 1) < at) {
			*below = root;
			below = &node->right;
			root = node->right;
		} else {
			*rest = root;
			rest = &node->left;
			root = node->left;
		}
	}
	*below = 0;
	*rest = 0;
}

static uint32_t join(struct mt_map *map, uint32_t below, uint32_t rest)
{
	uint32_t root = 0;
	uint32_t *at = &root;

	while (below && rest) {
		if (priority(below - 1) > priority(rest - 1)) {
			*at = below;
			at = &map->nodes[below - 1].right;
			below = *at;
		} else {
			*at = rest;
			at = &map->nodes[rest - 1].left;
			rest = *at;
		}
	}
	*at = below ? below : rest;
	return root;
}

static void link_node(struct mt_map *map, uint32_t i)
{
	uint32_t below = 0;
	uint32_t rest = 0;

	split(map, map->root, start_of(map, i), &below, &rest);
	map->nodes[i].left = 0;
	map->nodes[i].right = 0;
	map->nodes[i].in_tree = 1;
	map->root = join(map, join(map, below, i + 1), rest);
}

static void unlink_node(struct mt_map *map, uint32_t i)
{
	uint32_t *at = &map->root;

	while (*at && *at != i + 1)
		at = start_of(map, i) < start_of(map, *at - 1)
			     ? &map->nodes[*at - 1].left
			     : &map->nodes[*at - 1].right;
	if (*at)
		*at = join(map, map->nodes[i].left, map->nodes[i].right);
	map->nodes[i].in_tree = 0;
}

/* The first record that ends above @address; + 1. */
static uint32_t first_above(const struct mt_map *map, uint64_t address)
{
	uint32_t best = 0;
	uint32_t at = map->root;

	/* Records don't overlap, so they are in order of their ends too. */
	while (at) {
		if (end_of(map, at - 1) > address) {
			best = at;
			at = map->nodes[at - 1].left;
		} else {
			at = map->nodes[at - 1].right;
		}
	}
	return best;
}

/* The record with the highest start below @address; + 1. */
static uint32_t last_below(const struct mt_map *map, uint64_t address)
{
	uint32_t best = 0;
	uint32_t at = map->root;

	while (at) {
		if (start_of(map, at - 1) < address) {
			best = at;
			at = map->nodes[at - 1].right;
		} else {
			at = map->nodes[at - 1].left;
		}
	}
	return best;
}

static bool back(struct mt_map *map, uint32_t i)
{
	uint32_t n = MT_MIN(CHUNK, map->capacity - i);

	if (i < map->backed)
		return true;
	if (map->shared) {
		uint64_t mask = ~(map->page_size - 1);
		uint64_t first = (uint64_t)(uintptr_t)&map->slots[i] & mask;
		uint64_t last = (uint64_t)(uintptr_t)&map->slots[i + n];

		last = (last + map->page_size - 1) & mask;
		if (mt_sys_madvise((void *)(uintptr_t)first, last - first,
				   MADV_POPULATE_WRITE))
			return false;
	}
	map->backed = i + n;
	return true;
}

/* A slot for a record; + 1, or 0 when the table is full. */
static uint32_t take_slot(struct mt_map *map)
{
	uint32_t high = load_relaxed(&map->header->high);
	uint32_t i;

	if (map->free) {
		i = map->free - 1;
		map->free = map->nodes[i].right;
		return i + 1;
	}
	if (high >= map->capacity || !back(map, high))
		return 0;
	store_release(&map->header->high, high + 1);
	return high + 1;
}

static void free_slot(struct mt_map *map, uint32_t i)
{
	static const struct mt_range none = { .type = MT_MAP_FREE };

	write_slot(map, i, &none);
	map->nodes[i].right = map->free;
	map->nodes[i].left = 0;
	map->nodes[i].in_tree = 0;
	map->free = i + 1;
}

static bool is_view(const struct mt_range *range)
{
	return range->type == MT_MAP_SHMEM && !(range->state & MT_MAP_ACCOUNT);
}

static void count(struct mt_map *map, const struct mt_range *range, int by)
{
	if (range->type == MT_MAP_SHMEM)
		map->nr_shmem += (uint32_t)by;
	if (is_view(range))
		map->nr_views += (uint32_t)by;
}

static bool can_merge(const struct mt_range *a, const struct mt_range *b)
{
	if (a->end != b->start || a->type != b->type || a->group != b->group ||
	    a->state != b->state || a->object != b->object)
		return false;
	/* What has an offset must go on with it. */
	return a->type == MT_MAP_ANON || a->type == MT_MAP_BRK ||
	       a->offset + (a->end - a->start) == b->offset;
}

/* Add a record, joined to its neighbours where it is their continuation. */
static int add(struct mt_map *map, const struct mt_range *range)
{
	struct mt_range whole = *range;
	struct mt_range other;
	uint32_t before = last_below(map, range->start);
	uint32_t after;
	uint32_t i;

	if (before) {
		read_slot(map, before - 1, &other);
		if (can_merge(&other, range)) {
			count(map, &other, -1);
			unlink_node(map, before - 1);
			whole.start = other.start;
			whole.offset = other.offset;
		} else {
			before = 0;
		}
	}
	after = first_above(map, range->start);
	if (after) {
		read_slot(map, after - 1, &other);
		if (can_merge(range, &other)) {
			count(map, &other, -1);
			unlink_node(map, after - 1);
			free_slot(map, after - 1);
			whole.end = other.end;
		}
	}
	i = before ? before : take_slot(map);
	if (!i) {
		fetch_add_relaxed(&map->header->uncertain, 1);
		return -ENOMEM;
	}
	write_slot(map, i - 1, &whole);
	link_node(map, i - 1);
	count(map, &whole, 1);
	return 0;
}

/* Cut a record that reaches over @at in two; the upper one's index + 1. */
static bool cut(struct mt_map *map, uint64_t at)
{
	uint32_t i = first_above(map, at);
	struct mt_range lower;
	struct mt_range upper;
	uint32_t j;

	if (!i || start_of(map, i - 1) >= at)
		return true;
	j = take_slot(map);
	if (!j)
		return false;
	read_slot(map, i - 1, &lower);
	upper = lower;
	upper.start = at;
	upper.offset += at - lower.start;
	lower.end = at;
	write_slot(map, i - 1, &lower);
	write_slot(map, j - 1, &upper);
	link_node(map, j - 1);
	count(map, &upper, 1);
	return true;
}

uint32_t mt_map_detach(struct mt_map *map, uint64_t start, uint64_t end)
{
	struct mt_range range;
	uint32_t list = 0;
	uint32_t i;

	if (!cut(map, start) || !cut(map, end))
		fetch_add_relaxed(&map->header->uncertain, 1);
	while ((i = first_above(map, start)) && start_of(map, i - 1) < end) {
		read_slot(map, i - 1, &range);
		count(map, &range, -1);
		unlink_node(map, i - 1);
		map->nodes[i - 1].right = list;
		list = i;
	}
	return list;
}

void mt_map_weigh(struct mt_map *map, uint32_t list, mt_map_account_fn fn,
		  void *arg)
{
	struct mt_range range;

	for (; list; list = map->nodes[list - 1].right) {
		read_slot(map, list - 1, &range);
		report(map, &range, -1, fn, arg);
	}
}

void mt_map_attach(struct mt_map *map, uint32_t list)
{
	while (list) {
		uint32_t next = map->nodes[list - 1].right;
		struct mt_range range;

		read_slot(map, list - 1, &range);
		free_slot(map, list - 1);
		add(map, &range);
		list = next;
	}
}

/* Set part of a record's state: it is split where need be. */
static void set_state(struct mt_map *map, const struct mt_range *range,
		      uint64_t start, uint64_t end, uint32_t set,
		      uint32_t clear)
{
	struct mt_range part = *range;
	uint32_t list;

	part.start = MT_MAX(range->start, start);
	part.end = MT_MIN(range->end, end);
	part.offset += part.start - range->start;
	list = mt_map_detach(map, part.start, part.end);
	part.state = (part.state | set) & ~clear;
	while (list) {
		uint32_t next = map->nodes[list - 1].right;

		free_slot(map, list - 1);
		list = next;
	}
	add(map, &part);
}

/*
 * Another record that shows bytes [from, to) of @object, paying or not as
 * asked.  Looks at all slots: shared memory mapped twice is rare.
 */
static bool find_sharer(struct mt_map *map, uint64_t object, uint64_t from,
			uint64_t to, bool paying, struct mt_range *ret)
{
	uint32_t high = load_relaxed(&map->header->high);

	for (uint32_t i = 0; i < high; i++) {
		if (!map->nodes[i].in_tree ||
		    load_relaxed(&map->slots[i].object) != object)
			continue;
		read_slot(map, i, ret);
		if (ret->type == MT_MAP_SHMEM && is_view(ret) != paying &&
		    ret->offset < to &&
		    ret->offset + (ret->end - ret->start) > from)
			return true;
	}
	return false;
}

/* Bytes [from, to) of @object are no longer paid for: let a view pay. */
static void hand_on(struct mt_map *map, uint64_t object, uint64_t from,
		    uint64_t to, mt_map_account_fn fn, void *arg)
{
	while (map->nr_views && from < to) {
		struct mt_range view;
		struct mt_range part;
		uint64_t lo;
		uint64_t hi;

		if (!find_sharer(map, object, from, to, false, &view))
			return;
		lo = MT_MAX(from, view.offset);
		hi = MT_MIN(to, view.offset + (view.end - view.start));
		part = view;
		part.start = view.start + (lo - view.offset);
		part.end = part.start + (hi - lo);
		set_state(map, &view, part.start, part.end, MT_MAP_ACCOUNT, 0);
		part.state |= MT_MAP_ACCOUNT;
		report(map, &part, 1, fn, arg);
		/* What lies on both sides of it may have other views. */
		hand_on(map, object, from, lo, fn, arg);
		from = hi;
	}
}

void mt_map_free(struct mt_map *map, uint32_t list, mt_map_account_fn fn,
		 void *arg)
{
	while (list) {
		uint32_t next = map->nodes[list - 1].right;
		struct mt_range range;

		read_slot(map, list - 1, &range);
		free_slot(map, list - 1);
		if (range.type == MT_MAP_SHMEM && !is_view(&range))
			hand_on(map, range.object, range.offset,
				range.offset + (range.end - range.start), fn,
				arg);
		list = next;
	}
}

void mt_map_shift(struct mt_map *map, uint32_t list, uint64_t from, uint64_t to)
{
	while (list) {
		uint32_t next = map->nodes[list - 1].right;
		struct mt_range range;

		read_slot(map, list - 1, &range);
		free_slot(map, list - 1);
		range.start = range.start - from + to;
		range.end = range.end - from + to;
		add(map, &range);
		list = next;
	}
}

/* Insert shared memory piece by piece: paid already, or to be paid here. */
static int insert_shared(struct mt_map *map, const struct mt_range *range,
			 mt_map_account_fn fn, void *arg)
{
	struct mt_range rest = *range;
	int ret = 0;

	while (!ret && rest.start < rest.end) {
		struct mt_range part = rest;
		struct mt_range payer;
		uint64_t to = rest.offset + (rest.end - rest.start);
		uint64_t lo;
		uint64_t hi;

		if (!find_sharer(map, rest.object, rest.offset, to, true,
				 &payer))
			return add(map, &rest);
		lo = MT_MAX(rest.offset, payer.offset);
		hi = MT_MIN(to, payer.offset + (payer.end - payer.start));
		if (lo > rest.offset) {
			/* Before it: look again, it may be another's. */
			part.end = part.start + (lo - rest.offset);
			ret = insert_shared(map, &part, fn, arg);
			part = rest;
		}
		part.start = rest.start + (lo - rest.offset);
		part.end = part.start + (hi - lo);
		part.offset = lo;
		report(map, &part, -1, fn, arg);
		part.state &= ~MT_MAP_ACCOUNT;
		if (!ret)
			ret = add(map, &part);
		rest.start += hi - rest.offset;
		rest.offset = hi;
	}
	return ret;
}

int mt_map_insert(struct mt_map *map, const struct mt_range *range,
		  mt_map_account_fn fn, void *arg)
{
	if (range->type == MT_MAP_SHMEM && map->nr_shmem)
		return insert_shared(map, range, fn, arg);
	return add(map, range);
}

/* The kernel's rule: private, not charged yet, not NORESERVE, not huge. */
static bool becomes_accounted(const struct mt_range *range)
{
	return (range->type == MT_MAP_ANON || range->type == MT_MAP_FILE) &&
	       !(range->state & (MT_MAP_ACCOUNT | MT_MAP_WRITE |
				 MT_MAP_NORESERVE | MT_MAP_HUGETLB));
}

void mt_map_would_account(struct mt_map *map, uint64_t start, uint64_t end,
			  mt_map_account_fn fn, void *arg)
{
	struct mt_range range;

	while (start < end && mt_map_next(map, start, &range) &&
	       range.start < end) {
		struct mt_range part = range;

		part.start = MT_MAX(range.start, start);
		part.end = MT_MIN(range.end, end);
		if (becomes_accounted(&part)) {
			part.state |= MT_MAP_ACCOUNT;
			report(map, &part, 1, fn, arg);
		}
		start = range.end;
	}
}

void mt_map_protect(struct mt_map *map, uint64_t start, uint64_t end,
		    bool writable, bool none)
{
	struct mt_range range;

	while (start < end && mt_map_next(map, start, &range) &&
	       range.start < end) {
		uint32_t set = (writable ? MT_MAP_WRITE : 0) |
			       (none ? MT_MAP_NONE : 0);
		uint32_t clear = (writable ? 0 : MT_MAP_WRITE) |
				 (none ? 0 : MT_MAP_NONE);
		uint64_t next = range.end;

		if (writable && becomes_accounted(&range))
			set |= MT_MAP_ACCOUNT;
		if (((range.state | set) & ~clear) != range.state)
			set_state(map, &range, start, end, set, clear);
		start = next;
	}
}

bool mt_map_next(const struct mt_map *map, uint64_t address,
		 struct mt_range *ret_range)
{
	uint32_t i = first_above(map, address);

	if (!i)
		return false;
	read_slot(map, i - 1, ret_range);
	return true;
}

bool mt_map_find(const struct mt_map *map, uint64_t address,
		 struct mt_range *ret_range)
{
	return mt_map_next(map, address, ret_range) &&
	       ret_range->start <= address;
}

void mt_map_rebuild(struct mt_map *map)
{
	uint32_t high = load_relaxed(&map->header->high);

	map->root = 0;
	map->free = 0;
	map->nr_shmem = 0;
	map->nr_views = 0;
	for (uint32_t i = 0; i < high; i++) {
		struct mt_range range;

		read_slot(map, i, &range);
		if ((load_relaxed(&map->slots[i].seq) & 1) ||
		    range.type == MT_MAP_FREE || range.start >= range.end) {
			free_slot(map, i);
			continue;
		}
		link_node(map, i);
		count(map, &range, 1);
	}
	fetch_add_relaxed(&map->header->uncertain, 1);
}

static void *private_memory(size_t size)
{
	return mt_sys_mmap(NULL, size, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

/* Map a new file for the slots; NULL when it can't be had. */
static void *file_memory(const char *path)
{
	void *p = NULL;
	int fd;

	if (!mt_sys_file_size_ok(MT_MAP_FILE_SIZE))
		return NULL;
	fd = mt_sys_open(
		path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return NULL;
	if (!mt_syscall2(SYS_ftruncate, fd, MT_MAP_FILE_SIZE)) {
		p = mt_sys_mmap(NULL, MT_MAP_FILE_SIZE, PROT_READ | PROT_WRITE,
				MAP_SHARED, fd, 0);
		if (mt_sys_is_error(p))
			p = NULL;
	}
	mt_sys_close(fd);
	/* A hole of a full tmpfs would kill the program at the first store. */
	if (p && mt_sys_madvise(p, mt_page_size(), MADV_POPULATE_WRITE)) {
		mt_sys_munmap(p, MT_MAP_FILE_SIZE);
		p = NULL;
	}
	if (!p)
		mt_syscall3(SYS_unlinkat, AT_FDCWD, path, 0);
	return p;
}

int mt_map_init(struct mt_map *map, const char *path, uint32_t pid)
{
	void *memory = path ? file_memory(path) : NULL;

	memset(map, 0, sizeof(*map));
	map->shared = memory != NULL;
	if (!memory)
		memory = private_memory(MT_MAP_FILE_SIZE);
	if (mt_sys_is_error(memory))
		return -ENOMEM;
	map->nodes = private_memory(MT_MAP_CAPACITY * sizeof(*map->nodes));
	if (mt_sys_is_error(map->nodes)) {
		mt_sys_munmap(memory, MT_MAP_FILE_SIZE);
		return -ENOMEM;
	}
	map->header = memory;
	map->slots = (struct mt_map_slot *)(map->header + 1);
	map->capacity = MT_MAP_CAPACITY;
	map->page_size = mt_page_size();
	map->header->major = MT_MAP_MAJOR;
	map->header->header_size = sizeof(*map->header);
	map->header->stride = sizeof(*map->slots);
	map->header->page_size = (uint32_t)map->page_size;
	map->header->pid = pid;
	store_release(&map->header->magic, MT_MAP_MAGIC);
	return 0;
}

void mt_map_finish(struct mt_map *map)
{
	if (map->header) {
		mt_sys_munmap(map->header, MT_MAP_FILE_SIZE);
		mt_sys_munmap(map->nodes,
			      MT_MAP_CAPACITY * sizeof(*map->nodes));
	}
	memset(map, 0, sizeof(*map));
}
