/* SPDX-License-Identifier: MIT */
/*
 * counter.c - what a charge costs, for counter.sh: nanoseconds, on one line.
 *
 *	counter publish THREADS        charge and uncharge one page at three
 *				       levels, claims in the middle, no stock
 *	counter batch THREADS BATCH    64 pages one by one, and back, through
 *				       the stock, per page
 *	counter hit THREADS            one page and back, out of the stock
 *	counter add THREADS            two locked adds on a line of one's own
 *	counter walk THREADS           what a hit spares: three levels, twice
 *
 * Built once for each variant of core.  All threads charge the same group.
 * Ends with an error when pages are left over.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/atomic.h"
#include "core/counter.h"
#include "core/group.h"
#include "core/process.h"
#include "core/task.h"

#define THREADS_MOST 64
#define BASE         100000 /* pages that are always there */

static struct mt_session session;
static uint32_t process;
static uint32_t group;
static const char *mode;
static long rounds;
static unsigned nr_threads;
static pthread_barrier_t barrier;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static void give_up(const char *what)
{
	fprintf(stderr, "counter: %s\n", what);
	exit(1);
}

static void publish(void)
{
	uint32_t nobody;

	for (long i = 0; i < rounds; i++) {
		if (!mt_counter_try_charge(&session, group, 1, NULL, &nobody))
			give_up("refused");
		mt_counter_uncharge(&session, group, 1, NULL);
	}
}

static void one(struct mt_task *task, bool more)
{
	uint32_t nobody;

	if (!more)
		mt_uncharge(&session, task, group, MT_HEAP, 1);
	else if (!mt_charge(&session, task, group, MT_HEAP, 1, &nobody))
		give_up("refused");
}

/* Twice the largest batch, so that every stock runs out. */
static void batch(struct mt_task *task)
{
	for (long i = 0; i < rounds / 256; i++) {
		for (int k = 0; k < 256; k++)
			one(task, true);
		for (int k = 0; k < 256; k++)
			one(task, false);
	}
}

static void hit(struct mt_task *task)
{
	one(task, true);
	for (long i = 0; i < rounds; i++) {
		one(task, true);
		one(task, false);
	}
	one(task, false);
}

static void add(void)
{
	static struct {
		_Alignas(128) _Atomic uint64_t n;
	} lines[THREADS_MOST];
	static _Atomic unsigned next;
	_Atomic uint64_t *n = &lines[fetch_add_relaxed(&next, 1)].n;

	for (long i = 0; i < rounds; i++) {
		fetch_add_seq_cst(n, 1);
		fetch_add_seq_cst(n, (uint64_t)-1);
	}
}

static double times[THREADS_MOST];

static void *work(void *arg)
{
	unsigned i = (unsigned)(uintptr_t)arg;
	struct mt_task task;
	cpu_set_t set;
	double start;

	CPU_ZERO(&set);
	CPU_SET(i % (unsigned)sysconf(_SC_NPROCESSORS_ONLN), &set);
	sched_setaffinity(0, sizeof(set), &set);
	mt_task_attach(&session, &task, process, i + 1);
	pthread_barrier_wait(&barrier);
	start = now();
	if (!strcmp(mode, "publish") || !strcmp(mode, "walk"))
		publish();
	else if (!strcmp(mode, "batch"))
		batch(&task);
	else if (!strcmp(mode, "hit"))
		hit(&task);
	else if (!strcmp(mode, "add"))
		add();
	else
		give_up("no such mode");
	times[i] = now() - start;
	mt_task_detach(&session, &task);
	return NULL;
}

static void open_session(uint32_t pages)
{
	struct mt_segment_config config = { .name = "bench", .batch = pages };
	struct mt_process_facts facts;
	char path[64];

	snprintf(path, sizeof(path), "/dev/shm/memtally-bench-%d", getpid());
	if (mt_segment_create(&session, path, &config))
		give_up("no session can be made");
	unlink(path);
	mt_process_facts(&facts);
	if (mt_process_join(&session, &facts, &process) ||
	    mt_group_make_path(&session, MT_ROOT, "/a/b", 0, &group))
		give_up("no group can be made");
	mt_counter_charge(&session, group, BASE, NULL);
	if (strcmp(mode, "publish") == 0 || strcmp(mode, "batch") == 0) {
		/* Well below usage: what is published stays the same. */
		uint32_t middle = mt_group_find(&session, "/a");

		mt_counter_set_min(&session, middle, BASE / 4);
		mt_counter_set_low(&session, middle, BASE / 2);
	}
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS_MOST];
	uint32_t pages = argc > 3 ? (uint32_t)atoi(argv[3]) : 64;
	const char *scale = getenv("BENCH_ROUNDS");
	double slowest = 0;

	mode = argc > 1 ? argv[1] : "";
	nr_threads = argc > 2 ? (unsigned)atoi(argv[2]) : 1;
	if (nr_threads < 1 || nr_threads > THREADS_MOST)
		give_up("1 to 64 threads");
	rounds = scale ? atol(scale) : 1000000;
	open_session(pages);
	pthread_barrier_init(&barrier, NULL, nr_threads);
	for (unsigned i = 0; i < nr_threads; i++)
		pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i);
	for (unsigned i = 0; i < nr_threads; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < nr_threads; i++)
		slowest = times[i] > slowest ? times[i] : slowest;
	if (load_relaxed(&session.groups[group].usage) != BASE ||
	    load_relaxed(&session.groups[MT_ROOT].usage) != BASE)
		give_up("pages are left over");
	/* Of all threads together: where they don't disturb each other it
	 * falls with their number, as far as there are processors. */
	printf("%.2f\n", slowest / (double)rounds / nr_threads);
	return 0;
}
