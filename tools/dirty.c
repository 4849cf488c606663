/* SPDX-License-Identifier: MIT */
/*
 * dirty.c - matching mapping tables with the kernel's view.
 */
#include "tools/dirty.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/atomic.h"
#include "core/mapping.h"
#include "tools/smaps.h"

/* In /proc/PID/pagemap, and in /proc/kpageflags. */
#define PAGE_PRESENT   (UINT64_C(1) << 63)
#define PAGE_FRAME     ((UINT64_C(1) << 55) - 1)
#define PAGE_WRITEBACK (UINT64_C(1) << 8)

/* The shared file mappings of one process. */
struct ranges {
	struct mt_map_range *range;
	uint32_t nr;
	uint32_t room;
};

static bool add_range(void *arg, const struct mt_map_range *range)
{
	struct ranges *ranges = arg;

	if (range->type != MT_MAP_SHARED_FILE)
		return true;
	if (ranges->nr == ranges->room) {
		uint32_t room = 2 * ranges->room + 64;
		struct mt_map_range *more =
			realloc(ranges->range, room * sizeof(*more));

		if (!more)
			return false;
		ranges->range = more;
		ranges->room = room;
	}
	ranges->range[ranges->nr++] = *range;
	return true;
}

static int by_start(const void *a, const void *b)
{
	const struct mt_map_range *x = a;
	const struct mt_map_range *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

/* The first range that ends after an address. */
static const struct mt_map_range *find(const struct ranges *ranges,
				       uint64_t address)
{
	uint32_t from = 0;
	uint32_t to = ranges->nr;

	while (from < to) {
		uint32_t middle = from + (to - from) / 2;

		if (ranges->range[middle].end > address)
			to = middle;
		else
			from = middle + 1;
	}
	return from < ranges->nr ? &ranges->range[from] : NULL;
}

static void add(const struct model *model, struct dirty *ret, uint32_t group,
		int64_t mapped, int64_t dirty, int64_t writeback)
{
	for (int i = 0; i < MT_DEPTH_MAX && group < model->nr_groups; i++) {
		ret[group].mapped += mapped;
		ret[group].dirty += dirty;
		ret[group].writeback += writeback;
		group = load_relaxed(&model->groups[group].record.parent);
	}
}

/* What one process's mappings are added to. */
struct sums {
	const struct model *model;
	const struct ranges *ranges;
	struct dirty *ret;
	uint32_t home;
};

/* The kernel joins neighbours of one file, whoever made them: all of such a
 * mapping counts where it begins. */
static void add_mapping(void *arg, const struct smaps_range *mapping)
{
	const struct sums *sums = arg;
	const struct mt_map_range *range = find(sums->ranges, mapping->start);

	if (range && range->start < mapping->end)
		add(sums->model, sums->ret,
		    range->group == MT_NONE - 1 ? sums->home : range->group,
		    mapping->resident / sums->model->page,
		    mapping->dirty / sums->model->page, 0);
}

static int64_t count_writeback(int pagemap, int flags, uint64_t first,
			       uint64_t nr)
{
	uint64_t entries[512];
	int64_t pages = 0;

	for (uint64_t at = 0; at < nr; at += MT_ARRAY_SIZE(entries)) {
		size_t n = MT_MIN(nr - at, MT_ARRAY_SIZE(entries));
		ssize_t got = pread(pagemap, entries, n * sizeof(entries[0]),
				    (off_t)((first + at) * sizeof(entries[0])));

		for (size_t i = 0; got > 0 && i < (size_t)got / 8; i++) {
			uint64_t frame = entries[i] & PAGE_FRAME;
			uint64_t bits;

			if ((entries[i] & PAGE_PRESENT) && frame &&
			    pread(flags, &bits, sizeof(bits),
				  (off_t)(frame * sizeof(bits))) ==
				    (ssize_t)sizeof(bits) &&
			    (bits & PAGE_WRITEBACK))
				pages++;
		}
	}
	return pages;
}

static void read_writeback(const struct model *model,
			   const struct model_process *process,
			   const struct ranges *ranges, int flags,
			   struct dirty *ret)
{
	uint32_t home = load_relaxed(&process->record.home);
	uint64_t page = (uint64_t)model->page;
	char path[64];
	int pagemap;

	snprintf(path, sizeof(path), "/proc/%u/pagemap", process->pid);
	pagemap = open(path, O_RDONLY | O_CLOEXEC);
	for (uint32_t i = 0; pagemap >= 0 && i < ranges->nr; i++) {
		const struct mt_map_range *range = &ranges->range[i];

		add(model, ret,
		    range->group == MT_NONE - 1 ? home : range->group, 0, 0,
		    count_writeback(pagemap, flags, range->start / page,
				    (range->end - range->start) / page));
	}
	if (pagemap >= 0)
		close(pagemap);
}

void dirty_read(const struct model *model, struct dirty *ret,
		bool with_writeback)
{
	int flags = with_writeback
			    ? open("/proc/kpageflags", O_RDONLY | O_CLOEXEC)
			    : -1;
	struct ranges ranges = { NULL, 0, 0 };
	struct sums sums = { model, &ranges, ret, MT_ROOT };

	memset(ret, 0, model->nr_groups * sizeof(*ret));
	for (uint32_t i = 0; i < model->nr_processes; i++) {
		const struct model_process *process = &model->processes[i];

		if (load_relaxed(&process->record.pid_ns) != model->pid_ns)
			continue;
		ranges.nr = 0;
		model_mappings(model, process, add_range, &ranges);
		if (!ranges.nr)
			continue;
		qsort(ranges.range, ranges.nr, sizeof(*ranges.range), by_start);
		sums.home = load_relaxed(&process->record.home);
		smaps_read(process->pid, add_mapping, &sums);
		if (flags >= 0)
			read_writeback(model, process, &ranges, flags, ret);
	}
	free(ranges.range);
	for (uint32_t i = 0; flags < 0 && i < model->nr_groups; i++)
		ret[i].writeback = -1;
	if (flags >= 0)
		close(flags);
}
