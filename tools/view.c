/* SPDX-License-Identifier: MIT */
/*
 * view.c - rows, columns and what they say.
 */
#include "tools/view.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <wchar.h>

#include "core/atomic.h"
#include "core/stall.h"
#include "tools/format.h"

static const struct {
	const char *name;
	int width;
} columns[VIEW_NR_COLUMNS] = {
	[VIEW_NAME] = { "GROUP", 26 },  [VIEW_CHARGED] = { "CHARGED", 8 },
	[VIEW_PEAK] = { "PEAK", 7 },    [VIEW_LOW] = { "LOW", 7 },
	[VIEW_HIGH] = { "HIGH", 7 },    [VIEW_MAX] = { "MAX", 7 },
	[VIEW_PERCENT] = { "%MAX", 5 }, [VIEW_HEAP] = { "HEAP", 7 },
	[VIEW_ANON] = { "ANON", 7 },    [VIEW_FILE] = { "FILE", 7 },
	[VIEW_SHMEM] = { "SHMEM", 7 },  [VIEW_NET] = { "NET/s", 8 },
	[VIEW_STALL] = { "STALL", 6 },  [VIEW_EVENTS] = { "EVENTS", 14 },
};

/* The name takes what is left, up to this. */
#define NAME_MOST 60

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

const char *view_column_name(enum view_column column)
{
	return columns[column].name;
}

/* ---- looking ---- */

static void take_rates(struct view *view, uint64_t now)
{
	uint32_t n = view->model.nr_groups;
	double seconds = (double)(now - view->sampled_ns) / 1e9;
	struct view_sample *samples = calloc(n + 1, sizeof(*samples));
	double *rates = calloc(n + 1, sizeof(*rates));

	if (!samples || !rates) {
		free(samples);
		free(rates);
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		const struct model_group *g = &view->model.groups[i];

		samples[i].ident = load_relaxed(&g->record.ident) >> 4;
		samples[i].charged = g->charged;
		/* Another group in its place has no past. */
		if (i < view->nr_samples && seconds > 0 &&
		    view->samples[i].ident == samples[i].ident)
			rates[i] = (double)(g->charged -
					    view->samples[i].charged) /
				   seconds;
	}
	free(view->samples);
	free(view->rates);
	view->samples = samples;
	view->nr_samples = n;
	view->rates = rates;
	view->sampled_ns = now;
}

int view_refresh(struct view *view)
{
	struct model model;
	int ret = model_load(&model, view->path);

	if (!ret && !model.nr_groups) {
		model_free(&model);
		ret = -EINVAL;
	}
	if (ret)
		return ret;
	if (view->loaded)
		model_free(&view->model);
	view->model = model;
	view->loaded = true;
	view->ended = !model.nr_alive &&
		      !load_relaxed(&model.reader.header.supervisor);
	for (uint32_t i = 0; i < model.nr_processes; i++)
		model_tracked(&view->model, &model.processes[i]);
	take_rates(view, now_ns());
	view->history[view->nr_history++ % VIEW_HISTORY] =
		model.groups[MT_ROOT].charged;
	view_arrange(view);
	return 0;
}

void view_free(struct view *view)
{
	if (view->loaded)
		model_free(&view->model);
	for (uint32_t i = 0; i < view->nr_folded; i++)
		free(view->folded[i]);
	free(view->folded);
	free(view->rows);
	free(view->samples);
	free(view->rates);
}

/* ---- rows ---- */

static int64_t limit_key(int64_t pages)
{
	return pages >= MT_UNLIMITED ? -1 : pages;
}

static int64_t percent_of(const struct model_group *g)
{
	int64_t max = load_relaxed(&g->record.max);

	return max >= MT_UNLIMITED || max <= 0
		       ? -1
		       : (int64_t)((double)g->charged * 100 / (double)max);
}

static int64_t count_events(const struct model_group *g)
{
	int64_t sum = 0;

	for (int i = 0; i < MT_NR_EVENTS; i++)
		sum += (int64_t)load_relaxed(&g->record.events[i]);
	return sum;
}

static uint32_t stall_of(const struct model_group *g)
{
	return mt_stall_share(load_relaxed(&g->record.stall_avg[0]), 0,
			      now_ns());
}

