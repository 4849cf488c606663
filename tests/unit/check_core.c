/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "core/audit.h"
#include "core/counter.h"
#include "core/group.h"
#include "core/process.h"
#include "core/reader.h"
#include "tests/unit/session.h"

/* The sum of all words must be what "/" holds. */
static void expect_no_drift(void)
{
	ck_assert_int_eq(mt_audit_drift(&session), 0);
}

START_TEST(a_segment_is_attached_by_its_path)
{
	struct mt_session other;

	ck_assert_int_eq(mt_segment_attach(&other, session_path), 0);
	mt_counter_charge(&other, MT_ROOT, 7, NULL);
	ck_assert_int_eq(usage_of(MT_ROOT), 7);
	mt_segment_detach(&other);
}
END_TEST

static int attach_changed(off_t at, const void *bytes, size_t n)
{
	struct mt_session other;
	char path[128];
	char command[300];
	int ret;
	int fd;

	snprintf(path, sizeof(path), "%s/copy", session_dir);
	snprintf(command, sizeof(command), "cp --preserve=mode %s %s",
		 session_path, path);
	ck_assert_int_eq(system(command), 0);
	fd = open(path, O_RDWR);
	ck_assert_int_ge(fd, 0);
	if (bytes)
		ck_assert_int_eq(pwrite(fd, bytes, n, at), (ssize_t)n);
	else
		ck_assert_int_eq(ftruncate(fd, at), 0);
	close(fd);
	ret = mt_segment_attach(&other, path);
	if (!ret)
		mt_segment_detach(&other);
	unlink(path);
	return ret;
}

START_TEST(a_bad_segment_is_refused)
{
	static const uint64_t zero;
	static const uint16_t version = 9;
	static const uint32_t batch = 0;
	struct mt_session other;
	char path[128];

	ck_assert_int_eq(attach_changed(0, &zero, 8), -EINVAL);
	ck_assert_int_eq(attach_changed(8, &version, 2), -EPROTO);
	ck_assert_int_eq(attach_changed(28, &batch, 4), -EINVAL);
	ck_assert_int_eq(attach_changed(100000, NULL, 0), -EINVAL);
	ck_assert_int_eq(attach_changed(0, NULL, 0), -EINVAL);
	snprintf(path, sizeof(path), "%s/link", session_dir);
	ck_assert_int_eq(symlink(session_path, path), 0);
	ck_assert_int_eq(mt_segment_attach(&other, path), -ELOOP);
	unlink(path);
	chmod(session_path, 0644);
	ck_assert_int_eq(mt_segment_attach(&other, session_path), -EPERM);
	chmod(session_path, 0600);
	ck_assert_int_eq(mt_segment_attach(&other, "/nonexistent"), -ENOENT);
	ck_assert_int_eq(mt_segment_attach(&other, "relative"), -EINVAL);
}
END_TEST

START_TEST(names_of_sessions_are_fit_for_files)
{
	ck_assert(mt_session_name_ok("make.4711"));
	ck_assert(!mt_session_name_ok(""));
	ck_assert(!mt_session_name_ok(".."));
	ck_assert(!mt_session_name_ok("a/b"));
	ck_assert(!mt_session_name_ok("a\nb"));
	ck_assert(!mt_session_name_ok("a@b"));
	ck_assert(!mt_session_name_ok("0123456789012345678901234567890123456789"
				      "012345678901234567890123"));
}
END_TEST

START_TEST(groups_are_found_by_their_path_and_retired_when_unused)
{
	uint32_t deep;
	uint32_t again;
	char path[64];

	ck_assert_int_eq(
		mt_group_make_path(&session, MT_ROOT, "/a/b/c", 0, &deep), 0);
	mt_group_path(&session, deep, path, sizeof(path));
	ck_assert_str_eq(path, "/a/b/c");
	ck_assert_uint_eq(mt_group_find(&session, "/a/b/c"), deep);
	ck_assert_int_eq(
		mt_group_make_path(&session, MT_ROOT, "/a/b/c", 0, &again), 0);
	ck_assert_uint_eq(again, deep);
	ck_assert_uint_eq(mt_group_find(&session, "/a/x"), MT_NONE);

	/* Charged, it stays. */
	mt_counter_charge(&session, deep, 1, NULL);
	mt_group_retire(&session, deep);
	ck_assert(mt_group_is_live(&session, deep));
	mt_counter_uncharge(&session, deep, 1, NULL);
	mt_group_retire(&session, deep);
	ck_assert_uint_eq(mt_group_find(&session, "/a"), MT_NONE);
}
END_TEST

