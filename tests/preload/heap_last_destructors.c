/* SPDX-License-Identifier: MIT */
/* Threads that touch the heap first in their last destructors, atexit
 * handlers and constructors that allocate: all of it works, nothing stays. */
#include <malloc.h>
#include <pthread.h>

#include "tests/preload/count.h"

static pthread_key_t key;
static char *early;

__attribute__((constructor)) static void construct(void)
{
	early = malloc(100);
}

static void destroy(void *round)
{
	char *p = malloc(3000);

	must(p);
	memset(p, 1, 3000);
	free(p);
	/* As often as there are rounds. */
	if ((long)round < 4)
		pthread_setspecific(key, (char *)round + 1);
}

static void *idle(void *arg)
{
	pthread_setspecific(key, (void *)1);
	return arg;
}

static void at_exit(void)
{
	char *p = malloc(100000);

	if (!p)
		_exit(9);
	memset(p, 1, 100000);
	free(p);
}

int main(void)
{
	long before;
	long after;

	must(early);
	free(early);
	must(atexit(at_exit) == 0);
	must(pthread_key_create(&key, destroy) == 0);
	for (int round = 0; round < 2; round++) {
		before = heap();
		for (int i = 0; i < 300; i++) {
			pthread_t t;

			must(pthread_create(&t, NULL, idle, NULL) == 0);
			must(pthread_join(t, NULL) == 0);
		}
		malloc_trim(0);
		after = heap();
	}
	if (after > before + 64)
		fail("300 threads left %ld pages", after - before);
	return 0;
}