static int64_t group_key(const struct view *view, uint32_t i)
{
	const struct model_group *g = &view->model.groups[i];

	switch (view->sort) {
	case VIEW_PEAK:
		return load_relaxed(&g->record.peak);
	case VIEW_LOW:
		return limit_key(load_relaxed(&g->record.low));
	case VIEW_HIGH:
		return limit_key(load_relaxed(&g->record.high));
	case VIEW_MAX:
		return limit_key(load_relaxed(&g->record.max));
	case VIEW_PERCENT:
		return percent_of(g);
	case VIEW_HEAP:
		return g->kinds[MT_HEAP];
	case VIEW_ANON:
		return g->kinds[MT_ANON] + g->kinds[MT_BRK];
	case VIEW_FILE:
		return g->kinds[MT_FILE];
	case VIEW_SHMEM:
		return g->kinds[MT_SHMEM];
	case VIEW_NET:
		return view->rates ? (int64_t)view->rates[i] : 0;
	case VIEW_STALL:
		return stall_of(g);
	case VIEW_EVENTS:
		return count_events(g);
	default:
		return g->charged;
	}
}

static int64_t process_key(const struct view *view, uint32_t i)
{
	const struct model_process *p = &view->model.processes[i];

	switch (view->sort) {
	case VIEW_PEAK:
		return load_relaxed(&p->record.peak);
	case VIEW_HEAP:
		return p->kinds[MT_HEAP];
	case VIEW_ANON:
		return p->kinds[MT_ANON] + p->kinds[MT_BRK];
	case VIEW_FILE:
		return p->kinds[MT_FILE];
	case VIEW_SHMEM:
		return p->kinds[MT_SHMEM];
	default:
		return p->charged;
	}
}

static const char *own_name(const struct view *view, uint32_t i)
{
	return i == MT_ROOT ? "/" : view->model.groups[i].record.name;
}

static int by_sort(const void *a, const void *b, void *arg)
{
	const struct view *view = arg;
	uint32_t i = *(const uint32_t *)a;
	uint32_t j = *(const uint32_t *)b;
	int64_t x;
	int64_t y;

	if (view->sort == VIEW_NAME && !view->processes)
		return strcmp(view->model.groups[i].path,
			      view->model.groups[j].path);
	if (view->sort == VIEW_NAME)
		return strcmp(view->model.processes[i].record.comm,
			      view->model.processes[j].record.comm);
	x = view->processes ? process_key(view, i) : group_key(view, i);
	y = view->processes ? process_key(view, j) : group_key(view, j);
	if (x != y)
		return x > y ? -1 : 1;
	return i < j ? -1 : i > j;
}

static bool is_folded(const struct view *view, const char *path)
{
	for (uint32_t i = 0; i < view->nr_folded; i++) {
		if (strcmp(view->folded[i], path) == 0)
			return true;
	}
	return false;
}

static struct view_row *add_row(struct view *view, uint32_t index)
{
	struct view_row *row;

	if (view->nr_rows == view->room) {
		uint32_t room = 2 * view->room + 64;

		row = realloc(view->rows, room * sizeof(*row));
		if (!row)
			return NULL;
		view->rows = row;
		view->room = room;
	}
	row = &view->rows[view->nr_rows++];
	*row = (struct view_row){ .index = index };
	return row;
}

static bool passes(const struct view *view, const char *name)
{
	return !view->filter[0] || strstr(name, view->filter);
}

/* Children of @parent, in order: into @list.  Return: how many. */
static uint32_t children_of(struct view *view, uint32_t parent, uint32_t *list)
{
	uint32_t n = 0;

	for (uint32_t k = 0; k < view->model.nr_order; k++) {
		uint32_t i = view->model.order[k];

		if (i != MT_ROOT &&
		    load_relaxed(&view->model.groups[i].record.parent) ==
			    parent)
			list[n++] = i;
	}
	qsort_r(list, n, sizeof(*list), by_sort, view);
	return n;
}

static void add_tree(struct view *view, uint32_t group, uint32_t depth,
		     uint32_t lines, bool last, uint32_t *scratch)
{
	struct view_row *row = add_row(view, group);
	uint32_t n;

	if (!row)
		return;
	row->depth = depth;
	row->lines = lines;
	row->last = last;
	n = children_of(view, group, scratch);
	row->parent = n > 0;
	row->folded = n && is_folded(view, view->model.groups[group].path);
	if (row->folded || depth + 1 >= MT_DEPTH_MAX)
		return;
	for (uint32_t i = 0; i < n; i++)
		add_tree(view, scratch[i], depth + 1,
			 lines | (i + 1 < n ? 1u << depth : 0), i + 1 == n,
			 scratch + n);
}

/* Siblings are listed one level after the other: never more than all groups,
 * and a damaged tree's depth times that. */
