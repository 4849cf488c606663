/* SPDX-License-Identifier: MIT */
/*
 * find.c - looking for sessions: in this user's two directories and, for root,
 * in everybody's.  Only names are read here; what is behind them is the
 * reader's to judge.
 */
#include "tools/find.h"

#include <dirent.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/segment.h"
#include "tools/cmd.h"
#include "tools/model.h"
#include "tools/reap.h"

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
		if (entry->d_type != DT_DIR &&
		    mt_session_name_ok(entry->d_name))
			add_path(sessions, dir, entry->d_name);
	}
	if (d)
		closedir(d);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void find_dirs(char dirs[2][4096])
{
	if (mt_place_dir(dirs[0], getenv("XDG_RUNTIME_DIR"), false))
		dirs[0][0] = '\0';
	/* Both: who started a session may have had another environment. */
	if (mt_place_dir(dirs[1], NULL, false) || strcmp(dirs[0], dirs[1]) == 0)
		dirs[1][0] = '\0';
}

/* Other users' directories, by their usual names; never through a link. */
static void look_everywhere(struct sessions *sessions, char own[2][4096])
{
	static const char *const patterns[] = { "/dev/shm/memtally-[0-9]*",
						"/run/user/[0-9]*/memtally" };
	struct stat st;
	glob_t found;

	for (int i = 0; i < 2; i++) {
		if (glob(patterns[i], 0, NULL, &found))
			continue;
		for (size_t k = 0; k < found.gl_pathc; k++) {
			const char *dir = found.gl_pathv[k];

			if (strcmp(dir, own[0]) != 0 &&
			    strcmp(dir, own[1]) != 0 && !lstat(dir, &st) &&
			    S_ISDIR(st.st_mode))
				look_in(sessions, dir);
		}
		globfree(&found);
	}
}

void find_sessions(struct sessions *sessions, bool everybody)
{
	char dirs[2][4096];
	size_t own;

	memset(sessions, 0, sizeof(*sessions));
	find_dirs(dirs);
	for (int i = 0; i < 2; i++) {
		if (dirs[i][0])
			look_in(sessions, dirs[i]);
	}
	own = sessions->n;
	if (everybody && geteuid() == 0)
		look_everywhere(sessions, dirs);
	if (own)
		qsort(sessions->paths, own, sizeof(char *), by_name);
	if (sessions->n > own)
		qsort(sessions->paths + own, sessions->n - own, sizeof(char *),
		      by_name);
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
	char names[512] = "several are live, name one:";
	size_t len = strlen(names);
	size_t live = 0;

	for (size_t i = 0; i < sessions->n; i++) {
		const char *path = sessions->paths[i];
		struct model model;
		bool alive;

		reap_path(path);
		if (model_load(&model, path))
			continue;
		alive = model.nr_alive > 0;
		model_free(&model);
		if (!alive)
			continue;
		if (++live == 1)
			snprintf(ret_path, 4096, "%s", path);
		if (len + strlen(base(path)) + 8 < sizeof(names))
			len += (size_t)sprintf(names + len, " %s", base(path));
		else if (strcmp(names + len - 3, "...") != 0)
			len += (size_t)sprintf(names + len, " ...");
	}
	if (live == 1)
		return CMD_OK;
	if (live)
		complain("which session", names);
	else
		complain("no live session", "start one with memtally run, or "
					    "name one that ended");
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
	find_sessions(&sessions, name != NULL);
	if (!name) {
		status = only_live(&sessions, ret_path);
		free_sessions(&sessions);
		return status;
	}
	for (size_t i = 0; i < sessions.n && status; i++) {
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

int find_group(const char *text, char *ret_path, char *ret_group)
{
	const char *colon = NULL;
	char session[4096];
	size_t len;

	/* A session's name may have colons in it, and a group's as well. */
	if (text[0] != '/')
		colon = strstr(text, ":/");
	if ((text[0] != '/' && !colon) || strlen(text) >= sizeof(session)) {
		complain(text, "not a group: /PATH or SESSION:/PATH");
		return CMD_USAGE;
	}
	strcpy(ret_group, colon ? colon + 1 : text);
	for (len = strlen(ret_group); len > 1 && ret_group[len - 1] == '/';)
		ret_group[--len] = '\0';
	if (!colon)
		return find_session(NULL, ret_path);
	snprintf(session, sizeof(session), "%.*s", (int)(colon - text), text);
	return find_session(session, ret_path);
}
