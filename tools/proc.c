/* SPDX-License-Identifier: MIT */
/*
 * proc.c - asking /proc after a process.
 *
 * The same rule as core's for writers (process.h): a pid alone says little,
 * since pids are used again.
 */
#include "tools/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The state, the number of threads and the start; 0 when one is missing. */
static int read_stat(uint32_t pid, char *state, long *threads,
		     uint64_t *start_ticks)
{
	char text[768];
	char path[32];
	const char *at;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%" PRIu32 "/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	/* The name may hold anything: look for its end from behind. */
	at = strrchr(text, ')');
	return at && sscanf(at + 1,
			    " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
			    "%*s %*s %*s %*s %*s %ld %*s %" SCNu64,
			    state, threads, start_ticks) == 3;
}

bool proc_is_alive(uint32_t pid, uint64_t when_ns)
{
	long ticks = sysconf(_SC_CLK_TCK);
	uint64_t start;
	long threads;
	char state;

	if (pid == 0 || pid > INT32_MAX)
		return false;
	if (kill((pid_t)pid, 0) && errno == ESRCH)
		return false;
	if (!read_stat(pid, &state, &threads, &start))
		return !kill((pid_t)pid, 0) || errno != ESRCH;
	if ((state == 'Z' || state == 'X') && threads <= 1)
		return false;
	return ticks <= 0 ||
	       start * (UINT64_C(1000000000) / (uint64_t)ticks) <= when_ns;
}
