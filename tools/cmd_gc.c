/* SPDX-License-Identifier: MIT */
/*
 * cmd_gc.c - memtally gc: remove sessions whose processes are gone.
 */
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/atomic.h"
#include "core/process.h"
#include "tools/cmd.h"
#include "tools/find.h"
#include "tools/model.h"

static const char help[] =
	"Usage: memtally gc [-n]\n"
	"\n"
	"Removes this user's sessions in which no process is left, and prints\n"
	"what it removed.  -n: only says what it would remove.\n";

/* Nobody in it lives, and nobody of another pid namespace may do so. */
static bool is_dead(const char *path)
{
	struct mt_process_facts facts;
	struct mt_session session;
	bool dead;

	if (mt_segment_attach(&session, path))
		return false;
	mt_process_facts(&facts);
	mt_process_reap_dead(&session, facts.pid_ns, UINT32_MAX);
	dead = load_acquire(&session.header->nr_live) == 0;
	if (load_relaxed(&session.header->supervisor) &&
	    session.header->pid_ns == facts.pid_ns &&
	    access("/proc/self", F_OK) == 0) {
		char proc[64];

		/* `memtally run` may be about to start its command. */
		snprintf(proc, sizeof(proc), "/proc/%u",
			 load_relaxed(&session.header->supervisor));
		dead = dead && access(proc, F_OK) != 0;
	}
	mt_segment_detach(&session);
	return dead;
}

/* A file that is no session at all, or one of another version: old ones of
 * ours are removed, strangers left alone. */
static int remove_session(const char *path, bool only_say)
{
	const char *slash = strrchr(path, '/');
	size_t len = strlen(slash + 1);
	struct dirent *entry;
	char dir[4096];
	DIR *d;

	puts(slash + 1);
	if (only_say)
		return 0;
	if (unlink(path)) {
		complain(path, strerror(errno));
		return 1;
	}
	snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path);
	d = opendir(dir);
	while (d && (entry = readdir(d))) {
		if (strlen(entry->d_name) > len &&
		    memcmp(entry->d_name, slash + 1, len) == 0 &&
		    entry->d_name[len] == '@')
			unlinkat(dirfd(d), entry->d_name, 0);
	}
	if (d)
		closedir(d);
	return 0;
}

int cmd_gc(int argc, char **argv)
{
	static const struct option options[] = { { "dry-run", 0, NULL, 'n' },
						 { "help", 0, NULL, 'h' },
						 { NULL, 0, NULL, 0 } };
	struct sessions sessions;
	bool only_say = false;
	int failed = 0;
	int opt;

	while ((opt = getopt_long(argc, argv, "nh", options, NULL)) != -1) {
		if (opt == 'h') {
			fputs(help, stdout);
			return flush_output() ? CMD_OK : CMD_FAILED;
		}
		if (opt != 'n')
			return CMD_USAGE;
		only_say = true;
	}
	if (optind < argc) {
		complain(argv[optind], "gc takes no argument");
		return CMD_USAGE;
	}
	find_sessions(&sessions);
	for (size_t i = 0; i < sessions.n; i++) {
		if (is_dead(sessions.paths[i]))
			failed |= remove_session(sessions.paths[i], only_say);
	}
	free_sessions(&sessions);
	return flush_output() && !failed ? CMD_OK : CMD_FAILED;
}
