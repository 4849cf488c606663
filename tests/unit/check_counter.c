/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <pthread.h>

#include "core/group.h"
#include "tests/unit/session.h"

/*
 * The tree of every test here:
 *
 *	"/" --- a --- b --- c
 *		 \--- s
 */
static uint32_t a;
static uint32_t b;
static uint32_t c;
static uint32_t s;

static uint32_t make(uint32_t parent, const char *name)
{
	uint32_t group = MT_NONE;

	ck_assert_int_eq(mt_group_make(&session, parent, name, 0, &group), 0);
	return group;
}

static void setup_tree(void)
{
	setup();
	a = make(MT_ROOT, "a");
	b = make(a, "b");
	c = make(b, "c");
	s = make(a, "s");
}

static bool try_charge(uint32_t group, int64_t pages)
{
	uint32_t nobody;

	return mt_counter_try_charge(&session, group, pages, NULL, &nobody);
}

static uint32_t refuser_of(uint32_t group, int64_t pages)
{
	uint32_t refuser = MT_NONE;

	ck_assert(
		!mt_counter_try_charge(&session, group, pages, NULL, &refuser));
	return refuser;
}

static uint64_t failcnt_of(uint32_t group)
{
	return load_relaxed(&session.groups[group].failcnt);
}

#define expect_usage(root_, a_, b_, c_, s_)                                    \
	do {                                                                   \
		ck_assert_int_eq(usage_of(MT_ROOT), root_);                    \
		ck_assert_int_eq(usage_of(a), a_);                             \
		ck_assert_int_eq(usage_of(b), b_);                             \
		ck_assert_int_eq(usage_of(c), c_);                             \
		ck_assert_int_eq(usage_of(s), s_);                             \
	} while (0)

START_TEST(a_charge_counts_at_the_group_and_all_above_it)
{
	ck_assert(try_charge(b, 10));
	expect_usage(10, 10, 10, 0, 0);

	ck_assert(try_charge(s, 5));
	expect_usage(15, 15, 10, 0, 5);

	mt_counter_uncharge(&session, b, 4, NULL);
	expect_usage(11, 11, 6, 0, 5);
}
END_TEST

START_TEST(usage_may_equal_max_and_not_pass_it)
{
	mt_counter_force_max(&session, b, 10);

	ck_assert(try_charge(c, 10));
	ck_assert_uint_eq(refuser_of(c, 1), b);

	expect_usage(10, 10, 10, 10, 0);
}
END_TEST

START_TEST(a_refused_charge_leaves_no_trace_but_a_count_at_the_refuser)
{
	mt_counter_force_max(&session, a, 50);
	mt_counter_set_low(&session, c, 1000);
	ck_assert(try_charge(c, 30));

	ck_assert_uint_eq(refuser_of(c, 21), a);

	expect_usage(30, 30, 30, 30, 0);
	/* 51 was seen at b and c for a moment, and is no peak. */
	ck_assert_int_eq(peak_of(c), 30);
	ck_assert_int_eq(peak_of(b), 30);
	ck_assert_int_eq(peak_of(a), 30);
	ck_assert_int_eq(load_relaxed(&session.groups[b].children_low_usage),
			 30);
	ck_assert_uint_eq(failcnt_of(c), 0);
	ck_assert_uint_eq(failcnt_of(b), 0);
	ck_assert_uint_eq(failcnt_of(a), 1);
	ck_assert_uint_eq(failcnt_of(MT_ROOT), 0);
}
END_TEST

START_TEST(the_lowest_group_past_its_limit_is_the_refuser)
{
	mt_counter_force_max(&session, MT_ROOT, 10);
	mt_counter_force_max(&session, a, 20);
	mt_counter_force_max(&session, b, 30);

	ck_assert_uint_eq(refuser_of(c, 31), b);
	ck_assert_uint_eq(refuser_of(c, 25), a);
	ck_assert_uint_eq(refuser_of(c, 15), MT_ROOT);
	ck_assert(try_charge(c, 10));
}
END_TEST