static void arrange_tree(struct view *view)
{
	size_t most = (size_t)view->model.nr_order + 1;
	uint32_t *scratch = calloc(most * 2, sizeof(*scratch));

	if (scratch && view->model.nr_order)
		add_tree(view, MT_ROOT, 0, 0, true, scratch);
	free(scratch);
}

static void arrange_flat(struct view *view)
{
	uint32_t most = view->processes ? view->model.nr_processes
					: view->model.nr_order;
	uint32_t *list = calloc(most + 1, sizeof(*list));
	uint32_t n = 0;

	for (uint32_t k = 0; list && k < most; k++) {
		uint32_t i = view->processes ? k : view->model.order[k];
		const struct model_process *p = &view->model.processes[i];

		if (view->processes ? p->alive && passes(view, p->record.comm)
				    : passes(view, view->model.groups[i].path))
			list[n++] = i;
	}
	if (n)
		qsort_r(list, n, sizeof(*list), by_sort, view);
	for (uint32_t i = 0; i < n; i++)
		add_row(view, list[i]);
	free(list);
}

void view_arrange(struct view *view)
{
	view->nr_rows = 0;
	if (!view->loaded)
		return;
	if (view->tree && !view->processes && !view->filter[0])
		arrange_tree(view);
	else
		arrange_flat(view);
}

void view_fold(struct view *view, uint32_t row, bool fold)
{
	const char *path;
	char **more;

	if (row >= view->nr_rows || view->processes)
		return;
	path = view->model.groups[view->rows[row].index].path;
	for (uint32_t i = 0; i < view->nr_folded; i++) {
		if (strcmp(view->folded[i], path) != 0)
			continue;
		if (!fold) {
			free(view->folded[i]);
			view->folded[i] = view->folded[--view->nr_folded];
		}
		return;
	}
	if (!fold)
		return;
	more = realloc(view->folded, (view->nr_folded + 1) * sizeof(*more));
	if (!more)
		return;
	view->folded = more;
	more[view->nr_folded] = strdup(path);
	view->nr_folded += more[view->nr_folded] != NULL;
}

const char *view_row_name(const struct view *view, uint32_t i, char *buf,
			  size_t size)
{
	uint32_t index = view->rows[i].index;

	if (view->processes)
		snprintf(buf, size, "%s[%u]",
			 view->model.processes[index].record.comm,
			 view->model.processes[index].pid);
	else
		snprintf(buf, size, "%s", view->model.groups[index].path);
	return buf;
}

/* ---- text ---- */

/* Columns that a character takes; control characters never come here. */
static int width_of(wchar_t c)
{
	int width = wcwidth(c);

	return width < 0 ? 1 : width;
}

void view_fit(char *buf, size_t size, const char *text, int width)
{
	mbstate_t state;
	size_t at = 0;
	int used = 0;

	memset(&state, 0, sizeof(state));
	while (*text && used < width) {
		wchar_t c;
		size_t n = mbrtowc(&c, text, strlen(text), &state);
		int w;

		/* In a locale that doesn't know it: one byte, one column. */
		if (n == 0 || n > strlen(text)) {
			memset(&state, 0, sizeof(state));
			n = 1;
			w = 1;
		} else {
			w = width_of(c);
		}
		if (used + w > width || at + n + 1 >= size)
			break;
		memcpy(buf + at, text, n);
		at += n;
		used += w;
		text += n;
	}
	while (used < width && at + 1 < size) {
		buf[at++] = ' ';
		used++;
	}
	buf[at] = '\0';
}

unsigned view_columns(const struct view *view, int width)
{
	int left = width - columns[VIEW_NAME].width;
	unsigned n = 1;

	(void)view;
	while (n < VIEW_NR_COLUMNS && left >= columns[n].width + 1) {
		left -= columns[n].width + 1;
		n++;
	}
	return n;
}

static int name_width(int width, unsigned n)
{
	int left = width;

	for (unsigned i = 1; i < n; i++)
		left -= columns[i].width + 1;
	return MT_MIN(MT_MAX(left, 1), NAME_MOST);
}

static void put(char *buf, size_t size, const char *text, int width)
{
	size_t at = strlen(buf);
	int len = (int)strlen(text);

	if (len > width)
		snprintf(buf + at, size - at, " %.*s", width, text);
	else
		snprintf(buf + at, size - at, " %*s", width, text);
}

void view_head(const struct view *view, int width, char *buf, size_t size)
{
	unsigned n = view_columns(view, width);
	char text[64];
	char line[1024];

	view_fit(line, sizeof(line), view->processes ? "PROCESS" : "GROUP",
		 name_width(width, n));
	for (unsigned i = 1; i < n; i++) {
		/* The sorted one is marked, as it may not be in colour. */
		snprintf(text, sizeof(text), "%s%s", columns[i].name,
			 view->sort == i ? "*" : "");
		put(line, sizeof(line), text, columns[i].width);
	}
	view_fit(buf, size, line, width);
}

