/* SPDX-License-Identifier: MIT */
/*
 * limit_holds.c - 64 threads of 4 processes at one max: limit_holds [SECONDS].
 *
 * All want more than there is, in sizes from a page to five batches, in groups
 * of their own and in a shared one.  No committed charge is above the limit by a
 * single page, which the peak tells; then all rest, and usage is the sum of what
 * they hold; the last page can be had; and in the end nothing is left over.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/atomic.h"
#include "core/audit.h"
#include "core/counter.h"
#include "core/group.h"
#include "core/process.h"

#define NR_PROCESSES 4
#define NR_THREADS   16
#define MAX          10000 /* pages */
#define MOST         320   /* of one charge */
#define HELD_MOST    32    /* charges that a thread holds */

static struct mt_session session;

static struct shared {
	_Atomic bool stop;
	_Atomic uint32_t resting;
	_Atomic uint64_t charges;
	_Atomic uint64_t refused;
	_Atomic int64_t held; /* by all, once they rest */
	_Atomic bool leave;
} * shared;

struct worker {
	pthread_t thread;
	uint32_t process;
	unsigned nr;
};

static void give_up(const char *what)
{
	fprintf(stderr, "limit_holds: %s\n", what);
	exit(1);
}

static void *work(void *arg)
{
	const struct worker *worker = arg;
	uint64_t seed = 88172645463325252 + worker->nr * 977;
	uint64_t charges = 0, refused = 0;
	int64_t held[HELD_MOST] = { 0 };
	int64_t sum = 0;
	struct mt_task task;
	uint32_t group;
	char path[32];

	snprintf(path, sizeof(path), worker->nr % 3 ? "/own/%u" : "/shared",
		 worker->nr);
	if (mt_group_make_path(&session, MT_ROOT, path, 0, &group))
		give_up("no group");
	mt_task_attach(&session, &task, worker->process, worker->nr + 1);
	while (!load_relaxed(&shared->stop)) {
		int64_t *one;
		uint32_t refuser;

		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		one = &held[seed % HELD_MOST];
		if (*one) {
			mt_uncharge(&session, &task, group, MT_HEAP, *one);
			*one = 0;
		}
		*one = (seed >> 20) % 4 ? 1 + (int64_t)(seed >> 32) % 8
					: 1 + (int64_t)(seed >> 32) % MOST;
		charges++;
		if (!mt_charge(&session, &task, group, MT_HEAP, *one,
			       &refuser)) {
			if (refuser != MT_ROOT)
				give_up("refused by a group without a limit");
			*one = 0;
			refused++;
		}
	}
	for (int i = 0; i < HELD_MOST; i++)
		sum += held[i];
	fetch_add_relaxed(&shared->held, sum);
	fetch_add_relaxed(&shared->charges, charges);
	fetch_add_relaxed(&shared->refused, refused);
	fetch_add_seq_cst(&shared->resting, 1);
	while (!load_relaxed(&shared->leave))
		usleep(1000);
	for (int i = 0; i < HELD_MOST; i++)
		if (held[i])
			mt_uncharge(&session, &task, group, MT_HEAP, held[i]);
	mt_task_detach(&session, &task);
	return NULL;
}

static void be_a_process(unsigned nr)
{
	static struct worker workers[NR_THREADS];
	struct mt_process_facts facts;
	uint32_t process;

	mt_process_forget_ns(true);
	mt_process_facts(&facts);
	if (mt_process_join(&session, &facts, &process))
		give_up("no slot");
	for (unsigned i = 0; i < NR_THREADS; i++) {
		workers[i].process = process;
		workers[i].nr = nr * NR_THREADS + i;
		pthread_create(&workers[i].thread, NULL, work, &workers[i]);
	}
	for (unsigned i = 0; i < NR_THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	_exit(0);
}

static int64_t usage(void)
{
	return load_seq_cst(&session.groups[MT_ROOT].usage);
}

/* Page by page, through the stocks of all the others. */
static void take_the_rest(void)
{
	struct mt_process_facts facts;
	struct mt_task task;
	uint32_t process;
	uint32_t refuser;
	int64_t held = load_seq_cst(&shared->held);
	int64_t got = 0;

	mt_process_facts(&facts);
	if (mt_process_join(&session, &facts, &process))
		give_up("no slot");
	mt_task_attach(&session, &task, process, (uint32_t)getpid());
	while (mt_charge(&session, &task, MT_ROOT, MT_HEAP, 1, &refuser))
		got++;
	printf("  %ld pages were held, and %ld could be had\n", (long)held,
	       (long)got);
	if (held + got != MAX || usage() != MAX)
		give_up("the last page can't be had");
	if (got)
		mt_uncharge(&session, &task, MT_ROOT, MT_HEAP, got);
	mt_drain(&session, &task, MT_ROOT);
	if (usage() != held)
		give_up("usage isn't what they hold");
	mt_task_detach(&session, &task);
	mt_process_reap(&session, process,
			load_acquire(&session.processes[process].state),
			MT_ENDED_EXITED);
}

int main(int argc, char **argv)
{
	unsigned seconds = argc > 1 ? (unsigned)atoi(argv[1]) : 10;
	struct mt_segment_config config = { .name = "limit", .batch = 64 };
	struct mt_process_facts facts;
	pid_t pids[NR_PROCESSES];
	char path[64];

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	snprintf(path, sizeof(path), "/dev/shm/memtally-limit-%d", getpid());
	if (shared == MAP_FAILED || mt_segment_create(&session, path, &config))
		give_up("no session");
	unlink(path);
	mt_counter_force_max(&session, MT_ROOT, MAX);
	for (unsigned i = 0; i < NR_PROCESSES; i++) {
		pids[i] = fork();
		if (pids[i] == 0)
			be_a_process(i);
	}
	sleep(seconds);
	store_relaxed(&shared->stop, true);
	while (load_seq_cst(&shared->resting) < NR_PROCESSES * NR_THREADS)
		usleep(1000);
	printf("limit_holds: %u s, %lu charges, %lu refused\n", seconds,
	       (unsigned long)load_relaxed(&shared->charges),
	       (unsigned long)load_relaxed(&shared->refused));
	if (load_relaxed(&session.groups[MT_ROOT].peak) > MAX)
		give_up("a charge was committed above the limit");
	if (!load_relaxed(&shared->refused))
		give_up("the limit was never met");
	take_the_rest();
	store_relaxed(&shared->leave, true);
	for (unsigned i = 0; i < NR_PROCESSES; i++) {
		int status;

		if (waitpid(pids[i], &status, 0) != pids[i] || status)
			give_up("a process failed");
	}
	mt_process_facts(&facts);
	mt_process_reap_dead(&session, facts.pid_ns, UINT32_MAX);
	for (uint32_t i = 0; i < mt_table_high(&session, MT_GROUPS); i++)
		if (mt_group_is_live(&session, i) &&
		    load_relaxed(&session.groups[i].usage))
			give_up("something is left over");
	puts("limit_holds: ok");
	return 0;
}
