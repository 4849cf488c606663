/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <sys/wait.h>

#include "core/audit.h"
#include "core/group.h"
#include "core/process.h"
#include "core/sys.h"
#include "tests/unit/session.h"

#define MS UINT64_C(1000000)

static struct mt_audit_scratch scratch;
static uint32_t slot;
static uint32_t leaf;

static void set_up(void)
{
	setup();
	slot = join_self();
	ck_assert_int_eq(
		mt_group_make_path(&session, MT_ROOT, "/a/b", 0, &leaf), 0);
}

static enum mt_audit_result audit(int64_t *ret_pages)
{
	return mt_audit(&session, &scratch, ret_pages);
}

static uint64_t now(void)
{
	return mt_sys_clock_ns(CLOCK_MONOTONIC);
}

static uint64_t auditor_word(uint32_t pid)
{
	return (uint64_t)pid << 32 | (uint32_t)mt_process_pid_ns();
}

START_TEST(drift_of_every_level_is_taken_back)
{
	struct mt_task task;
	int64_t pages;
	uint32_t nobody;

	mt_task_attach(&session, &task, slot, 1);
	ck_assert(mt_charge(&session, &task, leaf, MT_ANON, 100, &nobody));
	fetch_add_relaxed(&session.groups[leaf].usage, 7);
	fetch_add_relaxed(&session.groups[MT_ROOT].usage, 12);
	ck_assert_int_eq(audit(&pages), MT_AUDIT_DONE);
	ck_assert_int_eq(pages, 12);
	ck_assert_int_eq(load_relaxed(&session.groups[leaf].usage), 100);
	ck_assert_int_eq(load_relaxed(&session.groups[MT_ROOT].usage), 100);
	ck_assert_uint_eq(load_relaxed(&session.groups[leaf].repairs), 7);
	ck_assert_uint_eq(load_relaxed(&session.header->repairs), 12);
	mt_task_detach(&session, &task);
}
END_TEST

START_TEST(claims_of_children_are_made_to_add_up)
{
	struct mt_group *root = &session.groups[MT_ROOT];
	struct mt_task task;
	uint32_t nobody;
	int64_t pages;
	uint32_t a = mt_group_find(&session, "/a");

	mt_counter_set_low(&session, a, 60);
	mt_task_attach(&session, &task, slot, 1);
	ck_assert(mt_charge(&session, &task, leaf, MT_ANON, 100, &nobody));
	ck_assert_int_eq(load_relaxed(&root->children_low_usage), 60);
	fetch_add_relaxed(&root->children_low_usage, 5);
	fetch_add_relaxed(&root->children_min_usage, -3);
	ck_assert_int_eq(audit(&pages), MT_AUDIT_DONE);
	ck_assert_int_eq(load_relaxed(&root->children_low_usage), 60);
	ck_assert_int_eq(load_relaxed(&root->children_min_usage), 0);
	mt_task_detach(&session, &task);
}
END_TEST

static _Atomic uint32_t stop;
static _Atomic uint64_t longest;

static void *never_rest(void *arg)
{
	struct mt_task task;
	uint32_t nobody;

	mt_task_attach(&session, &task, slot, (uint32_t)(uintptr_t)arg);
	while (!load_relaxed(&stop)) {
		uint64_t begin = now();
		uint64_t took;

		/* More than a batch: into the tree each time. */
		ck_assert(mt_charge(&session, &task, leaf, MT_HEAP, 100,
				    &nobody));
		took = now() - begin;
		mt_uncharge(&session, &task, leaf, MT_HEAP, 100);
		if (took > load_relaxed(&longest))
			store_relaxed(&longest, took);
	}
	mt_task_detach(&session, &task);
	return NULL;
}

START_TEST(busy_threads_are_brought_to_rest)
{
	pthread_t threads[4];
	unsigned done = 0;
	int64_t pages;

	store_relaxed(&stop, 0);
	for (uintptr_t i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, never_rest, (void *)(i + 1));
	for (int i = 0; i < 200; i++) {
		fetch_add_relaxed(&session.groups[leaf].usage, 3);
		done += audit(&pages) == MT_AUDIT_DONE;
	}
	store_relaxed(&stop, 1);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	/* One that is not running can't come to rest; all others can. */
	ck_assert_uint_gt(done, 0);
	ck_assert_int_eq(audit(&pages), MT_AUDIT_DONE);
	ck_assert_int_eq(load_relaxed(&session.groups[leaf].usage), 0);
	ck_assert_int_eq(load_relaxed(&session.groups[leaf].underflows), 0);
	ck_assert_uint_eq(load_relaxed(&session.header->gate), 0);
}
END_TEST

