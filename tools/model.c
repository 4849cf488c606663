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
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/atomic.h"
#include "core/mapping.h"
#include "core/stall.h"
#include "tools/format.h"
#include "tools/proc.h"

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

/* Damaged segments hold any number: sums stop at the ends. */
static void add_capped(int64_t *sum, int64_t n)
{
	if (__builtin_add_overflow(*sum, n, sum))
		*sum = n < 0 ? INT64_MIN : INT64_MAX;
}

/* Add to a group and all above it; ends on cycles. */
static void add_up(struct model *model, uint32_t group, int kind, uint64_t word)
{
	for (int i = 0; i < MT_DEPTH_MAX && group < model->nr_groups; i++) {
		struct model_group *g = &model->groups[group];

		add_capped(&g->stock, mt_word_stock(word));
		add_capped(&g->charged, mt_word_used(word));
		add_capped(&g->kinds[kind], mt_word_used(word));
		group = load_relaxed(&g->record.parent);
	}
}

static struct model_process *find_slot(struct model *model, uint32_t slot)
{
	if (slot >= model->nr_slots || !model->by_slot[slot])
		return NULL;
	return &model->processes[model->by_slot[slot] - 1];
}

static void add_word(struct model *model, uint32_t slot, uint32_t group,
		     int kind, uint64_t word)
{
	struct model_process *process = find_slot(model, slot);

	add_up(model, group, kind, word);
	if (process) {
		add_capped(&process->kinds[kind], mt_word_used(word));
		add_capped(&process->charged, mt_word_used(word));
	}
}

static void read_groups(struct model *model)
{
	for (uint32_t i = 0; i < model->nr_groups; i++) {
		struct model_group *g = &model->groups[i];

		g->used = mt_reader_group(&model->reader, i, &g->record);
		if (g->used)
			mt_reader_path(&model->reader, i, g->path,
				       sizeof(g->path));
	}
}

bool model_is_alive(const struct model *model,
		    const struct model_process *process)
{
	/* Another pid namespace's process can't be asked after. */
	return load_relaxed(&process->record.pid_ns) != model->pid_ns ||
	       proc_is_alive(process->pid,
			     load_relaxed(&process->record.joined_ns));
}

