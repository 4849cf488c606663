/* SPDX-License-Identifier: MIT */
/*
 * map_test.h - for the tests of the mapping family: what is charged, and what
 * the kernel accounts.
 *
 * The reader is a shell command in READ_ACCOUNTED (READ_SHMEM) that
 * prints the pages of process $ACCT_PID, private accounted ones (shared
 * memory); or functions that the preloaded library offers.  Without either
 * the test is skipped.
 */
#ifndef MAP_TEST_H
#define MAP_TEST_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define RW   (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

#define FAIL(...)                                                              \
	do {                                                                   \
		fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                \
		fprintf(stderr, __VA_ARGS__);                                  \
		fputc('\n', stderr);                                           \
		_exit(1);                                                      \
	} while (0)
#define CHECK(x)                                                               \
	do {                                                                   \
		if (!(x))                                                      \
			FAIL("%s: errno %d", #x, errno);                       \
	} while (0)
#define SAME(a, b)                                                             \
	do {                                                                   \
		long a_ = (long)(a);                                           \
		long b_ = (long)(b);                                           \
		if (a_ != b_)                                                  \
			FAIL("%s is %ld, not %ld", #a, a_, b_);                \
	} while (0)

enum { ACCOUNTED = -1, SHMEM = 3 };

__attribute__((unused)) static long read_pages(int what)
{
	const char *command =
		getenv(what == ACCOUNTED ? "READ_ACCOUNTED" : "READ_SHMEM");
	long (*ask)(int) = (long (*)(int))dlsym(RTLD_DEFAULT, "stub_charged");
	char out[64] = "";
	char id[24];
	size_t have = 0;
	ssize_t n;
	pid_t child;
	int fd[2];

	if (ask)
		return ask(what);
	if (sysconf(_SC_PAGESIZE) != (long)PAGE || !command) {
		printf("SKIP: nothing to read the charge with\n");
		exit(77);
	}
	CHECK(!pipe(fd));
	snprintf(id, sizeof(id), "%d", (int)getpid());
	child = fork();
	if (!child) {
		setenv("ACCT_PID", id, 1);
		dup2(fd[1], 1);
		close(fd[0]);
		close(fd[1]);
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	close(fd[1]);
	while (have < sizeof(out) - 1 &&
	       (n = read(fd[0], out + have, sizeof(out) - 1 - have)) > 0)
		have += (size_t)n;
	close(fd[0]);
	CHECK(waitpid(child, NULL, 0) == child);
	return strtol(out, NULL, 10);
}

/* Calls @each for all ranges that smaps shows with the flag "ac". */
static void kernel_ranges(void (*each)(uintptr_t from, uintptr_t to, void *arg),
			  void *arg)
{
	static char text[1 << 22];
	uintptr_t from = 0;
	uintptr_t to = 0;
	size_t have = 0;
	ssize_t n;
	int fd = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0);
	while (have < sizeof(text) - 1 &&
	       (n = read(fd, text + have, sizeof(text) - 1 - have)) > 0)
		have += (size_t)n;
	close(fd);
	text[have] = '\0';
	for (char *line = text; *line;) {
		char *eol = strchr(line, '\n');
		char *rest;

		*eol = '\0';
		if (!strncmp(line, "VmFlags:", 8)) {
			if (strstr(line, " ac"))
				each(from, to, arg);
		} else if (line[0] != ' ' &&
			   strchr("0123456789abcdef", line[0])) {
			from = strtoul(line, &rest, 16);
			if (*rest == '-')
				to = strtoul(rest + 1, NULL, 16);
		}
		line = eol + 1;
	}
}

struct kernel_window {
	uintptr_t start;
	uintptr_t end;
	long pages;
	unsigned char *flags; /* one for each page, or NULL */
};

static void kernel_count(uintptr_t from, uintptr_t to, void *arg)
{
	struct kernel_window *w = arg;

	from = from < w->start ? w->start : from;
	to = to > w->end ? w->end : to;
	if (from >= to)
		return;
	w->pages += (long)((to - from) / PAGE);
	if (w->flags)
		memset(w->flags + (from - w->start) / PAGE, 1,
		       (to - from) / PAGE);
}

/* Pages in [start, end) that the kernel accounts. */
__attribute__((unused)) static long kernel_pages(const char *start,
						 const char *end)
{
	struct kernel_window w = { (uintptr_t)start, (uintptr_t)end, 0, NULL };

	kernel_ranges(kernel_count, &w);
	return w.pages;
}

/* Which of the pages from @start on it accounts. */
__attribute__((unused)) static void kernel_flags(const char *start,
						 size_t pages,
						 unsigned char *flags)
{
	struct kernel_window w = { (uintptr_t)start,
				   (uintptr_t)start + pages * PAGE, 0, flags };

	memset(flags, 0, pages);
	kernel_ranges(kernel_count, &w);
}

__attribute__((unused)) static void touch(char *p, size_t len)
{
	for (size_t i = 0; i < len; i += PAGE)
		((volatile char *)p)[i] = 1;
}

__attribute__((unused)) static char *map(size_t pages, int prot, int flags)
{
	char *p = mmap(NULL, pages * PAGE, prot, flags, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

/* Address space that costs nothing, to work in. */
__attribute__((unused)) static char *window(size_t pages)
{
	return map(pages, PROT_NONE, ANON | MAP_NORESERVE);
}

#endif
