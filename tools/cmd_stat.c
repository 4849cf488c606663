/* SPDX-License-Identifier: MIT */
/*
 * cmd_stat.c - memtally stat: who holds how much.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/atomic.h"
#include "tools/cmd.h"
#include "tools/find.h"
#include "tools/model.h"
#include "tools/reap.h"

static const char help[] =
	"Examples:\n"
	"  memtally stat                      the only live session, by group\n"
	"  memtally stat -w 1 NAME            a line a second\n"
	"  memtally stat --json NAME          for scripts; also when it ended\n"
	"  memtally stat --pid 4711 --value charged   one number, in pages\n"
	"\n"
	"Usage: memtally stat [-w SEC] [-c N] [--json] [SESSION]\n"
	"       memtally stat --pid PID --value KEY\n"
	"\n"
	"KEY: charged, heap, accounted (private mappings, as the kernel\n"
	"accounts them), shmem, reserved or stack (of threads).\n";

/* Kinds that share a column; damaged ones may wrap. */
static int64_t sum(const struct model_group *g, unsigned first, unsigned last)
{
	uint64_t pages = 0;

	for (unsigned k = first; k <= last; k++)
		pages += (uint64_t)g->kinds[k];
	return (int64_t)pages;
}

static void print_groups(const struct model *model)
{
	char text[6][16];

	printf("%-36s %9s %9s %9s %9s %9s %9s\n", "GROUP", "CHARGED", "PEAK",
	       "MAX", "HEAP", "ANON", "FILE+SHM");
	for (uint32_t i = 0; i < model->nr_order; i++) {
		const struct model_group *g = &model->groups[model->order[i]];
		const struct mt_group *r = &g->record;
		int64_t max = load_relaxed(&r->max);

		printf("%-36s %9s %9s %9s %9s %9s %9s\n", g->path,
		       model_size(model, g->charged, text[0]),
		       model_size(model, load_relaxed(&r->peak), text[1]),
		       max >= MT_UNLIMITED ? "-"
					   : model_size(model, max, text[2]),
		       model_size(model, g->kinds[MT_HEAP], text[3]),
		       model_size(model, g->kinds[MT_ANON], text[4]),
		       model_size(model, sum(g, MT_FILE, MT_SHMEM), text[5]));
	}
}

static void print_line(const struct model *model, unsigned n)
{
	const struct model_group *g = &model->groups[MT_ROOT];
	const struct mt_group *r = &g->record;
	char text[6][16];

	if (n % 20 == 0)
		printf("%9s %9s %9s %9s %9s %9s %6s %8s\n", "charged",
		       "current", "peak", "heap", "anon", "other", "procs",
		       "refused");
	printf("%9s %9s %9s %9s %9s %9s %6u %8" PRIu64 "\n",
	       model_size(model, g->charged, text[0]),
	       model_size(model, load_relaxed(&r->usage), text[1]),
	       model_size(model, load_relaxed(&r->peak), text[2]),
	       model_size(model, g->kinds[MT_HEAP], text[3]),
	       model_size(model, g->kinds[MT_ANON], text[4]),
	       model_size(model, sum(g, MT_FILE, MT_EXTERNAL), text[5]),
	       model->nr_alive, load_relaxed(&r->events[MT_EVENT_OOM]));
}

static void print_json(struct model *model)
{
	cJSON *object;
	char *text;

	for (uint32_t i = 0; i < model->nr_processes; i++)
		model_tracked(model, &model->processes[i]);
	object = model_json(model, false);
	text = cJSON_Print(object);
	puts(text ? text : "");
	free(text);
	cJSON_Delete(object);
}

/* One number of a process; -1 when there is no such key. */
static int64_t value_of(struct model *model, const struct model_process *p,
			const char *key)
{
	if (strcmp(key, "charged") == 0)
		return p->charged;
	if (strcmp(key, "heap") == 0)
		return p->kinds[MT_HEAP];
	if (strcmp(key, "accounted") == 0)
		return p->kinds[MT_ANON] + p->kinds[MT_FILE] + p->kinds[MT_BRK];
	if (strcmp(key, "shmem") == 0)
		return p->kinds[MT_SHMEM];
	if (strcmp(key, "reserved") == 0)
		return model_tracked(model, p);
	if (strcmp(key, "stack") == 0)
		return load_relaxed(&p->record.stacks);
	return -1;
}

static bool known_key(const char *key)
{
	static const char *const keys[] = { "charged", "heap",     "accounted",
					    "shmem",   "reserved", "stack" };

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		if (strcmp(key, keys[i]) == 0)
			return true;
	}
	return false;
}

/* Print the number if the process is in this session. */
static bool try_session(const char *path, uint32_t pid, const char *key)
{
	struct model model;
	bool found = false;

	if (model_load_quick(&model, path))
		return false;
	for (uint32_t i = 0; i < model.nr_processes && !found; i++) {
		const struct model_process *p = &model.processes[i];

		if (p->pid != pid ||
		    load_relaxed(&p->record.pid_ns) != model.pid_ns ||
		    !model_is_alive(&model, p))
			continue;
		printf("%" PRId64 "\n", value_of(&model, p, key));
		found = true;
	}
	model_free(&model);
	return found;
}

