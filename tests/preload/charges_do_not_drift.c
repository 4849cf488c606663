/* SPDX-License-Identifier: MIT */
/*
 * Ways to make a count run away, each many times over: one thread allocates
 * and another frees, blocks change size at random, requests fail, the same
 * address goes from thread to thread, groups are entered and left.
 */
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>

#include "preload/api.h"
#include "tests/preload/count.h"

#define RW   (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

#define BATCH  500
#define GROUPS 100

static long in_home;
static long in_maps;

static void rest(const char *what)
{
	malloc_trim(0);
	if (heap() > in_home + left_over())
		fail("%s: %ld pages of heap are left", what, heap() - in_home);
	if (accounted() != in_maps)
		fail("%s: %ld mapped pages are left", what,
		     accounted() - in_maps);
}

/* What 4,000 blocks of a page take, and one of 33 MiB: in pages, once. */
static void as_much_as_needed(void)
{
	static char *blocks[4000];
	size_t large = (size_t)33 << 20;
	long before = heap();
	long now;

	for (int i = 0; i < 4000; i++) {
		must(blocks[i] = malloc((size_t)page()));
		memset(blocks[i], 1, (size_t)page());
	}
	now = heap() - before;
	if (now < 3900 || now > 4080 + left_over())
		fail("4000 blocks of a page: %ld pages", now);
	for (int i = 0; i < 4000; i++)
		free(blocks[i]);
	malloc_trim(0);
	/* A size class too large, four to a doubling; and seen by the heap's
	 * hooks only, not as a mapping again. */
	blocks[0] = malloc(large);
	must(blocks[0]);
	memset(blocks[0], 1, large);
	now = heap() - before;
	if (now < (long)large / page() ||
	    now > (long)large / page() * 5 / 4 + left_over())
		fail("a block of 33 MiB: %ld pages", now);
	if (accounted() != in_maps)
		fail("it was counted as a mapping, too");
	/* All of it may be written. */
	memset(blocks[0], 1, malloc_usable_size(blocks[0]));
	free(blocks[0]);
	rest("needs");
}

static char *handed_over[2][BATCH];
static pthread_barrier_t barrier;

static void *consume(void *arg)
{
	for (int round = 0; round < 200; round++) {
		pthread_barrier_wait(&barrier);
		for (int i = 0; i < BATCH; i++)
			free(handed_over[round % 2][i]);
	}
	return arg;
}

static void hand_over(void)
{
	pthread_t thread;

	must(pthread_barrier_init(&barrier, NULL, 2) == 0);
	must(pthread_create(&thread, NULL, consume, NULL) == 0);
	for (int round = 0; round < 200; round++) {
		for (int i = 0; i < BATCH; i++) {
			char *p = malloc((size_t)(i * 40 + 1));

			must(p);
			p[0] = 1;
			handed_over[round % 2][i] = p;
		}
		pthread_barrier_wait(&barrier);
	}
	pthread_join(thread, NULL);
	rest("handed over");
}

static void resize(void)
{
	static char *blocks[64];
	unsigned seed = 5;

	for (int i = 0; i < 100000; i++) {
		unsigned k;
		size_t size;

		seed = seed * 1103515245u + 12345u;
		k = seed >> 8 & 63;
		size = (seed >> 14) % (i % 100 ? 20000 : 3000000) + 1;
		blocks[k] = realloc(blocks[k], size);
		must(blocks[k]);
		blocks[k][0] = 1;
	}
	for (int i = 0; i < 64; i++)
		free(blocks[i]);
	rest("resized");
}

static void fail_often(void)
{
	volatile size_t far_too_much = (size_t)1 << 50;
	char *kept = malloc(100);
	void *p;

	for (int i = 0; i < 1000; i++) {
		must(!malloc(far_too_much));
		must(!calloc(far_too_much, 1));
		must(!realloc(kept, far_too_much));
		must(posix_memalign(&p, 4096, far_too_much) == ENOMEM);
		must(mmap(NULL, far_too_much, RW, ANON, -1, 0) == MAP_FAILED);
		must(mmap((void *)1, 4096, RW, ANON | MAP_FIXED, -1, 0) ==
		     MAP_FAILED);
		must(sbrk(INTPTR_MAX) == (void *)-1);
	}
	free(kept);
	rest("failed");
}