START_TEST(a_forced_charge_looks_at_no_limit)
{
	mt_counter_force_max(&session, a, 10);

	mt_counter_charge(&session, c, 25, NULL);

	expect_usage(25, 25, 25, 25, 0);
	ck_assert_int_eq(peak_of(a), 25);
	ck_assert_uint_eq(failcnt_of(a), 0);
	ck_assert_uint_eq(refuser_of(c, 1), a);
}
END_TEST

START_TEST(cancel_takes_off_one_level_only)
{
	mt_counter_charge(&session, c, 25, NULL);

	mt_counter_cancel(&session, b, 5);

	expect_usage(25, 25, 20, 25, 0);
}
END_TEST

START_TEST(an_underflow_is_clamped_counted_and_the_walk_goes_on)
{
	mt_counter_charge(&session, a, 10, NULL);
	mt_counter_charge(&session, b, 5, NULL);

	mt_counter_uncharge(&session, b, 7, NULL);

	/* b: 5 - 7 is no less than nothing; a and "/": 15 - 7. */
	expect_usage(8, 8, 0, 0, 0);
	ck_assert_uint_eq(load_relaxed(&session.groups[b].underflows), 1);
	ck_assert_uint_eq(load_relaxed(&session.groups[a].underflows), 0);
	/* Nothing is owed: the next charge counts in full. */
	mt_counter_charge(&session, b, 3, NULL);
	expect_usage(11, 11, 3, 0, 0);
}
END_TEST

START_TEST(peaks_are_of_what_was_committed_and_fall_at_a_reset_only)
{
	mt_counter_charge(&session, c, 40, NULL);
	mt_counter_uncharge(&session, c, 30, NULL);
	ck_assert_int_eq(peak_of(c), 40);
	ck_assert_int_eq(peak_of(MT_ROOT), 40);

	mt_counter_reset_peak(&session, c);

	ck_assert_int_eq(peak_of(c), 10);
	ck_assert_int_eq(load_relaxed(&session.groups[c].peak_local), 10);
	ck_assert_int_eq(peak_of(b), 40);

	mt_counter_charge(&session, c, 5, NULL);
	ck_assert_int_eq(peak_of(c), 15);
	ck_assert_int_eq(peak_of(b), 40);
}
END_TEST

START_TEST(set_max_below_usage_is_busy_and_changes_nothing)
{
	mt_counter_charge(&session, b, 20, NULL);
	ck_assert_int_eq(mt_counter_set_max(&session, b, 100), 0);

	ck_assert_int_eq(mt_counter_set_max(&session, b, 19), -EBUSY);

	ck_assert_int_eq(load_relaxed(&session.groups[b].max), 100);
	/* At usage itself it isn't: usage may equal max. */
	ck_assert_int_eq(mt_counter_set_max(&session, b, 20), 0);
	ck_assert_int_eq(load_relaxed(&session.groups[b].max), 20);
	ck_assert_uint_eq(refuser_of(c, 1), b);
}
END_TEST

START_TEST(force_max_holds_at_once_and_says_what_is_above_it)
{
	mt_counter_charge(&session, b, 20, NULL);

	ck_assert_int_eq(mt_counter_force_max(&session, b, 13), 7);

	ck_assert_int_eq(load_relaxed(&session.groups[b].max), 13);
	ck_assert_uint_eq(refuser_of(b, 1), b);
	mt_counter_uncharge(&session, b, 7, NULL);
	ck_assert_uint_eq(refuser_of(b, 1), b);
	mt_counter_uncharge(&session, b, 1, NULL);
	ck_assert(try_charge(b, 1));
	ck_assert_int_eq(mt_counter_force_max(&session, b, 13), 0);
}
END_TEST

static int64_t min_sum(uint32_t group)
{
	return load_relaxed(&session.groups[group].children_min_usage);
}

static int64_t low_sum(uint32_t group)
{
	return load_relaxed(&session.groups[group].children_low_usage);
}