/*
 * A forked child that has charged nothing yet is not in the table, but has
 * the segment mapped: then it holds nothing.
 */
static bool has_mapped(uint32_t pid, const char *path)
{
	size_t want = strlen(path);
	bool found = false;
	char *line = NULL;
	size_t size = 0;
	char name[64];
	ssize_t len;
	FILE *maps;

	snprintf(name, sizeof(name), "/proc/%u/maps", pid);
	maps = fopen(name, "re");
	while (maps && !found && (len = getline(&line, &size, maps)) > 0) {
		if (line[len - 1] == '\n')
			line[--len] = '\0';
		found = (size_t)len > want &&
			strcmp(line + len - want, path) == 0;
	}
	free(line);
	if (maps)
		fclose(maps);
	if (found)
		puts("0");
	return found;
}

static int stat_pid(const char *pid_text, const char *key)
{
	const char *own = getenv("MEMTALLY_SESSION");
	struct sessions sessions;
	bool found = false;
	char *end;
	unsigned long pid = strtoul(pid_text, &end, 10);

	if (*end || !pid || pid > INT32_MAX || pid_text[0] == '-') {
		complain(pid_text, "not a pid");
		return CMD_USAGE;
	}
	if (!known_key(key)) {
		complain(key, "no such value; see memtally stat --help");
		return CMD_USAGE;
	}
	/* The session we are in ourselves, most likely. */
	if (own && own[0] == '/')
		found = try_session(own, (uint32_t)pid, key);
	if (!found) {
		find_sessions(&sessions, true);
		for (size_t i = 0; i < sessions.n && !found; i++)
			found = try_session(sessions.paths[i], (uint32_t)pid,
					    key);
		for (size_t i = 0; i < sessions.n && !found; i++)
			found = has_mapped((uint32_t)pid, sessions.paths[i]);
		free_sessions(&sessions);
	}
	if (!found)
		complain(pid_text, "in no session");
	return flush_output() && found ? CMD_OK : CMD_FAILED;
}

static void nap(double seconds)
{
	struct timespec ts;

	ts.tv_sec = (time_t)seconds;
	ts.tv_nsec = (long)((seconds - (double)ts.tv_sec) * 1e9);
	nanosleep(&ts, NULL);
}

/* @found: among the sessions, not a file that somebody keeps. */
static int show(const char *path, bool found, bool json, double every,
		long count)
{
	for (long n = 0; count < 0 || n < count; n++) {
		struct model model;
		int ret;

		if (found)
			reap_path(path);
		ret = model_load(&model, path);
		if (!ret && !model.nr_groups) {
			model_free(&model);
			ret = -EINVAL;
		}
		if (ret) {
			complain(path, segment_error(ret));
			return segment_status(ret);
		}
		if (json)
			print_json(&model);
		else if (every > 0)
			print_line(&model, (unsigned)n);
		else
			print_groups(&model);
		model_free(&model);
		if (!flush_output())
			return CMD_FAILED;
		if (every <= 0)
			break;
		if (n + 1 != count)
			nap(every);
	}
	return CMD_OK;
}

int cmd_stat(int argc, char **argv)
{
	static const struct option options[] = { { "json", 0, NULL, 'j' },
						 { "pid", 1, NULL, 'p' },
						 { "value", 1, NULL, 'v' },
						 { "help", 0, NULL, 'h' },
						 { NULL, 0, NULL, 0 } };
	const char *pid = NULL;
	const char *key = NULL;
	double every = 0;
	long count = -1;
	bool json = false;
	char path[4096];
	char *end;
	int status;
	int opt;

	while ((opt = getopt_long(argc, argv, "w:c:h", options, NULL)) != -1) {
		switch (opt) {
		case 'h':
			fputs(help, stdout);
			return flush_output() ? CMD_OK : CMD_FAILED;
		case 'j':
			json = true;
			break;
		case 'p':
			pid = optarg;
			break;
		case 'v':
			key = optarg;
			break;
		case 'w':
			every = strtod(optarg, &end);
			if (*end || !(every >= 0.01 && every <= 86400)) {
				complain(optarg, "not a number of seconds");
				return CMD_USAGE;
			}
			break;
		case 'c':
			count = strtol(optarg, &end, 10);
			if (*end || count < 1) {
				complain(optarg, "not a count");
				return CMD_USAGE;
			}
			break;
		default:
			return CMD_USAGE;
		}
	}
	if (!pid != !key || (pid && optind < argc) || argc - optind > 1) {
		complain("stat", "see memtally stat --help");
		return CMD_USAGE;
	}
	if (pid)
		return stat_pid(pid, key);
	status = find_session(argv[optind], path);
	if (status)
		return status;
	return show(path, !argv[optind] || argv[optind][0] != '/', json, every,
		    every > 0 ? count : 1);
}
