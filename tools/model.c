/* SPDX-License-Identifier: MIT */
/*
 * model.c - adding a segment up.
 *
 * Every number comes from the words: a group's charged pages are its usage
 * less the stocks below it, its kinds the sums of the words below it.
 */
#include "tools/model.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/atomic.h"
#include "core/mapping.h"

static int copy_segment(struct model *model, const char *path)
{
	size_t size;
	int ret;
	int fd;

	ret = mt_reader_open(path, &fd, &size);
	if (ret)
		return ret;
	/* calloc: what isn't copied reads as zero and costs nothing. */
	model->buf = calloc(1, size);
	ret = model->buf ? mt_reader_load(&model->reader, fd, model->buf, size)
			 : -ENOMEM;
	close(fd);
	return ret;
}

/* Add to a group and all above it; ends on cycles. */
static void add_up(struct model *model, uint32_t group, int kind, uint64_t word)
{
	for (int i = 0; i < MT_DEPTH_MAX && group < model->nr_groups; i++) {
		struct model_group *g = &model->groups[group];

		g->stock += mt_word_stock(word);
		g->words += mt_word_used(word) + mt_word_stock(word);
		g->kinds[kind] += mt_word_used(word);
		group = load_relaxed(&g->record.parent);
	}
}

static struct model_process *by_slot(struct model *model, uint32_t slot)
{
	for (uint32_t i = 0; i < model->nr_processes; i++) {
		if (model->processes[i].slot == slot)
			return &model->processes[i];
	}
	return NULL;
}

static void add_word(struct model *model, uint32_t slot, uint32_t group,
		     int kind, uint64_t word)
{
	struct model_process *process = by_slot(model, slot);

	add_up(model, group, kind, word);
	if (process) {
		process->kinds[kind] += mt_word_used(word);
		process->charged += mt_word_used(word);
	}
}

static void read_groups(struct model *model)
{
	for (uint32_t i = 0; i < model->nr_groups; i++) {
		struct model_group *g = &model->groups[i];
		uint32_t parent;

		g->index = i;
		g->used = mt_reader_group(&model->reader, i, &g->record);
		if (!g->used)
			continue;
		mt_reader_path(&model->reader, i, g->path, sizeof(g->path));
		parent = load_relaxed(&g->record.parent);
		for (uint32_t d = 0; d < MT_DEPTH_MAX; d++) {
			struct mt_group up;

			if (!mt_reader_group(&model->reader, parent, &up))
				break;
			g->depth++;
			parent = load_relaxed(&up.parent);
		}
	}
}

static bool is_alive(const struct model *model,
		     const struct model_process *process)
{
	/* Another pid namespace's process can't be asked after. */
	return load_relaxed(&process->record.pid_ns) != model->pid_ns ||
	       kill((pid_t)process->pid, 0) == 0 || errno != ESRCH;
}

static void read_processes(struct model *model)
{
	uint32_t n = mt_reader_count(&model->reader, MT_PROCESSES);

	for (uint32_t i = 0; i < n; i++) {
		struct model_process *p =
			&model->processes[model->nr_processes];

		if (!mt_reader_process(&model->reader, i, &p->record))
			continue;
		p->slot = i;
		p->pid = mt_process_pid_of(&p->record);
		p->generation =
			(uint32_t)(load_relaxed(&p->record.state) >> 8) &
			0xffffff;
		p->alive = is_alive(model, p);
		model->nr_alive += p->alive;
		model->nr_processes++;
	}
	n = mt_reader_count(&model->reader, MT_THREADS);
	for (uint32_t i = 0; i < n; i++) {
		struct model_process *p;
		struct mt_thread thread;

		if (!mt_reader_thread(&model->reader, i, &thread))
			continue;
		p = by_slot(model,
			    (uint32_t)(load_relaxed(&thread.ident) >> 32) - 1);
		if (p)
			p->threads++;
	}
}