START_TEST(claims_are_published_as_far_as_usage_covers_them)
{
	mt_counter_set_min(&session, b, 10);
	mt_counter_set_low(&session, b, 25);
	mt_counter_set_low(&session, s, 50);
	ck_assert_int_eq(min_sum(a), 0);

	mt_counter_charge(&session, b, 5, NULL);
	/* min(5, 10), min(5, 25) */
	ck_assert_int_eq(min_sum(a), 5);
	ck_assert_int_eq(low_sum(a), 5);

	mt_counter_charge(&session, b, 15, NULL);
	mt_counter_charge(&session, s, 12, NULL);
	/* min(20, 10); min(20, 25) + min(12, 50) */
	ck_assert_int_eq(min_sum(a), 10);
	ck_assert_int_eq(low_sum(a), 32);
	/* The grandparent hears of a's own claims only. */
	ck_assert_int_eq(low_sum(MT_ROOT), 0);

	mt_counter_set_low(&session, b, 0);
	ck_assert_int_eq(low_sum(a), 12);
	mt_counter_uncharge(&session, s, 12, NULL);
	mt_counter_uncharge(&session, b, 20, NULL);
	ck_assert_int_eq(low_sum(a), 0);
	ck_assert_int_eq(min_sum(a), 0);
}
END_TEST

START_TEST(the_roots_claims_have_nobody_to_go_to)
{
	mt_counter_set_min(&session, MT_ROOT, 10);
	mt_counter_charge(&session, c, 25, NULL);

	ck_assert_int_eq(load_relaxed(&session.groups[MT_ROOT].min_usage), 10);
	ck_assert_int_eq(min_sum(MT_ROOT), 0);
	ck_assert_int_eq(min_sum(a), 0);
}
END_TEST

START_TEST(settle_publishes_what_a_race_left_stale)
{
	mt_counter_set_low(&session, b, 10);
	mt_counter_charge(&session, b, 8, NULL);
	/* As two publishers leave it that came in the opposite order. */
	store_relaxed(&session.groups[b].low_usage, 3);
	store_relaxed(&session.groups[a].children_low_usage, 3);

	mt_counter_settle(&session, b);

	ck_assert_int_eq(load_relaxed(&session.groups[b].low_usage), 8);
	ck_assert_int_eq(low_sum(a), 8);
}
END_TEST

static uint64_t at(uint32_t levels, uint32_t lowest)
{
	return (uint64_t)levels << 32 | lowest;
}

START_TEST(a_reaper_can_tell_how_far_an_operation_came)
{
	struct mt_thread op = { 0 };
	uint32_t refuser;

	/* "/", a, b and c have it. */
	ck_assert(mt_counter_try_charge(&session, c, 3, &op, &refuser));
	ck_assert_uint_eq(load_relaxed(&op.op_at), at(4, c));

	/* All have given it. */
	mt_counter_uncharge(&session, c, 3, &op);
	ck_assert_uint_eq(load_relaxed(&op.op_at), at(4, c));

	/* Refused at "/": nobody has it any more. */
	mt_counter_force_max(&session, MT_ROOT, 2);
	ck_assert(!mt_counter_try_charge(&session, c, 3, &op, &refuser));
	ck_assert_uint_eq(load_relaxed(&op.op_at) >> 32, 0);
}
END_TEST

START_TEST(is_below_knows_the_tree)
{
	ck_assert(mt_counter_is_below(&session, c, MT_ROOT));
	ck_assert(mt_counter_is_below(&session, c, a));
	ck_assert(mt_counter_is_below(&session, c, c));
	ck_assert(!mt_counter_is_below(&session, c, s));
	ck_assert(!mt_counter_is_below(&session, a, c));
	ck_assert(!mt_counter_is_below(&session, MT_NONE, MT_ROOT));
}
END_TEST

