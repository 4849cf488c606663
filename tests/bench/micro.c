/* SPDX-License-Identifier: MIT */
/*
 * micro.c - small loops, one a run: micro NAME.  Prints nanoseconds per
 * operation.  The harness runs it under each allocator in turn.
 */
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static uint32_t pick(uint32_t *seed, uint32_t n)
{
	*seed = *seed * 1103515245u + 12345u;
	return (*seed >> 8) % n;
}

static long malloc_free(void)
{
	long n = 40 * 1000 * 1000;

	for (long i = 0; i < n; i++) {
		char *volatile p = malloc(64);

		*p = 1;
		free(p);
	}
	return n;
}

/* 20,000 live objects of 16 to 4,000 bytes, replaced at random. */
static void *churn(void *arg)
{
	enum { LIVE = 20000 };
	char **live = calloc(LIVE, sizeof(*live));
	uint32_t seed = (uint32_t)(uintptr_t)arg;

	for (long i = 0; i < 4000000; i++) {
		uint32_t k = pick(&seed, LIVE);
		uint32_t size = 16 + pick(&seed, 8) * pick(&seed, 500);

		free(live[k]);
		live[k] = malloc(size);
		live[k][0] = live[k][size - 1] = 1;
	}
	for (int k = 0; k < LIVE; k++)
		free(live[k]);
	free(live);
	return NULL;
}

static long churn_1(void)
{
	churn((void *)1);
	return 4000000;
}

static long churn_2(void)
{
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, churn,
			       (void *)(uintptr_t)(i + 1));
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	return 8000000;
}

static long mmap_pages(size_t pages, long n)
{
	size_t len = pages * 4096;

	for (long i = 0; i < n; i++) {
		char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		for (size_t at = 0; at < len; at += 4096)
			p[at] = 1;
		munmap(p, len);
	}
	return n;
}

static long mmap_1(void)
{
	return mmap_pages(1, 100000);
}

static long mmap_64(void)
{
	return mmap_pages(64, 10000);
}

/* With this many others there; so that the kernel can't join them, every other
 * one is unreadable. */
static void map_others(long n)
{
	for (long i = 0; i < n; i++) {
		int prot = i % 2 ? PROT_READ | PROT_WRITE : PROT_READ;
		void *p = mmap(NULL, 4096, prot, MAP_PRIVATE | MAP_ANONYMOUS,
			       -1, 0);

		if (p == MAP_FAILED)
			exit(1);
	}
}

static long mmap_1_many(void)
{
	map_others(60000);
	return mmap_pages(1, 100000);
}

static long mprotect_pages(void)
{
	long n = 200000;
	char *p = mmap(NULL, 64 * 4096, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		exit(1);
	memset(p, 1, 64 * 4096);
	for (long i = 0; i < n; i++)
		if (mprotect(p + 16 * 4096, 8 * 4096,
			     i % 2 ? PROT_READ | PROT_WRITE : PROT_READ))
			exit(1);
	return n;
}

static long mprotect_many(void)
{
	map_others(60000);
	return mprotect_pages();
}

static long startup(void)
{
	char *argv[] = { "true", NULL };

	for (int i = 0; i < 500; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			execve("/bin/true", argv, environ);
			_exit(127);
		}
		waitpid(pid, NULL, 0);
	}
	return 500;
}

static void *brief(void *arg)
{
	char *p[20];

	for (int i = 0; i < 20; i++) {
		p[i] = malloc(100 + (size_t)i * 40);
		p[i][0] = 1;
	}
	for (int i = 0; i < 20; i++)
		free(p[i]);
	return arg;
}

static long threads(void)
{
	for (int i = 0; i < 10000; i++) {
		pthread_t t[2];

		for (int k = 0; k < 2; k++)
			pthread_create(&t[k], NULL, brief, NULL);
		for (int k = 0; k < 2; k++)
			pthread_join(t[k], NULL);
	}
	return 20000;
}

/* 20 live buffers of 5 to 25 MiB, replaced at random and written to. */
static long large(void)
{
	char *live[20] = { NULL };
	uint32_t seed = 5;
	long n = 300;

	for (long i = 0; i < n; i++) {
		uint32_t k = pick(&seed, 20);
		size_t size = (5u << 20) + pick(&seed, 20u << 20);

		free(live[k]);
		live[k] = malloc(size);
		memset(live[k], 1, size);
	}
	return n;
}

static volatile int stop;

static void *busy(void *arg)
{
	uint32_t seed = (uint32_t)(uintptr_t)arg;

	while (!stop) {
		void *p = malloc(1 + pick(&seed, 3000));

		*(volatile char *)p = 1;
		free(p);
	}
	return NULL;
}

static long forks(void)
{
	pthread_t t[3];

	for (int i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, busy, (void *)(uintptr_t)(i + 1));
	for (int i = 0; i < 100; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			free(malloc(100));
			_exit(0);
		}
		waitpid(pid, NULL, 0);
	}
	stop = 1;
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	return 100;
}

static const struct {
	const char *name;
	long (*run)(void);
} all[] = {
	{ "malloc_free", malloc_free },
	{ "churn_1", churn_1 },
	{ "churn_2", churn_2 },
	{ "mmap_1", mmap_1 },
	{ "mmap_64", mmap_64 },
	{ "mmap_1_many", mmap_1_many },
	{ "mprotect", mprotect_pages },
	{ "mprotect_many", mprotect_many },
	{ "startup", startup },
	{ "threads", threads },
	{ "large", large },
	{ "forks", forks },
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < sizeof(all) / sizeof(all[0]); i++) {
		double start;
		long n;

		if (strcmp(argv[1], all[i].name) != 0)
			continue;
		start = now();
		n = all[i].run();
		printf("%.2f\n", (now() - start) / (double)n);
		return 0;
	}
	fprintf(stderr, "usage: micro NAME\n");
	return 2;
}
