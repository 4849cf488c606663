/* SPDX-License-Identifier: MIT */
/*
 * context.c - looking for a signal's frame.
 *
 * A handler returns to a few instructions of libc ("the restorer") that end the
 * signal.  The kernel is told their address with the handler, and puts it on
 * the stack, right below the interrupted thread's state.  So where no handler
 * is installed there is none running, and else it is that word on the stack
 * that counts.  The stack is read through a system call, as nobody knows where
 * it ends: a thread's, a coroutine's, or an alternate one.
 */
#include "preload/context.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/uio.h>

#include "core/atomic.h"
#include "core/sys.h"

#define SIGNALS   64
#define RESTORERS 4
#define DEEPEST   ((size_t)1 << 20) /* no further up than that */
#define CHUNK     4096

/* As the kernel has it. */
struct action {
	uintptr_t handler;
	unsigned long flags;
	uintptr_t restorer;
	uint64_t mask;
};

/* The restorers in use; more than there is room for: -1. */
static int find_restorers(uintptr_t *restorers)
{
	int n = 0;

	for (int sig = 1; sig <= SIGNALS; sig++) {
		struct action action = { 0, 0, 0, 0 };
		int i;

		if (mt_syscall4(SYS_rt_sigaction, sig, NULL, &action, 8) ||
		    action.handler <= 1) /* SIG_DFL, SIG_IGN */
			continue;
		for (i = 0; i < n && restorers[i] != action.restorer; i++)
			;
		if (i < n)
			continue;
		if (n == RESTORERS || !action.restorer)
			return -1;
		restorers[n++] = action.restorer;
	}
	return n;
}

/* The next words of a signal's frame are its context: flags and a link. */
static bool is_frame(const uintptr_t *word, const uintptr_t *restorers, int n)
{
	for (int i = 0; i < n; i++) {
		if (word[0] == restorers[i])
			return word[1] < 64 && word[2] == 0;
	}
	return false;
}

static bool on_alternate_stack(void)
{
	stack_t now = { .ss_flags = 0 };

	mt_syscall2(SYS_sigaltstack, NULL, &now);
	return now.ss_flags & SS_ONSTACK;
}

static _Atomic uint32_t sandboxed;

bool mt_in_sandbox(void)
{
	return load_relaxed(&sandboxed);
}

void mt_context_sandbox(void)
{
	store_relaxed(&sandboxed, 1);
}

void mt_context_start(void)
{
	/* Asked in a sandbox already, later it could be deadly. */
	if (mt_syscall2(SYS_prctl, PR_GET_SECCOMP, 0) != 0)
		mt_context_sandbox();
}

/* The same with libc's own: a system call and no more. */
MT_EXPORT int prctl(int option, ...)
{
	unsigned long arg[4];
	va_list ap;
	long ret;

	va_start(ap, option);
	for (int i = 0; i < 4; i++)
		arg[i] = va_arg(ap, unsigned long);
	va_end(ap);
	if (option == PR_SET_SECCOMP)
		mt_context_sandbox();
	ret = mt_syscall6(SYS_prctl, option, (long)arg[0], (long)arg[1],
			  (long)arg[2], (long)arg[3], 0);
	if (ret >= 0 || ret < -4095)
		return (int)ret;
	errno = (int)-ret;
	return -1;
}

/* Where libc put the end of this thread's stack: its own data of a thread are
 * there.  On another stack (a coroutine's) it is anywhere. */
static uintptr_t stack_top(void)
{
	extern void *__libc_stack_end;

	if (mt_sys_gettid() == mt_sys_getpid())
		return (uintptr_t)__libc_stack_end;
	return (uintptr_t)__builtin_thread_pointer();
}

bool mt_in_handler(void)
{
	uintptr_t words[CHUNK / sizeof(uintptr_t) + 2];
	uintptr_t restorers[RESTORERS];
	uintptr_t at = (uintptr_t)__builtin_frame_address(0);
	uintptr_t top = stack_top();
	uintptr_t end = at + DEEPEST;
	int n;

	if (mt_in_sandbox())
		return true;
	n = find_restorers(restorers);
	if (n <= 0)
		return n < 0;
	if (on_alternate_stack())
		return true;
	if (top > at && top < end)
		end = top;
	while (at < end) {
		/* To the end of a page: behind it there may be nothing. */
		size_t size = CHUNK - at % CHUNK;
		struct iovec from = { (void *)at, size + 2 * sizeof(*words) };
		struct iovec to = { words, size + 2 * sizeof(*words) };
		long got = mt_syscall6(SYS_process_vm_readv, mt_sys_getpid(),
				       (long)&to, 1, (long)&from, 1, 0);
		size_t nr;

		/* Not allowed to; or the end of the stack. */
		if (got <= 0)
			return got != -EFAULT;
		nr = MT_MIN((size_t)got, size) / sizeof(*words);
		for (size_t i = 0; i < nr; i++) {
			if (is_frame(&words[i], restorers, n) &&
			    (i + 3) * sizeof(*words) <= (size_t)got)
				return true;
		}
		if ((size_t)got < size)
			return false;
		at += size;
	}
	/* All of it, or as deep as we look? */
	return end != top;
}
