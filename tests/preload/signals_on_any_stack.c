/* SPDX-License-Identifier: MIT */
/*
 * Handlers and coroutines on stacks that are none of the thread's own, small
 * or made on demand; one thread, and signals left as they were.
 */
#include <dirent.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <ucontext.h>

#include "tests/preload/count.h"

#define RW   (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

#define LAZY_PAGES 200
#define COROUTINES 8
#define STACK      (16 * 1024)

static char *lazy;
static volatile sig_atomic_t faults;
static volatile sig_atomic_t handled;

/* As collectors and virtual machines do. */
static void fill_in(int signo, siginfo_t *info, void *context)
{
	size_t pg = (size_t)page();
	char *at = (char *)((unsigned long)info->si_addr & ~(pg - 1));

	(void)signo;
	(void)context;
	if (at < lazy || at >= lazy + LAZY_PAGES * pg)
		fail("a fault at %p", info->si_addr);
	if (faults++ % 2)
		must(mprotect(at, pg, RW) == 0);
	else
		must(mmap(at, pg, RW, ANON | MAP_FIXED, -1, 0) == at);
}

static void handle(int signo)
{
	size_t pg = (size_t)page();
	char *p = mmap(NULL, 4 * pg, RW, ANON, -1, 0);

	(void)signo;
	must(p != MAP_FAILED);
	must(mprotect(p, pg, PROT_NONE) == 0);
	p = mremap(p + pg, 3 * pg, 2 * pg, 0);
	must(p != MAP_FAILED);
	must(munmap(p - pg, 3 * pg) == 0);
	handled++;
}

/* All handlers are the system's, and there is one thread. */
static void nothing_is_visible(void)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *entry;
	struct sigaction sa;
	sigset_t blocked;
	int threads = 0;

	must(tasks);
	while ((entry = readdir(tasks)))
		threads += entry->d_name[0] != '.';
	closedir(tasks);
	if (threads != 1)
		fail("%d threads", threads);
	for (int i = 1; i < NSIG; i++) {
		if (sigaction(i, NULL, &sa) == 0 && sa.sa_handler != SIG_DFL)
			fail("signal %d has a handler", i);
	}
	must(sigprocmask(SIG_SETMASK, NULL, &blocked) == 0);
	for (int i = 1; i < NSIG; i++)
		must(sigismember(&blocked, i) != 1);
}

/* Faults come from this code and from inside libc. */
static void on_demand(void)
{
	size_t pg = (size_t)page();
	size_t half = LAZY_PAGES / 2 * pg;
	struct sigaction sa = { .sa_sigaction = fill_in,
				.sa_flags = SA_SIGINFO };
	long before = accounted();

	lazy = mmap(NULL, LAZY_PAGES * pg, PROT_NONE, ANON, -1, 0);
	must(lazy != MAP_FAILED);
	must(sigaction(SIGSEGV, &sa, NULL) == 0);
	for (size_t i = 0; i < half; i += pg)
		lazy[i] = 1;
	memcpy(lazy + half, lazy, half);
	signal(SIGSEGV, SIG_DFL);
	must(faults == LAZY_PAGES);
	if (accounted() != before + LAZY_PAGES)
		fail("%d pages filled in, %ld counted", LAZY_PAGES,
		     accounted() - before);
	munmap(lazy, LAZY_PAGES * pg);
	if (accounted() != before)
		fail("%ld pages are left", accounted() - before);
}

/* Of exactly the size that programs were told was enough. */
static void alternate(void)
{
	size_t pg = (size_t)page();
	size_t size = (8192 + pg - 1) & ~(pg - 1);
	char *guarded = mmap(NULL, 2 * pg + size, PROT_NONE,
			     ANON | MAP_NORESERVE, -1, 0);
	stack_t stack = { .ss_sp = guarded + pg, .ss_size = size };
	struct sigaction sa = { .sa_handler = handle, .sa_flags = SA_ONSTACK };

	must(guarded != MAP_FAILED);
	must(mprotect(stack.ss_sp, size, RW) == 0);
	must(sigaltstack(&stack, NULL) == 0);
	must(sigaction(SIGUSR1, &sa, NULL) == 0);
	for (int i = 0; i < 100; i++)
		must(raise(SIGUSR1) == 0);
	must(handled == 100);
	stack.ss_flags = SS_DISABLE;
	must(sigaltstack(&stack, NULL) == 0);
	munmap(guarded, 2 * pg + size);
	signal(SIGUSR1, SIG_DFL);
}

