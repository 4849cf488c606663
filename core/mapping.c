/* SPDX-License-Identifier: MIT */
/*
 * mapping.c - the mapping table: records in private memory, two treaps over
 * them, and a mirror in a file.
 *
 * One treap is ordered by address; the other holds shared memory only, ordered
 * by object and offset, and knows the highest end below each node, so that
 * "who covers this page of the object?" is one descent.  A node's priority is
 * a hash of its index: the trees hold nothing that could not be made anew.
 *
 * The caller may leave in the middle of anything (siglongjmp out of a signal
 * handler, a thread cancelled).  So a record is whole at every instant: a new
 * one gets its type last, a record is cut by one store to its end, and where
 * two records are needed in place of one the second is made before the first
 * is cut.  What an interruption leaves is then a record that lies inside
 * another, and mt_mapping_rebuild() drops it.
 *
 * Memory grows by copying, never in place: a pointer that an interrupted
 * caller left behind must stay good.
 */
#include "core/mapping.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "core/atomic.h"
#include "core/sys.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum tree { BY_ADDRESS, BY_OBJECT };

struct mt_mapping_node {
	uint64_t start;
	uint64_t end;
	uint32_t link[2][2]; /* [tree][0: before, 1: after] */
	uint64_t object;
	uint64_t offset;
	uint32_t group;
	uint32_t info; /* type in bits 24-31, state below; 0: free */
	uint32_t kept; /* info, while in a chain of taken ones */
	uint32_t top;  /* BY_OBJECT: highest (object, end) at or below */
};

_Static_assert(sizeof(struct mt_mapping_node) == 64, "mapping: node");

#define NODES_FIRST 256u
#define NODES_MAX   (1u << 24)

#define FILE_MAPPED 16384u /* bytes mapped at first; doubled */
#define FILE_CHUNK  16384u /* bytes populated at a time */

#ifndef MREMAP_MAYMOVE
#define MREMAP_MAYMOVE 1
#endif

static const uint32_t access_bits = MT_MAP_WRITE | MT_MAP_NONE;

static uint32_t make_info(uint32_t type, uint32_t state)
{
	return type << 24 | (state & 0xffffff);
}

static uint32_t type_of(uint32_t info)
{
	return info >> 24;
}

/* Is it paid for by object, not by mapping? */
static bool is_shared(uint32_t type, uint32_t state)
{
	return type == MT_MAP_SHMEM && !(state & MT_MAP_HUGETLB);
}

static bool node_is_shared(const struct mt_mapping_node *node)
{
	return is_shared(type_of(node->info), node->info);
}

static int64_t pages_of(const struct mt_mapping *map, uint64_t bytes)
{
	return (int64_t)(bytes >> map->page_shift);
}

static void value_of(const struct mt_mapping *map, uint32_t i,
		     struct mt_map_range *ret)
{
	const struct mt_mapping_node *node = &map->nodes[i];

	ret->start = node->start;
	ret->end = node->end;
	ret->object = node->object;
	ret->offset = node->offset;
	ret->group = node->group;
	ret->type = type_of(node->info);
	ret->state = node->info & 0xffffff;
}

/* The part of @range in [start, end); they overlap. */
static void clip(struct mt_map_range *range, uint64_t start, uint64_t end)
{
	if (range->start < start) {
		if (range->object)
			range->offset += start - range->start;
		range->start = start;
	}
	range->end = MT_MIN(range->end, end);
}

/* ---- bills ---- */

void mt_mapping_bill_add(struct mt_mapping_bill *bill, uint32_t group,
			 enum mt_kind kind, int64_t pages)
{
	uint32_t unused = bill->nr;

	if (!pages)
		return;
	for (uint32_t i = 0; i < bill->nr; i++) {
		if (bill->entry[i].group == group &&
		    bill->entry[i].kind == (uint32_t)kind) {
			bill->entry[i].pages += pages;
			return;
		}
		if (!bill->entry[i].pages)
			unused = i;
	}
	if (unused == MT_BILL_ENTRIES) {
		bill->spill(group, kind, pages);
		return;
	}
	bill->entry[unused].group = group;
	bill->entry[unused].kind = kind;
	bill->entry[unused].pages = pages;
	bill->nr = MT_MAX(bill->nr, unused + 1);
}

enum mt_kind mt_mapping_kind(uint32_t type)
{
	switch (type) {
	case MT_MAP_FILE:
		return MT_FILE;
	case MT_MAP_SHMEM:
		return MT_SHMEM;
	case MT_MAP_BRK:
		return MT_BRK;
	default:
		return MT_ANON;
	}
}

/* The kernel's accountable_mapping(); shared memory always. */
bool mt_mapping_accountable(uint32_t type, uint32_t state)
{
	switch (type) {
	case MT_MAP_ANON:
	case MT_MAP_FILE:
	case MT_MAP_BRK:
		return (state & (MT_MAP_WRITE | MT_MAP_NORESERVE |
				 MT_MAP_HUGETLB)) == MT_MAP_WRITE;
	case MT_MAP_SHMEM:
		return !(state & MT_MAP_HUGETLB);
	default:
		return false;
	}
}

static void bill_private(const struct mt_mapping *map,
			 const struct mt_map_range *range, int sign,
			 struct mt_mapping_bill *bill)
{
	if ((range->state & MT_MAP_ACCOUNT) &&
	    !is_shared(range->type, range->state))
		mt_mapping_bill_add(
			bill, range->group, mt_mapping_kind(range->type),
			sign * pages_of(map, range->end - range->start));
}