static void read_words(struct model *model)
{
	uint32_t n = mt_reader_count(&model->reader, MT_LINES);

	for (uint32_t i = 0; i < n; i++) {
		struct mt_line line;
		uint64_t ident;

		if (!mt_reader_line(&model->reader, i, &line))
			continue;
		ident = load_relaxed(&line.ident);
		for (int k = 0; k < MT_NR_KINDS; k++)
			add_word(model, mt_line_process(ident),
				 mt_line_group(ident), k,
				 load_relaxed(&line.word[k]));
	}
	n = mt_reader_count(&model->reader, MT_PROCESSES);
	for (uint32_t i = 0; i < n; i++) {
		struct mt_process process;

		mt_reader_process(&model->reader, i, &process);
		for (int k = 0; k < MT_NR_KINDS; k++)
			add_word(model, i, MT_ROOT, k,
				 load_relaxed(&process.word[k]));
	}
}

static const struct model *sorting;

static int by_path(const void *a, const void *b)
{
	const struct model_group *x = &sorting->groups[*(const uint32_t *)a];
	const struct model_group *y = &sorting->groups[*(const uint32_t *)b];
	const char *p = x->path;
	const char *q = y->path;

	/* '/' before everything else: a parent's children follow it. */
	while (*p && *p == *q) {
		p++;
		q++;
	}
	return (*p == '/' ? 1 : (unsigned char)*p + 1) * !!*p -
	       (*q == '/' ? 1 : (unsigned char)*q + 1) * !!*q;
}

static void put_in_order(struct model *model)
{
	for (uint32_t i = 0; i < model->nr_groups; i++) {
		if (model->groups[i].used)
			model->order[model->nr_order++] = i;
	}
	sorting = model;
	qsort(model->order, model->nr_order, sizeof(*model->order), by_path);
}

int model_load(struct model *model, const char *path)
{
	struct stat ns;
	uint32_t n;
	int ret;

	memset(model, 0, sizeof(*model));
	ret = copy_segment(model, path);
	if (ret)
		goto fail;
	snprintf(model->path, sizeof(model->path), "%s", path);
	if (!stat("/proc/self/ns/pid", &ns))
		model->pid_ns = ns.st_ino;
	model->page = model->reader.header.page_size;
	model->nr_groups = mt_reader_count(&model->reader, MT_GROUPS);
	n = mt_reader_count(&model->reader, MT_PROCESSES);
	model->groups = calloc(model->nr_groups + 1, sizeof(*model->groups));
	model->order = calloc(model->nr_groups + 1, sizeof(*model->order));
	model->processes = calloc(n + 1, sizeof(*model->processes));
	ret = -ENOMEM;
	if (!model->groups || !model->order || !model->processes)
		goto fail;
	read_groups(model);
	read_processes(model);
	read_words(model);
	put_in_order(model);
	if (model->nr_groups)
		model->drift = load_relaxed(&model->groups[0].record.usage) -
			       model->groups[0].words;
	return 0;

fail:
	model_free(model);
	return ret;
}

void model_free(struct model *model)
{
	free(model->buf);
	free(model->groups);
	free(model->order);
	free(model->processes);
	memset(model, 0, sizeof(*model));
}

const char *model_state(const struct model *model)
{
	if (model->nr_alive)
		return "live";
	return model->nr_processes ? "stale" : "dead";
}

static int tracked_index(uint32_t type, uint32_t state)
{
	if (state & MT_MAP_ACCOUNT)
		return -1;
	switch (type) {
	case MT_MAP_ANON:
		return 0;
	case MT_MAP_FILE:
		return 1;
	case MT_MAP_SHMEM:
	case MT_MAP_SHARED_FILE:
	case MT_MAP_DEVICE:
		return 2;
	case MT_MAP_STACK:
		return 3;
	default:
		return -1;
	}
}

