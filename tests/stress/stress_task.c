/* SPDX-License-Identifier: MIT */
/*
 * stress_task.c - threads of several processes charge and give back at random
 * in three levels of groups with limits: stress_task [SECONDS [SCENE]].
 *
 *	threads    one process, nothing killed: what ThreadSanitizer can follow
 *	processes  several, nothing killed
 *	kills      several, one of them killed now and then at any instruction
 *
 * All scenes by default; SECONDS (3) are shared among them.
 *
 * Several times a scene everybody is made to rest, and usage must be the sum
 * of the words below it in every group, and not below it where something was
 * killed.  No committed charge is ever above a limit; the last page below a
 * limit can be had, whatever others hold ahead of use; in the end, with all
 * ledgers taken back (and an audit after kills), every counter is zero.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/atomic.h"
#include "core/audit.h"
#include "core/group.h"
#include "core/process.h"

#define NR_PROCESSES 3
#define NR_THREADS   3
#define NR_WORKERS   (NR_PROCESSES * NR_THREADS)
#define NR_LEAVES    3
#define CHARGE_MOST  300
#define DEADLINE_S   60

/*	"/" 8000 --- a 5000 --- x 3000
 *	 |		 \----- y
 *	 \------ b	  ----- z 2500
 */
static const struct node {
	const char *path;
	int64_t max;
} nodes[] = {
	{ "/", 8000 },    { "/a", 5000 },           { "/b", MT_UNLIMITED },
	{ "/a/x", 3000 }, { "/a/y", MT_UNLIMITED }, { "/b/z", 2500 },
};
#define NR_NODES   MT_ARRAY_SIZE(nodes)
#define FIRST_LEAF 3

enum worker_state { STARTING, RUNNING, RESTING, ENDED };

/* What all processes of a scene share, beside the session. */
static struct control {
	_Atomic bool pause;
	_Atomic bool stop;
	_Atomic int worker[NR_WORKERS]; /* enum worker_state */
	/* Never above what is charged: added to after a charge, taken from
	 * before giving back.  By node, for its whole subtree. */
	_Atomic int64_t committed[NR_NODES];
	_Atomic uint64_t charges;
	_Atomic uint64_t refusals;
	_Atomic bool passed_a_limit;
} * control;

static struct mt_session session;
static uint32_t groups[NR_NODES];
static uint32_t slot;
static bool kills; /* then `committed` of the killed is never taken back */
static bool failed;

/* Pages that this process holds: any of its threads may give them back. */
static _Atomic int64_t pool[NR_LEAVES];

#define fail(...)                                                              \
	do {                                                                   \
		printf("stress_task: " __VA_ARGS__);                           \
		putchar('\n');                                                 \
		failed = true;                                                 \
	} while (0)

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static uint32_t pick(uint32_t *seed, uint32_t n)
{
	*seed = *seed * 1103515245u + 12345u;
	return (*seed >> 8) % n;
}

static void commit(uint32_t leaf, int64_t pages)
{
	for (size_t i = 0; i < NR_NODES; i++) {
		int64_t sum;

		if (!mt_counter_is_below(&session, groups[leaf], groups[i]))
			continue;
		sum = fetch_add_seq_cst(&control->committed[i], pages) + pages;
		if (pages > 0 && sum > nodes[i].max && !kills)
			store_relaxed(&control->passed_a_limit, true);
	}
}

static void charge_some(struct mt_task *task, uint32_t *seed)
{
	uint32_t leaf = pick(seed, NR_LEAVES);
	int64_t n = 1 + pick(seed, pick(seed, 4) ? 20 : CHARGE_MOST);
	enum mt_kind kind = (enum mt_kind)pick(seed, 3);
	uint32_t refuser;

	fetch_add_relaxed(&control->charges, 1);
	if (!mt_charge(&session, task, groups[FIRST_LEAF + leaf], kind, n,
		       &refuser)) {
		fetch_add_relaxed(&control->refusals, 1);
		return;
	}
	commit(FIRST_LEAF + leaf, n);
	fetch_add_seq_cst(&pool[leaf], n);
}