/* ---- the mirror ---- */

static struct mt_map_slot *slot_of(const struct mt_mapping *map, uint32_t i)
{
	return (struct mt_map_slot *)(map->file + 1) + (i - 1);
}

static uint64_t file_bytes(uint32_t records)
{
	return sizeof(struct mt_map_header) +
	       (uint64_t)records * sizeof(struct mt_map_slot);
}

static uint32_t records_in(uint64_t bytes)
{
	return (uint32_t)((bytes - sizeof(struct mt_map_header)) /
			  sizeof(struct mt_map_slot));
}

/* Map more of the file: with length 0, mremap() maps the same again. */
static bool map_more(struct mt_mapping *map, uint32_t i)
{
	struct mt_map_header *old = map->file;
	uint64_t bytes = file_bytes(map->file_mapped);
	uint64_t old_bytes = bytes;
	void *p;

	while (records_in(bytes) < i)
		bytes *= 2;
	bytes = MT_MIN(bytes, file_bytes(old->capacity));
	if (records_in(bytes) < i)
		return false;
	p = (void *)mt_syscall6(SYS_mremap, (long)old, 0, (long)bytes,
				MREMAP_MAYMOVE, 0, 0);
	if (mt_sys_is_error(p))
		return false;
	map->file = p;
	fence_signal();
	map->file_mapped = records_in(bytes);
	mt_sys_munmap(old, old_bytes);
	return true;
}

/*
 * Writing into a hole of a full tmpfs would kill the program: make sure that
 * there is memory first.
 */
static MT_COLD bool back(struct mt_mapping *map, uint32_t i)
{
	uint64_t page = UINT64_C(1) << map->page_shift;
	uint64_t base;
	uint64_t from;
	uint64_t to;

	if (map->file_full || (i > map->file_mapped && !map_more(map, i)))
		goto full;
	base = (uint64_t)(uintptr_t)map->file;
	from = (base + file_bytes(map->file_backed)) & ~(page - 1);
	to = base +
	     MT_MIN(file_bytes(i) + FILE_CHUNK, file_bytes(map->file_mapped));
	to = (to + page - 1) & ~(page - 1);
	if (mt_sys_madvise((void *)(uintptr_t)from, to - from,
			   MADV_POPULATE_WRITE))
		goto full;
	map->file_backed = MT_MIN(records_in(to - base), map->file_mapped);
	return true;
full:
	map->file_full = true;
	fetch_add_relaxed(&map->file->missing, 1);
	return false;
}

static void mirror(struct mt_mapping *map, uint32_t i)
{
	const struct mt_mapping_node *node = &map->nodes[i];
	struct mt_map_slot *slot;
	uint32_t seq;

	if (!map->file)
		return;
	if (unlikely(i > map->file_backed) && (!node->info || !back(map, i)))
		return;
	slot = slot_of(map, i);
	/* Left odd by a caller that was interrupted: it stays odd. */
	seq = load_relaxed(&slot->seq) | 1;
	store_relaxed(&slot->seq, seq);
	fence_release();
	store_relaxed(&slot->type, type_of(node->info));
	store_relaxed(&slot->start, node->start);
	store_relaxed(&slot->end, node->end);
	store_relaxed(&slot->group, node->group);
	store_relaxed(&slot->state, node->info & 0xffffff);
	store_relaxed(&slot->object, node->object);
	store_relaxed(&slot->offset, node->offset);
	store_release(&slot->seq, seq + 1);
	if (i > load_relaxed(&map->file->high))
		store_release(&map->file->high, i);
}