static int64_t add_slots(struct model *model,
			 const struct model_process *process, int fd,
			 const struct mt_map_header *header)
{
	uint32_t high = load_relaxed(&header->high);
	uint32_t home = load_relaxed(&process->record.home);
	struct mt_map_slot slots[256];
	int64_t reserved = 0;

	high = MT_MIN(high, MT_MAP_CAPACITY);
	for (uint32_t i = 0; i < high; i += 256) {
		ssize_t n =
			pread(fd, slots, sizeof(slots),
			      (off_t)(sizeof(*header) + i * sizeof(*slots)));

		for (uint32_t k = 0;
		     n > 0 && k < (size_t)n / sizeof(*slots) && i + k < high;
		     k++) {
			uint64_t start = load_relaxed(&slots[k].start);
			uint64_t end = load_relaxed(&slots[k].end);
			uint32_t group = load_relaxed(&slots[k].group);
			int t = tracked_index(load_relaxed(&slots[k].type),
					      load_relaxed(&slots[k].state));
			int64_t pages;

			if (t < 0 || end <= start)
				continue;
			pages = (int64_t)((end - start) /
					  (uint64_t)model->page);
			if (group == MT_NONE - 1)
				group = home;
			if (t == 0)
				reserved += pages;
			for (int d = 0;
			     d < MT_DEPTH_MAX && group < model->nr_groups;
			     d++) {
				model->groups[group].tracked[t] += pages;
				group = load_relaxed(
					&model->groups[group].record.parent);
			}
		}
	}
	return reserved;
}

int64_t model_tracked(struct model *model, const struct model_process *process)
{
	struct mt_map_header header;
	int64_t reserved = 0;
	char path[4200];
	int fd;

	snprintf(path, sizeof(path), "%s@%u.%u", model->path, process->slot,
		 process->generation);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return 0;
	if (pread(fd, &header, sizeof(header), 0) == (ssize_t)sizeof(header) &&
	    load_relaxed(&header.magic) == MT_MAP_MAGIC &&
	    header.stride == sizeof(struct mt_map_slot) &&
	    header.header_size == sizeof(header))
		reserved = add_slots(model, process, fd, &header);
	close(fd);
	return reserved;
}

static void put(cJSON *object, const char *key, int64_t value)
{
	cJSON_AddNumberToObject(object, key, (double)value);
}

static void put_limit(cJSON *object, const char *key, int64_t pages,
		      int64_t page)
{
	if (pages >= MT_UNLIMITED)
		cJSON_AddNullToObject(object, key);
	else
		put(object, key, pages * page);
}

static void put_events(cJSON *object, const char *key,
		       const _Atomic uint64_t *events)
{
	static const char *const names[MT_NR_EVENTS] = {
		"low", "high", "max", "oom", "oom_kill", "oom_group_kill"
	};
	cJSON *list = cJSON_AddObjectToObject(object, key);

	for (int i = 0; i < MT_NR_EVENTS; i++)
		put(list, names[i], (int64_t)load_relaxed(&events[i]));
}

static cJSON *group_json(const struct model *model, const struct model_group *g)
{
	static const char *const kinds[MT_NR_KINDS] = { "heap", "anon",
							"file", "shmem",
							"brk",  "external" };
	static const char *const tracked[4] = { "reserved", "file_mapped",
						"shared", "stack" };
	cJSON *object = cJSON_CreateObject();
	int64_t usage = load_relaxed(&g->record.usage);
	int64_t page = model->page;
	cJSON *list;

	cJSON_AddStringToObject(object, "path", g->path);
	put(object, "current", usage * page);
	put(object, "charged", (g->words - g->stock) * page);
	put(object, "peak", load_relaxed(&g->record.peak) * page);
	put_limit(object, "min", load_relaxed(&g->record.min), page);
	put_limit(object, "low", load_relaxed(&g->record.low), page);
	put_limit(object, "high", load_relaxed(&g->record.high), page);
	put_limit(object, "max", load_relaxed(&g->record.max), page);
	put(object, "emin", 0);
	put(object, "elow", 0);
	list = cJSON_AddObjectToObject(object, "kinds");
	for (int k = 0; k < MT_NR_KINDS; k++)
		put(list, kinds[k], g->kinds[k] * page);
	list = cJSON_AddObjectToObject(object, "tracked");
	for (int t = 0; t < 4; t++)
		put(list, tracked[t], g->tracked[t] * page);
	put_events(object, "events", g->record.events);
	put_events(object, "events_local", g->record.events_local);
	put(object, "stall_us", (int64_t)load_relaxed(&g->record.stall_us));
	put(object, "repairs", (int64_t)load_relaxed(&g->record.repairs));
	return object;
}

