/* SPDX-License-Identifier: MIT */
/* Stacks that libc maps for threads are known, by the page, while the threads
 * are there: however they end, and in a forked child only its own. */
#include <pthread.h>
#include <stdbool.h>

#include "tests/preload/count.h"

static pthread_barrier_t there;
static pthread_barrier_t leave;

static long stacks(void)
{
	return count_of("READ_STACK", getpid());
}

static void *stay(void *how)
{
	pthread_barrier_wait(&there);
	pthread_barrier_wait(&leave);
	if (how)
		pthread_exit(NULL);
	return NULL;
}

static void *wait_for_ever(void *arg)
{
	pthread_barrier_wait(&there);
	for (;;)
		pause();
	return arg;
}

static void *fork_here(void *arg)
{
	int status;
	pid_t child = fork();

	(void)arg;
	if (child == 0) {
		free(malloc(1 << 20));
		must(stacks() == 0);
		pthread_exit(NULL);
	}
	must(waitpid(child, &status, 0) == child && status == 0);
	return NULL;
}

/* Pages of a stack, with its guard, as the kernel has them mapped. */
static long mapped_around(void *at)
{
	unsigned long start, end, last = 0, guard = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	char mode[8];

	must(maps);
	while (fgets(line, sizeof(line), maps)) {
		must(sscanf(line, "%lx-%lx %7s", &start, &end, mode) == 3);
		/* Its guard, unreadable, is right below it. */
		if (start <= (unsigned long)at && (unsigned long)at < end) {
			fclose(maps);
			return (long)(end - start +
				      (last == start ? guard : 0)) /
			       page();
		}
		last = end;
		guard = mode[0] == '-' ? end - start : 0;
	}
	fail("not mapped");
}

static void *measure(void *ret)
{
	*(long *)ret = mapped_around(__builtin_frame_address(0));
	return stay(NULL);
}

int main(void)
{
	static char own[1 << 20] __attribute__((aligned(4096)));
	pthread_attr_t attr;
	pthread_t threads[4];
	long before;
	long size[2];

	free(malloc(1 << 20));
	before = stacks();
	must(before == 0);
	pthread_barrier_init(&there, NULL, 5);
	pthread_barrier_init(&leave, NULL, 5);
	/* The usual size, another, one of ours, and one more that exits. */
	must(pthread_create(&threads[0], NULL, measure, &size[0]) == 0);
	must(pthread_attr_init(&attr) == 0);
	must(pthread_attr_setstacksize(&attr, 300000) == 0);
	must(pthread_attr_setguardsize(&attr, 10000) == 0);
	must(pthread_create(&threads[1], &attr, measure, &size[1]) == 0);
	must(pthread_attr_setstack(&attr, own, sizeof(own)) == 0);
	must(pthread_create(&threads[2], &attr, stay, NULL) == 0);
	must(pthread_create(&threads[3], NULL, stay, &attr) == 0);
	pthread_barrier_wait(&there);
	if (stacks() != 2 * size[0] + size[1])
		fail("%ld pages, not twice %ld and %ld", stacks(), size[0],
		     size[1]);
	pthread_barrier_wait(&leave);
	for (int i = 0; i < 4; i++)
		must(pthread_join(threads[i], NULL) == 0);
	must(stacks() == 0);

	pthread_barrier_init(&there, NULL, 2);
	must(pthread_create(&threads[0], NULL, wait_for_ever, NULL) == 0);
	pthread_barrier_wait(&there);
	must(stacks() == size[0]);
	must(pthread_cancel(threads[0]) == 0);
	must(pthread_join(threads[0], NULL) == 0);
	must(stacks() == 0);

	must(pthread_create(&threads[0], NULL, fork_here, NULL) == 0);
	must(pthread_join(threads[0], NULL) == 0);
	must(stacks() == 0);
	return 0;
}