static const char *limit(const struct view *view, int64_t pages, char *text)
{
	return pages >= MT_UNLIMITED ? "-"
				     : model_size(&view->model, pages, text);
}

static const char *some(const struct view *view, int64_t pages, char *text)
{
	return pages ? model_size(&view->model, pages, text) : "-";
}

static const char *rate(const struct view *view, double pages, char *text)
{
	char size[16];

	if (pages > -0.5 && pages < 0.5)
		return "-";
	format_bytes((int64_t)((pages < 0 ? -pages : pages) *
			       (double)view->model.page),
		     size);
	sprintf(text, "%c%s", pages < 0 ? '-' : '+', size);
	return text;
}

static const char *events(const struct model_group *g, char *text, size_t size)
{
	static const char *const names[] = { "low", "high", "max",
					     "oom", "kill", "group" };

	/* The gravest that there is. */
	for (int i = MT_NR_EVENTS - 1; i >= 0; i--) {
		uint64_t n = load_relaxed(&g->record.events[i]);

		if (n) {
			snprintf(text, size, "%s %" PRIu64, names[i], n);
			return text;
		}
	}
	return "-";
}

static const char *group_cell(const struct view *view, uint32_t index,
			      unsigned column, char *text, size_t size)
{
	const struct model_group *g = &view->model.groups[index];
	const struct mt_group *r = &g->record;
	int64_t n;

	switch (column) {
	case VIEW_CHARGED:
		return model_size(&view->model, g->charged, text);
	case VIEW_PEAK:
		return model_size(&view->model, load_relaxed(&r->peak), text);
	case VIEW_LOW:
		n = MT_MAX(load_relaxed(&r->low), load_relaxed(&r->min));
		return n ? limit(view, n, text) : "-";
	case VIEW_HIGH:
		return limit(view, load_relaxed(&r->high), text);
	case VIEW_MAX:
		return limit(view, load_relaxed(&r->max), text);
	case VIEW_PERCENT:
		n = percent_of(g);
		if (n < 0)
			return "";
		snprintf(text, size, "%" PRId64, n);
		return text;
	case VIEW_HEAP:
		return some(view, g->kinds[MT_HEAP], text);
	case VIEW_ANON:
		return some(view, g->kinds[MT_ANON] + g->kinds[MT_BRK], text);
	case VIEW_FILE:
		return some(view, g->kinds[MT_FILE], text);
	case VIEW_SHMEM:
		return some(view, g->kinds[MT_SHMEM], text);
	case VIEW_NET:
		return rate(view, view->rates ? view->rates[index] : 0, text);
	case VIEW_STALL:
		n = stall_of(g);
		if (n < 1049) /* a tenth of a per cent */
			return "-";
		snprintf(text, size, "%.1f%%", (double)n * 100 / 1048576);
		return text;
	case VIEW_EVENTS:
		return events(g, text, size);
	default:
		return "";
	}
}

static const char *process_cell(const struct view *view, uint32_t index,
				unsigned column, char *text)
{
	const struct model_process *p = &view->model.processes[index];

	switch (column) {
	case VIEW_CHARGED:
		return model_size(&view->model, p->charged, text);
	case VIEW_PEAK:
		return model_size(&view->model, load_relaxed(&p->record.peak),
				  text);
	case VIEW_HEAP:
		return some(view, p->kinds[MT_HEAP], text);
	case VIEW_ANON:
		return some(view, p->kinds[MT_ANON] + p->kinds[MT_BRK], text);
	case VIEW_FILE:
		return some(view, p->kinds[MT_FILE], text);
	case VIEW_SHMEM:
		return some(view, p->kinds[MT_SHMEM], text);
	default:
		return "";
	}
}

/* The branches of the tree, and the name at their end. */
static void label(const struct view *view, const struct view_row *row,
		  char *buf, size_t size)
{
	const struct model_process *p;
	size_t at = 0;

	buf[0] = '\0';
	if (view->processes) {
		p = &view->model.processes[row->index];
		snprintf(buf, size, "%u %s", p->pid, p->record.comm);
		return;
	}
	if (!view->tree || view->filter[0]) {
		snprintf(buf, size, "%s", view->model.groups[row->index].path);
		return;
	}
	for (uint32_t d = 0; d + 1 < row->depth && at + 16 < size; d++)
		at += (size_t)snprintf(buf + at, size - at, "%s",
				       !(row->lines >> d & 1) ? "   "
				       : view->ascii          ? "|  "
							      : "│  ");
	if (row->depth)
		at += (size_t)snprintf(buf + at, size - at, "%s%s ",
				       view->ascii ? row->last ? "`" : "|"
				       : row->last ? "└"
						   : "├",
				       row->folded   ? "+"
				       : view->ascii ? "-"
						     : "─");
	else if (row->folded)
		at += (size_t)snprintf(buf + at, size - at, "+");
	snprintf(buf + at, size - at, "%s", own_name(view, row->index));
}

