/* SPDX-License-Identifier: MIT */
/*
 * cmd_ls.c - memtally ls: the sessions there are.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/atomic.h"
#include "tools/cmd.h"
#include "tools/find.h"
#include "tools/model.h"
#include "tools/reap.h"

static const char help[] =
	"Usage: memtally ls [--json]\n"
	"\n"
	"Lists this user's sessions.  live: processes run in it; dead: none\n"
	"does; stale: none does, and what they held could not be taken back.\n";

static cJSON *entry(const struct model *model)
{
	const struct mt_group *root = &model->groups[MT_ROOT].record;
	cJSON *object = cJSON_CreateObject();

	cJSON_AddStringToObject(object, "name", model->reader.header.name);
	cJSON_AddStringToObject(object, "state", model_state(model));
	cJSON_AddNumberToObject(object, "uid", model->reader.header.uid);
	cJSON_AddNumberToObject(object, "processes", model->nr_alive);
	model_put(object, "current",
		  model_bytes(model, load_relaxed(&root->usage)));
	model_put(object, "peak",
		  model_bytes(model, load_relaxed(&root->peak)));
	if (load_relaxed(&root->max) >= MT_UNLIMITED)
		cJSON_AddNullToObject(object, "max");
	else
		model_put(object, "max",
			  model_bytes(model, load_relaxed(&root->max)));
	return object;
}

static void print_entry(const struct model *model)
{
	const struct mt_group *root = &model->groups[MT_ROOT].record;
	int64_t max = load_relaxed(&root->max);
	char a[16];
	char b[16];
	char c[16];

	printf("%-28s %-6s %5u %6u %9s %9s %9s\n", model->reader.header.name,
	       model_state(model), model->reader.header.uid, model->nr_alive,
	       model_size(model, load_relaxed(&root->usage), a),
	       model_size(model, load_relaxed(&root->peak), b),
	       max >= MT_UNLIMITED ? "-" : model_size(model, max, c));
}

int cmd_ls(int argc, char **argv)
{
	static const struct option options[] = { { "json", 0, NULL, 'j' },
						 { "help", 0, NULL, 'h' },
						 { NULL, 0, NULL, 0 } };
	struct sessions sessions;
	cJSON *object = NULL;
	cJSON *list = NULL;
	bool json = false;
	char *text;
	int opt;

	while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (opt == 'h') {
			fputs(help, stdout);
			return flush_output() ? CMD_OK : CMD_FAILED;
		}
		if (opt != 'j')
			return CMD_USAGE;
		json = true;
	}
	if (optind < argc) {
		complain(argv[optind], "ls takes no argument");
		return CMD_USAGE;
	}
	if (json) {
		object = cJSON_CreateObject();
		list = cJSON_AddArrayToObject(object, "sessions");
	}
	find_sessions(&sessions, true);
	if (!json && sessions.n)
		printf("%-28s %-6s %5s %6s %9s %9s %9s\n", "NAME", "STATE",
		       "UID", "PROCS", "CURRENT", "PEAK", "MAX");
	for (size_t i = 0; i < sessions.n; i++) {
		struct model model;
		int ret;

		reap_path(sessions.paths[i]);
		ret = model_load(&model, sessions.paths[i]);
		if (ret) {
			complain(sessions.paths[i], segment_error(ret));
			continue;
		}
		if (model.nr_groups && json)
			cJSON_AddItemToArray(list, entry(&model));
		else if (model.nr_groups)
			print_entry(&model);
		model_free(&model);
	}
	free_sessions(&sessions);
	if (json) {
		text = cJSON_Print(object);
		puts(text ? text : "");
		free(text);
		cJSON_Delete(object);
	}
	return flush_output() ? CMD_OK : CMD_FAILED;
}
