/* SPDX-License-Identifier: MIT */
/*
 * cmd_explain.c - memtally explain: what the kernel has in memory of a process,
 * and how much of it is known here.
 */
#include <cjson/cJSON.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/atomic.h"
#include "tools/cmd.h"
#include "tools/explain.h"
#include "tools/find.h"
#include "tools/format.h"

static const char help[] =
	"Examples:\n"
	"  memtally explain                 every process of the only session\n"
	"  memtally explain 4711            one\n"
	"  memtally explain --maps 4711     mapping by mapping\n"
	"\n"
	"Usage: memtally explain [--maps] [--json] [PID]\n"
	"\n"
	"Reads /proc/PID/smaps, and pagemap: the process waits when it maps "
	"meanwhile,\n"
	"some milliseconds for each gigabyte it has in memory.\n";

struct options {
	bool maps;
	bool json;
	uint32_t pid; /* 0: all */
};

static const char *group_name(const struct model *model, uint32_t group)
{
	return group < model->nr_groups ? model->groups[group].path : "";
}

static void print_map(const struct explain *explain,
		      const struct smaps_range *mapping, uint64_t start,
		      uint64_t end, enum explain_kind kind, uint32_t group,
		      int64_t resident)
{
	char name[sizeof(mapping->name)];
	char size[16];
	char text[16];

	snprintf(name, sizeof(name), "%s", mapping->name);
	mt_reader_clean(name, sizeof(name));
	printf("%012" PRIx64 "-%012" PRIx64 " %s %9s %9s  %s%s%s%s%s\n", start,
	       end, mapping->mode, format_bytes((int64_t)(end - start), size),
	       format_bytes(resident, text), explain_name(kind),
	       group < explain->model->nr_groups ? " " : "",
	       group_name(explain->model, group), name[0] ? "  " : "", name);
}

static void print_text(const struct explain *explain)
{
	const struct model_process *process = explain->process;
	char resident[16];
	char charged[16];

	printf("%s[%u]  %s resident, %.1f%% of it known\n",
	       process->record.comm, process->pid,
	       format_bytes(explain->resident, resident),
	       100 * explain_coverage(explain));
	printf("  %-34s %-24s %9s %9s\n", "CATEGORY", "GROUP", "RESIDENT",
	       "CHARGED");
	for (uint32_t i = 0; i < explain->nr; i++) {
		const struct explain_category *c = &explain->list[i];

		if (c->resident || c->charged)
			printf("  %-34s %-24s %9s %9s\n", explain_name(c->kind),
			       group_name(explain->model, c->group),
			       format_bytes(c->resident, resident),
			       c->charged ? format_bytes(c->charged, charged)
					  : "-");
	}
}

static void add_json(cJSON *list, const struct explain *explain)
{
	cJSON *object = cJSON_CreateObject();
	cJSON *categories;

	model_put(object, "pid", explain->process->pid);
	cJSON_AddStringToObject(object, "comm", explain->process->record.comm);
	model_put(object, "rss", explain->resident);
	cJSON_AddNumberToObject(object, "coverage", explain_coverage(explain));
	categories = cJSON_AddArrayToObject(object, "categories");
	for (uint32_t i = 0; i < explain->nr; i++) {
		const struct explain_category *c = &explain->list[i];
		cJSON *entry = cJSON_CreateObject();

		cJSON_AddStringToObject(entry, "name", explain_name(c->kind));
		if (c->group < explain->model->nr_groups)
			cJSON_AddStringToObject(
				entry, "group",
				group_name(explain->model, c->group));
		else
			cJSON_AddNullToObject(entry, "group");
		model_put(entry, "resident", c->resident);
		model_put(entry, "charged", c->charged);
		cJSON_AddItemToArray(categories, entry);
	}
	cJSON_AddItemToArray(list, object);
}

static const char *reason(int error)
{
	return error == -ENOENT || error == -ESRCH ? "no such process"
						   : strerror(-error);
}

/* Those of one session that were asked for.  Return: how many. */
static unsigned explain_session(const char *path, const struct options *options,
				cJSON *list, int *status)
{
	struct model model;
	unsigned n = 0;

	if (model_load(&model, path))
		return 0;
	for (uint32_t i = 0; i < model.nr_processes; i++) {
		const struct model_process *process = &model.processes[i];
		struct explain explain = {
			.model = &model,
			.process = process,
			.each = options->maps ? print_map : NULL,
		};
		char pid[16];
		int ret;

		if (!process->alive ||
		    load_relaxed(&process->record.pid_ns) != model.pid_ns ||
		    (options->pid && process->pid != options->pid))
			continue;
		ret = explain_process(&explain);
		snprintf(pid, sizeof(pid), "%u", process->pid);
		/* It may have ended meanwhile; asked for by name, that's news. */
		if (!ret && !options->json && !options->maps)
			print_text(&explain);
		else if (!ret && options->json)
			add_json(list, &explain);
		else if (ret &&
			 (options->pid || (ret != -ENOENT && ret != -ESRCH))) {
			complain(pid, reason(ret));
			*status = CMD_FAILED;
		}
		n++;
		explain_free(&explain);
	}
	model_free(&model);
	return n;
}

static int explain_all(const struct options *options, cJSON *list)
{
	struct sessions sessions;
	int status = CMD_OK;
	char path[4096];
	char pid[16];
	unsigned n = 0;

	if (!options->pid) {
		status = find_session(NULL, path);
		if (!status)
			explain_session(path, options, list, &status);
		return status;
	}
	find_sessions(&sessions, true);
	for (size_t i = 0; i < sessions.n && !n; i++)
		n = explain_session(sessions.paths[i], options, list, &status);
	free_sessions(&sessions);
	if (!n) {
		snprintf(pid, sizeof(pid), "%u", options->pid);
		complain(pid, "in no session");
		status = CMD_FAILED;
	}
	return status;
}

int cmd_explain(int argc, char **argv)
{
	static const struct option options[] = { { "maps", 0, NULL, 'm' },
						 { "json", 0, NULL, 'j' },
						 { "help", 0, NULL, 'h' },
						 { NULL, 0, NULL, 0 } };
	struct options chosen = { false, false, 0 };
	cJSON *object = NULL;
	cJSON *list = NULL;
	char *text;
	char *end;
	int status;
	int opt;

	while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (opt) {
		case 'm':
			chosen.maps = true;
			break;
		case 'j':
			chosen.json = true;
			break;
		case 'h':
			fputs(help, stdout);
			return flush_output() ? CMD_OK : CMD_FAILED;
		default:
			return CMD_USAGE;
		}
	}
	if (argc - optind > 1 || (chosen.maps && chosen.json)) {
		complain("explain", argc - optind > 1
					    ? "one process at a time, or all"
					    : "--maps or --json, not both");
		return CMD_USAGE;
	}
	if (argv[optind]) {
		unsigned long pid = strtoul(argv[optind], &end, 10);

		if (*end || end == argv[optind] || !pid || pid > INT32_MAX ||
		    argv[optind][0] == '-') {
			complain(argv[optind], "not a pid");
			return CMD_USAGE;
		}
		chosen.pid = (uint32_t)pid;
	}
	if (chosen.json) {
		object = cJSON_CreateObject();
		list = cJSON_AddArrayToObject(object, "processes");
	}
	status = explain_all(&chosen, list);
	if (chosen.json && !status) {
		text = cJSON_Print(object);
		if (text)
			puts(text);
		free(text);
	}
	cJSON_Delete(object);
	return flush_output() ? status : CMD_FAILED;
}
