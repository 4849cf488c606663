/* SPDX-License-Identifier: MIT */
/*
 * As collectors do: a thread is stopped by a signal, wherever it is, and
 * others map and unmap before it may go on.  None of them waits for ever on
 * what it holds, and when all rest the numbers are right.
 */
#include <semaphore.h>

#include "map_test.h"

static sem_t stopped;
static sem_t go_on;
static volatile sig_atomic_t stop;

static void handler(int signo)
{
	int saved = errno;

	(void)signo;
	sem_post(&stopped);
	while (sem_wait(&go_on))
		;
	errno = saved;
}

static void *work(void *arg)
{
	while (!stop) {
		char *p = map(2, RW, ANON);

		CHECK(!mprotect(p, PAGE, PROT_READ));
		CHECK(!munmap(p, PAGE));
		CHECK(!munmap(p + PAGE, PAGE));
	}
	return arg;
}

/* What a collector might do. */
static void collect(void)
{
	char *kept[20];
	char *p;

	for (int i = 0; i < 20; i++)
		kept[i] = map(2, i % 2 ? RW : PROT_NONE, ANON);
	for (int i = 0; i < 20; i++) {
		CHECK(!mprotect(kept[i], PAGE, RW));
		p = mremap(kept[i], 2 * PAGE, 3 * PAGE, MREMAP_MAYMOVE);
		/* Two states: only those that are one mapping can grow. */
		if (p == MAP_FAILED)
			CHECK(!munmap(kept[i], 2 * PAGE));
		else
			CHECK(!munmap(p, 3 * PAGE));
	}
}

int main(void)
{
	pthread_t thread[2];
	long base;

	alarm(100);
	CHECK(!sem_init(&stopped, 0, 0) && !sem_init(&go_on, 0, 0));
	signal(SIGUSR1, handler);
	base = read_pages(ACCOUNTED);
	for (int i = 0; i < 2; i++)
		CHECK(!pthread_create(&thread[i], NULL, work, NULL));
	for (int i = 0; i < 500; i++) {
		CHECK(!pthread_kill(thread[i % 2], SIGUSR1));
		while (sem_wait(&stopped))
			;
		collect();
		CHECK(!sem_post(&go_on));
	}
	stop = 1;
	for (int i = 0; i < 2; i++)
		CHECK(!pthread_join(thread[i], NULL));
	SAME(read_pages(ACCOUNTED), base);
	return 0;
}
