/* SPDX-License-Identifier: MIT */
/*
 * proc.c - asking /proc after a process.
 *
 * The same rule as core's for writers (process.h): a pid alone says little,
 * since pids are used again.
 */
#include "tools/proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct status {
	char state;
	long threads;
	uint64_t start_ticks;
};

/* Fields of /proc/PID/stat, counted from 1 as its manual does. */
enum { STATE = 3, THREADS = 20, START = 22 };

static bool parse_stat(const char *text, struct status *ret)
{
	/* The name may hold anything: look for its end from behind. */
	const char *at = strrchr(text, ')');
	int field = STATE - 1;

	while (at && field < START) {
		at = strchr(at + 1, ' ');
		if (!at || !at[1])
			return false;
		field++;
		if (field == STATE)
			ret->state = at[1];
		else if (field == THREADS)
			ret->threads = strtol(at + 1, NULL, 10);
		else if (field == START)
			ret->start_ticks = strtoull(at + 1, NULL, 10);
	}
	return at != NULL;
}

static bool read_stat(uint32_t pid, struct status *ret)
{
	char text[768];
	char path[32];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%" PRIu32 "/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return false;
	text[n] = '\0';
	return parse_stat(text, ret);
}

bool proc_is_alive(uint32_t pid, uint64_t when_ns)
{
	long ticks = sysconf(_SC_CLK_TCK);
	struct status status = { 0 };

	if (pid == 0 || pid > INT32_MAX)
		return false;
	if (kill((pid_t)pid, 0) && errno == ESRCH)
		return false;
	if (!read_stat(pid, &status))
		return !kill((pid_t)pid, 0) || errno != ESRCH;
	if ((status.state == 'Z' || status.state == 'X') && status.threads <= 1)
		return false;
	return ticks <= 0 ||
	       status.start_ticks * (UINT64_C(1000000000) / (uint64_t)ticks) <=
		       when_ns;
}

/* The last number in its NSpid line: its pid in its own namespace.  0 when that
 * is ours. */
static uint32_t own_pid(const char *number)
{
	char text[2048];
	char path[64];
	char *at;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%.16s/status", number);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	at = strstr(text, "\nNSpid:");
	if (!at)
		return 0;
	at += 7;
	at[strcspn(at, "\n")] = '\0';
	/* "NSpid:\t4711\t1": the first is the one we know. */
	return strchr(at, '\t') == strrchr(at, '\t')
		       ? 0
		       : (uint32_t)strtoul(strrchr(at, '\t'), NULL, 10);
}

uint32_t proc_find(uint32_t pid, uint64_t ns)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	uint32_t found = 0;

	while (dir && !found && (entry = readdir(dir))) {
		char path[64];
		struct stat st;

		if (entry->d_name[0] < '1' || entry->d_name[0] > '9' ||
		    own_pid(entry->d_name) != pid)
			continue;
		snprintf(path, sizeof(path), "/proc/%.16s/ns/pid",
			 entry->d_name);
		if (!stat(path, &st) && st.st_ino == ns)
			found = (uint32_t)strtoul(entry->d_name, NULL, 10);
	}
	if (dir)
		closedir(dir);
	return found;
}