/* What one unmaps another gets, before the first has noted it. */
static void *map_and_unmap(void *arg)
{
	for (int i = 0; i < 5000; i++) {
		char *p = mmap(NULL, 65536, RW, ANON, -1, 0);

		must(p != MAP_FAILED);
		must(munmap(p, 65536) == 0);
	}
	return arg;
}

static void map_in_turns(void)
{
	pthread_t threads[8];

	for (int i = 0; i < 8; i++)
		must(!pthread_create(&threads[i], NULL, map_and_unmap, NULL));
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	rest("mapped in turns");
}

/* A hundred groups: blocks made in each are freed in another. */
static void change_groups(void)
{
	const struct memtally_api *api = dlsym(RTLD_DEFAULT, "memtally_api_v1");
	static char *blocks[GROUPS][25];
	uint32_t groups[GROUPS];
	uint32_t previous;
	char name[16];
	long now;

	must(api && api->size >= sizeof(*api));
	for (int g = 0; g < GROUPS; g++) {
		snprintf(name, sizeof(name), "g%d", g);
		groups[g] = api->group_get(name);
		must(groups[g]);
		previous = api->enter(groups[g]);
		for (int i = 0; i < 25; i++) {
			must(blocks[g][i] = malloc(4096));
			memset(blocks[g][i], 1, 4096);
		}
		api->leave(previous);
	}
	now = heap() - in_home;
	if (now < GROUPS * 25 || now > GROUPS * 64 + left_over())
		fail("%d groups of 25 pages: %ld", GROUPS, now);
	for (int g = 0; g < GROUPS; g++) {
		previous = api->enter(groups[GROUPS - 1 - g]);
		for (int i = 0; i < 25; i++)
			free(blocks[g][i]);
		api->leave(previous);
	}
	rest("changed groups");
}

/* Frees what it inherited; its own count can't go below zero. */
static void below_zero(void)
{
	char *inherited = malloc(10 << 20);
	char *mapped = mmap(NULL, 10 << 20, RW, ANON, -1, 0);
	pid_t pid;

	must(inherited && mapped != MAP_FAILED);
	memset(inherited, 1, 10 << 20);
	pid = fork();
	if (pid == 0) {
		free(inherited);
		must(munmap(mapped, 10 << 20) == 0);
		malloc_trim(0);
		must(heap() >= 0 && accounted() >= 0 && charged() >= 0);
		if (charged() > 1000)
			fail("a count that went round: %ld", charged());
		_exit(0);
	}
	expect_clean_exit(pid);
	free(inherited);
	must(munmap(mapped, 10 << 20) == 0);
	rest("below zero");
}

/* What was freed goes back as time passes and calls are made. */
static void decay(void)
{
	static char *blocks[4000];
	char *p;
	long peak;
	long now;

	for (int i = 0; i < 4000; i++) {
		must(blocks[i] = malloc(10000));
		memset(blocks[i], 1, 10000);
	}
	peak = heap() - in_home;
	for (int i = 0; i < 4000; i++)
		free(blocks[i]);
	for (int i = 0; i < 50; i++) {
		usleep(100000);
		for (int k = 0; k < 500; k++) {
			must(p = malloc(300));
			free(p);
		}
	}
	now = heap() - in_home;
	if (now > peak * 9 / 10)
		fail("freed %ld pages, %ld are kept 5 seconds later", peak,
		     now);
}

int main(void)
{
	pthread_t thread;

	/* An arena for each thread there will be. */
	must(pthread_create(&thread, NULL, map_and_unmap, NULL) == 0);
	pthread_join(thread, NULL);
	malloc_trim(0);
	in_home = heap();
	in_maps = accounted();
	as_much_as_needed();
	hand_over();
	resize();
	fail_often();
	map_in_turns();
	change_groups();
	below_zero();
	decay();
	return 0;
}
