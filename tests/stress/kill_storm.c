/* SPDX-License-Identifier: MIT */
/*
 * kill_storm.c - processes that charge on several threads and three levels,
 * killed at random moments: kill_storm [PROCESSES [ALIVE]].
 *
 * While it runs, usage is never below the sum of the words; whenever all
 * writers pause, a look after reaping and one audit finds every counter equal
 * to that sum; at the end every counter is exactly zero.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/atomic.h"
#include "core/audit.h"
#include "core/group.h"
#include "core/process.h"

#define THREADS     3
#define PAUSE_EVERY 250

#define MOST 256

/* Shared with the children: an odd number asks them to pause. */
struct pause {
	_Atomic uint32_t number;
	_Atomic uint32_t here[MOST]; /* threads of a child that do */
};

static struct pause *pause_of_all;
static struct mt_session session;
static struct mt_audit_scratch scratch;
static uint32_t slot;
static uint32_t leaf;

static uint32_t pick(uint32_t *seed, uint32_t n)
{
	*seed = *seed * 1103515245u + 12345u;
	return (*seed >> 8) % n;
}

static unsigned place; /* of this child among those alive */
static pid_t *pids;

static void rest(void)
{
	uint32_t number = load_seq_cst(&pause_of_all->number);

	if (!(number & 1))
		return;
	fetch_add_seq_cst(&pause_of_all->here[place], 1);
	while (load_seq_cst(&pause_of_all->number) == number)
		usleep(2000);
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

		rest();
		/* So many threads on few processors: one that is to die must
		 * get its turn. */
		if (pick(&seed, 1000) == 0)
			usleep(pick(&seed, 3000));
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

/* Killed after so much of its own time: on a processor, at any instruction. */
static void die_after(uint32_t us)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL,
				  .sigev_signo = SIGKILL };
	struct itimerspec when = { .it_value.tv_nsec = us * 1000L };
	timer_t timer;

	if (timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer) ||
	    timer_settime(timer, 0, &when, NULL))
		_exit(1);
}

static void child(unsigned number)
{
	struct mt_process_facts facts;
	uint32_t seed = number;
	pthread_t thread;
	char path[64];

	die_after(1 + pick(&seed, 8000));
	mt_process_facts(&facts);
	if (mt_process_join(&session, &facts, &slot))
		_exit(1);
	mt_process_make_home(&session, slot, NULL);
	snprintf(path, sizeof(path), "/a%u/b%u", number % 3, number % 7);
	mt_group_make_path(&session, MT_ROOT, path, 0, &leaf);
	for (uintptr_t i = 1; i < THREADS; i++)
		pthread_create(&thread, NULL, charge_and_uncharge, (void *)i);
	charge_and_uncharge((void *)THREADS);
}

static void reap_all(uint64_t pid_ns)
{
	while (mt_process_reap_dead(&session, pid_ns, UINT32_MAX))
		;
}

/* Nobody writes: every counter is the sum of the words below it. */
static int check_sums(void)
{
	static int64_t words[4096];
	int64_t pages;
	int bad = 0;

	if (mt_audit(&session, &scratch, &pages) != MT_AUDIT_DONE) {
		puts("no quiet moment with everybody at rest");
		return 1;
	}
	memset(words, 0, sizeof(words));
	for (uint32_t i = 0; i < mt_table_high(&session, MT_LINES); i++) {
		struct mt_line *line = &session.lines[i];
		uint64_t ident = load_relaxed(&line->ident);
		uint32_t group = mt_line_group(ident);

		for (int k = 0; ident && group < 4096; k = 0) {
			for (; k < MT_NR_KINDS; k++) {
				uint64_t word = load_relaxed(&line->word[k]);

				words[group] += mt_word_used(word) +
						mt_word_stock(word);
			}
			group = load_relaxed(&session.groups[group].parent);
		}
	}
	for (uint32_t i = 0; i < mt_table_high(&session, MT_PROCESSES); i++)
		for (int k = 0; k < MT_NR_KINDS; k++)
			words[MT_ROOT] += mt_word_used(
				load_relaxed(&session.processes[i].word[k]));
	for (uint32_t i = 0; i < mt_table_high(&session, MT_GROUPS); i++) {
		int64_t usage = load_relaxed(&session.groups[i].usage);

		if (usage != words[i] && mt_group_is_live(&session, i)) {
			printf("group %u: usage %ld, words %ld\n", i,
			       (long)usage, (long)words[i]);
			bad = 1;
		}
	}
	return bad;
}