struct mt_map_header *mt_mapping_create_file(const char *path,
					     uint64_t page_size,
					     uint32_t *ret_mapped)
{
	struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };
	struct mt_map_header *file = NULL;
	uint64_t size = file_bytes(MT_MAP_CAPACITY);
	int fd;

	/* Growing a file past its limit would send the program SIGXFSZ. */
	mt_syscall4(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &limit);
	size = MT_MIN(size, (uint64_t)limit.rlim_cur) & ~(page_size - 1);
	if (size < FILE_MAPPED)
		return NULL;
	fd = mt_sys_open(
		path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return NULL;
	if (!mt_syscall2(SYS_ftruncate, fd, size)) {
		file = mt_sys_mmap(NULL, MT_MAX(FILE_MAPPED, page_size),
				   PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (mt_sys_is_error(file))
			file = NULL;
	}
	mt_sys_close(fd);
	if (file && mt_sys_madvise(file, page_size, MADV_POPULATE_WRITE)) {
		mt_sys_munmap(file, MT_MAX(FILE_MAPPED, page_size));
		file = NULL;
	}
	if (!file) {
		mt_syscall3(SYS_unlinkat, AT_FDCWD, path, 0);
		return NULL;
	}
	file->major = MT_MAP_MAJOR;
	file->minor = MT_MAP_MINOR;
	file->header_size = sizeof(struct mt_map_header);
	file->stride = sizeof(struct mt_map_slot);
	file->page_size = (uint32_t)page_size;
	file->capacity = records_in(size);
	file->pid = (uint32_t)mt_sys_getpid();
	store_release(&file->magic, MT_MAP_MAGIC);
	*ret_mapped = records_in(MT_MAX(FILE_MAPPED, page_size));
	return file;
}

void mt_mapping_publish(struct mt_mapping *map, struct mt_map_header *file,
			uint32_t mapped)
{
	map->file_full = false;
	map->file_mapped = mapped;
	map->file_backed = records_in(file->page_size);
	map->file = file;
	for (uint32_t i = 1; i < map->high; i++) {
		if (map->nodes[i].info)
			mirror(map, i);
	}
}

bool mt_map_slot_read(const struct mt_map_slot *slot,
		      struct mt_map_range *ret_range)
{
	struct mt_map_range range;

	/* The writer is quick, or was killed in the middle. */
	for (int tries = 0; tries < 1000; tries++) {
		uint32_t seq = load_acquire(&slot->seq);

		range.type = load_relaxed(&slot->type);
		range.start = load_relaxed(&slot->start);
		range.end = load_relaxed(&slot->end);
		range.group = load_relaxed(&slot->group);
		range.state = load_relaxed(&slot->state);
		range.object = load_relaxed(&slot->object);
		range.offset = load_relaxed(&slot->offset);
		fence_acquire();
		if (!(seq & 1) && load_relaxed(&slot->seq) == seq) {
			if (range.type == MT_MAP_FREE ||
			    range.start >= range.end)
				return false;
			*ret_range = range;
			return true;
		}
		cpu_relax();
	}
	return false;
}

/* ---- the trees ---- */

static uint32_t priority(uint32_t i)
{
	uint32_t x = i * UINT32_C(0x9e3779b1);

	x ^= x >> 15;
	x *= UINT32_C(0x85ebca77);
	return x ^ x >> 13;
}

static uint64_t offset_end(const struct mt_mapping_node *node)
{
	return node->offset + (node->end - node->start);
}

/* Is node @a before node @b? */
static inline bool is_before(const struct mt_mapping *map, enum tree tree,
			     uint32_t a, uint32_t b)
{
	const struct mt_mapping_node *left = &map->nodes[a];
	const struct mt_mapping_node *right = &map->nodes[b];

	if (tree == BY_ADDRESS)
		return left->start < right->start;
	if (left->object != right->object)
		return left->object < right->object;
	if (left->offset != right->offset)
		return left->offset < right->offset;
	return a < b;
}

/*
 * The nodes whose subtree an operation changed, from the root down.  A treap
 * of a million records is some 60 deep; a removal may touch three times that.
 */
struct path {
	uint32_t nr;
	uint32_t node[256];
};

static inline void note(struct path *path, enum tree tree, uint32_t i)
{
	if (tree == BY_OBJECT && path->nr < MT_ARRAY_SIZE(path->node))
		path->node[path->nr++] = i;
}

static uint32_t higher(const struct mt_mapping *map, uint32_t a, uint32_t b)
{
	const struct mt_mapping_node *x = &map->nodes[a];
	const struct mt_mapping_node *y = &map->nodes[b];

	if (!a || !b)
		return a ? a : b;
	if (x->object != y->object)
		return x->object > y->object ? a : b;
	return offset_end(x) >= offset_end(y) ? a : b;
}

static inline void refresh(struct mt_mapping *map, enum tree tree,
			   const struct path *path)
{
	if (tree != BY_OBJECT)
		return;
	for (uint32_t n = path->nr; n > 0; n--) {
		uint32_t i = path->node[n - 1];
		struct mt_mapping_node *node = &map->nodes[i];
		uint32_t top = i;

		for (int side = 0; side < 2; side++) {
			uint32_t child = node->link[BY_OBJECT][side];

			if (child)
				top = higher(map, top, map->nodes[child].top);
		}
		node->top = top;
	}
}

static inline void tree_add(struct mt_mapping *map, enum tree tree, uint32_t i)
{
	uint32_t *at = &map->root[tree];
	uint32_t *side[2];
	struct path path;
	uint32_t below;

	path.nr = 0;
	while (*at && priority(*at) >= priority(i)) {
		note(&path, tree, *at);
		at = &map->nodes[*at].link[tree][is_before(map, tree, *at, i)];
	}
	below = *at;
	*at = i;
	note(&path, tree, i);
	side[0] = &map->nodes[i].link[tree][0];
	side[1] = &map->nodes[i].link[tree][1];
	while (below) {
		bool before = is_before(map, tree, below, i);

		note(&path, tree, below);
		*side[!before] = below;
		side[!before] = &map->nodes[below].link[tree][before];
		below = *side[!before];
	}
	*side[0] = 0;
	*side[1] = 0;
	refresh(map, tree, &path);
}

static inline void tree_remove(struct mt_mapping *map, enum tree tree,
			       uint32_t i)
{
	uint32_t *at = &map->root[tree];
	struct path path;
	uint32_t a;
	uint32_t b;

	path.nr = 0;
	while (*at && *at != i) {
		note(&path, tree, *at);
		at = &map->nodes[*at].link[tree][is_before(map, tree, *at, i)];
	}
	if (!*at)
		return;
	a = map->nodes[i].link[tree][0];
	b = map->nodes[i].link[tree][1];
	while (a && b) {
		if (priority(a) >= priority(b)) {
			note(&path, tree, a);
			*at = a;
			at = &map->nodes[a].link[tree][1];
			a = *at;
		} else {
			note(&path, tree, b);
			*at = b;
			at = &map->nodes[b].link[tree][0];
			b = *at;
		}
	}
	*at = a ? a : b;
	refresh(map, tree, &path);
}

/* The first record that ends after @address. */
static uint32_t first_above(const struct mt_mapping *map, uint64_t address)
{
	uint32_t best = 0;
	uint32_t i = map->root[BY_ADDRESS];

	/* They don't overlap, so their ends are in order too. */
	while (i) {
		const struct mt_mapping_node *node = &map->nodes[i];
		bool above = node->end > address;

		best = above ? i : best;
		i = node->link[BY_ADDRESS][!above];
	}
	return best;
}

/* A record that covers byte @at of @object; 0: none. */
static uint32_t cover(const struct mt_mapping *map, uint64_t object,
		      uint64_t at)
{
	uint32_t i = map->root[BY_OBJECT];

	while (i) {
		const struct mt_mapping_node *node = &map->nodes[i];
		uint32_t left = node->link[BY_OBJECT][0];

		if (node->object == object && node->offset <= at &&
		    at < offset_end(node))
			return i;
		/*
		 * If something on the left ends after it and yet doesn't
		 * cover it, it starts after it, and so does all on the right.
		 */
		if (left) {
			const struct mt_mapping_node *top =
				&map->nodes[map->nodes[left].top];

			if (top->object > object ||
			    (top->object == object && offset_end(top) > at)) {
				i = left;
				continue;
			}
		}
		i = node->link[BY_OBJECT][1];
	}
	return 0;
}

/* The first record of @object that starts at @at or after; 0: none. */
static uint32_t first_from(const struct mt_mapping *map, uint64_t object,
			   uint64_t at)
{
	uint32_t best = 0;
	uint32_t i = map->root[BY_OBJECT];

	while (i) {
		const struct mt_mapping_node *node = &map->nodes[i];
		bool from = node->object > object ||
			    (node->object == object && node->offset >= at);

		best = from ? i : best;
		i = node->link[BY_OBJECT][!from];
	}
	return best && map->nodes[best].object == object ? best : 0;
}

/*
 * From @at to @stop at most, the bytes of @object that one record covers, or
 * that none does.  Return: where they end; @ret_who: the record, or 0.
 */
static uint64_t stretch(const struct mt_mapping *map, uint64_t object,
			uint64_t at, uint64_t stop, uint32_t *ret_who)
{
	uint32_t who = cover(map, object, at);
	uint64_t end = stop;
	uint32_t next;

	*ret_who = who;
	if (who)
		return MT_MIN(stop, offset_end(&map->nodes[who]));
	next = first_from(map, object, at);
	if (next)
		end = MT_MIN(stop, map->nodes[next].offset);
	return end;
}

int64_t mt_mapping_object_cost(struct mt_mapping *map, uint64_t object,
			       uint64_t offset, uint64_t len)
{
	uint64_t stop = offset + len;
	int64_t pages = 0;

	while (offset < stop) {
		uint32_t who;
		uint64_t end = stretch(map, object, offset, stop, &who);

		if (!who)
			pages += pages_of(map, end - offset);
		offset = end;
	}
	return pages;
}

/* ---- records ---- */

static MT_COLD bool grow(struct mt_mapping *map)
{
	uint32_t capacity = map->capacity ? map->capacity * 2 : NODES_FIRST;
	struct mt_mapping_node *old = map->nodes;
	size_t old_bytes = map->capacity * sizeof(*old);
	void *p;

	if (capacity > NODES_MAX)
		return false;
	p = mt_sys_mmap(NULL, capacity * sizeof(*old), PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mt_sys_is_error(p))
		return false;
	if (old)
		memcpy(p, old, old_bytes);
	map->nodes = p;
	fence_signal();
	map->capacity = capacity;
	if (old)
		mt_sys_munmap(old, old_bytes);
	return true;
}

static uint32_t get_node(struct mt_mapping *map)
{
	uint32_t i = map->free;

	if (likely(i)) {
		map->free = map->nodes[i].link[BY_ADDRESS][0];
		return i;
	}
	if (map->high >= map->capacity && !grow(map)) {
		map->lost++;
		return 0;
	}
	i = map->high;
	map->nodes[i].info = 0;
	fence_signal();
	map->high = i + 1;
	return i;
}

static void free_node(struct mt_mapping *map, uint32_t i)
{
	map->nodes[i].info = 0;
	fence_signal();
	map->nodes[i].link[BY_ADDRESS][0] = map->free;
	map->free = i;
}

static void count(struct mt_mapping *map, int by)
{
	store_relaxed(&map->nr, load_relaxed(&map->nr) + (uint32_t)by);
}

static void link_node(struct mt_mapping *map, uint32_t i)
{
	tree_add(map, BY_ADDRESS, i);
	if (node_is_shared(&map->nodes[i]))
		tree_add(map, BY_OBJECT, i);
	count(map, 1);
}

static void unlink_node(struct mt_mapping *map, uint32_t i)
{
	tree_remove(map, BY_ADDRESS, i);
	if (node_is_shared(&map->nodes[i]))
		tree_remove(map, BY_OBJECT, i);
	count(map, -1);
}

static bool add_node(struct mt_mapping *map, const struct mt_map_range *range)
{
	uint32_t i = get_node(map);
	struct mt_mapping_node *node;

	if (!i)
		return false;
	node = &map->nodes[i];
	node->start = range->start;
	node->end = range->end;
	node->object = range->object;
	node->offset = range->offset;
	node->group = range->group;
	fence_signal();
	node->info = make_info(range->type, range->state);
	link_node(map, i);
	mirror(map, i);
	return true;
}

static void drop_node(struct mt_mapping *map, uint32_t i)
{
	unlink_node(map, i);
	free_node(map, i);
	mirror(map, i);
}

/* New bounds for a record, which keep its place among the others. */
static void resize_node(struct mt_mapping *map, uint32_t i, uint64_t start,
			uint64_t end, uint64_t offset)
{
	struct mt_mapping_node *node = &map->nodes[i];
	bool shared = node_is_shared(node);

	if (shared)
		tree_remove(map, BY_OBJECT, i);
	if (node->start != start) {
		node->start = start;
		node->offset = offset;
	}
	node->end = end;
	if (shared)
		tree_add(map, BY_OBJECT, i);
	mirror(map, i);
}

/* Bytes of an object are no longer mapped: what none covers is free. */
static void bill_unmapped(struct mt_mapping *map,
			  const struct mt_map_range *range,
			  struct mt_mapping_bill *bill)
{
	if (is_shared(range->type, range->state))
		mt_mapping_bill_add(bill, range->group, MT_SHMEM,
				    -mt_mapping_object_cost(
					    map, range->object, range->offset,
					    range->end - range->start));
	else
		bill_private(map, range, -1, bill);
}

/* Cut [start, end) out of record @i, in which it lies. */
static void cut(struct mt_mapping *map, uint32_t i, uint64_t start,
		uint64_t end, struct mt_mapping_bill *bill)
{
	struct mt_map_range rest;
	struct mt_map_range gone;
	bool lost = false;

	value_of(map, i, &rest);
	gone = rest;
	clip(&gone, start, end);
	if (rest.start < start && end < rest.end) {
		struct mt_map_range upper = rest;

		clip(&upper, end, rest.end);
		/* No memory for a second record: it is lost, and not paid. */
		lost = !add_node(map, &upper);
		resize_node(map, i, rest.start, start, rest.offset);
		if (lost)
			bill_unmapped(map, &upper, bill);
	} else if (rest.start < start) {
		resize_node(map, i, rest.start, start, rest.offset);
	} else if (end < rest.end) {
		clip(&rest, end, rest.end);
		resize_node(map, i, rest.start, rest.end, rest.offset);
	} else {
		drop_node(map, i);
	}
	bill_unmapped(map, &gone, bill);
}

static bool goes_on(const struct mt_mapping_node *a,
		    const struct mt_mapping_node *b)
{
	return a->end == b->start && a->info == b->info &&
	       a->group == b->group && a->object == b->object &&
	       (!a->object || offset_end(a) == b->offset);
}

/* Add a record where none is; it joins its neighbours if it continues them. */
static bool add(struct mt_mapping *map, const struct mt_map_range *range)
{
	const struct mt_mapping_node new = {
		.start = range->start,
		.end = range->end,
		.object = range->object,
		.offset = range->offset,
		.group = range->group,
		.info = make_info(range->type, range->state),
	};
	uint32_t before = first_above(map, range->start - 1);
	uint32_t after = before;

	if (before && map->nodes[before].end == range->start)
		after = first_above(map, range->start);
	if (before == after || !goes_on(&map->nodes[before], &new))
		before = 0;
	if (!after || !goes_on(&new, &map->nodes[after]))
		after = 0;
	if (before && after) {
		uint64_t end = map->nodes[after].end;

		resize_node(map, before, map->nodes[before].start, end,
			    map->nodes[before].offset);
		drop_node(map, after);
	} else if (before) {
		resize_node(map, before, map->nodes[before].start, range->end,
			    map->nodes[before].offset);
	} else if (after) {
		resize_node(map, after, range->start, map->nodes[after].end,
			    range->offset);
	} else {
		return add_node(map, range);
	}
	return true;
}

/* Add shared memory piece by piece: paid for already, or to be paid here. */
static bool add_shared(struct mt_mapping *map, const struct mt_map_range *range,
		       struct mt_mapping_bill *bill)
{
	uint64_t at = range->offset;
	uint64_t stop = range->offset + (range->end - range->start);
	bool ok = true;

	while (at < stop) {
		struct mt_map_range piece = *range;
		uint32_t who;
		uint64_t end = stretch(map, range->object, at, stop, &who);

		piece.start = range->start + (at - range->offset);
		piece.end = piece.start + (end - at);
		piece.offset = at;
		if (who)
			piece.group = map->nodes[who].group;
		if (!add(map, &piece))
			ok = false;
		else if (!who)
			mt_mapping_bill_add(bill, piece.group, MT_SHMEM,
					    pages_of(map, end - at));
		at = end;
	}
	return ok;
}

/* Put a record down, in place of what is there; its state is final. */
static bool put(struct mt_mapping *map, const struct mt_map_range *range,
		struct mt_mapping_bill *bill)
{
	mt_mapping_punch(map, range->start, range->end, bill);
	if (is_shared(range->type, range->state))
		return add_shared(map, range, bill);
	if (!add(map, range))
		return false;
	bill_private(map, range, 1, bill);
	return true;
}

/* ---- operations ---- */

void mt_mapping_init(struct mt_mapping *map, uint64_t page_size)
{
	memset(map, 0, sizeof(*map));
	map->high = 1;
	map->page_shift = (uint32_t)__builtin_ctzll(page_size);
}

void mt_mapping_finish(struct mt_mapping *map)
{
	struct mt_map_header *file = map->file;
	struct mt_mapping_node *nodes = map->nodes;
	uint64_t file_size = file_bytes(map->file_mapped);
	uint64_t size = map->capacity * sizeof(*nodes);

	memset(map, 0, sizeof(*map));
	if (nodes)
		mt_sys_munmap(nodes, size);
	if (file)
		mt_sys_munmap(file, file_size);
}

bool mt_mapping_insert(struct mt_mapping *map, const struct mt_map_range *range,
		       struct mt_mapping_bill *bill)
{
	struct mt_map_range new = *range;

	new.state &= ~MT_MAP_ACCOUNT;
	if (mt_mapping_accountable(new.type, new.state))
		new.state |= MT_MAP_ACCOUNT;
	return put(map, &new, bill);
}

void mt_mapping_punch(struct mt_mapping *map, uint64_t start, uint64_t end,
		      struct mt_mapping_bill *bill)
{
	uint32_t i;

	while ((i = first_above(map, start)) && map->nodes[i].start < end) {
		uint64_t from = MT_MAX(start, map->nodes[i].start);

		cut(map, i, from, MT_MIN(end, map->nodes[i].end), bill);
	}
}

void mt_mapping_take(struct mt_mapping *map, uint64_t start, uint64_t end,
		     struct mt_mapping_bill *bill,
		     struct mt_mapping_taken *ret_taken)
{
	uint32_t i;

	ret_taken->nr_parts = 0;
	ret_taken->chain = 0;
	ret_taken->epoch = map->epoch;
	while ((i = first_above(map, start)) && map->nodes[i].start < end) {
		struct mt_mapping_node *node = &map->nodes[i];
		struct mt_map_range range;

		value_of(map, i, &range);
		clip(&range, start, end);
		if (ret_taken->nr_parts == 0 || range.end < node->end) {
			ret_taken->part[ret_taken->nr_parts++] = range;
			cut(map, i, range.start, range.end, bill);
			continue;
		}
		unlink_node(map, i);
		node->kept = node->info;
		node->info = 0;
		mirror(map, i);
		node->link[BY_ADDRESS][0] = ret_taken->chain;
		ret_taken->chain = i;
		bill_unmapped(map, &range, bill);
	}
}

/* The next taken record; its node is freed.  Return: is there one? */
static bool next_taken(struct mt_mapping *map, struct mt_mapping_taken *taken,
		       struct mt_map_range *ret)
{
	uint32_t i = taken->chain;

	if (taken->nr_parts) {
		*ret = taken->part[--taken->nr_parts];
		return true;
	}
	/* A rebuild in between has collected the chain. */
	if (!i || taken->epoch != map->epoch)
		return false;
	taken->chain = map->nodes[i].link[BY_ADDRESS][0];
	map->nodes[i].info = map->nodes[i].kept;
	value_of(map, i, ret);
	free_node(map, i);
	return true;
}

bool mt_mapping_taken_last(struct mt_mapping *map,
			   const struct mt_mapping_taken *taken, uint64_t end,
			   struct mt_map_range *ret_range)
{
	for (uint32_t n = 0; n < taken->nr_parts; n++) {
		if (taken->part[n].end == end) {
			*ret_range = taken->part[n];
			return true;
		}
	}
	/* In order of addresses: the last is in front. */
	if (!taken->chain || taken->epoch != map->epoch ||
	    map->nodes[taken->chain].end != end)
		return false;
	value_of(map, taken->chain, ret_range);
	ret_range->type = type_of(map->nodes[taken->chain].kept);
	ret_range->state = map->nodes[taken->chain].kept & 0xffffff;
	return true;
}

void mt_mapping_put_back(struct mt_mapping *map, struct mt_mapping_taken *taken,
			 struct mt_mapping_bill *bill)
{
	struct mt_map_range range;

	while (next_taken(map, taken, &range))
		put(map, &range, bill);
}

void mt_mapping_forget(struct mt_mapping *map, struct mt_mapping_taken *taken)
{
	struct mt_map_range range;

	taken->nr_parts = 0;
	while (taken->chain && next_taken(map, taken, &range))
		;
}

void mt_mapping_land(struct mt_mapping *map, struct mt_mapping_taken *taken,
		     uint64_t old_start, uint64_t old_len, uint64_t start,
		     uint64_t len, bool sparse, struct mt_mapping_bill *bill)
{
	uint64_t old_end = old_start + old_len;
	uint64_t kept_end = old_start + MT_MIN(old_len, len);
	struct mt_map_range range;
	struct mt_map_range last = { .type = MT_MAP_FREE };

	if (!sparse)
		mt_mapping_punch(map, start, start + len, bill);
	while (next_taken(map, taken, &range)) {
		if (range.end == old_end)
			last = range;
		if (range.start >= kept_end)
			continue;
		clip(&range, range.start, kept_end);
		range.start = range.start - old_start + start;
		range.end = range.end - old_start + start;
		put(map, &range, bill);
	}
	if (len <= old_len || last.type == MT_MAP_FREE)
		return;
	if (last.object)
		last.offset += last.end - last.start;
	last.start = start + old_len;
	last.end = start + len;
	put(map, &last, bill);
}

void mt_mapping_copy(struct mt_mapping *map, uint64_t old_start,
		     uint64_t old_len, uint64_t start, uint64_t len,
		     bool sparse, struct mt_mapping_bill *bill)
{
	uint64_t at = old_start;
	struct mt_map_range range;

	if (!sparse)
		mt_mapping_punch(map, start, start + len, bill);
	if (!old_len) {
		/* The same object again, as far as asked. */
		if (!mt_mapping_find(map, at, &range) || range.start > at)
			return;
		clip(&range, at, range.end);
		range.start = start;
		range.end = start + len;
		put(map, &range, bill);
		return;
	}
	while (at < old_start + old_len && mt_mapping_find(map, at, &range) &&
	       range.start < old_start + old_len) {
		clip(&range, old_start, old_start + old_len);
		at = range.end;
		range.start = range.start - old_start + start;
		range.end = range.end - old_start + start;
		put(map, &range, bill);
	}
}

/* What mprotect() makes of a record's state. */
static uint32_t protected_state(const struct mt_map_range *range,
				uint32_t access)
{
	uint32_t state = (range->state & ~access_bits) | access;

	/* Sticks: a mapping that was ever writable stays charged. */
	if (mt_mapping_accountable(range->type, state))
		state |= MT_MAP_ACCOUNT;
	return state;
}

void mt_mapping_protect(struct mt_mapping *map, uint64_t start, uint64_t end,
			uint32_t state, struct mt_mapping_bill *bill)
{
	struct mt_map_range range;

	while (start < end && mt_mapping_find(map, start, &range) &&
	       range.start < end) {
		clip(&range, start, end);
		start = range.end;
		if (protected_state(&range, state) == range.state)
			continue;
		cut(map, first_above(map, range.start), range.start, range.end,
		    bill);
		range.state = protected_state(&range, state);
		put(map, &range, bill);
	}
}

void mt_mapping_protect_cost(struct mt_mapping *map, uint64_t start,
			     uint64_t end, uint32_t state,
			     struct mt_mapping_bill *bill)
{
	struct mt_map_range range;

	while (start < end && mt_mapping_find(map, start, &range) &&
	       range.start < end) {
		clip(&range, start, end);
		start = range.end;
		bill_private(map, &range, -1, bill);
		range.state = protected_state(&range, state);
		bill_private(map, &range, 1, bill);
	}
}

static void cost(struct mt_mapping *map, uint64_t start, uint64_t end, int sign,
		 struct mt_mapping_bill *bill)
{
	struct mt_map_range range;

	while (start < end && mt_mapping_find(map, start, &range) &&
	       range.start < end) {
		clip(&range, start, end);
		start = range.end;
		bill_private(map, &range, sign, bill);
	}
}

void mt_mapping_punch_cost(struct mt_mapping *map, uint64_t start, uint64_t end,
			   struct mt_mapping_bill *bill)
{
	cost(map, start, end, -1, bill);
}

void mt_mapping_copy_cost(struct mt_mapping *map, uint64_t start, uint64_t end,
			  struct mt_mapping_bill *bill)
{
	cost(map, start, end, 1, bill);
}

int64_t mt_mapping_growth_cost(struct mt_mapping *map,
			       const struct mt_map_range *last, uint64_t len)
{
	if (is_shared(last->type, last->state))
		return mt_mapping_object_cost(
			map, last->object,
			last->offset + (last->end - last->start), len);
	return last->state & MT_MAP_ACCOUNT ? pages_of(map, len) : 0;
}

/* The next record of the same object. */
static uint32_t successor(const struct mt_mapping *map, uint32_t i)
{
	uint32_t at = map->root[BY_OBJECT];
	uint32_t best = 0;

	while (at) {
		bool after = is_before(map, BY_OBJECT, i, at);

		best = after ? at : best;
		at = map->nodes[at].link[BY_OBJECT][!after];
	}
	return best && map->nodes[best].object == map->nodes[i].object ? best
								       : 0;
}

/* Bytes [at, stop) of an object are @group's to pay for, in all records. */
static void regroup_object(struct mt_mapping *map, uint64_t object, uint64_t at,
			   uint64_t stop, uint32_t group,
			   struct mt_mapping_bill *bill)
{
	uint64_t from = at;
	uint32_t i;

	while (at < stop) {
		uint32_t who;
		uint64_t end = stretch(map, object, at, stop, &who);

		if (who && map->nodes[who].group != group) {
			int64_t pages = pages_of(map, end - at);

			mt_mapping_bill_add(bill, map->nodes[who].group,
					    MT_SHMEM, -pages);
			mt_mapping_bill_add(bill, group, MT_SHMEM, pages);
		}
		at = end;
	}
	/*
	 * Each record's part is moved by itself, on a bill that nobody pays;
	 * meanwhile two groups seem to.  As the trees change, start anew.
	 */
	i = first_from(map, object, 0);
	while (i && map->nodes[i].offset < stop) {
		struct mt_mapping_bill unpaid = { .nr = 0 };
		struct mt_map_range range;
		uint64_t start = MT_MAX(map->nodes[i].offset, from);
		uint64_t end = MT_MIN(offset_end(&map->nodes[i]), stop);

		if (start >= end || map->nodes[i].group == group) {
			i = successor(map, i);
			continue;
		}
		value_of(map, i, &range);
		clip(&range, range.start + (start - range.offset),
		     range.start + (end - range.offset));
		cut(map, i, range.start, range.end, &unpaid);
		range.group = group;
		add(map, &range);
		i = first_from(map, object, 0);
	}
}

void mt_mapping_regroup(struct mt_mapping *map, uint64_t start, uint64_t end,
			uint32_t group, struct mt_mapping_bill *bill)
{
	struct mt_map_range range;

	while (start < end && mt_mapping_find(map, start, &range) &&
	       range.start < end) {
		clip(&range, start, end);
		start = range.end;
		if (range.group == group)
			continue;
		if (is_shared(range.type, range.state)) {
			regroup_object(map, range.object, range.offset,
				       range.offset + (range.end - range.start),
				       group, bill);
			continue;
		}
		cut(map, first_above(map, range.start), range.start, range.end,
		    bill);
		range.group = group;
		put(map, &range, bill);
	}
}

bool mt_mapping_find(struct mt_mapping *map, uint64_t address,
		     struct mt_map_range *ret_range)
{
	uint32_t i = first_above(map, address);

	if (!i)
		return false;
	value_of(map, i, ret_range);
	return true;
}

bool mt_mapping_find_object(struct mt_mapping *map, uint64_t object,
			    uint64_t offset, struct mt_map_range *ret_range)
{
	uint32_t i = first_from(map, object, offset);

	if (!i)
		return false;
	value_of(map, i, ret_range);
	return true;
}

/* Link record @i, or drop it or those inside it, for they were being
 * replaced. */
static void relink(struct mt_mapping *map, uint32_t i)
{
	struct mt_mapping_node *node = &map->nodes[i];
	uint32_t other;

	while ((other = first_above(map, node->start)) &&
	       map->nodes[other].start < node->end) {
		struct mt_mapping_node *there = &map->nodes[other];

		if (there->start < node->start || there->end > node->end) {
			free_node(map, i);
			return;
		}
		unlink_node(map, other);
		free_node(map, other);
	}
	link_node(map, i);
}

void mt_mapping_rebuild(struct mt_mapping *map)
{
	map->epoch++;
	map->root[BY_ADDRESS] = 0;
	map->root[BY_OBJECT] = 0;
	map->free = 0;
	store_relaxed(&map->nr, 0);
	for (uint32_t i = 1; i < map->high; i++) {
		if (map->nodes[i].info &&
		    map->nodes[i].start < map->nodes[i].end)
			relink(map, i);
		else
			free_node(map, i);
	}
	for (uint32_t i = 1; i < map->high; i++)
		mirror(map, i);
}

void mt_mapping_track(const struct mt_map_range *range, uint64_t page_size,
		      struct mt_mapping_tracked *sum)
{
	int64_t pages = (int64_t)((range->end - range->start) / page_size);

	switch (range->type) {
	case MT_MAP_ANON:
		if (!(range->state & MT_MAP_ACCOUNT))
			sum->reserved += pages;
		break;
	case MT_MAP_FILE:
		if (!(range->state & MT_MAP_ACCOUNT))
			sum->file_mapped += pages;
		break;
	case MT_MAP_SHARED_FILE:
		sum->file_mapped += pages;
		break;
	case MT_MAP_SHMEM:
		sum->shared += pages;
		break;
	case MT_MAP_STACK:
		sum->stack += pages;
		break;
	default:
		break;
	}
}

void mt_mapping_tracked(struct mt_mapping *map,
			struct mt_mapping_tracked *ret_tracked)
{
	struct mt_map_range range;

	memset(ret_tracked, 0, sizeof(*ret_tracked));
	for (uint32_t i = 1; i < map->high; i++) {
		if (!map->nodes[i].info)
			continue;
		value_of(map, i, &range);
		mt_mapping_track(&range, UINT64_C(1) << map->page_shift,
				 ret_tracked);
	}
}

/* ---- for tests ---- */

static bool is_mirrored(const struct mt_mapping *map, uint32_t i)
{
	const struct mt_mapping_node *node = &map->nodes[i];
	struct mt_map_range range;
	bool there;

	if (!map->file || i > map->file_backed)
		return true;
	there = mt_map_slot_read(slot_of(map, i), &range);
	if (!node->info)
		return !there;
	return there && range.start == node->start && range.end == node->end &&
	       range.object == node->object && range.offset == node->offset &&
	       range.group == node->group &&
	       make_info(range.type, range.state) == node->info;
}

bool mt_mapping_check(struct mt_mapping *map)
{
	uint32_t in_order = 0;
	uint32_t used = 0;
	uint64_t at = 0;
	uint32_t i;

	while ((i = first_above(map, at))) {
		const struct mt_mapping_node *node = &map->nodes[i];

		if (!node->info || node->start < at || node->start >= node->end)
			return false;
		at = node->end;
		in_order++;
	}
	for (i = 1; i < map->high; i++) {
		const struct mt_mapping_node *node = &map->nodes[i];

		if (!is_mirrored(map, i))
			return false;
		if (!node->info)
			continue;
		used++;
		for (int tree = 0; tree < 2; tree++) {
			for (int side = 0; side < 2; side++) {
				uint32_t child = node->link[tree][side];

				if (tree == BY_OBJECT && !node_is_shared(node))
					continue;
				if (child && (priority(child) > priority(i) ||
					      is_before(map, tree, child, i) ==
						      (side == 1)))
					return false;
			}
		}
		/* All that cover a page name the same group. */
		if (node_is_shared(node)) {
			uint64_t pos = node->offset;

			while (pos < offset_end(node)) {
				uint32_t who;

				pos = stretch(map, node->object, pos,
					      offset_end(node), &who);
				if (!who ||
				    map->nodes[who].group != node->group)
					return false;
			}
		}
	}
	return used == in_order && used == load_relaxed(&map->nr);
}
