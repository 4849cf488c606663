/* SPDX-License-Identifier: MIT */
/* The heap works from the first constructor to the last exit handler, and in
 * threads that are still busy then. */
#include <pthread.h>

#include "tests/preload/count.h"

static void *early;

__attribute__((constructor(101))) static void first(void)
{
	early = malloc(5000);
	for (size_t i = 1; i < 200000; i *= 3)
		free(calloc(1, i));
}

__attribute__((destructor(101))) static void last(void)
{
	free(early);
	free(malloc(123456));
}

static void handler(void)
{
	static void *previous;

	free(previous);
	previous = malloc(3000);
}

static void *busy(void *arg)
{
	for (;;)
		free(malloc(2000));
	return arg;
}

int main(void)
{
	pthread_t thread;

	/* libc has room for 32; the next one allocates. */
	for (int i = 0; i < 100; i++)
		must(atexit(handler) == 0);
	for (int i = 0; i < 3; i++)
		must(!pthread_create(&thread, NULL, busy, NULL));
	return 0;
}