START_TEST(bad_group_names_are_refused)
{
	uint32_t group;
	char path[MT_DEPTH_MAX * 2 + 8];
	size_t n = 0;

	ck_assert_int_eq(mt_group_make(&session, MT_ROOT, "..", 0, &group),
			 -EINVAL);
	ck_assert_int_eq(mt_group_make(&session, MT_ROOT, "a/b", 0, &group),
			 -EINVAL);
	ck_assert_int_eq(mt_group_make(&session, MT_ROOT, "\x1b[2J", 0, &group),
			 -EINVAL);
	for (int i = 0; i < MT_DEPTH_MAX; i++) {
		path[n++] = '/';
		path[n++] = 'x';
	}
	path[n] = '\0';
	ck_assert_int_eq(mt_group_make_path(&session, MT_ROOT, path, 0, &group),
			 -E2BIG);
	/* The deepest that could be had is given all the same. */
	ck_assert(mt_group_is_live(&session, group));
}
END_TEST

static void *make_same(void *arg)
{
	uint32_t *group = arg;

	for (int i = 0; i < 100; i++) {
		char name[16];

		snprintf(name, sizeof(name), "g%d", i);
		ck_assert_int_eq(
			mt_group_make(&session, MT_ROOT, name, 0, &group[i]),
			0);
	}
	return NULL;
}

START_TEST(one_name_is_one_group_whoever_makes_it)
{
	static uint32_t made[4][100];
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, make_same, made[i]);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 100; i++) {
		for (int t = 1; t < 4; t++)
			ck_assert_uint_eq(made[t][i], made[0][i]);
	}
}
END_TEST

START_TEST(pages_given_back_by_another_thread_leave_nothing)
{
	uint32_t process = join_as((uint32_t)getpid(), 0);
	struct mt_task one;
	struct mt_task two;
	uint32_t refuser;
	uint32_t group;

	ck_assert_int_eq(mt_group_make(&session, MT_ROOT, "g", 0, &group), 0);
	mt_task_attach(&session, &one, process, 1);
	mt_task_attach(&session, &two, process, 2);
	ck_assert(mt_charge(&session, &one, group, MT_HEAP, 1000, &refuser));
	mt_uncharge(&session, &two, group, MT_HEAP, 400);
	ck_assert_int_eq(mt_process_charged(&session, process), 600);
	mt_task_detach(&session, &two);
	ck_assert_int_eq(mt_process_charged(&session, process), 600);
	expect_no_drift();
	mt_task_detach(&session, &one);
	ck_assert_int_eq(mt_process_charged(&session, process), 600);
	ck_assert_int_eq(usage_of(group), 600);
	expect_no_drift();
	ck_assert(
		mt_process_reap(&session, process,
				load_relaxed(&session.processes[process].state),
				MT_ENDED_EXITED));
	ck_assert_int_eq(usage_of(MT_ROOT), 0);
}
END_TEST

START_TEST(a_full_group_takes_its_last_page_from_anothers_stock)
{
	uint32_t process = join_as((uint32_t)getpid(), 0);
	struct mt_task one;
	struct mt_task two;
	uint32_t refuser;

	mt_counter_force_max(&session, MT_ROOT, 100);
	mt_task_attach(&session, &one, process, 1);
	mt_task_attach(&session, &two, process, 2);
	/* A batch of 64: 63 of it are ahead of use. */
	ck_assert(mt_charge(&session, &one, MT_ROOT, MT_HEAP, 1, &refuser));
	for (int i = 0; i < 99; i++)
		ck_assert(mt_charge(&session, &two, MT_ROOT, MT_ANON, 1,
				    &refuser));
	ck_assert(!mt_charge(&session, &two, MT_ROOT, MT_ANON, 1, &refuser));
	ck_assert_uint_eq(refuser, MT_ROOT);
	ck_assert_int_eq(usage_of(MT_ROOT), 100);
	ck_assert_int_eq(mt_process_charged(&session, process), 100);
	expect_no_drift();
}
END_TEST