static void read_processes(struct model *model)
{
	uint32_t n;

	for (uint32_t i = 0; i < model->nr_slots; i++) {
		struct model_process *p =
			&model->processes[model->nr_processes];

		if (!mt_reader_process(&model->reader, i, &p->record))
			continue;
		p->slot = i;
		p->pid = mt_process_pid_of(&p->record);
		p->generation =
			(uint32_t)(load_relaxed(&p->record.state) >> 8) &
			0xffffff;
		p->alive = true;
		model->by_slot[i] = ++model->nr_processes;
	}
	n = mt_reader_count(&model->reader, MT_THREADS);
	for (uint32_t i = 0; i < n; i++) {
		struct model_process *p;
		struct mt_thread thread;

		if (!mt_reader_thread(&model->reader, i, &thread))
			continue;
		p = find_slot(model,
			      (uint32_t)(load_relaxed(&thread.ident) >> 32) -
				      1);
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
	for (uint32_t i = 0; i < model->nr_slots; i++) {
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

/* In a reclaim of "/": what it says of itself doesn't count, and what is empty
 * has nothing to protect. */
static void protect(struct model *model)
{
	for (uint32_t n = 0; n < model->nr_order; n++) {
		uint32_t i = model->order[n];
		struct model_group *g = &model->groups[i];
		uint32_t up = load_relaxed(&g->record.parent);

		mt_protection_look(&g->record, &g->protection);
		g->protection.emin = 0;
		g->protection.elow = 0;
		if (i != MT_ROOT && up < model->nr_groups)
			mt_protection_step(
				&g->protection,
				up == MT_ROOT ? NULL
					      : &model->groups[up].protection,
				true);
	}
}

static bool allocate(struct model *model)
{
	size_t groups = mt_reader_count(&model->reader, MT_GROUPS);
	size_t slots = mt_reader_count(&model->reader, MT_PROCESSES);

	/* One more each: none of nothing would look like no memory. */
	model->groups = calloc(groups + 1, sizeof(*model->groups));
	model->order = calloc(groups + 1, sizeof(*model->order));
	model->processes = calloc(slots + 1, sizeof(*model->processes));
	model->by_slot = calloc(slots + 1, sizeof(*model->by_slot));
	model->nr_groups = (uint32_t)groups;
	model->nr_slots = (uint32_t)slots;
	return model->groups && model->order && model->processes &&
	       model->by_slot;
}

/* Add up what is in model->reader; all processes seem alive. */
static int build(struct model *model)
{
	struct stat ns;

	if (!allocate(model))
		return -ENOMEM;
	if (!stat("/proc/self/ns/pid", &ns))
		model->pid_ns = ns.st_ino;
	model->page = model->reader.header.page_size;
	read_groups(model);
	read_processes(model);
	read_words(model);
	put_in_order(model);
	protect(model);
	if (model->nr_groups) {
		const struct model_group *root = &model->groups[MT_ROOT];

		model->drift = load_relaxed(&root->record.usage);
		/* The negative of the least number is none. */
		add_capped(&model->drift, -MT_MAX(root->charged, -INT64_MAX));
		add_capped(&model->drift, -root->stock);
	}
	model->nr_alive = model->nr_processes;
	return 0;
}

int model_from_copy(struct model *model, void *buf, size_t size)
{
	int ret;

	memset(model, 0, sizeof(*model));
	model->buf = buf;
	ret = mt_reader_check(&model->reader, buf, size);
	if (!ret)
		ret = build(model);
	if (ret)
		model_free(model);
	return ret;
}

int model_load_quick(struct model *model, const char *path)
{
	int ret;

	memset(model, 0, sizeof(*model));
	ret = copy_segment(model, path);
	if (!ret)
		ret = build(model);
	if (ret)
		model_free(model);
	else
		snprintf(model->path, sizeof(model->path), "%s", path);
	return ret;
}

int model_load(struct model *model, const char *path)
{
	int ret = model_load_quick(model, path);

	if (ret)
		return ret;
	model->nr_alive = 0;
	for (uint32_t i = 0; i < model->nr_processes; i++) {
		struct model_process *p = &model->processes[i];

		p->alive = model_is_alive(model, p);
		model->nr_alive += p->alive;
	}
	return 0;
}

void model_free(struct model *model)
{
	free(model->buf);
	free(model->groups);
	free(model->order);
	free(model->processes);
	free(model->by_slot);
	memset(model, 0, sizeof(*model));
}

const char *model_size(const struct model *model, int64_t pages, char *buf)
{
	return format_bytes(model_bytes(model, pages), buf);
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

static void read_slots(int fd, const struct mt_map_header *header,
		       bool (*each)(void *arg,
				    const struct mt_map_range *range),
		       void *arg)
{
	uint32_t high = MT_MIN(load_relaxed(&header->high), MT_MAP_CAPACITY);
	struct mt_map_slot slots[256];

	for (uint32_t i = 0; i < high; i += 256) {
		ssize_t len =
			pread(fd, slots, sizeof(slots),
			      (off_t)(sizeof(*header) + i * sizeof(slots[0])));
		uint32_t n =
			len > 0 ? (uint32_t)((size_t)len / sizeof(slots[0]))
				: 0;

		if (!n)
			break;
		for (uint32_t k = 0; k < n && i + k < high; k++) {
			const struct mt_map_slot *slot = &slots[k];
			struct mt_map_range range = {
				.start = load_relaxed(&slot->start),
				.end = load_relaxed(&slot->end),
				.object = load_relaxed(&slot->object),
				.offset = load_relaxed(&slot->offset),
				.group = load_relaxed(&slot->group),
				.type = load_relaxed(&slot->type),
				.state = load_relaxed(&slot->state),
			};

			if (range.type == MT_MAP_FREE ||
			    range.end <= range.start)
				continue;
			if (!each(arg, &range))
				return;
		}
	}
}

void model_mappings(const struct model *model,
		    const struct model_process *process,
		    bool (*each)(void *arg, const struct mt_map_range *range),
		    void *arg)
{
	struct mt_map_header header;
	char path[4200];
	int fd;

	snprintf(path, sizeof(path), "%s@%u.%u", model->path, process->slot,
		 process->generation);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return;
	if (pread(fd, &header, sizeof(header), 0) == (ssize_t)sizeof(header) &&
	    load_relaxed(&header.magic) == MT_MAP_MAGIC &&
	    header.stride == sizeof(struct mt_map_slot) &&
	    header.header_size == sizeof(header))
		read_slots(fd, &header, each, arg);
	close(fd);
}

struct tracking {
	struct model *model;
	uint32_t home;
	int64_t reserved;
};

static bool track(void *arg, const struct mt_map_range *range)
{
	struct tracking *tracking = arg;
	struct model *model = tracking->model;
	uint32_t group = range->group;
	int t = tracked_index(range->type, range->state);
	int64_t pages;

	if (t < 0)
		return true;
	pages = (int64_t)((range->end - range->start) / (uint64_t)model->page);
	/* Not said: the process's default group. */
	if (group == MT_NONE - 1)
		group = tracking->home;
	for (int d = 0; d < MT_DEPTH_MAX && group < model->nr_groups; d++) {
		struct model_group *g = &model->groups[group];

		add_capped(&g->tracked[t], pages);
		group = load_relaxed(&g->record.parent);
	}
	if (t == 0)
		add_capped(&tracking->reserved, pages);
	return true;
}

int64_t model_tracked(struct model *model, const struct model_process *process)
{
	uint32_t home = load_relaxed(&process->record.home);
	struct tracking tracking = { model, home, 0 };

	for (int i = 0; i < MT_DEPTH_MAX && home < model->nr_groups; i++) {
		add_capped(&model->groups[home].tracked[3],
			   load_relaxed(&process->record.stacks));
		home = load_relaxed(&model->groups[home].record.parent);
	}
	model_mappings(model, process, track, &tracking);
	return tracking.reserved;
}

/* As text: a double can't hold the largest, and cJSON would give them an
 * exponent. */
void model_put(cJSON *object, const char *key, int64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRId64, value);
	cJSON_AddRawToObject(object, key, text);
}

static void put_limit(cJSON *object, const char *key, const struct model *model,
		      int64_t pages)
{
	if (pages >= MT_UNLIMITED)
		cJSON_AddNullToObject(object, key);
	else
		model_put(object, key, model_bytes(model, pages));
}

/* In per cent of the time, as the kernel's pressure files have it. */
static void put_stalls(cJSON *object, const struct mt_group *group)
{
	static const char *const keys[MT_NR_STALLS] = { "10", "60", "300" };
	cJSON *list = cJSON_AddObjectToObject(object, "stall_avg");
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	for (unsigned w = 0; w < MT_NR_STALLS; w++) {
		uint32_t share =
			mt_stall_share(load_relaxed(&group->stall_avg[w]), w,
				       (uint64_t)now.tv_sec * 1000000000 +
					       (uint64_t)now.tv_nsec);

		cJSON_AddNumberToObject(
			list, keys[w],
			(double)((share * UINT64_C(10000) + (1 << 19)) >> 20) /
				100);
	}
}

static void put_events(cJSON *object, const char *key,
		       const _Atomic uint64_t *events)
{
	static const char *const names[MT_NR_EVENTS] = {
		"low", "high", "max", "oom", "oom_kill", "oom_group_kill"
	};
	cJSON *list = cJSON_AddObjectToObject(object, key);

	for (int i = 0; i < MT_NR_EVENTS; i++)
		model_put(list, names[i], (int64_t)load_relaxed(&events[i]));
	model_put(list, "dirty",
		  (int64_t)load_relaxed(&events[MT_EVENT_DIRTY]));
}

static cJSON *group_json(const struct model *model, const struct model_group *g)
{
	static const char *const kinds[MT_NR_KINDS] = { "heap", "anon",
							"file", "shmem",
							"brk",  "external" };
	static const char *const tracked[4] = { "reserved", "file_mapped",
						"shared", "stack" };
	cJSON *object = cJSON_CreateObject();
	const struct mt_group *r = &g->record;
	cJSON *list;

	cJSON_AddStringToObject(object, "path", g->path);
	model_put(object, "current",
		  model_bytes(model, load_relaxed(&r->usage)));
	model_put(object, "charged", model_bytes(model, g->charged));
	model_put(object, "peak", model_bytes(model, load_relaxed(&r->peak)));
	put_limit(object, "min", model, load_relaxed(&r->min));
	put_limit(object, "low", model, load_relaxed(&r->low));
	put_limit(object, "high", model, load_relaxed(&r->high));
	put_limit(object, "max", model, load_relaxed(&r->max));
	put_limit(object, "emin", model, g->protection.emin);
	put_limit(object, "elow", model, g->protection.elow);
	list = cJSON_AddObjectToObject(object, "kinds");
	for (int k = 0; k < MT_NR_KINDS; k++)
		model_put(list, kinds[k], model_bytes(model, g->kinds[k]));
	list = cJSON_AddObjectToObject(object, "tracked");
	for (int t = 0; t < 4; t++)
		model_put(list, tracked[t], model_bytes(model, g->tracked[t]));
	put_events(object, "events", r->events);
	put_events(object, "events_local", r->events_local);
	model_put(object, "stall_us", (int64_t)load_relaxed(&r->stall_us));
	put_stalls(object, r);
	model_put(object, "repairs", (int64_t)load_relaxed(&r->repairs));
	return object;
}

static cJSON *process_json(const struct model *model,
			   const struct model_process *p)
{
	cJSON *object = cJSON_CreateObject();
	uint32_t home = load_relaxed(&p->record.home);

	model_put(object, "pid", p->pid);
	cJSON_AddStringToObject(object, "comm", p->record.comm);
	/* None yet: what it can't help charging goes to "/". */
	cJSON_AddStringToObject(
		object, "group",
		home < model->nr_groups ? model->groups[home].path : "/");
	cJSON_AddStringToObject(object, "state", p->alive ? "live" : "exited");
	model_put(object, "charged", model_bytes(model, p->charged));
	model_put(object, "peak",
		  model_bytes(model, load_relaxed(&p->record.peak)));
	model_put(object, "threads", p->threads);
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

		snprintf(path, sizeof(path), "/%s",
			 ended[i].group[0] == '/' ? "" : ended[i].group);
		model_put(object, "pid", ended[i].pid);
		cJSON_AddStringToObject(object, "comm", ended[i].comm);
		cJSON_AddStringToObject(object, "group", path);
		cJSON_AddStringToObject(
			object, "state",
			ended[i].how == MT_ENDED_KILLED ? "killed" : "exited");
		model_put(object, "charged", 0);
		model_put(object, "peak",
			  model_bytes(model, (int64_t)ended[i].peak));
		model_put(object, "threads", 0);
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
	model_put(object, "page_size", model->page);
	cJSON_AddNumberToObject(object, "time",
				(double)now.tv_sec + (double)now.tv_nsec / 1e9);
	list = cJSON_AddArrayToObject(object, "groups");
	for (uint32_t i = 0; i < model->nr_order; i++)
		cJSON_AddItemToArray(
			list,
			group_json(model, &model->groups[model->order[i]]));
	model_put(object, "processes_total",
		  (int64_t)load_relaxed(&header->processes_total));
	model_put(object, "drift", model_bytes(model, model->drift));
	list = cJSON_AddArrayToObject(object, "processes");
	for (uint32_t i = 0; !ended && i < model->nr_processes; i++)
		cJSON_AddItemToArray(list,
				     process_json(model, &model->processes[i]));
	if (ended)
		put_ended(list, model);
	return object;
}
