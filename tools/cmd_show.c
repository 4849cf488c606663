/* SPDX-License-Identifier: MIT */
/*
 * cmd_show.c - memtally show and get: one group, in cgroup v2's words.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/atomic.h"
#include "tools/cmd.h"
#include "tools/dirty.h"
#include "tools/find.h"
#include "tools/model.h"
#include "tools/reap.h"

static const char show_help[] =
	"Examples:\n"
	"  memtally show / memory.current      bytes of all that runs there\n"
	"  memtally show build:/cc1.4711       every file of one group\n"
	"\n"
	"Usage: memtally show [SESSION:]/PATH [FILE]...\n"
	"\n"
	"FILE: memory.current, memory.peak, memory.min, memory.low, "
	"memory.high,\n"
	"memory.max, memory.events, memory.events.local or memory.stat.\n";

static const char get_help[] =
	"Examples:\n"
	"  memtally get /                      all limits of the whole tree\n"
	"  memtally get build:/cc1.4711 max    one of them, in bytes\n"
	"\n"
	"Usage: memtally get [SESSION:]/PATH [KEY]...\n"
	"\n"
	"KEY: min, low, high, max, oom.group or dirty_max.\n";

/* A file's lines begin with this: nothing, or its name. */
struct out {
	const struct model *model;
	const struct model_group *group;
	const char *prefix;
};

static int64_t bytes_of(const struct out *out, int64_t pages)
{
	return model_bytes(out->model, MT_MAX(pages, 0));
}

static void put_bytes(const struct out *out, int64_t pages)
{
	printf("%s%" PRId64 "\n", out->prefix, bytes_of(out, pages));
}

static void put_limit(const struct out *out, int64_t pages)
{
	if (pages >= MT_UNLIMITED)
		printf("%smax\n", out->prefix);
	else
		put_bytes(out, pages);
}

static void put_key(const struct out *out, const char *key, uint64_t value)
{
	printf("%s%s %" PRIu64 "\n", out->prefix, key, value);
}

static void current_(const struct out *out)
{
	put_bytes(out, load_relaxed(&out->group->record.usage));
}

static void peak(const struct out *out)
{
	put_bytes(out, load_relaxed(&out->group->record.peak));
}

static void min(const struct out *out)
{
	put_limit(out, load_relaxed(&out->group->record.min));
}

static void low(const struct out *out)
{
	put_limit(out, load_relaxed(&out->group->record.low));
}

static void high(const struct out *out)
{
	put_limit(out, load_relaxed(&out->group->record.high));
}

static void max(const struct out *out)
{
	put_limit(out, load_relaxed(&out->group->record.max));
}

static void put_events(const struct out *out, const _Atomic uint64_t *events)
{
	static const char *const names[MT_NR_EVENTS] = {
		"low", "high", "max", "oom", "oom_kill", "oom_group_kill"
	};

	for (int i = 0; i < MT_NR_EVENTS; i++)
		put_key(out, names[i], load_relaxed(&events[i]));
	/* Not the kernel's. */
	put_key(out, "dirty", load_relaxed(&events[MT_EVENT_DIRTY]));
}

static void events(const struct out *out)
{
	put_events(out, out->group->record.events);
}

static void events_local(const struct out *out)
{
	put_events(out, out->group->record.events_local);
}

static struct dirty read_dirty(const struct out *out)
{
	const struct model *model = out->model;
	struct dirty *all = calloc(model->nr_groups + 1, sizeof(*all));
	struct dirty one = { 0, 0, -1 };

	if (!all)
		return one;
	dirty_read(model, all, true);
	one = all[out->group - model->groups];
	free(all);
	return one;
}

/* The kernel's keys where they mean the same; heap and brk are parts of anon. */
static void stat(const struct out *out)
{
	const struct model_group *g = out->group;
	const struct mt_group *r = &g->record;
	struct dirty dirty = read_dirty(out);
	const struct {
		const char *key;
		int64_t pages;
	} sizes[] = {
		{ "anon",
		  g->kinds[MT_HEAP] + g->kinds[MT_ANON] + g->kinds[MT_BRK] },
		{ "file", g->kinds[MT_FILE] },
		{ "shmem", g->kinds[MT_SHMEM] },
		{ "file_mapped", dirty.mapped },
		{ "file_dirty", dirty.dirty },
		{ "file_writeback", dirty.writeback },
		{ "heap", g->kinds[MT_HEAP] },
		{ "brk", g->kinds[MT_BRK] },
		{ "external", g->kinds[MT_EXTERNAL] },
		{ "reserved", g->tracked[0] },
		{ "shared", g->tracked[2] },
		{ "stack", g->tracked[3] },
		{ "stock", g->stock },
	};

	for (size_t i = 0; i < MT_ARRAY_SIZE(sizes); i++)
		/* What only root is told is left out for others. */
		if (sizes[i].pages >= 0)
			put_key(out, sizes[i].key,
				(uint64_t)bytes_of(out, sizes[i].pages));
	put_key(out, "drained_pages", load_relaxed(&r->drains));
	put_key(out, "refused_charges", load_relaxed(&r->failcnt));
	put_key(out, "repaired_pages", load_relaxed(&r->repairs));
	put_key(out, "stall_usec", load_relaxed(&r->stall_us));
}