static struct mt_task handler_task;
static uint32_t handler_process;

static void charge_in_handler(int signo)
{
	uint32_t refuser;

	(void)signo;
	if (!mt_charge(&session, &handler_task, MT_ROOT, MT_ANON, 3, &refuser))
		abort();
	mt_uncharge(&session, &handler_task, MT_ROOT, MT_ANON, 3);
}

START_TEST(a_handler_inside_an_operation_loses_nothing)
{
	uint32_t refuser;

	handler_process = join_as((uint32_t)getpid(), 0);
	mt_task_attach(&session, &handler_task, handler_process, 1);
	signal(SIGUSR1, charge_in_handler);
	/* As if the signal had come between two instructions of one. */
	handler_task.depth = 1;
	raise(SIGUSR1);
	handler_task.depth = 0;
	ck_assert(mt_charge(&session, &handler_task, MT_ROOT, MT_ANON, 500,
			    &refuser));
	ck_assert_int_eq(mt_process_charged(&session, handler_process), 500);
	expect_no_drift();
}
END_TEST

START_TEST(without_slots_charges_are_counted_all_the_same)
{
	struct mt_segment_config config = { .name = "test" };
	struct mt_task tasks[3];
	uint32_t process;
	uint32_t refuser;
	uint32_t group;

	session_close();
	config.capacity[MT_THREADS] = 1;
	config.capacity[MT_LINES] = 1;
	session_open(&config);
	process = join_as((uint32_t)getpid(), 0);
	ck_assert_int_eq(mt_group_make(&session, MT_ROOT, "g", 0, &group), 0);
	ck_assert(mt_task_ensure_line(&session, process, group));
	for (int i = 0; i < 3; i++) {
		mt_task_attach(&session, &tasks[i], process, (uint32_t)i + 1);
		ck_assert(mt_charge(&session, &tasks[i], group, MT_HEAP, 10,
				    &refuser));
	}
	ck_assert_int_eq(mt_process_charged(&session, process), 30);
	ck_assert_int_eq(usage_of(group), 30);
	ck_assert_uint_gt(load_relaxed(&session.header->fallbacks), 0);
	for (int i = 0; i < 3; i++)
		mt_uncharge(&session, &tasks[i], group, MT_HEAP, 10);
	ck_assert_int_eq(usage_of(group), 0);
	expect_no_drift();
}
END_TEST

