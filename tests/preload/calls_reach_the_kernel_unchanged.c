/* SPDX-License-Identifier: MIT */
/*
 * Watched by ptrace: a mapping call of the program is one system call, with
 * the program's own arguments; and a heap that is warm makes none at all.
 */
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#include "tests/preload/count.h"

#define CALLS 64

struct call {
	unsigned long nr;
	unsigned long args[6];
};

/* No kernel knows these: they fail, and the watcher sees them. */
enum { BEGIN = 100000, END };

#define RW   (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

static void map_and_unmap(void)
{
	size_t pg = (size_t)page();
	char *p;

	p = mmap((void *)0x200000000000, 5 * pg - 7, RW,
		 ANON | MAP_FIXED_NOREPLACE, -1, 0);
	mprotect(p, 4 * pg + 1, PROT_READ);
	p = mremap(p, 5 * pg, 9 * pg, MREMAP_MAYMOVE);
	munmap(p, 9 * pg);
	/* Hints and flags that a shim might think it knows better. */
	p = mmap(NULL, pg, RW, ANON | MAP_NORESERVE | MAP_POPULATE, -1, 0);
	munmap(p, pg);
#ifdef MAP_32BIT
	p = mmap((void *)0x12345000, (size_t)4 << 20, PROT_READ,
		 ANON | MAP_32BIT, -1, 0);
	munmap(p, (size_t)4 << 20);
#endif
}

static void mapping_calls(void)
{
	/* A new process joins the session and asks a few things first. */
	map_and_unmap();
	syscall(BEGIN);
	map_and_unmap();
	syscall(END);
}

#define IS(k, number, a, b, c, d)                                              \
	do {                                                                   \
		const struct call *call_ = &calls[k];                          \
		if (call_->nr != (number) ||                                   \
		    call_->args[0] != (unsigned long)(a) ||                    \
		    call_->args[1] != (unsigned long)(b) ||                    \
		    call_->args[2] != (unsigned long)(c) ||                    \
		    call_->args[3] != (unsigned long)(d))                      \
			fail("call %d: %lu(%lx, %lx, %lx, %lx)", k, call_->nr, \
			     call_->args[0], call_->args[1], call_->args[2],   \
			     call_->args[3]);                                  \
	} while (0)

/* Arguments that were never meant are whatever the register holds. */
#define ANY(k, i) calls[k].args[i]

static void check_mapping_calls(const struct call *calls, int n)
{
	unsigned long pg = (unsigned long)page();
	unsigned long at = 0x200000000000;

	IS(0, SYS_mmap, at, 5 * pg - 7, RW, ANON | MAP_FIXED_NOREPLACE);
	IS(1, SYS_mprotect, at, 4 * pg + 1, PROT_READ, ANY(1, 3));
	IS(2, SYS_mremap, at, 5 * pg, 9 * pg, MREMAP_MAYMOVE);
	IS(3, SYS_munmap, at, 9 * pg, ANY(3, 2), ANY(3, 3));
	IS(4, SYS_mmap, 0, pg, RW, ANON | MAP_NORESERVE | MAP_POPULATE);
	IS(5, SYS_munmap, ANY(5, 0), pg, ANY(5, 2), ANY(5, 3));
	if (n == 6)
		return;
#ifdef MAP_32BIT
	IS(6, SYS_mmap, 0x12345000, 4 << 20, PROT_READ, ANON | MAP_32BIT);
	IS(7, SYS_munmap, ANY(7, 0), 4 << 20, ANY(7, 2), ANY(7, 3));
#endif
	must(n == 8);
}

static void heap_calls(void)
{
	static char *blocks[1000];

	for (int round = 0; round < 200; round++) {
		if (round == 100)
			syscall(BEGIN);
		for (int i = 0; i < 1000; i++)
			blocks[i] = malloc((size_t)(i * 7 % 3000));
		for (int i = 0; i < 1000; i++)
			free(blocks[i]);
	}
	syscall(END);
}

static void check_heap_calls(const struct call *calls, int n)
{
	/* 100,000 of each: a look at the clock now and then, no more. */
	if (n > 50)
		fail("%d system calls, the first %lu", n, calls[0].nr);
}

static void watch(void (*make)(void), void (*check)(const struct call *, int))
{
	static struct call calls[CALLS];
	struct __ptrace_syscall_info info;
	int watching = 0;
	int status;
	int n = 0;
	pid_t pid = fork();

	if (pid == 0) {
		if (ptrace(PTRACE_TRACEME, 0, 0, 0))
			_exit(SKIP);
		raise(SIGSTOP);
		make();
		_exit(0);
	}
	must(waitpid(pid, &status, 0) == pid);
	if (WIFEXITED(status)) {
		puts("ptrace is not allowed");
		exit(SKIP);
	}
	must(!ptrace(PTRACE_SETOPTIONS, pid, 0,
		     PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL));
	for (;;) {
		must(ptrace(PTRACE_SYSCALL, pid, 0, 0) == 0);
		must(waitpid(pid, &status, 0) == pid);
		if (WIFEXITED(status))
			break;
		must(WIFSTOPPED(status));
		if (WSTOPSIG(status) != (SIGTRAP | 0x80) ||
		    ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) <
			    0)
			fail("stopped by signal %d", WSTOPSIG(status));
		if (info.op != PTRACE_SYSCALL_INFO_ENTRY)
			continue;
		if (info.entry.nr == BEGIN || info.entry.nr == END) {
			watching = info.entry.nr == BEGIN;
		} else if (watching && n < CALLS) {
			calls[n].nr = info.entry.nr;
			for (int i = 0; i < 6; i++)
				calls[n].args[i] = info.entry.args[i];
			n++;
		}
	}
	must(WEXITSTATUS(status) == 0);
	check(calls, n);
}

int main(void)
{
	watch(mapping_calls, check_mapping_calls);
	watch(heap_calls, check_heap_calls);
	return 0;
}