static void give_back_some(struct mt_task *task, uint32_t *seed)
{
	uint32_t leaf = pick(seed, NR_LEAVES);
	int64_t n = 1 + pick(seed, pick(seed, 4) ? 20 : CHARGE_MOST);
	/* Of another kind than it was charged as, too: kinds only add up. */
	enum mt_kind kind = (enum mt_kind)pick(seed, 3);

	if (fetch_add_seq_cst(&pool[leaf], -n) < n) {
		fetch_add_seq_cst(&pool[leaf], n);
		return;
	}
	commit(FIRST_LEAF + leaf, -n);
	mt_uncharge(&session, task, groups[FIRST_LEAF + leaf], kind, n);
}

static void do_something_rare(struct mt_task *task, uint32_t *seed)
{
	struct mt_process_facts facts;

	switch (pick(seed, 3)) {
	case 0:
		mt_drain(&session, task, groups[pick(seed, NR_NODES)]);
		break;
	case 1:
		/* A thread ends, and another begins. */
		mt_task_detach(&session, task);
		mt_task_attach(&session, task, slot, *seed | 1);
		break;
	default:
		mt_process_facts(&facts);
		mt_process_reap_dead(&session, facts.pid_ns, 2);
	}
}

struct worker {
	pthread_t thread;
	unsigned number;
};

static void *work(void *arg)
{
	const struct worker *worker = arg;
	_Atomic int *state = &control->worker[worker->number];
	uint32_t seed = worker->number * 2654435761u ^ (uint32_t)getpid();
	struct mt_task task;

	mt_task_attach(&session, &task, slot, worker->number + 1);
	while (!load_acquire(&control->stop)) {
		/* Pairs with rest_and_check(): we say that we run and then look
		 * whether we may; it says that we may not and then looks. */
		store_seq_cst(state, RUNNING);
		if (load_seq_cst(&control->pause)) {
			store_seq_cst(state, RESTING);
			sched_yield();
			continue;
		}
		for (int i = 0; i < 50; i++) {
			if (pick(&seed, 2))
				charge_some(&task, &seed);
			else
				give_back_some(&task, &seed);
		}
		if (pick(&seed, 8) == 0)
			do_something_rare(&task, &seed);
	}
	/* Some leave their words as they are, as a killed one would. */
	if (worker->number & 1)
		mt_task_detach(&session, &task);
	store_seq_cst(state, ENDED);
	return NULL;
}

static void run_workers(struct worker *workers, unsigned process)
{
	for (unsigned t = 0; t < NR_THREADS; t++) {
		workers[t].number = process * NR_THREADS + t;
		pthread_create(&workers[t].thread, NULL, work, &workers[t]);
	}
}

static void end_workers(const struct worker *workers)
{
	for (unsigned t = 0; t < NR_THREADS; t++)
		pthread_join(workers[t].thread, NULL);
}

static bool join(void)
{
	struct mt_process_facts facts;

	mt_process_facts(&facts);
	return mt_process_join(&session, &facts, &slot) == 0;
}

static pid_t start_process(unsigned number)
{
	struct worker workers[NR_THREADS];
	pid_t pid;

	for (unsigned t = 0; t < NR_THREADS; t++)
		store_seq_cst(&control->worker[number * NR_THREADS + t],
			      STARTING);
	pid = fork();
	if (pid)
		return pid;
	memset(pool, 0, sizeof(pool));
	/* The one who watches must get its turn among all these. */
	if (nice(5) == -1 || !join())
		_exit(1);
	run_workers(workers, number);
	end_workers(workers);
	_exit(0);
}

/* Used and stock of every word, or the stock alone, by node. */
static void sum_words(int64_t *sums, bool stock_only)
{
	memset(sums, 0, NR_NODES * sizeof(*sums));
	for (uint32_t i = 0; i < mt_table_high(&session, MT_LINES); i++) {
		struct mt_line *line = &session.lines[i];
		uint64_t ident = load_acquire(&line->ident);
		int64_t pages = 0;

		for (int k = 0; ident && k < MT_NR_KINDS; k++) {
			uint64_t word = load_acquire(&line->word[k]);

			pages += mt_word_stock(word);
			if (!stock_only)
				pages += mt_word_used(word);
		}
		for (size_t n = 0; pages && n < NR_NODES; n++) {
			if (mt_counter_is_below(&session, mt_line_group(ident),
						groups[n]))
				sums[n] += pages;
		}
	}
	for (uint32_t i = 0;
	     !stock_only && i < mt_table_high(&session, MT_PROCESSES); i++) {
		for (int k = 0; k < MT_NR_KINDS; k++)
			sums[0] += mt_word_used(
				load_acquire(&session.processes[i].word[k]));
	}
}