static cJSON *process_json(const struct model *model,
			   const struct model_process *p)
{
	cJSON *object = cJSON_CreateObject();
	uint32_t home = load_relaxed(&p->record.home);

	put(object, "pid", p->pid);
	cJSON_AddStringToObject(object, "comm", p->record.comm);
	cJSON_AddStringToObject(
		object, "group",
		home < model->nr_groups ? model->groups[home].path : "?");
	cJSON_AddStringToObject(object, "state", p->alive ? "live" : "exited");
	put(object, "charged", p->charged * model->page);
	put(object, "peak", load_relaxed(&p->record.peak) * model->page);
	put(object, "threads", p->threads);
	return object;
}

static int by_peak(const void *a, const void *b)
{
	const struct mt_ended *x = a;
	const struct mt_ended *y = b;

	return (x->peak < y->peak) - (x->peak > y->peak);
}

static void put_ended(cJSON *list, const struct model *model)
{
	static struct mt_ended ended[64];
	unsigned n = 0;
	uint32_t count = mt_reader_count(&model->reader, MT_ENDED);

	for (uint32_t i = 0; i < count && n < 64; i++)
		n += mt_reader_ended(&model->reader, i, &ended[n]);
	qsort(ended, n, sizeof(ended[0]), by_peak);
	for (unsigned i = 0; i < n; i++) {
		cJSON *object = cJSON_CreateObject();
		char path[MT_NAME_MAX + 2];

		snprintf(path, sizeof(path), "/%s", ended[i].group);
		put(object, "pid", ended[i].pid);
		cJSON_AddStringToObject(object, "comm", ended[i].comm);
		cJSON_AddStringToObject(object, "group", path);
		cJSON_AddStringToObject(
			object, "state",
			ended[i].how == MT_ENDED_KILLED ? "killed" : "exited");
		put(object, "charged", 0);
		put(object, "peak", (int64_t)ended[i].peak * model->page);
		put(object, "threads", 0);
		cJSON_AddItemToArray(list, object);
	}
}

cJSON *model_json(const struct model *model, bool ended)
{
	const struct mt_header *header = &model->reader.header;
	cJSON *object = cJSON_CreateObject();
	struct timespec now;
	cJSON *list;

	clock_gettime(CLOCK_REALTIME, &now);
	cJSON_AddStringToObject(object, "session", header->name);
	cJSON_AddStringToObject(object, "state",
				model->nr_alive ? "live" : "dead");
	put(object, "page_size", model->page);
	cJSON_AddNumberToObject(object, "time",
				(double)now.tv_sec + (double)now.tv_nsec / 1e9);
	list = cJSON_AddArrayToObject(object, "groups");
	for (uint32_t i = 0; i < model->nr_order; i++)
		cJSON_AddItemToArray(
			list,
			group_json(model, &model->groups[model->order[i]]));
	put(object, "processes_total",
	    (int64_t)load_relaxed(&header->processes_total));
	put(object, "drift", model->drift * model->page);
	list = cJSON_AddArrayToObject(object, "processes");
	for (uint32_t i = 0; !ended && i < model->nr_processes; i++)
		cJSON_AddItemToArray(list,
				     process_json(model, &model->processes[i]));
	if (ended)
		put_ended(list, model);
	return object;
}