/* Has child @k come to rest, or its end? */
static bool at_rest(unsigned k)
{
	if (pids[k] && waitpid(pids[k], NULL, WNOHANG) == pids[k])
		pids[k] = 0;
	return !pids[k] || load_seq_cst(&pause_of_all->here[k]) == THREADS;
}

/* All threads of the living come to rest: then the sums must be exact. */
static int check_pause(unsigned alive, uint64_t pid_ns)
{
	time_t since = time(NULL);
	int bad;

	for (unsigned k = 0; k < alive; k++)
		store_seq_cst(&pause_of_all->here[k], 0);
	fetch_add_seq_cst(&pause_of_all->number, 1);
	for (unsigned k = 0; k < alive;) {
		if (at_rest(k)) {
			k++;
			continue;
		}
		if (time(NULL) - since > 60) {
			puts("they don't come to rest");
			return 1;
		}
		usleep(1000);
	}
	reap_all(pid_ns);
	bad = check_sums();
	fetch_add_seq_cst(&pause_of_all->number, 1);
	return bad;
}

static unsigned find(unsigned alive, pid_t pid)
{
	for (unsigned k = 0; k < alive; k++)
		if (pids[k] == pid)
			return k;
	return MOST;
}

/* A place among those alive: an empty one, that of one killed now, or of the
 * next to die. */
static unsigned make_room(unsigned alive, uint32_t *seed)
{
	unsigned k = find(alive, 0);

	if (k == MOST && pick(seed, 3) == 0) {
		k = pick(seed, alive);
		kill(pids[k], SIGKILL);
		waitpid(pids[k], NULL, 0);
	} else if (k == MOST) {
		k = find(alive, waitpid(-1, NULL, 0));
	}
	pids[k] = 0;
	return k;
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
	unsigned total = argc > 1 ? (unsigned)atoi(argv[1]) : 10000;
	unsigned alive = argc > 2 ? (unsigned)atoi(argv[2]) : 32;
	struct mt_segment_config config = { .name = "storm" };
	struct mt_process_facts facts;
	char dir[64];
	char path[96];
	uint32_t seed = 1;
	unsigned pauses = 0;
	int bad = 0;

	pause_of_all = mmap(NULL, sizeof(*pause_of_all), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (pause_of_all == MAP_FAILED)
		return 1;
	alive = MT_MIN(alive, (unsigned)MOST);
	pids = calloc(alive, sizeof(*pids));
	snprintf(dir, sizeof(dir), "/dev/shm/mt-storm-%d", (int)getpid());
	mkdir(dir, 0700);
	snprintf(path, sizeof(path), "%s/storm", dir);
	if (!pids || mt_segment_create(&session, path, &config)) {
		puts("no segment");
		return 1;
	}
	mt_process_facts(&facts);
	for (unsigned i = 0; i < total; i++) {
		int64_t drift;

		place = make_room(alive, &seed);
		mt_process_reap_dead(&session, facts.pid_ns, 4);
		pids[place] = fork();
		if (pids[place] == 0)
			child(i);
		drift = mt_audit_drift(&session);
		/* Read while they run, the words may be newer than usage by
		 * what is under way: no more than that. */
		if (drift < -(int64_t)(alive * THREADS * 400)) {
			printf("usage %ld below the words\n", (long)-drift);
			bad = 1;
		}
		if (i % PAUSE_EVERY == PAUSE_EVERY - 1 && ++pauses)
			bad |= check_pause(alive, facts.pid_ns);
	}
	for (unsigned k = 0; k < alive; k++)
		if (pids[k]) {
			kill(pids[k], SIGKILL);
			waitpid(pids[k], NULL, 0);
		}
	reap_all(facts.pid_ns);
	bad |= check_end();
	printf("%u pauses with exact sums\n", pauses);
	mt_segment_detach(&session);
	unlink(path);
	rmdir(dir);
	free(pids);
	return bad;
}