static ucontext_t main_context;
static ucontext_t contexts[COROUTINES];
static int running;

/* Stays in the middle of things while others run, above and below it. */
static void coroutine(void)
{
	int me = running;

	for (int i = 0; i < 300; i++) {
		size_t pg = (size_t)page();
		char *p = mmap(NULL, 3 * pg, RW, ANON, -1, 0);
		char *q = malloc(i * 100u + 1);

		must(p != MAP_FAILED && q);
		swapcontext(&contexts[me], &main_context);
		q[0] = 1;
		free(q);
		must(munmap(p + pg, 2 * pg) == 0);
		must(munmap(p, pg) == 0);
	}
}

static void coroutines(void)
{
	struct itimerval timer = { { 0, 200 }, { 0, 200 } };
	struct itimerval off = { { 0, 0 }, { 0, 0 } };
	struct sigaction sa = { .sa_handler = handle, .sa_flags = SA_RESTART };
	size_t pg = (size_t)page();
	long before;
	char *area;

	/* Between unmapped pages: nobody may look past a stack's end. */
	area = mmap(NULL, COROUTINES * (STACK + pg) + pg, PROT_NONE,
		    ANON | MAP_NORESERVE, -1, 0);
	must(area != MAP_FAILED);
	for (int i = 0; i < COROUTINES; i++) {
		char *stack = area + pg + (size_t)i * (STACK + pg);

		must(mprotect(stack, STACK, RW) == 0);
		must(getcontext(&contexts[i]) == 0);
		contexts[i].uc_stack.ss_sp = stack;
		contexts[i].uc_stack.ss_size = STACK;
		contexts[i].uc_link = &main_context;
		makecontext(&contexts[i], coroutine, 0);
	}
	before = accounted();
	must(sigaction(SIGALRM, &sa, NULL) == 0);
	must(setitimer(ITIMER_REAL, &timer, NULL) == 0);
	for (int round = 0; round <= 300; round++) {
		for (running = 0; running < COROUTINES; running++)
			swapcontext(&main_context, &contexts[running]);
	}
	must(setitimer(ITIMER_REAL, &off, NULL) == 0);
	signal(SIGALRM, SIG_DFL);
	if (accounted() != before)
		fail("coroutines left %ld pages", accounted() - before);
}

/* Whatever it interrupts, a fatal signal is fatal at once. */
static void fatal_ends(void)
{
	struct itimerval soon = { { 0, 0 }, { 0, 0 } };

	for (int i = 0; i < 20; i++) {
		struct rlimit none = { 0, 0 };
		int status;
		pid_t pid = fork();

		if (pid == 0) {
			setrlimit(RLIMIT_CORE, &none);
			soon.it_value.tv_usec = 2000 + 100 * i;
			setitimer(ITIMER_VIRTUAL, &soon, NULL);
			for (;;) {
				free(malloc(100000));
				free(memalign(4096, 10000000));
			}
		}
		must(waitpid(pid, &status, 0) == pid);
		must(WIFSIGNALED(status) && WTERMSIG(status) == SIGVTALRM);
	}
}

int main(void)
{
	free(malloc(10 << 20));
	nothing_is_visible();
	/* Needs a process with one thread. */
	if (fork() == 0)
		_exit(unshare(CLONE_NEWUSER) != 0 && errno == EINVAL);
	{
		int status;

		must(wait(&status) > 0 && status == 0);
	}
	on_demand();
	alternate();
	coroutines();
	fatal_ends();
	return 0;
}