START_TEST(a_garbled_tree_ends_every_walk)
{
	/* A ring, which no walk up may follow for ever. */
	store_relaxed(&session.groups[a].parent, c);
	ck_assert(try_charge(c, 1));
	mt_counter_charge(&session, c, 1, NULL);
	mt_counter_uncharge(&session, c, 2, NULL);
	mt_counter_set_low(&session, c, 7);
	ck_assert(!mt_counter_is_below(&session, c, MT_ROOT));

	/* A parent past the table. */
	store_relaxed(&session.groups[a].parent, 1u << 30);
	ck_assert(try_charge(c, 1));
	mt_counter_uncharge(&session, c, 1, NULL);
	ck_assert(!mt_counter_is_below(&session, c, MT_ROOT));
	ck_assert(try_charge(1u << 30, 1));
}
END_TEST

START_TEST(charges_reach_the_largest_sizes)
{
	ck_assert(try_charge(c, MT_CHARGE_MAX));
	ck_assert(try_charge(c, MT_CHARGE_MAX));
	ck_assert_int_eq(usage_of(MT_ROOT), 2 * MT_CHARGE_MAX);
	mt_counter_force_max(&session, a, 2 * MT_CHARGE_MAX);
	ck_assert_uint_eq(refuser_of(c, 1), a);
}
END_TEST

#define LIMIT 500

/* Charges and uncharges c, or s, at random; returns what it still holds. */
static void *churn(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	uint32_t group = seed & 1 ? c : s;
	int64_t held = 0;

	for (int i = 0; i < 20000; i++) {
		int64_t n;

		seed = seed * 1103515245u + 12345u;
		n = 1 + (int64_t)(seed >> 16) % 60;
		if (seed >> 31) {
			held += try_charge(group, n) ? n : 0;
		} else if (held >= n) {
			mt_counter_uncharge(&session, group, n, NULL);
			held -= n;
		}
	}
	return (void *)(intptr_t)held;
}

START_TEST(threads_at_a_limit_commit_no_page_above_it)
{
	int64_t held[2] = { 0, 0 };
	pthread_t threads[4];

	mt_counter_force_max(&session, a, LIMIT);
	/* Claims in the middle of where usage moves. */
	mt_counter_set_min(&session, c, 100);
	mt_counter_set_low(&session, s, 150);
	mt_counter_set_low(&session, a, 300);

	for (uintptr_t i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, churn, (void *)(i + 1));
	for (int i = 0; i < 4; i++) {
		void *ret;

		pthread_join(threads[i], &ret);
		held[(i + 1) & 1] += (intptr_t)ret;
	}

	expect_usage(held[0] + held[1], held[0] + held[1], held[1], held[1],
		     held[0]);
	ck_assert_int_le(peak_of(a), LIMIT);
	ck_assert_uint_gt(failcnt_of(a), 0);
	/* A stale claim is put right by a settle, and the sums with it. */
	for (uint32_t g = 0; g <= s; g++)
		mt_counter_settle(&session, g);
	ck_assert_int_eq(min_sum(b), MT_MIN(held[1], 100));
	ck_assert_int_eq(low_sum(a), MT_MIN(held[0], 150));
	ck_assert_int_eq(low_sum(MT_ROOT), MT_MIN(held[0] + held[1], 300));
}
END_TEST

static _Atomic bool stop;
static _Atomic int64_t committed;

static void *flap(void *arg)
{
	int64_t held = 0;

	while (!load_relaxed(&stop)) {
		if (held < 40) {
			if (!try_charge(c, 7))
				continue;
			fetch_add_seq_cst(&committed, 7);
			held += 7;
		} else {
			fetch_add_seq_cst(&committed, -held);
			mt_counter_uncharge(&session, c, held, NULL);
			held = 0;
		}
	}
	(void)arg;
	return (void *)(intptr_t)held;
}

/*
 * `committed` is never more than what went through: added to after a charge,
 * taken from before an uncharge.  Once set_max() said yes, nothing
 * above that limit is committed, or comes.
 */