void view_line(const struct view *view, uint32_t row, int width, char *buf,
	       size_t size)
{
	unsigned n = view_columns(view, width);
	const struct view_row *r = &view->rows[row];
	char name[MODEL_PATH + 128];
	char line[2048];

	label(view, r, name, sizeof(name));
	view_fit(line, sizeof(line), name, name_width(width, n));
	for (unsigned i = 1; i < n; i++) {
		char text[32];

		put(line, sizeof(line),
		    view->processes
			    ? process_cell(view, r->index, i, text)
			    : group_cell(view, r->index, i, text, sizeof(text)),
		    columns[i].width);
	}
	view_fit(buf, size, line, width);
}

void view_title(const struct view *view, char *buf, size_t size)
{
	const struct mt_header *header = &view->model.reader.header;
	struct timespec boot;
	uint64_t up;
	char stock[16];
	char drift[16];

	clock_gettime(CLOCK_BOOTTIME, &boot);
	up = (uint64_t)boot.tv_sec -
	     MT_MIN(header->boot_ns / 1000000000, (uint64_t)boot.tv_sec);
	snprintf(buf, size,
		 "memtally top - %.60s (%u processes)  %s%02" PRIu64
		 ":%02u:%02u  stock %s  drift %s  repairs %" PRIu64,
		 header->name, view->model.nr_alive,
		 view->ended ? "ended, begun before " : "up ", up / 3600,
		 (unsigned)(up / 60 % 60), (unsigned)(up % 60),
		 model_size(&view->model, view->model.groups[MT_ROOT].stock,
			    stock),
		 model_size(&view->model, view->model.drift, drift),
		 load_relaxed(&header->repairs));
}

void view_rates(const struct view *view, char *buf, size_t size)
{
	const struct model_group *root = &view->model.groups[MT_ROOT];
	double net = view->rates ? view->rates[MT_ROOT] : 0;
	int64_t max = load_relaxed(&root->record.max);
	char text[32];
	char until[48] = "";
	uint32_t shares[MT_NR_STALLS];

	for (unsigned w = 0; w < MT_NR_STALLS; w++)
		shares[w] = mt_stall_share(
			load_relaxed(&root->record.stall_avg[w]), w, now_ns());
	if (max < MT_UNLIMITED && net >= 1 &&
	    (double)(max - root->charged) / net < 86400)
		snprintf(until, sizeof(until), "  max in %.0f s",
			 MT_MAX((double)(max - root->charged), 0.0) / net);
	snprintf(buf, size,
		 "net %s/s  stall %.1f%% (10s) %.1f%% (5m)  refused %" PRIu64
		 "%s",
		 rate(view, net, text), (double)shares[0] * 100 / 1048576,
		 (double)shares[2] * 100 / 1048576,
		 load_relaxed(&root->record.events[MT_EVENT_OOM]), until);
}

void view_history(const struct view *view, int width, char *buf, size_t size)
{
	static const char *const blocks[] = { "▁", "▂", "▃", "▄",
					      "▅", "▆", "▇", "█" };
	static const char marks[] = "_.:-=+*#";
	uint32_t n = MT_MIN(MT_MIN(view->nr_history, VIEW_HISTORY),
			    (uint32_t)MT_MAX(width, 0));
	int64_t most = 1;
	size_t at = 0;

	for (uint32_t i = 0; i < n; i++)
		most = MT_MAX(most, view->history[(view->nr_history - n + i) %
						  VIEW_HISTORY]);
	buf[0] = '\0';
	for (uint32_t i = 0; i < n && at + 8 < size; i++) {
		int64_t pages = view->history[(view->nr_history - n + i) %
					      VIEW_HISTORY];
		unsigned level =
			(unsigned)((double)MT_MAX(pages, 0) * 7 / (double)most);

		if (view->ascii)
			buf[at++] = marks[MT_MIN(level, 7u)];
		else
			at += (size_t)sprintf(buf + at, "%s",
					      blocks[MT_MIN(level, 7u)]);
		buf[at] = '\0';
	}
}
