/* SPDX-License-Identifier: MIT */
#include "tools/find.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/segment.h"
#include "tools/cmd.h"
#include "tools/model.h"

static void add_path(struct sessions *sessions, const char *dir,
		     const char *name)
{
	char **more =
		realloc(sessions->paths, (sessions->n + 1) * sizeof(*more));
	size_t size = strlen(dir) + strlen(name) + 2;

	if (!more)
		return;
	sessions->paths = more;
	more[sessions->n] = malloc(size);
	if (more[sessions->n])
		snprintf(more[sessions->n++], size, "%s/%s", dir, name);
}

static void look_in(struct sessions *sessions, const char *dir)
{
	struct dirent *entry;
	DIR *d = opendir(dir);

	while (d && (entry = readdir(d))) {
		if (mt_session_name_ok(entry->d_name))
			add_path(sessions, dir, entry->d_name);
	}
	if (d)
		closedir(d);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void find_sessions(struct sessions *sessions)
{
	char first[MT_PATH_MAX];
	char second[MT_PATH_MAX];
	int ret;

	memset(sessions, 0, sizeof(*sessions));
	ret = mt_place_dir(first, getenv("XDG_RUNTIME_DIR"), false);
	if (!ret)
		look_in(sessions, first);
	/* Both: who started a session may have had another environment. */
	if (!mt_place_dir(second, NULL, false) &&
	    (ret || strcmp(first, second) != 0))
		look_in(sessions, second);
	if (sessions->n)
		qsort(sessions->paths, sessions->n, sizeof(char *), by_name);
}

void free_sessions(struct sessions *sessions)
{
	for (size_t i = 0; i < sessions->n; i++)
		free(sessions->paths[i]);
	free(sessions->paths);
}

static const char *base(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static int only_live(const struct sessions *sessions, char *ret_path)
{
	size_t live = 0;

	for (size_t i = 0; i < sessions->n; i++) {
		struct model model;

		if (model_load(&model, sessions->paths[i]))
			continue;
		if (model.nr_alive && ++live == 1)
			snprintf(ret_path, 4096, "%s", sessions->paths[i]);
		model_free(&model);
	}
	if (live == 1)
		return CMD_OK;
	complain(live ? "which session" : "no live session",
		 live ? "several are live, name one (memtally ls)"
		      : "start one with memtally run, or name one that ended");
	return CMD_FAILED;
}

int find_session(const char *name, char *ret_path)
{
	struct sessions sessions;
	int status = CMD_FAILED;

	if (name && name[0] == '/') {
		if (strlen(name) >= 4096) {
			complain(name, "name too long");
			return CMD_FAILED;
		}
		strcpy(ret_path, name);
		return CMD_OK;
	}
	find_sessions(&sessions);
	if (!name) {
		status = only_live(&sessions, ret_path);
		free_sessions(&sessions);
		return status;
	}
	for (size_t i = 0; i < sessions.n; i++) {
		if (strcmp(base(sessions.paths[i]), name) == 0) {
			snprintf(ret_path, 4096, "%s", sessions.paths[i]);
			status = CMD_OK;
		}
	}
	if (status)
		complain(name, "no such session (memtally ls)");
	free_sessions(&sessions);
	return status;
}
