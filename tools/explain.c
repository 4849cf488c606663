/* SPDX-License-Identifier: MIT */
/*
 * explain.c - the kernel's mappings against the mapping table.
 *
 * What the table knows comes first.  Of the rest the name tells, or for what is
 * anonymous its place and flags: the heap's slices are mapped without a promise
 * of memory, a thread's stack lies above its guard, and a library's zeroed data
 * right behind its file.
 */
#include "tools/explain.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/atomic.h"
#include "core/mapping.h"

#define PAGE_PRESENT (UINT64_C(1) << 63)
#define HOME         (MT_NONE - 1)

/* No guard is larger. */
#define GUARD_MOST (UINT64_C(1) << 20)

struct work {
	struct explain *explain;
	struct mt_map_range *known; /* in order */
	uint32_t nr;
	uint32_t room;
	int pagemap;
	bool failed;
	/* Of the mapping before. */
	uint64_t last_end;
	uint64_t last_size;
	char last_mode[5];
	enum explain_kind last_kind;
	bool last_was_file;
};

const char *explain_name(enum explain_kind kind)
{
	static const char *const names[EXPLAIN_NR_KINDS] = {
		[EXPLAIN_HEAP] = "heap",
		[EXPLAIN_ANON] = "anonymous mappings",
		[EXPLAIN_FILE] = "private file mappings",
		[EXPLAIN_SHMEM] = "shared memory",
		[EXPLAIN_SHARED] = "shared file mappings",
		[EXPLAIN_DEVICE] = "devices",
		[EXPLAIN_BRK] = "break",
		[EXPLAIN_STACK] = "main stack",
		[EXPLAIN_STACKS] = "thread stacks",
		[EXPLAIN_TEXT] = "program and libraries: code",
		[EXPLAIN_RODATA] = "program and libraries: read only",
		[EXPLAIN_DATA] = "program and libraries: data",
		[EXPLAIN_KERNEL] = "kernel's own (vdso)",
		[EXPLAIN_OWN] = "memtally itself",
		[EXPLAIN_UNKNOWN] = "not covered",
	};

	return kind < EXPLAIN_NR_KINDS ? names[kind] : "?";
}

static struct explain_category *category(struct work *work,
					 enum explain_kind kind, uint32_t group)
{
	struct explain *explain = work->explain;
	struct explain_category *c;

	for (uint32_t i = 0; i < explain->nr; i++) {
		c = &explain->list[i];
		if (c->kind == kind && c->group == group)
			return c;
	}
	if (explain->nr == explain->room) {
		uint32_t room = 2 * explain->room + 32;

		c = realloc(explain->list, room * sizeof(*c));
		if (!c) {
			work->failed = true;
			return NULL;
		}
		explain->list = c;
		explain->room = room;
	}
	c = &explain->list[explain->nr++];
	*c = (struct explain_category){ .kind = kind, .group = group };
	return c;
}

static void add(struct work *work, const struct smaps_range *mapping,
		uint64_t start, uint64_t end, enum explain_kind kind,
		uint32_t group, int64_t resident, int64_t charged)
{
	struct explain *explain = work->explain;
	struct explain_category *c = category(work, kind, group);

	if (!c)
		return;
	c->resident += resident;
	c->charged += charged;
	explain->resident += resident;
	if (explain->each)
		explain->each(explain, mapping, start, end, kind, group,
			      resident);
}

/* ---- what the table knows ---- */

static bool take_known(void *arg, const struct mt_map_range *range)
{
	struct work *work = arg;

	if (work->nr == work->room) {
		uint32_t room = 2 * work->room + 256;
		struct mt_map_range *more =
			realloc(work->known, room * sizeof(*more));

		if (!more) {
			work->failed = true;
			return false;
		}
		work->known = more;
		work->room = room;
	}
	work->known[work->nr++] = *range;
	return true;
}

