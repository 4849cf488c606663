/* SPDX-License-Identifier: MIT */
/*
 * count.h - what the preload tests share: numbers read through the segment,
 * by the tool, and ways to fail.
 */
#ifndef MT_TESTS_COUNT_H
#define MT_TESTS_COUNT_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SKIP 77

/* Not exit(): handlers are what is tested here and there. */
__attribute__((noreturn, format(printf, 1, 2))) static inline void fail(
	const char *format, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	dprintf(2, "FAIL: %s\n", text);
	_exit(1);
}

#define must(x)                                                                \
	do {                                                                   \
		if (!(x))                                                      \
			fail("line %d: %s (%s)", __LINE__, #x,                 \
			     strerror(errno));                                 \
	} while (0)

/*
 * The number that the command in environment variable @reader prints for
 * @pid.  The reader is a process of its own, as any onlooker is.
 */
static inline long count_of(const char *reader, pid_t pid)
{
	const char *command = getenv(reader);
	char text[64] = "";
	char number[16];
	ssize_t n = 0;
	ssize_t more;
	int fd[2];
	char *end;
	pid_t child;
	long value;

	if (!command) {
		puts("not run by the test suite");
		exit(SKIP);
	}
	must(pipe(fd) == 0);
	snprintf(number, sizeof(number), "%d", (int)pid);
	child = fork();
	must(child >= 0);
	if (child == 0) {
		setenv("ACCT_PID", number, 1);
		setenv("MEMTALLY_DISABLE", "1", 1);
		dup2(fd[1], 1);
		close(fd[0]);
		close(fd[1]);
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	close(fd[1]);
	while ((more = read(fd[0], text + n, sizeof(text) - 1 - (size_t)n)) > 0)
		n += more;
	close(fd[0]);
	waitpid(child, NULL, 0);
	value = strtol(text, &end, 10);
	if (end == text)
		fail("no number from: %s", command);
	return value;
}

static inline long charged(void)
{
	return count_of("ACCT_READ", getpid());
}

static inline long heap(void)
{
	return count_of("READ_HEAP", getpid());
}

static inline long accounted(void)
{
	return count_of("READ_ACCOUNTED", getpid());
}

static inline long shmem(void)
{
	return count_of("READ_SHMEM", getpid());
}

static inline long page(void)
{
	return sysconf(_SC_PAGESIZE);
}

/* Have I exited with status 0? */
static inline void expect_clean_exit(pid_t pid)
{
	int status;

	must(waitpid(pid, &status, 0) == pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail("child ended with status %x", status);
}

/*
 * Pages that may be left when everything was freed: where the system makes
 * huge pages by itself, what one brought in beside the blocks stays, in four
 * of them at most in each test here.
 */
static inline long left_over(void)
{
	int fd = open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY);
	char first = 0;

	/* "[always] madvise never" */
	must(fd < 0 || read(fd, &first, 1) == 1);
	close(fd);
	return 64 + (first == '[' ? 2048 : 0);
}

#endif
