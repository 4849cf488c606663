/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <pthread.h>

#include "core/counter.h"
#include "core/group.h"
#include "core/peak.h"
#include "tests/unit/session.h"

static uint32_t group;
static uint32_t readers[3];

static void set_up(void)
{
	setup();
	ck_assert_int_eq(mt_group_make(&session, MT_ROOT, "g", 0, &group), 0);
	for (uint32_t i = 0; i < 3; i++)
		readers[i] = join_as((uint32_t)getpid() + i, 0);
}

static void charge(int64_t pages)
{
	uint32_t nobody;

	if (pages > 0)
		ck_assert(mt_counter_try_charge(&session, group, pages, NULL,
						&nobody));
	else
		mt_counter_uncharge(&session, group, -pages, NULL);
}

static int64_t read_by(int reader)
{
	return mt_peak_read(&session, readers[reader], group);
}

static int reset_by(int reader)
{
	return mt_peak_reset(&session, readers[reader], group);
}

/* The published sequence with three handles; where the kernel forgets what the
 * others had seen, the marks are folded into theirs. */
START_TEST(a_reset_is_the_readers_own)
{
	static const struct {
		int reset; /* reader, from 1; 0: a charge */
		int64_t charge;
		int64_t usage, peak, local;
		int64_t read[3];
	} steps[] = {
		{ 0, 50, 50, 50, 50, { 50, 50, 50 } },
		{ 1, 0, 50, 50, 50, { 50, 50, 50 } },
		{ 0, -40, 10, 50, 50, { 50, 50, 50 } },
		{ 2, 0, 10, 50, 10, { 50, 10, 50 } },
		{ 0, 90, 100, 100, 100, { 100, 100, 100 } },
		{ 0, -80, 20, 100, 100, { 100, 100, 100 } },
		{ 3, 0, 20, 100, 20, { 100, 100, 20 } },
		{ 0, 5, 25, 100, 25, { 100, 100, 25 } },
		{ 1, 0, 25, 100, 25, { 25, 100, 25 } },
	};
	const struct mt_group *g = &session.groups[group];

	for (size_t i = 0; i < MT_ARRAY_SIZE(steps); i++) {
		if (steps[i].reset)
			ck_assert_int_eq(reset_by(steps[i].reset - 1), 0);
		else
			charge(steps[i].charge);
		ck_assert_int_eq(usage_of(group), steps[i].usage);
		ck_assert_int_eq(load_relaxed(&g->peak), steps[i].peak);
		ck_assert_int_eq(load_relaxed(&g->peak_local), steps[i].local);
		for (int r = 0; r < 3; r++)
			ck_assert_int_eq(read_by(r), steps[i].read[r]);
	}
}
END_TEST

START_TEST(the_dead_and_groups_that_went_are_forgotten)
{
	uint32_t again;

	charge(10);
	ck_assert_int_eq(reset_by(0), 0);
	ck_assert_int_eq(reset_by(1), 0);
	charge(-10);
	ck_assert_int_eq(reset_by(1), 0);
	ck_assert_int_eq(read_by(1), 0);
	mt_peak_forget(&session, readers[1]);
	ck_assert_int_eq(read_by(1), 10);
	ck_assert_int_eq(load_relaxed(&session.peaks[1].ident), 0);
	ck_assert_uint_ne(load_relaxed(&session.peaks[0].ident), 0);

	/* A new group in the same place. */
	mt_group_retire(&session, group);
	ck_assert(!mt_group_is_live(&session, group));
	ck_assert_int_eq(mt_group_make(&session, MT_ROOT, "h", 0, &again), 0);
	ck_assert_uint_eq(again, group);
	charge(7);
	charge(-7);
	ck_assert_int_eq(read_by(0), 7);
}
END_TEST

START_TEST(when_the_table_is_full_it_says_so)
{
	uint32_t capacity = session.header->tables[MT_PEAKS].capacity;
	uint32_t i;

	for (i = 0; i < capacity; i++)
		ck_assert_int_eq(mt_peak_reset(&session, 1000 + i, group), 0);
	ck_assert_int_eq(mt_peak_reset(&session, 1000 + i, group), -ENOSPC);
	/* Those that are in it go on. */
	ck_assert_int_eq(mt_peak_reset(&session, 1000, group), 0);
	mt_peak_forget(&session, 1001);
	ck_assert_int_eq(mt_peak_reset(&session, 1000 + i, group), 0);
}
END_TEST

static _Atomic bool stop;

static void *flap(void *arg)
{
	(void)arg;
	while (!load_relaxed(&stop)) {
		charge(3);
		charge(-3);
	}
	return NULL;
}

static void *reset_often(void *arg)
{
	(void)arg;
	while (!load_relaxed(&stop))
		mt_peak_reset(&session, readers[2], group);
	return NULL;
}

/* A peak that comes after one's reset and before others' is never lost. */
START_TEST(resets_of_others_lose_nothing)
{
	pthread_t threads[3];

	charge(1000);
	charge(-1000);
	pthread_create(&threads[0], NULL, flap, NULL);
	pthread_create(&threads[1], NULL, flap, NULL);
	pthread_create(&threads[2], NULL, reset_often, NULL);
	for (int64_t i = 0; i < 2000; i++) {
		int64_t high = 10 + i % 50;

		ck_assert_int_eq(reset_by(0), 0);
		charge(high);
		charge(-high);
		ck_assert_int_ge(read_by(0), high);
		/* Of the one before, where a reset of both met, and no more. */
		ck_assert_int_le(read_by(0), 60 + 6);
	}
	store_relaxed(&stop, true);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(peak_of(group), 1000);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("peak");

	tcase_add_checked_fixture(tc, set_up, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_reset_is_the_readers_own);
	tcase_add_test(tc, the_dead_and_groups_that_went_are_forgotten);
	tcase_add_test(tc, when_the_table_is_full_it_says_so);
	tcase_add_test(tc, resets_of_others_lose_nothing);
	return run_case(tc, "peak");
}