START_TEST(a_limit_once_accepted_is_never_passed)
{
	pthread_t threads[3];
	int64_t held = 0;
	int accepted = 0;

	store_relaxed(&stop, false);
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, flap, NULL);
	for (int i = 0; i < 20000; i++) {
		int64_t max = 60 + i % 80;

		if (mt_counter_set_max(&session, b, max))
			continue;
		accepted++;
		/* Each holds 42 at most, so 126 pass some limits only. */
		for (int look = 0; look < 20; look++)
			ck_assert_int_le(load_seq_cst(&committed), max);
		mt_counter_force_max(&session, b, MT_UNLIMITED);
	}
	ck_assert_int_gt(accepted, 0);
	wait_until(mt_counter_set_max(&session, b, 100) == 0);
	store_relaxed(&stop, true);
	for (int i = 0; i < 3; i++) {
		void *ret;

		pthread_join(threads[i], &ret);
		held += (intptr_t)ret;
	}

	ck_assert_int_eq(usage_of(b), held);
	ck_assert_int_le(held, 100);
}
END_TEST

START_TEST(the_delay_above_high_is_the_kernels)
{
	static const struct {
		int64_t usage;
		int64_t high;
		int64_t pages;
		uint64_t ms;
	} cases[] = {
		{ 25600, 25600, 64, 0 },     { 25856, 25600, 64, 6 },
		{ 26112, 25600, 64, 25 },    { 26880, 25600, 64, 159 },
		{ 28160, 25600, 64, 639 },   { 28928, 25600, 64, 1081 },
		{ 29952, 25600, 64, 1849 },  { 30208, 25600, 64, 2000 },
		{ 30720, 25600, 64, 2000 },  { 28160, 25600, 16, 159 },
		{ 28160, 25600, 256, 2000 }, { 1, 0, 64, 0 },
		{ 101, 100, 64, 6 },         { 105, 100, 1, 2 },
		{ 200, 100, 1, 1000 },
	};

	for (size_t i = 0; i < MT_ARRAY_SIZE(cases); i++)
		ck_assert_uint_eq(
			mt_counter_delay_ms(mt_counter_overage(cases[i].usage,
							       cases[i].high),
					    cases[i].pages),
			cases[i].ms);
	/* Far out, nothing wraps. */
	ck_assert_uint_eq(
		mt_counter_delay_ms(mt_counter_overage(MT_UNLIMITED, 0),
				    MT_CHARGE_MAX),
		2000);
	ck_assert_uint_eq(mt_counter_overage(5, MT_UNLIMITED), 0);
	ck_assert_uint_eq(
		mt_counter_overage(MT_UNLIMITED, MT_UNLIMITED / 2) >> 10, 1024);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("counter");

	tcase_add_checked_fixture(tc, setup_tree, teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, the_delay_above_high_is_the_kernels);
	tcase_add_test(tc, a_charge_counts_at_the_group_and_all_above_it);
	tcase_add_test(tc, usage_may_equal_max_and_not_pass_it);
	tcase_add_test(
		tc,
		a_refused_charge_leaves_no_trace_but_a_count_at_the_refuser);
	tcase_add_test(tc, the_lowest_group_past_its_limit_is_the_refuser);
	tcase_add_test(tc, a_forced_charge_looks_at_no_limit);
	tcase_add_test(tc, cancel_takes_off_one_level_only);
	tcase_add_test(tc,
		       an_underflow_is_clamped_counted_and_the_walk_goes_on);
	tcase_add_test(
		tc, peaks_are_of_what_was_committed_and_fall_at_a_reset_only);
	tcase_add_test(tc, set_max_below_usage_is_busy_and_changes_nothing);
	tcase_add_test(tc, force_max_holds_at_once_and_says_what_is_above_it);
	tcase_add_test(tc, claims_are_published_as_far_as_usage_covers_them);
	tcase_add_test(tc, the_roots_claims_have_nobody_to_go_to);
	tcase_add_test(tc, settle_publishes_what_a_race_left_stale);
	tcase_add_test(tc, a_reaper_can_tell_how_far_an_operation_came);
	tcase_add_test(tc, is_below_knows_the_tree);
	tcase_add_test(tc, a_garbled_tree_ends_every_walk);
	tcase_add_test(tc, charges_reach_the_largest_sizes);
	tcase_add_test(tc, threads_at_a_limit_commit_no_page_above_it);
	tcase_add_test(tc, a_limit_once_accepted_is_never_passed);
	return run_case(tc, "counter");
}
