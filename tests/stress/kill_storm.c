/* SPDX-License-Identifier: MIT */
/*
 * kill_storm.c - processes that charge on several threads and three levels,
 * killed at random moments: kill_storm [PROCESSES [ALIVE]].
 *
 * While it runs, usage is never below the sum of the words; at the end, after
 * reaping and one audit, every counter is exactly zero.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/atomic.h"
#include "core/audit.h"
#include "core/group.h"
#include "core/process.h"

static struct mt_session session;
static struct mt_audit_scratch scratch;
static uint32_t slot;
static uint32_t leaf;

static uint32_t pick(uint32_t *seed, uint32_t n)
{
	*seed = *seed * 1103515245u + 12345u;
	return (*seed >> 8) % n;
}

static void *charge_and_uncharge(void *arg)
{
	uint32_t seed = (uint32_t)(uintptr_t)arg ^ (uint32_t)getpid();
	struct mt_task task;
	int64_t held[MT_NR_KINDS] = { 0 };
	uint32_t refuser;

	mt_task_attach(&session, &task, slot, (uint32_t)seed | 1);
	for (;;) {
		enum mt_kind kind = (enum mt_kind)pick(&seed, MT_NR_KINDS);
		int64_t n = 1 + pick(&seed, pick(&seed, 4) ? 30 : 300);

		if (pick(&seed, 2) || held[kind] < n) {
			if (mt_charge(&session, &task, leaf, kind, n, &refuser))
				held[kind] += n;
		} else {
			mt_uncharge(&session, &task, leaf, kind, n);
			held[kind] -= n;
		}
		if (pick(&seed, 500) == 0)
			mt_drain(&session, &task, MT_ROOT);
		if (pick(&seed, 2000) == 0) {
			/* A thread ends, and another begins. */
			mt_task_detach(&session, &task);
			mt_task_attach(&session, &task, slot,
				       (uint32_t)seed | 1);
		}
	}
	return NULL;
}

static void child(unsigned number)
{
	struct mt_process_facts facts;
	pthread_t thread;
	char path[64];

	/* The reaper must get its turn among all these busy threads. */
	if (nice(10) == -1)
		_exit(1);
	mt_process_facts(&facts);
	if (mt_process_join(&session, &facts, &slot))
		_exit(1);
	mt_process_make_home(&session, slot, NULL);
	snprintf(path, sizeof(path), "/a%u/b%u", number % 3, number % 7);
	mt_group_make_path(&session, MT_ROOT, path, 0, &leaf);
	for (uintptr_t i = 1; i < 3; i++)
		pthread_create(&thread, NULL, charge_and_uncharge, (void *)i);
	charge_and_uncharge((void *)3);
}

static int check_end(void)
{
	int64_t pages;
	int bad = 0;

	if (mt_audit(&session, &scratch, &pages) != MT_AUDIT_DONE) {
		puts("no quiet moment with nobody alive");
		bad = 1;
	}
	for (uint32_t i = 0; i < mt_table_high(&session, MT_GROUPS); i++) {
		int64_t usage = load_relaxed(&session.groups[i].usage);
		uint64_t under = load_relaxed(&session.groups[i].underflows);

		if (usage || under) {
			printf("group %u: usage %ld, underflows %lu\n", i,
			       (long)usage, (unsigned long)under);
			bad = 1;
		}
	}
	for (uint32_t i = 0; i < mt_table_high(&session, MT_LINES); i++)
		bad |= load_relaxed(&session.lines[i].ident) != 0;
	printf("kill storm: %lu reaped, %ld pages of drift repaired: %s\n",
	       (unsigned long)load_relaxed(&session.header->reaped),
	       (long)pages, bad ? "FAILED" : "all zero");
	return bad;
}

int main(int argc, char **argv)
{
	unsigned total = argc > 1 ? (unsigned)atoi(argv[1]) : 500;
	unsigned alive = argc > 2 ? (unsigned)atoi(argv[2]) : 6;
	struct mt_segment_config config = { .name = "storm" };
	struct mt_process_facts facts;
	char dir[64];
	char path[96];
	uint32_t seed = 1;
	pid_t *pids;
	int bad = 0;

	pids = calloc(alive, sizeof(*pids));
	snprintf(dir, sizeof(dir), "/dev/shm/mt-storm-%d", (int)getpid());
	mkdir(dir, 0700);
	snprintf(path, sizeof(path), "%s/storm", dir);
	if (!pids || mt_segment_create(&session, path, &config)) {
		puts("no segment");
		return 1;
	}
	mt_process_facts(&facts);
	for (unsigned i = 0; i < total + alive; i++) {
		pid_t *pid = &pids[pick(&seed, alive)];
		int64_t drift;

		if (i >= total)
			pid = &pids[i - total];
		if (*pid) {
			kill(*pid, SIGKILL);
			waitpid(*pid, NULL, 0);
			*pid = 0;
		}
		mt_process_reap_dead(&session, facts.pid_ns, 4);
		if (i < total) {
			*pid = fork();
			if (*pid == 0)
				child(i);
		}
		usleep(pick(&seed, 2000));
		drift = mt_audit_drift(&session);
		/* Read while they run, the words may be newer than usage by
		 * what is under way: no more than that. */
		if (drift < -(int64_t)(alive * 3 * 400)) {
			printf("usage %ld below the words\n", (long)-drift);
			bad = 1;
		}
	}
	while (mt_process_reap_dead(&session, facts.pid_ns, UINT32_MAX))
		;
	bad |= check_end();
	mt_segment_detach(&session);
	unlink(path);
	rmdir(dir);
	free(pids);
	return bad;
}
