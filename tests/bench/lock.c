/* SPDX-License-Identifier: MIT */
/*
 * lock.c - what the mapping table's lock costs, for counter.sh: nanoseconds per
 * lock and unlock of all threads together.  Linked with the real one, and with
 * each of maplock_variant.c's.
 *
 *	lock THREADS
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "core/base.h"
#include "preload/maplock.h"

#define THREADS_MOST 64

static long rounds;
static volatile long guarded;
static pthread_barrier_t barrier;
static double times[THREADS_MOST];

/* The table itself is not what is measured. */
void mt_mmap_do(const struct mt_map_op *op MT_UNUSED)
{
}

void mt_mmap_recover(void)
{
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static void *work(void *arg)
{
	unsigned i = (unsigned)(uintptr_t)arg;
	cpu_set_t set;
	double start;

	CPU_ZERO(&set);
	CPU_SET(i % (unsigned)sysconf(_SC_NPROCESSORS_ONLN), &set);
	sched_setaffinity(0, sizeof(set), &set);
	pthread_barrier_wait(&barrier);
	start = now();
	for (long n = 0; n < rounds; n++) {
		while (!mt_maplock_take(__builtin_frame_address(0)))
			;
		guarded = guarded + 1;
		mt_maplock_release();
	}
	times[i] = now() - start;
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned nr = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
	const char *scale = getenv("BENCH_ROUNDS");
	pthread_t threads[THREADS_MOST];
	double slowest = 0;

	rounds = scale ? atol(scale) : 1000000;
	if (nr < 1 || nr > THREADS_MOST)
		return 1;
	pthread_barrier_init(&barrier, NULL, nr);
	for (unsigned i = 0; i < nr; i++)
		pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i);
	for (unsigned i = 0; i < nr; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < nr; i++)
		slowest = times[i] > slowest ? times[i] : slowest;
	if (guarded != rounds * (long)nr) {
		fprintf(stderr, "lock: it doesn't lock\n");
		return 1;
	}
	printf("%.2f\n", slowest / (double)rounds / nr);
	return 0;
}