static struct mt_group *group_of(size_t node)
{
	return &session.groups[groups[node]];
}

/* At rest: every page that is counted is in a word. */
static void check_books(const char *when)
{
	int64_t sums[NR_NODES];

	sum_words(sums, false);
	for (size_t n = 0; n < NR_NODES; n++) {
		struct mt_group *group = group_of(n);
		int64_t drift = load_seq_cst(&group->usage) - sums[n];

		if (drift < 0 || (drift > 0 && !kills))
			fail("%s: %s: usage is %+ld beside the words", when,
			     nodes[n].path, (long)drift);
		if (load_relaxed(&group->peak) > nodes[n].max)
			fail("%s: %s: a peak above its limit", when,
			     nodes[n].path);
		if (load_relaxed(&group->underflows))
			fail("%s: %s: an underflow", when, nodes[n].path);
	}
	if (load_relaxed(&control->passed_a_limit))
		fail("%s: committed above a limit", when);
}

static bool all_are(int state, int or_state)
{
	for (int i = 0; i < NR_WORKERS; i++) {
		int is = load_seq_cst(&control->worker[i]);

		if (is != state && is != or_state)
			return false;
	}
	return true;
}

static bool wait_for(int state, int or_state)
{
	uint64_t deadline = now_ms() + DEADLINE_S * 1000;

	while (!all_are(state, or_state)) {
		if (now_ms() > deadline) {
			fail("workers that don't come to rest");
			return false;
		}
		sched_yield();
	}
	return true;
}

static void rest_and_check(void)
{
	store_seq_cst(&control->pause, true);
	if (wait_for(RESTING, ENDED))
		check_books("at rest");
	store_seq_cst(&control->pause, false);
}

/* With others' stocks lying about, each limit is reached to its last page. */
static void check_last_page(void)
{
	struct mt_task task;
	uint32_t refuser = MT_NONE;
	int64_t sums[NR_NODES];

	if (!join())
		fail("no slot for the last page");
	mt_task_attach(&session, &task, slot, 1);
	for (size_t leaf = FIRST_LEAF; leaf < NR_NODES; leaf++) {
		size_t n = 0;

		/* In bites at first: one by one it takes a while. */
		for (int64_t bite = 1000; bite; bite /= 10) {
			while (mt_charge(&session, &task, groups[leaf], MT_ANON,
					 bite, &refuser))
				;
		}
		while (n < NR_NODES && groups[n] != refuser)
			n++;
		sum_words(sums, true);
		if (n == NR_NODES)
			fail("refused by nobody");
		else if (load_relaxed(&group_of(n)->usage) != nodes[n].max ||
			 sums[n])
			fail("%s: refused at %ld of %ld pages, %ld in stocks",
			     nodes[n].path,
			     (long)load_relaxed(&group_of(n)->usage),
			     (long)nodes[n].max, (long)sums[n]);
	}
	check_books("full");
	mt_task_detach(&session, &task);
}

static void check_end(void)
{
	static struct mt_audit_scratch scratch;
	struct mt_process_facts facts;
	int64_t pages = 0;

	mt_process_facts(&facts);
	while (mt_process_reap_dead(&session, facts.pid_ns, UINT32_MAX))
		;
	/* Ours, from the last page on: nobody reaps itself. */
	mt_process_reap(&session, slot,
			load_relaxed(&session.processes[slot].state),
			MT_ENDED_EXITED);
	check_books("reaped");
	if (mt_audit(&session, &scratch, &pages) != MT_AUDIT_DONE)
		fail("no quiet moment with nobody alive");
	if (pages && !kills)
		fail("an audit found %ld pages, and nothing was killed",
		     (long)pages);
	for (size_t n = 0; n < NR_NODES; n++) {
		int64_t usage = load_relaxed(&group_of(n)->usage);

		if (usage)
			fail("%s: %ld pages in the end", nodes[n].path,
			     (long)usage);
	}
	for (uint32_t i = 0; i < mt_table_high(&session, MT_LINES); i++) {
		if (load_relaxed(&session.lines[i].ident))
			fail("line %u is still used", i);
	}
	printf("  %lu charges, %lu refused, %lu reaped, %ld pages repaired\n",
	       (unsigned long)load_relaxed(&control->charges),
	       (unsigned long)load_relaxed(&control->refusals),
	       (unsigned long)load_relaxed(&session.header->reaped),
	       (long)pages);
}

