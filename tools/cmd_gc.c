/* SPDX-License-Identifier: MIT */
/*
 * cmd_gc.c - memtally gc: remove sessions whose processes are gone.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/atomic.h"
#include "core/process.h"
#include "core/reader.h"
#include "tools/cmd.h"
#include "tools/find.h"
#include "tools/proc.h"
#include "tools/reap.h"

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

	reap_path(path);
	if (mt_segment_attach(&session, path))
		return false;
	mt_process_facts(&facts);
	dead = load_acquire(&session.header->nr_live) == 0;
	/* `memtally run` may be about to start its command. */
	if (session.header->pid_ns == facts.pid_ns &&
	    proc_is_alive(load_relaxed(&session.header->supervisor),
			  session.header->boot_ns))
		dead = false;
	mt_segment_detach(&session);
	return dead;
}

/* @dir: an open directory, or any number when @path is absolute. */
static int remove_file(int dir, const char *path, bool only_say)
{
	const char *slash = strrchr(path, '/');
	char name[NAME_MAX + 1];

	snprintf(name, sizeof(name), "%s", slash ? slash + 1 : path);
	mt_reader_clean(name, sizeof(name));
	puts(name);
	if (only_say || !unlinkat(dir, path, 0) || errno == ENOENT)
		return 0;
	complain(path, strerror(errno));
	return 1;
}

/* Is this the name of a mapping table, SEGMENT@SLOT.GENERATION?  Returns the
 * length of SEGMENT, or 0. */
static size_t is_table(const char *name)
{
	static const char digits[] = "0123456789";
	const char *at = strchr(name, '@');
	size_t slot;
	size_t generation;

	if (!at || at - name >= MT_NAME_MAX)
		return 0;
	slot = strspn(at + 1, digits);
	if (!slot || at[1 + slot] != '.')
		return 0;
	generation = strspn(at + slot + 2, digits);
	return generation && !at[slot + 2 + generation] ? (size_t)(at - name)
							: 0;
}

/* Mapping tables whose session is gone, however it went. */
static int remove_tables(const char *dir, bool only_say)
{
	char session[MT_NAME_MAX];
	struct dirent *entry;
	struct stat st;
	int failed = 0;
	DIR *d = opendir(dir);

	while (d && (entry = readdir(d))) {
		size_t len = is_table(entry->d_name);

		if (!len)
			continue;
		memcpy(session, entry->d_name, len);
		session[len] = '\0';
		if (fstatat(dirfd(d), session, &st, AT_SYMLINK_NOFOLLOW) &&
		    errno == ENOENT)
			failed |=
				remove_file(dirfd(d), entry->d_name, only_say);
	}
	if (d)
		closedir(d);
	return failed;
}

int cmd_gc(int argc, char **argv)
{
	static const struct option options[] = { { "dry-run", 0, NULL, 'n' },
						 { "help", 0, NULL, 'h' },
						 { NULL, 0, NULL, 0 } };
	char dirs[2][4096];
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
	find_sessions(&sessions, false);
	for (size_t i = 0; i < sessions.n; i++) {
		if (is_dead(sessions.paths[i]))
			failed |= remove_file(AT_FDCWD, sessions.paths[i],
					      only_say);
	}
	free_sessions(&sessions);
	find_dirs(dirs);
	for (int i = 0; i < 2; i++) {
		if (dirs[i][0])
			failed |= remove_tables(dirs[i], only_say);
	}
	return flush_output() && !failed ? CMD_OK : CMD_FAILED;
}
