/* SPDX-License-Identifier: MIT */
/*
 * A handler maps, changes and unmaps while its own thread does, on four
 * threads: when all rest, nothing is lost and nothing is left.  Then handlers
 * jump out of such a loop, with the lock in whatever state: afterwards this
 * thread's mappings and another's are counted as ever.
 */
#include <setjmp.h>
#include <sys/time.h>

#include "map_test.h"

static volatile sig_atomic_t stop;
static volatile long handled;
static sigjmp_buf back;
static volatile int jumping;

static void handler(int signo)
{
	char *p = mmap(NULL, 3 * PAGE, PROT_READ, ANON, -1, 0);

	(void)signo;
	if (p == MAP_FAILED || mprotect(p, 3 * PAGE, RW))
		_exit(3);
	p[0] = 1;
	p = mremap(p, 3 * PAGE, 5 * PAGE, MREMAP_MAYMOVE);
	if (p != MAP_FAILED)
		munmap(p, 5 * PAGE);
	else
		_exit(4);
	handled++;
	if (jumping)
		siglongjmp(back, 1);
}

static void once(unsigned n)
{
	char *p = map(n, RW, ANON);
	char *q = map(n, PROT_NONE, ANON);

	CHECK(!mprotect(q, PAGE, RW));
	p = mremap(p, n * PAGE, (n + 1) * PAGE, MREMAP_MAYMOVE);
	CHECK(p != MAP_FAILED);
	CHECK(!munmap(p, (n + 1) * PAGE));
	CHECK(!munmap(q, n * PAGE));
}

static void *work(void *arg)
{
	for (unsigned i = 0; !stop; i++)
		once(1 + i % 7);
	return arg;
}

static void count_as_ever(void)
{
	long before = read_pages(ACCOUNTED);
	char *p = map(1000, RW, ANON);

	touch(p, 1000 * PAGE);
	SAME(read_pages(ACCOUNTED) - before, 1000);
	CHECK(!munmap(p, 500 * PAGE));
	SAME(read_pages(ACCOUNTED) - before, 500);
	CHECK(!munmap(p + 500 * PAGE, 500 * PAGE));
	SAME(read_pages(ACCOUNTED), before);
}

static void *other(void *arg)
{
	count_as_ever();
	return arg;
}

int main(void)
{
	const struct timespec pause = { 0, 200000 };
	struct sigaction action = { .sa_handler = handler };
	struct itimerval every = { { 0, 300 }, { 0, 300 } };
	const struct itimerval never = { { 0, 0 }, { 0, 0 } };
	volatile int jumps = 0;
	pthread_t thread[4];
	sigset_t alarms;
	long base;

	alarm(100);
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGALRM, &action, NULL);
	base = read_pages(ACCOUNTED);
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_create(&thread[i], NULL, work, NULL));
	for (int i = 0; i < 3000; i++) {
		CHECK(!pthread_kill(thread[i % 4], SIGUSR1));
		if (i % 4 == 3)
			nanosleep(&pause, NULL);
	}
	stop = 1;
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_join(thread[i], NULL));
	CHECK(handled > 100);
	SAME(read_pages(ACCOUNTED), base);

	jumping = 1;
	sigemptyset(&alarms);
	sigaddset(&alarms, SIGALRM);
	if (sigsetjmp(back, 1))
		jumps = jumps + 1;
	if (jumps == 0)
		setitimer(ITIMER_REAL, &every, NULL);
	while (jumps < 400)
		once(1);
	setitimer(ITIMER_REAL, &never, NULL);
	sigprocmask(SIG_BLOCK, &alarms, NULL);
	/* The next call finds what the last jump left, and puts it right. */
	once(1);
	count_as_ever();
	CHECK(!pthread_create(&thread[0], NULL, other, NULL));
	CHECK(!pthread_join(thread[0], NULL));
	/* What was lost with the jumps stays mapped, and charged. */
	CHECK(read_pages(ACCOUNTED) >= base);
	return 0;
}