static int by_start(const void *a, const void *b)
{
	const struct mt_map_range *x = a;
	const struct mt_map_range *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

/* The first that ends after an address; NULL: none. */
static const struct mt_map_range *first_after(const struct work *work,
					      uint64_t address)
{
	uint32_t from = 0;
	uint32_t to = work->nr;

	while (from < to) {
		uint32_t middle = from + (to - from) / 2;

		if (work->known[middle].end > address)
			to = middle;
		else
			from = middle + 1;
	}
	return from < work->nr ? &work->known[from] : NULL;
}

static enum explain_kind kind_of(uint32_t type)
{
	switch (type) {
	case MT_MAP_ANON:
		return EXPLAIN_ANON;
	case MT_MAP_FILE:
		return EXPLAIN_FILE;
	case MT_MAP_SHMEM:
		return EXPLAIN_SHMEM;
	case MT_MAP_SHARED_FILE:
		return EXPLAIN_SHARED;
	case MT_MAP_DEVICE:
		return EXPLAIN_DEVICE;
	case MT_MAP_BRK:
		return EXPLAIN_BRK;
	case MT_MAP_STACK:
		return EXPLAIN_STACKS;
	default:
		return EXPLAIN_UNKNOWN;
	}
}

static int64_t count_present(const struct work *work, uint64_t start,
			     uint64_t end)
{
	uint64_t page = (uint64_t)work->explain->model->page;
	uint64_t entries[1024];
	int64_t bytes = 0;

	for (uint64_t at = start; at < end;) {
		size_t n = MT_MIN((end - at) / page, MT_ARRAY_SIZE(entries));
		ssize_t got =
			pread(work->pagemap, entries, n * sizeof(entries[0]),
			      (off_t)(at / page * sizeof(entries[0])));

		if (got <= 0 || !n)
			break;
		for (size_t i = 0; i < (size_t)got / sizeof(entries[0]); i++)
			bytes += entries[i] & PAGE_PRESENT ? (int64_t)page : 0;
		at += (uint64_t)got / sizeof(entries[0]) * page;
	}
	return bytes;
}

/* ---- what its name and place tell ---- */

static bool ends_in(const char *path, const char *name)
{
	const char *slash = strrchr(path, '/');

	return !strncmp(slash ? slash + 1 : path, name, strlen(name));
}

static bool is_segment(const struct work *work, const char *name)
{
	const char *path = work->explain->model->path;

	return !strncmp(name, path, strlen(path));
}

static enum explain_kind guess(const struct work *work,
			       const struct smaps_range *mapping)
{
	if (!strcmp(mapping->name, "[stack]"))
		return EXPLAIN_STACK;
	if (!strcmp(mapping->name, "[heap]"))
		return EXPLAIN_BRK;
	if (mapping->file) {
		if (is_segment(work, mapping->name) ||
		    ends_in(mapping->name, "libmemtally"))
			return EXPLAIN_OWN;
		if (mapping->mode[2] == 'x')
			return EXPLAIN_TEXT;
		return mapping->mode[1] == 'w' || mapping->anonymous
			       ? EXPLAIN_DATA
			       : EXPLAIN_RODATA;
	}
	if (mapping->name[0] == '[' && strncmp(mapping->name, "[anon", 5) != 0)
		return EXPLAIN_KERNEL;
	/* Zeroed data, right behind the file it belongs to. */
	if (work->last_was_file && mapping->start == work->last_end)
		return work->last_kind == EXPLAIN_OWN ? EXPLAIN_OWN
						      : EXPLAIN_DATA;
	if (mapping->noreserve)
		return EXPLAIN_HEAP;
	if (mapping->mode[1] == 'w' && mapping->start == work->last_end &&
	    !strcmp(work->last_mode, "---p") && work->last_size <= GUARD_MOST &&
	    load_relaxed(&work->explain->process->record.stacks))
		return EXPLAIN_STACKS;
	return EXPLAIN_UNKNOWN;
}

static uint32_t group_of(const struct work *work, uint32_t group)
{
	if (group == HOME)
		group = load_relaxed(&work->explain->process->record.home);
	return group < work->explain->model->nr_groups ? group : MT_NONE;
}

/* One range of the table inside one mapping of the kernel's. */
static int64_t add_known(struct work *work, const struct smaps_range *mapping,
			 const struct mt_map_range *range, uint64_t start,
			 uint64_t end, int64_t left)
{
	bool whole = start == mapping->start && end == mapping->end;
	int64_t resident = whole ? left : count_present(work, start, end);

	/* A page of zeros is there for pagemap, and counts nowhere. */
	resident = MT_MIN(resident, left);
	add(work, mapping, start, end, kind_of(range->type),
	    group_of(work, range->group), resident,
	    range->state & MT_MAP_ACCOUNT ? (int64_t)(end - start) : 0);
	return left - resident;
}

static void take_mapping(void *arg, const struct smaps_range *mapping)
{
	struct work *work = arg;
	enum explain_kind kind = guess(work, mapping);
	int64_t left = mapping->resident;
	uint64_t at = mapping->start;

	while (at < mapping->end) {
		const struct mt_map_range *range = first_after(work, at);
		uint64_t start =
			range ? MT_MAX(range->start, at) : mapping->end;
		uint64_t end;

		start = MT_MIN(start, mapping->end);
		/* Before it, or all of it: not in the table. */
		if (start > at) {
			bool whole =
				at == mapping->start && start == mapping->end;
			int64_t resident =
				whole ? left : count_present(work, at, start);

			resident = MT_MIN(resident, left);
			add(work, mapping, at, start, kind,
			    kind == EXPLAIN_HEAP ? group_of(work, HOME)
						 : MT_NONE,
			    resident, 0);
			left -= resident;
		}
		if (start >= mapping->end)
			break;
		end = MT_MIN(range->end, mapping->end);
		left = add_known(work, mapping, range, start, end, left);
		kind = range->type == MT_MAP_BRK ? EXPLAIN_BRK : kind;
		at = end;
	}
	/* Pages that came while we counted: the sum stays the kernel's. */
	if (left)
		add(work, mapping, at, at, EXPLAIN_UNKNOWN, MT_NONE, left, 0);
	work->last_end = mapping->end;
	work->last_size = mapping->end - mapping->start;
	memcpy(work->last_mode, mapping->mode, sizeof(work->last_mode));
	work->last_kind = kind;
	work->last_was_file = mapping->file;
}

static int by_size(const void *a, const void *b)
{
	const struct explain_category *x = a;
	const struct explain_category *y = b;

	if ((x->kind == EXPLAIN_UNKNOWN) != (y->kind == EXPLAIN_UNKNOWN))
		return x->kind == EXPLAIN_UNKNOWN ? 1 : -1;
	return x->resident > y->resident ? -1 : x->resident < y->resident;
}

/* The heap's slices don't say whose they are: all of it at the home group. */
static void note_heap(struct work *work)
{
	const struct model_process *process = work->explain->process;
	struct explain_category *c =
		category(work, EXPLAIN_HEAP, group_of(work, HOME));

	if (c)
		c->charged = model_bytes(work->explain->model,
					 process->kinds[MT_HEAP]);
}

int explain_process(struct explain *explain)
{
	const struct model_process *process = explain->process;
	struct work work = { .explain = explain, .pagemap = -1 };
	char path[64];
	int ret;

	model_mappings(explain->model, process, take_known, &work);
	if (work.nr)
		qsort(work.known, work.nr, sizeof(*work.known), by_start);
	snprintf(path, sizeof(path), "/proc/%u/pagemap", process->pid);
	work.pagemap = open(path, O_RDONLY | O_CLOEXEC);
	ret = smaps_read(process->pid, take_mapping, &work);
	if (!ret)
		note_heap(&work);
	if (work.pagemap >= 0)
		close(work.pagemap);
	free(work.known);
	if (explain->nr)
		qsort(explain->list, explain->nr, sizeof(*explain->list),
		      by_size);
	return work.failed ? -ENOMEM : ret;
}

double explain_coverage(const struct explain *explain)
{
	int64_t unknown = 0;

	for (uint32_t i = 0; i < explain->nr; i++) {
		if (explain->list[i].kind == EXPLAIN_UNKNOWN)
			unknown += explain->list[i].resident;
	}
	return explain->resident
		       ? 1 - (double)unknown / (double)explain->resident
		       : 1;
}

void explain_free(struct explain *explain)
{
	free(explain->list);
	explain->list = NULL;
	explain->nr = 0;
	explain->room = 0;
}
