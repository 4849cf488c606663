/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "core/audit.h"
#include "core/group.h"
#include "core/process.h"
#include "tests/unit/session.h"

static uint64_t state_of(uint32_t process)
{
	return load_seq_cst(&session.processes[process].state);
}

static uint64_t make_state(uint64_t state, uint64_t generation, uint32_t pid)
{
	return state | generation << 8 | (uint64_t)pid << 32;
}

static uint64_t generation_of(uint32_t process)
{
	return state_of(process) >> 8 & 0xffffff;
}

static bool reap(uint32_t process)
{
	return mt_process_reap(&session, process, state_of(process),
			       MT_ENDED_EXITED);
}

static unsigned reap_dead(void)
{
	return mt_process_reap_dead(&session, own_ns(), UINT32_MAX);
}

static enum mt_life life_of(uint32_t process)
{
	uint64_t state;

	return mt_process_life(&session, process, own_ns(), &state);
}

static uint32_t make_path(const char *path)
{
	uint32_t group = MT_NONE;

	ck_assert_int_eq(mt_group_make_path(&session, MT_ROOT, path, 0, &group),
			 0);
	return group;
}

static bool charge(struct mt_task *task, uint32_t group, int64_t pages)
{
	uint32_t nobody;

	return mt_charge(&session, task, group, MT_HEAP, pages, &nobody);
}

/* A pid that is nobody's: of a child that has been waited for. */
static uint32_t dead_pid(void)
{
	pid_t child = fork();

	if (child == 0)
		_exit(0);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	return (uint32_t)child;
}