static void scene_threads(uint64_t ms)
{
	uint64_t end = now_ms() + ms;
	struct worker workers[NR_THREADS];

	memset(pool, 0, sizeof(pool));
	for (unsigned i = NR_THREADS; i < NR_WORKERS; i++)
		store_seq_cst(&control->worker[i], ENDED);
	if (!join())
		fail("no slot");
	run_workers(workers, 0);
	while (now_ms() < end) {
		uint64_t next = now_ms() + 100;

		while (now_ms() < next)
			sched_yield();
		rest_and_check();
	}
	store_release(&control->stop, true);
	end_workers(workers);
}

static void scene_processes(uint64_t ms)
{
	uint64_t end = now_ms() + ms;
	pid_t pids[NR_PROCESSES];
	uint32_t seed = 1;

	for (unsigned p = 0; p < NR_PROCESSES; p++)
		pids[p] = start_process(p);
	while (now_ms() < end) {
		unsigned p = pick(&seed, NR_PROCESSES);
		uint64_t next = now_ms() + 1 + pick(&seed, kills ? 20 : 100);

		while (now_ms() < next)
			sched_yield();
		if (!kills || pick(&seed, 8) == 0)
			rest_and_check();
		if (kills) {
			kill(pids[p], SIGKILL);
			waitpid(pids[p], NULL, 0);
			pids[p] = start_process(p);
		}
	}
	store_release(&control->stop, true);
	for (unsigned p = 0; p < NR_PROCESSES; p++) {
		int status = 0;

		if (waitpid(pids[p], &status, 0) != pids[p] || status)
			fail("a process ended with %d", status);
	}
}

static const struct scene {
	const char *name;
	void (*run)(uint64_t ms);
	bool kills;
} scenes[] = {
	{ "threads", scene_threads, false },
	{ "processes", scene_processes, false },
	{ "kills", scene_processes, true },
};

static bool open_session(const char *path)
{
	struct mt_segment_config config = { .name = "stress" };

	if (mt_segment_create(&session, path, &config))
		return false;
	for (size_t n = 0; n < NR_NODES; n++) {
		if (mt_group_make_path(&session, MT_ROOT, nodes[n].path,
				       MT_GROUP_KEEP, &groups[n]))
			return false;
		mt_counter_force_max(&session, groups[n], nodes[n].max);
	}
	return true;
}

static void run_scene(const struct scene *scene, const char *dir, uint64_t ms)
{
	char path[96];

	printf("%s\n", scene->name);
	fflush(stdout);
	snprintf(path, sizeof(path), "%s/%s", dir, scene->name);
	memset((void *)control, 0, sizeof(*control));
	kills = scene->kills;
	if (!open_session(path)) {
		fail("no session at %s", path);
		return;
	}
	scene->run(ms);
	check_books("ended");
	check_last_page();
	check_end();
	mt_segment_detach(&session);
	unlink(path);
}

int main(int argc, char **argv)
{
	uint64_t seconds = argc > 1 ? strtoul(argv[1], NULL, 10) : 3;
	const char *only = argc > 2 ? argv[2] : NULL;
	char dir[64];
	size_t n = 0;

	control = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	snprintf(dir, sizeof(dir), "/dev/shm/memtally-stress-%d",
		 (int)getpid());
	if (control == MAP_FAILED || mkdir(dir, 0700)) {
		perror("stress_task");
		return 1;
	}
	for (size_t i = 0; i < MT_ARRAY_SIZE(scenes); i++)
		n += !only || strcmp(only, scenes[i].name) == 0;
	for (size_t i = 0; i < MT_ARRAY_SIZE(scenes); i++) {
		if (!only || strcmp(only, scenes[i].name) == 0)
			run_scene(&scenes[i], dir, seconds * 1000 / n);
	}
	rmdir(dir);
	puts(failed || !n ? "stress_task: FAILED" : "stress_task: ok");
	return failed || !n;
}