START_TEST(one_stopped_inside_keeps_its_drift_and_holds_up_nobody)
{
	struct mt_task stuck;
	struct mt_task task;
	uint32_t nobody;
	uint64_t begin;
	int64_t pages;

	mt_task_attach(&session, &stuck, slot, 1);
	mt_task_attach(&session, &task, slot, 2);
	fetch_add_seq_cst(&session.threads[stuck.thread - 1].seq, 1);
	fetch_add_relaxed(&session.groups[leaf].usage, 9);
	fetch_add_relaxed(&session.groups[MT_ROOT].usage, 9);
	begin = now();
	ck_assert_int_eq(audit(&pages), MT_AUDIT_BUSY);
	/* A busy machine may add to the millisecond. */
	ck_assert_uint_lt(now() - begin, 500 * MS);
	ck_assert_int_eq(pages, 0);
	ck_assert_uint_eq(load_relaxed(&session.header->repair_pending), 1);
	ck_assert_uint_eq(load_relaxed(&session.header->gate), 0);
	ck_assert_uint_eq(load_relaxed(&session.header->auditor), 0);
	ck_assert(mt_charge(&session, &task, leaf, MT_ANON, 10, &nobody));

	fetch_add_seq_cst(&session.threads[stuck.thread - 1].seq, 1);
	ck_assert_int_eq(audit(&pages), MT_AUDIT_DONE);
	ck_assert_int_eq(pages, 9);
	mt_task_detach(&session, &stuck);
	mt_task_detach(&session, &task);
}
END_TEST

START_TEST(a_gate_left_closed_opens_by_itself)
{
	struct mt_task task;
	uint32_t nobody;
	uint64_t begin;

	mt_task_attach(&session, &task, slot, 1);
	store_relaxed(&session.header->gate, now() - MS);
	ck_assert(mt_charge(&session, &task, leaf, MT_ANON, 100, &nobody));
	ck_assert_uint_eq(load_relaxed(&session.header->gate), 0);

	/* Scribbled over: nobody waits longer than for a real one. */
	store_relaxed(&session.header->gate, UINT64_MAX);
	begin = now();
	ck_assert(mt_charge(&session, &task, leaf, MT_ANON, 100, &nobody));
	ck_assert_uint_ge(now() - begin, MT_GATE_NS);
	ck_assert_uint_lt(now() - begin, 500 * MS);
	store_relaxed(&session.header->gate, 0);
	mt_task_detach(&session, &task);
}
END_TEST

/* A pid that is nobody's: of a child that has been waited for. */
static uint32_t dead_pid(void)
{
	pid_t child = fork();

	if (child == 0)
		_exit(0);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	return (uint32_t)child;
}

START_TEST(an_audit_is_taken_from_the_dead_only)
{
	struct mt_header *header = session.header;
	uint64_t since = mt_sys_clock_ns(CLOCK_BOOTTIME);
	uint32_t parent = (uint32_t)getppid();
	uint64_t word = auditor_word(parent);
	int64_t pages;

	store_relaxed(&header->auditor, word);
	store_relaxed(&header->audit_ns, since);
	ck_assert_int_eq(audit(&pages), MT_AUDIT_BUSY);
	ck_assert_uint_eq(load_relaxed(&header->auditor), word);
	/* Alive, but it started after the audit began: its pid's second. */
	store_relaxed(&header->audit_ns, 1);
	ck_assert_int_eq(audit(&pages), MT_AUDIT_DONE);

	/* Of another pid namespace: dead or not, we can't tell. */
	word = auditor_word(dead_pid()) ^ 1;
	store_relaxed(&header->auditor, word);
	store_relaxed(&header->audit_ns, since);
	ck_assert_int_eq(audit(&pages), MT_AUDIT_BUSY);
	ck_assert_uint_eq(load_relaxed(&header->auditor), word);

	store_relaxed(&header->auditor, word ^ 1);
	ck_assert_int_eq(audit(&pages), MT_AUDIT_DONE);
	ck_assert_uint_eq(load_relaxed(&header->auditor), 0);
	ck_assert_uint_eq(load_relaxed(&header->audit_ns), 0);
}
END_TEST

START_TEST(a_death_inside_makes_an_audit_due)
{
	pid_t child = fork();
	int64_t pages;

	if (child == 0) {
		struct mt_task task;

		mt_task_attach(&session, &task, join_self(), 1);
		fetch_add_seq_cst(&session.threads[task.thread - 1].seq, 1);
		fetch_add_relaxed(&session.groups[MT_ROOT].usage, 4);
		_exit(0);
	}
	ck_assert(!mt_audit_is_due(&session));
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	ck_assert_uint_eq(mt_process_reap_dead(&session, own_ns(), UINT32_MAX),
			  1);
	ck_assert(mt_audit_is_due(&session));
	ck_assert_int_eq(audit(&pages), MT_AUDIT_DONE);
	ck_assert_int_eq(pages, 4);
	ck_assert(!mt_audit_is_due(&session));
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("audit");

	tcase_add_checked_fixture(tc, set_up, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, drift_of_every_level_is_taken_back);
	tcase_add_test(tc, claims_of_children_are_made_to_add_up);
	tcase_add_test(tc, busy_threads_are_brought_to_rest);
	tcase_add_test(tc,
		       one_stopped_inside_keeps_its_drift_and_holds_up_nobody);
	tcase_add_test(tc, a_gate_left_closed_opens_by_itself);
	tcase_add_test(tc, an_audit_is_taken_from_the_dead_only);
	tcase_add_test(tc, a_death_inside_makes_an_audit_due);
	return run_case(tc, "audit");
}