static void oom_group(const struct out *out)
{
	uint32_t flags = load_relaxed(&out->group->record.flags);

	printf("%s%d\n", out->prefix, !!(flags & MT_GROUP_OOM_GROUP));
}

static void dirty_max(const struct out *out)
{
	put_limit(out, load_relaxed(&out->group->record.dirty_max));
}

struct file {
	const char *name;
	void (*put)(const struct out *out);
};

static const struct file files[] = {
	{ "memory.current", current_ }, { "memory.peak", peak },
	{ "memory.min", min },          { "memory.low", low },
	{ "memory.high", high },        { "memory.max", max },
	{ "memory.events", events },    { "memory.events.local", events_local },
	{ "memory.stat", stat },        { NULL, NULL },
};

static const struct file keys[] = {
	{ "min", min },
	{ "low", low },
	{ "high", high },
	{ "max", max },
	{ "oom.group", oom_group },
	{ "dirty_max", dirty_max },
	{ NULL, NULL },
};

static const struct file *find_file(const struct file *all, const char *name)
{
	for (; all->name; all++) {
		if (strcmp(all->name, name) == 0)
			return all;
	}
	return NULL;
}

static const struct model_group *find(const struct model *model,
				      const char *path)
{
	for (uint32_t i = 0; i < model->nr_order; i++) {
		const struct model_group *g = &model->groups[model->order[i]];

		if (strcmp(g->path, path) == 0)
			return g;
	}
	return NULL;
}

/* One alone is printed bare, as a script wants it; several with their names. */
static void put_files(const struct out *group, const struct file *all,
		      char **names, int n)
{
	struct out out = *group;
	char prefix[64];

	for (int i = 0; n ? i < n : all[i].name != NULL; i++) {
		const struct file *file =
			n ? find_file(all, names[i]) : &all[i];

		snprintf(prefix, sizeof(prefix), "%s ", file->name);
		out.prefix = n == 1 ? "" : prefix;
		file->put(&out);
	}
}

static int show(const char *text, const struct file *all, char **names, int n)
{
	struct out out = { NULL, NULL, "" };
	struct model model;
	char group[4096];
	char path[4096];
	int status;
	int ret;

	for (int i = 0; i < n; i++) {
		if (!find_file(all, names[i])) {
			complain(names[i], all == files
						   ? "no such file of a group"
						   : "no such limit");
			return CMD_USAGE;
		}
	}
	status = find_group(text, path, group);
	if (status)
		return status;
	reap_path(path);
	ret = model_load(&model, path);
	if (ret) {
		complain(path, segment_error(ret));
		return segment_status(ret);
	}
	for (uint32_t i = 0; i < model.nr_processes; i++)
		model_tracked(&model, &model.processes[i]);
	out.model = &model;
	out.group = find(&model, group);
	if (!out.group) {
		complain(group, "no such group");
		status = CMD_FAILED;
	} else {
		put_files(&out, all, names, n);
	}
	model_free(&model);
	return flush_output() ? status : CMD_FAILED;
}

static int run(int argc, char **argv, const char *help, const struct file *all)
{
	static const struct option options[] = { { "help", 0, NULL, 'h' },
						 { NULL, 0, NULL, 0 } };
	int opt;

	while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (opt != 'h')
			return CMD_USAGE;
		fputs(help, stdout);
		return flush_output() ? CMD_OK : CMD_FAILED;
	}
	if (optind == argc) {
		complain(all == files ? "show" : "get",
			 "which group? / is the whole tree");
		return CMD_USAGE;
	}
	return show(argv[optind], all, argv + optind + 1, argc - optind - 1);
}

int cmd_show(int argc, char **argv)
{
	return run(argc, argv, show_help, files);
}

int cmd_get(int argc, char **argv)
{
	return run(argc, argv, get_help, keys);
}