START_TEST(what_a_killed_process_held_is_taken_back)
{
	uint64_t state;
	int ready[2];
	uint32_t slot;
	char byte;
	pid_t child;

	ck_assert_int_eq(pipe(ready), 0);
	child = fork();
	if (child == 0) {
		struct mt_task task;
		uint32_t refuser;
		uint32_t home;

		slot = join_as((uint32_t)getpid(), 0);
		home = mt_process_make_home(&session, slot, NULL);
		mt_task_attach(&session, &task, slot, (uint32_t)getpid());
		if (!mt_charge(&session, &task, home, MT_HEAP, 5000, &refuser))
			_exit(1);
		if (write(ready[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	slot = mt_process_find(&session, (uint32_t)child, own_ns());
	ck_assert_uint_ne(slot, MT_NONE);
	ck_assert_int_ge(usage_of(MT_ROOT), 5000);
	ck_assert_int_eq(mt_process_life(&session, slot, own_ns(), &state),
			 MT_ALIVE);
	ck_assert_uint_eq(mt_process_reap_dead(&session, own_ns(), 100), 0);

	kill(child, SIGKILL);
	/* Not waited for: a zombie is dead as well. */
	while (mt_process_life(&session, slot, own_ns(), &state) == MT_ALIVE)
		usleep(1000);
	ck_assert_uint_eq(mt_process_reap_dead(&session, own_ns(), 100), 1);
	ck_assert_int_eq(usage_of(MT_ROOT), 0);
	expect_no_drift();
	ck_assert_uint_eq(load_relaxed(&session.header->nr_live), 0);
	/* Its group went with it, and it is remembered. */
	for (uint32_t i = 1; i < mt_table_high(&session, MT_GROUPS); i++)
		ck_assert(!mt_group_is_live(&session, i));
	ck_assert_uint_eq(session.ended[0].pid, (uint32_t)child);
	ck_assert_uint_ge(session.ended[0].peak, 5000);
	/* Seen dead once, reaped once. */
	ck_assert(!mt_process_reap(&session, slot, state, MT_ENDED_EXITED));
	waitpid(child, NULL, 0);
}
END_TEST

START_TEST(an_exec_takes_its_old_slot_and_empties_it)
{
	uint32_t first = join_as((uint32_t)getpid(), 0);
	struct mt_task task;
	uint32_t refuser;
	uint32_t second;

	mt_process_make_home(&session, first, NULL);
	mt_task_attach(&session, &task, first, 1);
	ck_assert(mt_charge(&session, &task, MT_ROOT, MT_ANON, 300, &refuser));
	second = join_as((uint32_t)getpid(), 0);
	ck_assert_uint_eq(second, first);
	ck_assert_int_eq(usage_of(MT_ROOT), 0);
	ck_assert_int_eq(mt_process_charged(&session, second), 0);
	ck_assert_uint_eq(load_relaxed(&session.header->nr_live), 1);
}
END_TEST

START_TEST(a_pid_used_again_is_another_process)
{
	/* It joined right after boot; who has its pid now started later. */
	uint32_t slot = join_as((uint32_t)getppid(), 1);
	uint64_t state;

	ck_assert_int_eq(mt_process_life(&session, slot, own_ns(), &state),
			 MT_DEAD);
	slot = join_as((uint32_t)getpid(), 0);
	ck_assert_int_eq(mt_process_life(&session, slot, own_ns(), &state),
			 MT_ALIVE);
	/* From another pid namespace nothing can be said. */
	ck_assert_int_eq(mt_process_life(&session, slot, own_ns() + 1, &state),
			 MT_CANNOT_TELL);
}
END_TEST

START_TEST(an_operation_cut_short_is_repaired_or_audited)
{
	static struct mt_audit_scratch scratch;
	uint32_t process = join_as((uint32_t)getpid(), 0);
	struct mt_thread *thread;
	struct mt_task task;
	int64_t pages;
	uint32_t group;

	ck_assert_int_eq(
		mt_group_make(&session, MT_ROOT, "g", MT_GROUP_KEEP, &group),
		0);
	mt_task_attach(&session, &task, process, 1);
	thread = &session.threads[task.thread - 1];
	/* Died after charging "g" and "/", before the word: both known. */
	mt_counter_charge(&session, group, 40, NULL);
	store_relaxed(&thread->seq, 1);
	store_relaxed(&thread->op_pages, 40);
	store_relaxed(&thread->op_at, (uint64_t)2 << 32 | group);
	ck_assert(
		mt_process_reap(&session, process,
				load_relaxed(&session.processes[process].state),
				MT_ENDED_EXITED));
	ck_assert_int_eq(usage_of(group), 0);
	ck_assert_int_eq(usage_of(MT_ROOT), 0);

	/* Died with one level in doubt: left too high, until an audit. */
	mt_counter_charge(&session, group, 5, NULL);
	ck_assert_int_eq(mt_audit(&session, &scratch, &pages), MT_AUDIT_DONE);
	ck_assert_int_eq(pages, 5);
	ck_assert_int_eq(usage_of(group), 0);
	ck_assert_int_eq(usage_of(MT_ROOT), 0);
	ck_assert_uint_eq(load_relaxed(&session.groups[group].repairs), 5);
}
END_TEST

static void *churn(void *arg)
{
	uint32_t process = *(uint32_t *)arg;
	struct mt_task task;
	uint32_t refuser;
	unsigned seed = (unsigned)(uintptr_t)&task;
	int64_t held = 0;

	mt_task_attach(&session, &task, process, (uint32_t)seed | 1);
	for (int i = 0; i < 20000; i++) {
		int64_t n;

		seed = seed * 1103515245u + 12345u;
		n = 1 + (int64_t)(seed >> 16) % 100;
		if (seed & 1) {
			if (mt_charge(&session, &task, MT_ROOT, MT_HEAP, n,
				      &refuser))
				held += n;
		} else if (held >= n) {
			mt_uncharge(&session, &task, MT_ROOT, MT_HEAP, n);
			held -= n;
		}
		if (i % 1000 == 0)
			mt_drain(&session, &task, MT_ROOT);
	}
	if (held)
		mt_uncharge(&session, &task, MT_ROOT, MT_HEAP, held);
	mt_task_detach(&session, &task);
	return NULL;
}

START_TEST(threads_at_a_limit_never_pass_it_and_leave_nothing)
{
	uint32_t process = join_as((uint32_t)getpid(), 0);
	pthread_t threads[4];

	mt_counter_force_max(&session, MT_ROOT, 3000);
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, churn, &process);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(mt_process_charged(&session, process), 0);
	ck_assert_int_eq(usage_of(MT_ROOT), 0);
	ck_assert_int_le(load_relaxed(&session.groups[MT_ROOT].peak), 3000);
	expect_no_drift();
}
END_TEST

START_TEST(a_reader_survives_any_content)
{
	size_t size = session.size;
	unsigned char *copy = malloc(size);
	unsigned seed = 7;
	struct mt_reader reader;
	char path[64];

	for (int g = 0; g < 5; g++) {
		uint32_t group;

		snprintf(path, sizeof(path), "/a%d/b/c", g);
		mt_group_make_path(&session, MT_ROOT, path, 0, &group);
	}
	join_as((uint32_t)getpid(), 0);
	for (int round = 0; round < 3000; round++) {
		memcpy(copy, session.header, 8192);
		memcpy(copy + 65536, (char *)session.header + 65536, 8192);
		for (int i = 0; i < 1 + round % 8; i++) {
			size_t at;

			seed = seed * 1103515245u + 12345u;
			at = (seed >> 8) % (round % 2 ? 1024 : 65536 + 8192);
			copy[at] = (unsigned char)(seed >> 24);
		}
		if (mt_reader_check(&reader, copy, size))
			continue;
		for (uint32_t i = 0;
		     i < MT_MIN(mt_reader_count(&reader, MT_GROUPS), 200u);
		     i++) {
			struct mt_group group;

			mt_reader_group(&reader, i, &group);
			mt_reader_path(&reader, i, path, sizeof(path));
			ck_assert_uint_lt(strlen(path), sizeof(path));
			mt_reader_is_below(&reader, i, 3);
		}
	}
	free(copy);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("core");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_segment_is_attached_by_its_path);
	tcase_add_test(tc, a_bad_segment_is_refused);
	tcase_add_test(tc, names_of_sessions_are_fit_for_files);
	tcase_add_test(tc,
		       groups_are_found_by_their_path_and_retired_when_unused);
	tcase_add_test(tc, bad_group_names_are_refused);
	tcase_add_test(tc, one_name_is_one_group_whoever_makes_it);
	tcase_add_test(tc, pages_given_back_by_another_thread_leave_nothing);
	tcase_add_test(tc,
		       a_full_group_takes_its_last_page_from_anothers_stock);
	tcase_add_test(tc, a_handler_inside_an_operation_loses_nothing);
	tcase_add_test(tc, without_slots_charges_are_counted_all_the_same);
	tcase_add_test(tc, what_a_killed_process_held_is_taken_back);
	tcase_add_test(tc, an_exec_takes_its_old_slot_and_empties_it);
	tcase_add_test(tc, a_pid_used_again_is_another_process);
	tcase_add_test(tc, an_operation_cut_short_is_repaired_or_audited);
	tcase_add_test(tc, threads_at_a_limit_never_pass_it_and_leave_nothing);
	tcase_add_test(tc, a_reader_survives_any_content);
	return run_case(tc, "core");
}