/* A child that joins, charges, says so and waits to be killed. */
static pid_t start_child(int64_t pages, int64_t loose)
{
	int ready[2];
	char byte = 0;
	pid_t child;

	ck_assert_int_eq(pipe(ready), 0);
	child = fork();
	if (child == 0) {
		uint32_t slot = join_self();
		uint32_t home = mt_process_make_home(&session, slot, NULL);
		struct mt_task task;

		mt_task_attach(&session, &task, slot, (uint32_t)getpid());
		if (!charge(&task, home, pages))
			_exit(1);
		/* Small ones leave a stock behind. */
		for (int64_t i = 0; i < loose; i++) {
			if (!charge(&task, MT_ROOT, 1))
				_exit(1);
		}
		if (write(ready[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return child;
}

static uint32_t slot_of(pid_t pid)
{
	return mt_process_find(&session, (uint32_t)pid, own_ns());
}

START_TEST(a_process_that_joins_is_found)
{
	struct mt_process_facts facts;
	uint32_t slot = join_self();
	const struct mt_process *p = &session.processes[slot];

	mt_process_facts(&facts);

	ck_assert_uint_eq(facts.pid, (uint32_t)getpid());
	ck_assert_uint_eq(facts.parent_pid, (uint32_t)getppid());
	ck_assert_uint_eq(slot_of(getpid()), slot);
	ck_assert_uint_eq(state_of(slot) & 0xff, MT_PROC_LIVE);
	ck_assert_uint_eq(state_of(slot) >> 32, (uint32_t)getpid());
	ck_assert_str_eq(p->comm, facts.comm);
	ck_assert_uint_eq(load_relaxed(&p->home), MT_NONE);
	ck_assert_uint_eq(load_relaxed(&p->pid_ns), facts.pid_ns);
	ck_assert_uint_le(load_relaxed(&p->joined_ns), facts.now_ns);
	ck_assert_uint_eq(load_relaxed(&session.header->nr_live), 1);
	ck_assert_uint_eq(load_relaxed(&session.header->joins), 1);
	ck_assert_uint_eq(load_relaxed(&session.header->processes_total), 1);
	ck_assert_int_eq(life_of(slot), MT_ALIVE);

	/* A pid is a name within its namespace only. */
	ck_assert_uint_eq(
		mt_process_find(&session, facts.pid, facts.pid_ns + 1),
		MT_NONE);
	ck_assert_uint_eq(
		mt_process_find(&session, facts.pid + 1, facts.pid_ns),
		MT_NONE);
}
END_TEST

START_TEST(slots_are_taken_lowest_first_and_again)
{
	uint64_t generation;

	ck_assert_uint_eq(join_as(11, 0), 0);
	ck_assert_uint_eq(join_as(12, 0), 1);
	ck_assert_uint_eq(join_as(13, 0), 2);
	generation = generation_of(1);

	ck_assert(reap(1));
	ck_assert(reap(2));
	ck_assert_uint_eq(load_relaxed(&session.header->nr_live), 1);

	ck_assert_uint_eq(join_as(14, 0), 1);
	ck_assert_uint_eq(generation_of(1), generation + 1);
	ck_assert_uint_eq(join_as(15, 0), 2);
	ck_assert_uint_eq(load_relaxed(&session.header->nr_live), 3);
	ck_assert_uint_eq(load_relaxed(&session.header->processes_total), 5);
}
END_TEST

START_TEST(a_full_table_refuses_and_takes_the_next_when_one_has_gone)
{
	struct mt_segment_config config = { 0 };
	struct mt_process_facts facts;
	uint32_t slot = 99;

	session_close();
	config.capacity[MT_PROCESSES] = 2;
	session_open(&config);
	mt_process_facts(&facts);
	join_as(11, 0);
	join_as(12, 0);

	facts.pid = 13;
	ck_assert_int_eq(mt_process_join(&session, &facts, &slot), -ENOSPC);
	ck_assert_uint_eq(slot, 99);

	ck_assert(reap(0));
	ck_assert_int_eq(mt_process_join(&session, &facts, &slot), 0);
	ck_assert_uint_eq(slot, 0);
}
END_TEST

START_TEST(what_a_killed_process_held_is_taken_back_exactly)
{
	uint32_t slot = join_self();
	struct mt_task task;
	pid_t child;
	uint32_t childs;

	mt_task_attach(&session, &task, slot, 1);
	ck_assert(charge(&task, MT_ROOT, 100));
	/* 5000 in its group; 3 and a stock of 61 in "/". */
	child = start_child(5000, 3);
	childs = slot_of(child);
	ck_assert_uint_ne(childs, MT_NONE);
	ck_assert_int_eq(usage_of(MT_ROOT), 100 + 5000 + 64);
	ck_assert_int_eq(mt_process_charged(&session, childs), 5003);
	ck_assert_int_eq(life_of(childs), MT_ALIVE);
	ck_assert_uint_eq(reap_dead(), 0);

	/* Not waited for: a zombie is dead as well. */
	kill(child, SIGKILL);
	wait_until(life_of(childs) == MT_DEAD);
	ck_assert_uint_eq(reap_dead(), 1);

	ck_assert_int_eq(usage_of(MT_ROOT), 100);
	ck_assert_int_eq(mt_process_charged(&session, slot), 100);
	ck_assert_int_eq(mt_audit_drift(&session), 0);
	ck_assert_uint_eq(load_relaxed(&session.header->nr_live), 1);
	ck_assert_uint_eq(load_relaxed(&session.header->reaped), 1);
	ck_assert_uint_eq(slot_of(child), MT_NONE);
	for (uint32_t i = 1; i < mt_table_high(&session, MT_GROUPS); i++)
		ck_assert(!mt_group_is_live(&session, i));
	for (uint32_t i = 0; i < mt_table_high(&session, MT_THREADS); i++)
		ck_assert_uint_ne(load_relaxed(&session.threads[i].ident) >> 32,
				  childs + 1);
	waitpid(child, NULL, 0);
}
END_TEST

START_TEST(children_that_are_killed_at_any_moment_leave_no_page)
{
	uint64_t repaired;
	int64_t pages;

	for (int round = 0; round < 30; round++) {
		pid_t child = fork();
		uint32_t slot;

		if (child == 0) {
			struct mt_task task;
			uint32_t home;

			slot = join_self();
			home = mt_process_make_home(&session, slot, NULL);
			mt_task_attach(&session, &task, slot, 1);
			for (unsigned i = 0;; i++) {
				int64_t n = 1 + (int64_t)(i * 7 % 150);

				if (charge(&task, home, n))
					mt_uncharge(&session, &task, home,
						    MT_HEAP, n);
			}
		}
		wait_until((slot = slot_of(child)) != MT_NONE);
		wait_until(usage_of(MT_ROOT) > 0);
		kill(child, SIGKILL);
		wait_until(life_of(slot) == MT_DEAD);
		ck_assert_uint_eq(reap_dead(), 1);
		waitpid(child, NULL, 0);
	}

	/* Too high if anything, by one operation (150 and a stock) a child. */
	pages = usage_of(MT_ROOT);
	ck_assert_int_ge(pages, 0);
	ck_assert_int_le(pages, 30 * (150 + 64));
	ck_assert_int_eq(mt_audit_drift(&session), pages);
	/* Nobody is inside now: the audit takes back what there is. */
	repaired = load_relaxed(&session.groups[MT_ROOT].repairs);
	{
		static struct mt_audit_scratch scratch;
		int64_t found;

		ck_assert_int_eq(mt_audit(&session, &scratch, &found),
				 MT_AUDIT_DONE);
		ck_assert_int_eq(found, pages);
	}
	ck_assert_int_eq(usage_of(MT_ROOT), 0);
	ck_assert_uint_eq(load_relaxed(&session.groups[MT_ROOT].repairs) -
				  repaired,
			  (uint64_t)pages);
}
END_TEST

START_TEST(seen_dead_once_reaped_once)
{
	uint32_t slot = join_as(dead_pid(), 0);
	uint64_t state;

	ck_assert_int_eq(mt_process_life(&session, slot, own_ns(), &state),
			 MT_DEAD);
	ck_assert(mt_process_reap(&session, slot, state, MT_ENDED_EXITED));

	ck_assert(!mt_process_reap(&session, slot, state, MT_ENDED_EXITED));
	/* Nor is the next one in that slot what was judged. */
	ck_assert_uint_eq(join_self(), slot);
	ck_assert(!mt_process_reap(&session, slot, state, MT_ENDED_EXITED));
	ck_assert_uint_eq(load_relaxed(&session.header->nr_live), 1);
	ck_assert_uint_eq(load_relaxed(&session.header->reaped), 1);
}
END_TEST

START_TEST(a_pid_used_again_is_another_process)
{
	/* It joined right after boot; whoever has its pid started later. */
	uint32_t slot = join_as((uint32_t)getppid(), 1);

	ck_assert_int_eq(life_of(slot), MT_DEAD);
	ck_assert_uint_eq(reap_dead(), 1);
	/* One that joined after it started is the same. */
	slot = join_as((uint32_t)getppid(), 0);
	ck_assert_int_eq(life_of(slot), MT_ALIVE);
	ck_assert_uint_eq(reap_dead(), 0);
}
END_TEST

START_TEST(nobody_judges_in_another_pid_namespace)
{
	uint32_t slot = join_as(dead_pid(), 0);
	uint64_t state;

	ck_assert_int_eq(mt_process_life(&session, slot, own_ns() + 1, &state),
			 MT_CANNOT_TELL);
	ck_assert_uint_eq(
		mt_process_reap_dead(&session, own_ns() + 1, UINT32_MAX), 0);
	ck_assert_uint_eq(reap_dead(), 1);
}
END_TEST

START_TEST(a_free_slot_is_not_judged)
{
	uint32_t slot = join_as(dead_pid(), 0);

	ck_assert(reap(slot));
	ck_assert_int_eq(life_of(slot), MT_CANNOT_TELL);
	ck_assert(!reap(slot));
}
END_TEST

static void *linger(void *arg)
{
	if (write(*(int *)arg, "x", 1) != 1)
		_exit(1);
	for (;;)
		pause();
	return NULL;
}

START_TEST(a_process_whose_first_thread_has_ended_is_alive)
{
	char path[64];
	char text[512];
	int ready[2];
	uint32_t slot;
	char byte;
	pid_t child;

	ck_assert_int_eq(pipe(ready), 0);
	child = fork();
	if (child == 0) {
		pthread_t thread;

		join_self();
		pthread_create(&thread, NULL, linger, &ready[1]);
		/* The thread alone: what pthread_exit() comes to. */
		syscall(SYS_exit, 0);
	}
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	slot = slot_of(child);
	ck_assert_uint_ne(slot, MT_NONE);
	/* Its state reads Z, as a dead one's would. */
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)child);
	do {
		int fd = open(path, O_RDONLY);
		ssize_t n = read(fd, text, sizeof(text) - 1);

		close(fd);
		ck_assert_int_gt(n, 0);
		text[n] = '\0';
	} while (!strstr(text, ") Z "));

	ck_assert_int_eq(life_of(slot), MT_ALIVE);

	kill(child, SIGKILL);
	wait_until(life_of(slot) == MT_DEAD);
	waitpid(child, NULL, 0);
	ck_assert_int_eq(life_of(slot), MT_DEAD);
}
END_TEST

START_TEST(a_name_with_brackets_and_blanks_hides_no_state)
{
	uint32_t slot;
	char comm[16];

	prctl(PR_GET_NAME, comm);
	prctl(PR_SET_NAME, ") Z 1 (x) Z 0");
	slot = join_self();
	ck_assert_int_eq(life_of(slot), MT_ALIVE);
	ck_assert_str_eq(session.processes[slot].comm, ") Z 1 (x) Z 0");
	prctl(PR_SET_NAME, comm);
}
END_TEST

START_TEST(an_exec_takes_its_old_slot_and_empties_it)
{
	uint32_t first = join_self();
	uint64_t generation = generation_of(first);
	uint32_t home = mt_process_make_home(&session, first, NULL);
	struct mt_task task;

	mt_task_attach(&session, &task, first, 1);
	ck_assert(charge(&task, home, 300));
	ck_assert(charge(&task, MT_ROOT, 3));

	ck_assert_uint_eq(join_self(), first);

	ck_assert_int_eq(usage_of(MT_ROOT), 0);
	ck_assert_int_eq(mt_process_charged(&session, first), 0);
	ck_assert_uint_eq(generation_of(first), generation + 1);
	ck_assert_uint_eq(load_relaxed(&session.header->nr_live), 1);
	ck_assert(!mt_group_is_live(&session, home));
	ck_assert_uint_eq(load_relaxed(&session.processes[first].home),
			  MT_NONE);
	ck_assert_int_eq(load_relaxed(&session.processes[first].peak), 0);
	/* The old program is remembered, as replaced. */
	ck_assert_uint_eq(session.ended[0].pid, (uint32_t)getpid());
	ck_assert_uint_eq(session.ended[0].how, MT_ENDED_EXECED);
	ck_assert_uint_eq(session.ended[0].peak, 300 + 64);
	ck_assert_uint_eq(session.ended[0].left, 300 + 64);
}
END_TEST

START_TEST(a_mapping_file_goes_with_its_process)
{
	uint32_t slot = join_as(dead_pid(), 0);
	char path[MT_PATH_MAX + MT_MAP_SUFFIX];

	mt_segment_map_path(&session, slot, (uint32_t)generation_of(slot),
			    path);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	store_relaxed(&session.processes[slot].map_file, 1);

	ck_assert(reap(slot));

	ck_assert_int_eq(access(path, F_OK), -1);
}
END_TEST

/* Words of all signs, which come of pages given back by others than took
 * them: the process's own word for "/", and lines. */
START_TEST(debts_and_credits_of_one_process_cancel_out)
{
	for (int turn = 0; turn < 2; turn++) {
		uint32_t slot = join_self();
		struct mt_task slotted;
		struct mt_task slotless;

		mt_task_attach(&session, &slotted, slot, 1);
		mt_task_attach(&session, &slotless, slot, 2);
		mt_task_detach(&session, &slotless);
		/* Charged in a line and given back in the process's word, or
		 * the other way round. */
		ck_assert(charge(turn ? &slotless : &slotted, MT_ROOT, 100));
		mt_uncharge(&session, turn ? &slotted : &slotless, MT_ROOT,
			    MT_HEAP, 90);
		ck_assert_int_eq(mt_process_charged(&session, slot), 10);
		ck_assert_int_eq(usage_of(MT_ROOT), 10);

		ck_assert(reap(slot));

		ck_assert_int_eq(usage_of(MT_ROOT), 0);
		ck_assert_uint_eq(
			load_relaxed(&session.groups[MT_ROOT].underflows), 0);
		/* Nor was there a moment with more than was charged. */
		ck_assert_int_eq(peak_of(MT_ROOT), 100);
	}
}
END_TEST

START_TEST(debts_between_threads_cancel_out_before_usage_moves)
{
	uint32_t group = make_path("/g");
	uint32_t slot = join_self();
	struct mt_task tasks[3];

	store_relaxed(&session.groups[group].flags, MT_GROUP_KEEP);
	for (int i = 0; i < 3; i++)
		mt_task_attach(&session, &tasks[i], slot, (uint32_t)i + 1);
	ck_assert(charge(&tasks[1], group, 500));
	ck_assert(charge(&tasks[2], group, 400));
	/* The first line holds -800; 100 are left. */
	mt_uncharge(&session, &tasks[0], group, MT_HEAP, 450);
	mt_uncharge(&session, &tasks[0], group, MT_HEAP, 350);
	ck_assert_int_eq(usage_of(group), 100);

	ck_assert(reap(slot));

	ck_assert_int_eq(usage_of(group), 0);
	ck_assert_int_eq(usage_of(MT_ROOT), 0);
	ck_assert_int_eq(peak_of(group), 900);
	ck_assert_uint_eq(load_relaxed(&session.groups[group].underflows), 0);
}
END_TEST

/* More given back than was ever taken: it can't be, and must not break the
 * books of those who live. */
START_TEST(a_debt_that_nothing_covers_is_made_good)
{
	uint32_t other = join_as((uint32_t)getppid(), 0);
	uint32_t slot = join_self();
	struct mt_task task;
	struct mt_task others;

	mt_task_attach(&session, &others, other, 1);
	mt_task_attach(&session, &task, slot, 2);
	ck_assert(charge(&others, MT_ROOT, 1000));
	mt_uncharge(&session, &task, MT_ROOT, MT_HEAP, 200);
	ck_assert_int_eq(usage_of(MT_ROOT), 800);

	ck_assert(reap(slot));

	ck_assert_int_eq(usage_of(MT_ROOT), 1000);
	ck_assert_int_eq(mt_process_charged(&session, other), 1000);
	ck_assert_int_eq(mt_audit_drift(&session), 0);
}
END_TEST

START_TEST(an_operation_cut_short_is_given_back_by_the_reaper)
{
	static const struct scene {
		int64_t pages;
		uint32_t levels; /* done, as noted */
		int64_t at_g;    /* charged by hand, on top of nothing */
		int64_t at_root;
		int64_t left_at_g;
		int64_t left_at_root;
	} scenes[] = {
		/* Charging: nothing noted; "g" noted; both noted. */
		{ 40, 0, 0, 0, 0, 0 },
		{ 40, 0, 40, 0, 40, 0 },
		{ 40, 1, 40, 0, 0, 0 },
		{ 40, 1, 40, 40, 0, 40 },
		{ 40, 2, 40, 40, 0, 0 },
		/* Giving back 40 whose word is gone already: none, "g" about
		 * to be and done, both. */
		{ -40, 0, 40, 40, 0, 0 },
		{ -40, 1, 40, 40, 40, 0 },
		{ -40, 1, 0, 40, 0, 0 },
		{ -40, 2, 0, 40, 0, 40 },
		{ -40, 2, 0, 0, 0, 0 },
		/* None under way. */
		{ 0, 2, 0, 0, 0, 0 },
	};
	const struct scene *s = &scenes[_i];
	uint32_t group = make_path("/g");
	uint32_t slot = join_self();
	struct mt_thread *thread;
	struct mt_task task;

	store_relaxed(&session.groups[group].flags, MT_GROUP_KEEP);
	mt_task_attach(&session, &task, slot, 1);
	thread = &session.threads[task.thread - 1];
	store_relaxed(&session.groups[group].usage, s->at_g);
	store_relaxed(&session.groups[MT_ROOT].usage, s->at_root);
	fetch_add_seq_cst(&thread->seq, 1);
	store_relaxed(&thread->op_at, (uint64_t)s->levels << 32 | group);
	store_relaxed(&thread->op_pages, s->pages);

	ck_assert(reap(slot));

	/* The level in doubt is too high if anything, never too low. */
	ck_assert_int_eq(usage_of(group), s->left_at_g);
	ck_assert_int_eq(usage_of(MT_ROOT), s->left_at_root);
	ck_assert_uint_eq(load_relaxed(&session.groups[group].underflows), 0);
	ck_assert_uint_eq(load_relaxed(&thread->seq) & 1, 0);
	ck_assert_uint_eq(load_relaxed(&thread->ident), 0);
}
END_TEST

START_TEST(a_charge_that_may_be_in_the_word_is_left_to_the_audit)
{
	uint32_t slot = join_self();
	struct mt_thread *thread;
	struct mt_task task;

	mt_task_attach(&session, &task, slot, 1);
	thread = &session.threads[task.thread - 1];
	mt_counter_charge(&session, MT_ROOT, 40, NULL);
	fetch_add_seq_cst(&thread->seq, 1);
	store_relaxed(&thread->op_at, MT_OP_COMMIT);
	store_relaxed(&thread->op_pages, 40);

	ck_assert(reap(slot));

	ck_assert_int_eq(usage_of(MT_ROOT), 40);
	ck_assert_int_eq(mt_audit_drift(&session), 40);
}
END_TEST

START_TEST(garbage_in_a_dead_threads_slot_breaks_nothing)
{
	static const uint64_t ats[] = { (uint64_t)UINT32_MAX << 32 | 77777,
					(uint64_t)UINT32_MAX << 32,
					MT_OP_COMMIT - 1 };
	static const int64_t pages[] = { INT64_MAX, INT64_MIN, 5, -5 };

	for (size_t i = 0; i < MT_ARRAY_SIZE(ats); i++) {
		for (size_t k = 0; k < MT_ARRAY_SIZE(pages); k++) {
			uint32_t slot = join_self();
			struct mt_thread *thread;
			struct mt_task task;

			mt_task_attach(&session, &task, slot, 1);
			thread = &session.threads[task.thread - 1];
			fetch_add_seq_cst(&thread->seq, 1);
			store_relaxed(&thread->op_at, ats[i]);
			store_relaxed(&thread->op_pages, pages[k]);
			ck_assert(reap(slot));
			ck_assert_int_eq(usage_of(MT_ROOT), 0);
		}
	}
}
END_TEST

START_TEST(a_dead_reapers_work_is_taken_over)
{
	uint32_t slot = join_as(dead_pid(), 0);
	uint64_t generation = generation_of(slot);
	struct mt_task task;
	uint64_t state;

	mt_task_attach(&session, &task, slot, 1);
	ck_assert(charge(&task, MT_ROOT, 100));

	/* A reaper that lives is left to its work, whoever it is. */
	store_seq_cst(
		&session.processes[slot].state,
		make_state(MT_PROC_REAPING, generation, (uint32_t)getppid()));
	ck_assert_int_eq(mt_process_life(&session, slot, own_ns(), &state),
			 MT_ALIVE);
	ck_assert_uint_eq(reap_dead(), 0);

	store_seq_cst(&session.processes[slot].state,
		      make_state(MT_PROC_REAPING, generation, dead_pid()));
	ck_assert_uint_eq(reap_dead(), 1);

	ck_assert_int_eq(usage_of(MT_ROOT), 0);
	ck_assert_uint_eq(state_of(slot) & 0xff, MT_PROC_FREE);
	ck_assert_uint_eq(load_relaxed(&session.header->nr_live), 0);
}
END_TEST

START_TEST(one_that_died_joining_is_reaped_and_not_remembered)
{
	uint32_t slot = join_as(dead_pid(), 0);

	store_seq_cst(&session.processes[slot].state,
		      make_state(MT_PROC_JOINING, generation_of(slot),
				 (uint32_t)(state_of(slot) >> 32)));

	ck_assert_uint_eq(reap_dead(), 1);

	ck_assert_uint_eq(state_of(slot) & 0xff, MT_PROC_FREE);
	ck_assert_uint_eq(load_relaxed(&session.ended[0].seq), 0);
	ck_assert_uint_eq(load_relaxed(&session.header->ended_seq), 0);
}
END_TEST

START_TEST(nobody_reaps_itself)
{
	join_self();
	/* Even with proof that it is another. */
	store_relaxed(&session.processes[0].joined_ns, 1);
	ck_assert_uint_eq(reap_dead(), 0);
}
END_TEST

START_TEST(a_look_at_a_few_goes_round_all)
{
	uint32_t pid = dead_pid();
	unsigned reaped = 0;

	/* Six live ones, of which the last is dead. */
	for (uint32_t i = 0; i < 5; i++)
		join_as((uint32_t)getppid() + 100000 * (i + 1), 0);
	join_as(pid, 0);
	for (uint32_t i = 0; i < 5; i++)
		store_seq_cst(&session.processes[i].state,
			      make_state(MT_PROC_LIVE, 1, (uint32_t)getppid()));

	/* Two at a time: seen in three looks, or four as slots go round. */
	for (int look = 0; look < 4; look++)
		reaped += mt_process_reap_dead(&session, own_ns(), 2);

	ck_assert_uint_eq(reaped, 1);
}
END_TEST

START_TEST(the_ended_with_the_highest_peaks_are_remembered)
{
	uint64_t lowest = UINT64_MAX;
	uint64_t sum = 0;
	unsigned n = 0;

	/* 1, 2 … 100 in an order that is neither up nor down: 37 and 101 have
	 * no common divisor. */
	for (uint64_t i = 1; i <= 100; i++) {
		uint32_t slot = join_as((uint32_t)(100000 + i), 0);

		store_relaxed(&session.processes[slot].peak,
			      (int64_t)(i * 37 % 101));
		ck_assert(reap(slot));
	}

	for (uint32_t i = 0; i < session.header->tables[MT_ENDED].capacity;
	     i++) {
		struct mt_ended *ended = &session.ended[i];

		ck_assert_uint_eq(load_relaxed(&ended->seq) & 1, 0);
		ck_assert_uint_ne(load_relaxed(&ended->seq), 0);
		lowest = MT_MIN(lowest, ended->peak);
		sum += ended->peak;
		n++;
	}
	/* The 64 highest: 37 … 100, which are (37 + 100) * 64 / 2 in all. */
	ck_assert_uint_eq(n, 64);
	ck_assert_uint_eq(lowest, 37);
	ck_assert_uint_eq(sum, 4384);
	ck_assert_uint_eq(mt_table_high(&session, MT_ENDED), 64);
	ck_assert_uint_eq(load_relaxed(&session.header->ended_seq), 100);
}
END_TEST

START_TEST(an_ended_process_is_remembered_with_its_group)
{
	uint32_t pid = dead_pid();
	uint32_t slot = join_as(pid, 0);
	struct mt_task task;
	char want[32];

	mt_process_make_home(&session, slot, NULL);
	mt_task_attach(&session, &task, slot, 1);
	ck_assert(charge(&task, load_relaxed(&session.processes[slot].home),
			 200));
	mt_uncharge(&session, &task,
		    load_relaxed(&session.processes[slot].home), MT_HEAP, 150);

	ck_assert(mt_process_reap(&session, slot, state_of(slot),
				  MT_ENDED_KILLED));

	snprintf(want, sizeof(want), "%s.%u", session.ended[0].comm, pid);
	ck_assert_str_eq(session.ended[0].group, want);
	ck_assert_uint_eq(session.ended[0].pid, pid);
	ck_assert_uint_eq(session.ended[0].how, MT_ENDED_KILLED);
	ck_assert_uint_eq(session.ended[0].peak, 200);
	ck_assert_uint_eq(session.ended[0].left, 50);
	ck_assert_uint_ne(session.ended[0].ended_ns, 0);
}
END_TEST

static void open_with(uint32_t flags)
{
	struct mt_segment_config config = { .flags = flags };

	session_close();
	session_open(&config);
}

static const char *home_path(uint32_t slot, const char *path)
{
	static char text[MT_DEPTH_MAX * MT_NAME_MAX];
	uint32_t home = mt_process_make_home(&session, slot, path);

	ck_assert_uint_eq(load_relaxed(&session.processes[slot].home), home);
	mt_group_path(&session, home, text, sizeof(text));
	return text;
}

/* A slot of @pid, of a program called @comm. */
static uint32_t join_named(uint32_t pid, const char *comm)
{
	struct mt_process_facts facts;
	uint32_t slot;

	mt_process_facts(&facts);
	facts.pid = pid;
	memset(facts.comm, 0, sizeof(facts.comm));
	strncpy(facts.comm, comm, sizeof(facts.comm) - 1);
	ck_assert_int_eq(mt_process_join(&session, &facts, &slot), 0);
	return slot;
}

START_TEST(homes_are_by_process_program_or_none)
{
	ck_assert_str_eq(home_path(join_named(11, "sh"), NULL), "/sh.11");
	ck_assert_str_eq(home_path(join_named(12, "sh"), NULL), "/sh.12");
	ck_assert_str_eq(
		home_path(join_named(4294967295u, "123456789012345"), ""),
		"/123456789012345.4294967295");

	open_with(MT_SESSION_BY_PROG);
	ck_assert_str_eq(home_path(join_named(11, "sh"), NULL), "/sh");
	ck_assert_str_eq(home_path(join_named(12, "sh"), NULL), "/sh");
	ck_assert_uint_eq(mt_table_high(&session, MT_GROUPS), 2);

	open_with(MT_SESSION_BY_NONE);
	ck_assert_str_eq(home_path(join_named(11, "sh"), NULL), "/");
}
END_TEST

START_TEST(a_path_overrides_the_default_home)
{
	ck_assert_str_eq(home_path(join_named(11, "sh"), "/web/fcgi"),
			 "/web/fcgi");
	ck_assert_str_eq(home_path(join_named(12, "sh"), "/web/fcgi"),
			 "/web/fcgi");
	/* As much of it as can be had. */
	ck_assert_str_eq(home_path(join_named(13, "sh"), "/web/../x"), "/web");
}
END_TEST

START_TEST(a_programs_name_is_made_fit_for_a_path)
{
	ck_assert_str_eq(home_path(join_named(11, "a/b\n"), NULL), "/a_b_.11");
	ck_assert_str_eq(home_path(join_named(12, ""), NULL), "/_.12");

	open_with(MT_SESSION_BY_PROG);
	ck_assert_str_eq(home_path(join_named(11, ".."), NULL), "/_.");
	ck_assert_str_eq(home_path(join_named(12, "."), NULL), "/_");
	ck_assert_str_eq(home_path(join_named(13, "kworker/0:1"), NULL),
			 "/kworker_0:1");
}
END_TEST

START_TEST(without_a_free_group_the_root_is_home)
{
	struct mt_segment_config config = { 0 };

	session_close();
	config.capacity[MT_GROUPS] = 2;
	session_open(&config);

	ck_assert_str_eq(home_path(join_named(11, "sh"), NULL), "/sh.11");
	ck_assert_str_eq(home_path(join_named(12, "sh"), NULL), "/");
	/* Reaped, its group is free for the next. */
	ck_assert(reap(0));
	ck_assert_str_eq(home_path(join_named(13, "sh"), NULL), "/sh.13");
}
END_TEST

START_TEST(a_home_that_others_charge_outlives_its_process)
{
	uint32_t first = join_named(11, "sh");
	uint32_t second = join_self();
	uint32_t home = mt_process_make_home(&session, first, NULL);
	struct mt_task task;

	mt_task_attach(&session, &task, second, 1);
	ck_assert(charge(&task, home, 5));

	ck_assert(reap(first));
	ck_assert(mt_group_is_live(&session, home));
	ck_assert_int_eq(usage_of(home), 64);

	ck_assert(reap(second));
	ck_assert_int_eq(usage_of(home), 0);
	mt_group_retire(&session, home);
	ck_assert(!mt_group_is_live(&session, home));
}
END_TEST

/* Who finds its old slot taken by another must leave it alone. */
START_TEST(an_old_slot_is_taken_over_from_its_owner_only)
{
	for (int round = 0; round < 200; round++) {
		uint32_t old = join_as(4000000, 0);
		uint64_t judged = state_of(old);
		pid_t child = fork();
		uint32_t slot;
		int status;

		if (child == 0) {
			/* Reaps it and takes the slot for itself. */
			mt_process_reap(&session, old, judged, MT_ENDED_EXITED);
			slot = join_as(4000001, 0);
			_exit(slot < 2 ? 0 : 1);
		}
		/* The same pid again, while that happens. */
		slot = join_as(4000000, 0);
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert_int_eq(status, 0);

		/* Both have a slot, and each its own. */
		ck_assert_uint_eq(slot_of(4000000), slot);
		ck_assert_uint_ne(slot_of(4000001), MT_NONE);
		ck_assert_uint_ne(slot_of(4000001), slot);
		ck_assert_uint_eq(load_relaxed(&session.header->nr_live), 2);
		reap(slot_of(4000000));
		reap(slot_of(4000001));
		ck_assert_uint_eq(load_relaxed(&session.header->nr_live), 0);
	}
}
END_TEST

START_TEST(processes_that_join_and_leave_at_once_share_no_slot)
{
	pid_t children[4];

	for (int i = 0; i < 4; i++) {
		children[i] = fork();
		if (children[i])
			continue;
		for (uint32_t n = 0; n < 500; n++) {
			uint32_t pid = 1000000u * (uint32_t)(i + 1) + n;
			uint32_t slot = join_as(pid, 0);
			struct mt_task task;

			mt_task_attach(&session, &task, slot, pid);
			if (!charge(&task, MT_ROOT, 7) ||
			    mt_process_charged(&session, slot) != 7 ||
			    state_of(slot) >> 32 != pid || !reap(slot))
				_exit(1);
		}
		_exit(0);
	}
	for (int i = 0; i < 4; i++) {
		int status;

		ck_assert_int_eq(waitpid(children[i], &status, 0), children[i]);
		ck_assert_int_eq(status, 0);
	}

	ck_assert_int_eq(usage_of(MT_ROOT), 0);
	ck_assert_uint_eq(load_relaxed(&session.header->nr_live), 0);
	ck_assert_uint_eq(load_relaxed(&session.header->processes_total), 2000);
	ck_assert_uint_eq(load_relaxed(&session.header->reaped), 2000);
}
END_TEST

START_TEST(reapers_at_once_take_everything_back_once)
{
	for (int round = 0; round < 20; round++) {
		uint32_t pid = dead_pid();
		uint32_t slot = join_as(pid, 0);
		struct mt_task tasks[3];
		pid_t children[3];
		int status;

		for (int i = 0; i < 3; i++) {
			mt_task_attach(&session, &tasks[i], slot,
				       (uint32_t)i + 1);
			ck_assert(charge(&tasks[i], MT_ROOT, 10 * i + 1));
		}
		for (int i = 0; i < 3; i++) {
			children[i] = fork();
			if (children[i] == 0) {
				reap_dead();
				_exit(0);
			}
		}
		for (int i = 0; i < 3; i++)
			ck_assert_int_eq(waitpid(children[i], &status, 0),
					 children[i]);
		ck_assert_int_eq(usage_of(MT_ROOT), 0);
		ck_assert_uint_eq(load_relaxed(&session.header->reaped),
				  (uint64_t)round + 1);
	}
	ck_assert_uint_eq(load_relaxed(&session.groups[MT_ROOT].underflows), 0);
}
END_TEST

/* A supervisor waits on `joins`; its pid in the header asks for a wake-up. */
START_TEST(a_join_is_told_to_the_supervisor)
{
	store_seq_cst(&session.header->supervisor, (uint32_t)getpid());
	join_self();
	ck_assert_uint_eq(load_relaxed(&session.header->joins), 1);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("process");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_process_that_joins_is_found);
	tcase_add_test(tc, slots_are_taken_lowest_first_and_again);
	tcase_add_test(
		tc, a_full_table_refuses_and_takes_the_next_when_one_has_gone);
	tcase_add_test(tc, what_a_killed_process_held_is_taken_back_exactly);
	tcase_add_test(tc,
		       children_that_are_killed_at_any_moment_leave_no_page);
	tcase_add_test(tc, seen_dead_once_reaped_once);
	tcase_add_test(tc, a_pid_used_again_is_another_process);
	tcase_add_test(tc, nobody_judges_in_another_pid_namespace);
	tcase_add_test(tc, a_free_slot_is_not_judged);
	tcase_add_test(tc, a_process_whose_first_thread_has_ended_is_alive);
	tcase_add_test(tc, a_name_with_brackets_and_blanks_hides_no_state);
	tcase_add_test(tc, an_exec_takes_its_old_slot_and_empties_it);
	tcase_add_test(tc, a_mapping_file_goes_with_its_process);
	tcase_add_test(tc, debts_and_credits_of_one_process_cancel_out);
	tcase_add_test(tc, debts_between_threads_cancel_out_before_usage_moves);
	tcase_add_test(tc, a_debt_that_nothing_covers_is_made_good);
	tcase_add_loop_test(
		tc, an_operation_cut_short_is_given_back_by_the_reaper, 0, 11);
	tcase_add_test(tc,
		       a_charge_that_may_be_in_the_word_is_left_to_the_audit);
	tcase_add_test(tc, garbage_in_a_dead_threads_slot_breaks_nothing);
	tcase_add_test(tc, a_dead_reapers_work_is_taken_over);
	tcase_add_test(tc, one_that_died_joining_is_reaped_and_not_remembered);
	tcase_add_test(tc, nobody_reaps_itself);
	tcase_add_test(tc, a_look_at_a_few_goes_round_all);
	tcase_add_test(tc, the_ended_with_the_highest_peaks_are_remembered);
	tcase_add_test(tc, an_ended_process_is_remembered_with_its_group);
	tcase_add_test(tc, homes_are_by_process_program_or_none);
	tcase_add_test(tc, a_path_overrides_the_default_home);
	tcase_add_test(tc, a_programs_name_is_made_fit_for_a_path);
	tcase_add_test(tc, without_a_free_group_the_root_is_home);
	tcase_add_test(tc, a_home_that_others_charge_outlives_its_process);
	tcase_add_test(tc, an_old_slot_is_taken_over_from_its_owner_only);
	tcase_add_test(tc, processes_that_join_and_leave_at_once_share_no_slot);
	tcase_add_test(tc, reapers_at_once_take_everything_back_once);
	tcase_add_test(tc, a_join_is_told_to_the_supervisor);
	return run_case(tc, "process");
}
