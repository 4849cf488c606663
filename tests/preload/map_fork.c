/* SPDX-License-Identifier: MIT */
/*
 * Children of fork, made while threads map and unmap: what they inherited
 * isn't theirs to give back, what they map is, and the parent's charge never
 * moves.  The same for a raw clone, where no fork handler runs, and for a fork
 * from a signal handler that had interrupted a mapping call.
 */
#include "map_test.h"

#define HELD 300

static volatile sig_atomic_t stop;
static volatile sig_atomic_t forked;
static char *held;

static void *work(void *arg)
{
	while (!stop) {
		char *p = map(2, RW, ANON);

		CHECK(!munmap(p, PAGE));
		CHECK(!munmap(p + PAGE, PAGE));
	}
	return arg;
}

static void child(void)
{
	char *p;
	long before;

	alarm(20);
	/* The parent's: unknown here. */
	CHECK(!munmap(held, 100 * PAGE));
	CHECK(!mprotect(held + 100 * PAGE, 100 * PAGE, PROT_READ));
	before = read_pages(ACCOUNTED);
	CHECK(before >= 0);
	p = map(50, RW, ANON);
	touch(p, 50 * PAGE);
	SAME(read_pages(ACCOUNTED) - before, 50);
	CHECK(!munmap(held + 200 * PAGE, 100 * PAGE));
	CHECK(!munmap(p, 20 * PAGE));
	SAME(read_pages(ACCOUNTED) - before, 30);
	_exit(0);
}

static void handler(int signo)
{
	pid_t pid = fork();

	(void)signo;
	/* The child goes on in the call that was interrupted. */
	if (!pid)
		forked = 1;
	else
		waitpid(pid, NULL, 0);
}

int main(void)
{
	pthread_t thread[3];
	sigset_t usr1;
	long base;
	int status;

	alarm(100);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	base = read_pages(ACCOUNTED);
	held = map(HELD, RW, ANON);
	touch(held, HELD * PAGE);
	for (int i = 0; i < 30; i++) {
		pid_t pid;

		/* Without handlers only while nobody else holds a lock. */
		if (i < 10)
			pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
		else
			pid = fork();
		CHECK(pid >= 0);
		if (!pid)
			child();
		CHECK(waitpid(pid, &status, 0) == pid);
		SAME(status, 0);
		for (int k = 0; k < 3 && i == 9; k++)
			CHECK(!pthread_create(&thread[k], NULL, work, NULL));
	}
	stop = 1;
	for (int i = 0; i < 3; i++)
		CHECK(!pthread_join(thread[i], NULL));
	SAME(read_pages(ACCOUNTED) - base, HELD);

	/*
	 * Wherever in the call the handler strikes, both must go on.  The
	 * number is another matter: where it strikes in the middle of a
	 * charge, the child ends that of its parent's as well.
	 */
	signal(SIGUSR1, handler);
	for (int i = 0; i < 100; i++) {
		pid_t parent = getpid();
		pid_t killer;

		/* Not in the middle of this fork. */
		CHECK(!sigprocmask(SIG_BLOCK, &usr1, NULL));
		killer = fork();
		CHECK(killer >= 0);
		if (!killer) {
			const struct timespec pause = { 0, 1000 + i * 7919 };

			nanosleep(&pause, NULL);
			kill(parent, SIGUSR1);
			_exit(0);
		}
		CHECK(!sigprocmask(SIG_UNBLOCK, &usr1, NULL));
		while (!forked) {
			char *p = map(2, RW, ANON);

			CHECK(!munmap(p, 2 * PAGE));
			if (waitpid(killer, &status, WNOHANG) == killer)
				break;
		}
		if (forked) {
			char *p = map(50, RW, ANON);

			alarm(20);
			touch(p, 50 * PAGE);
			CHECK(!munmap(p, 50 * PAGE));
			CHECK(!munmap(held, HELD * PAGE));
			_exit(0);
		}
	}
	signal(SIGUSR1, SIG_IGN);
	base = read_pages(ACCOUNTED);
	CHECK(!munmap(held, HELD * PAGE));
	SAME(read_pages(ACCOUNTED), base - HELD);
	return 0;
}
