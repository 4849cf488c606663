/* SPDX-License-Identifier: MIT */
/* A child of a busy process can allocate, free what it inherited, and fork
 * again; handlers around fork that were registered first may allocate. */
#include <pthread.h>

#include "tests/preload/count.h"

static volatile int stop;
static void *kept[3];

static void before(void)
{
	kept[0] = malloc(1000);
}

static void in_parent(void)
{
	free(kept[0]);
	free(malloc(300000));
}

static void in_child(void)
{
	free(kept[0]);
	kept[1] = malloc(50);
	free(kept[1]);
}

__attribute__((constructor)) static void early(void)
{
	kept[2] = malloc(77);
	pthread_atfork(before, in_parent, in_child);
}

static void *busy(void *arg)
{
	unsigned random = (unsigned)(long)arg;
	char *blocks[64] = { NULL };

	while (!stop) {
		random = random * 1664525 + 1013904223;
		free(blocks[random >> 26]);
		blocks[random >> 26] = malloc((random >> 8) % 60000);
	}
	for (int i = 0; i < 64; i++)
		free(blocks[i]);
	return NULL;
}

static void child(void *inherited)
{
	pid_t grandchild;

	alarm(20);
	free(inherited);
	for (int i = 1; i < 300; i++)
		free(calloc(1, (size_t)i * 100));
	grandchild = fork();
	if (grandchild == 0) {
		free(malloc(100000));
		_exit(0);
	}
	expect_clean_exit(grandchild);
	_exit(0);
}

int main(void)
{
	pthread_t threads[3];

	for (long i = 0; i < 3; i++)
		must(!pthread_create(&threads[i], NULL, busy, (void *)i));
	for (int i = 0; i < 150; i++) {
		void *p = malloc((size_t)i * 1000);
		pid_t pid = fork();

		must(pid >= 0);
		if (pid == 0)
			child(p);
		free(p);
		expect_clean_exit(pid);
	}
	stop = 1;
	for (int i = 0; i < 3; i++)
		must(!pthread_join(threads[i], NULL));
	free(kept[2]);
	return 0;
}
