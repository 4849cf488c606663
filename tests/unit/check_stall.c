/* SPDX-License-Identifier: MIT */
#include <math.h>

#include "core/counter.h"
#include "core/group.h"
#include "core/stall.h"
#include "tests/unit/session.h"

#define SECOND UINT64_C(1000000000)

static const double window_s[MT_NR_STALLS] = { 10, 60, 300 };
static uint32_t group;

static void set_up(void)
{
	setup();
	ck_assert_int_eq(
		mt_group_make_path(&session, MT_ROOT, "/a/b", 0, &group), 0);
}

static double share(uint32_t at, unsigned window, uint64_t now_ns)
{
	uint64_t avg = load_relaxed(&session.groups[at].stall_avg[window]);

	return mt_stall_share(avg, window, now_ns) / 1048576.0;
}

/* Against the closed form: after waiting from 0 to t, 1 - e^(-t/T), which
 * fades by e^(-t/T). */
START_TEST(shares_are_those_of_the_formula)
{
	static const double waits[] = {
		0.000250, 0.0125, 0.5, 1, 7, 100, 5000
	};
	static const double later[] = { 0, 0.001, 0.3, 10, 75, 1000 };
	uint64_t now = 5000 * SECOND;

	for (size_t i = 0; i < MT_ARRAY_SIZE(waits); i++) {
		for (int w = 0; w < MT_NR_STALLS; w++)
			store_relaxed(&session.groups[group].stall_avg[w], 0);
		mt_stall_add(&session, group, (uint64_t)(waits[i] * 1e6), now);
		for (size_t l = 0; l < MT_ARRAY_SIZE(later); l++) {
			uint64_t then = now + (uint64_t)(later[l] * 1e9);

			for (unsigned w = 0; w < MT_NR_STALLS; w++) {
				double t = window_s[w];
				double want = (1 - exp(-waits[i] / t)) *
					      exp(-later[l] / t);

				ck_assert_double_eq_tol(share(group, w, then),
							want, 3e-6);
			}
		}
	}
}
END_TEST

START_TEST(a_share_kept_up_is_what_it_is)
{
	uint64_t now = SECOND;

	/* 30 ms of every 100, for half an hour. */
	for (int i = 0; i < 18000; i++, now += SECOND / 10)
		mt_stall_add(&session, group, 30000, now);
	for (unsigned w = 0; w < MT_NR_STALLS; w++)
		ck_assert_double_eq_tol(share(group, w, now), 0.3, 0.006);
	ck_assert_uint_eq(load_relaxed(&session.groups[group].stall_us),
			  UINT64_C(18000) * 30000);
	/* And those above have it as well. */
	ck_assert_uint_eq(load_relaxed(&session.groups[MT_ROOT].stall_us),
			  UINT64_C(18000) * 30000);
	ck_assert_double_eq(share(MT_ROOT, 0, now), share(group, 0, now));
}
END_TEST

START_TEST(clocks_that_disagree_a_little_do_no_harm)
{
	uint64_t now = 100 * SECOND;
	double before;

	mt_stall_add(&session, group, 5000000, now);
	before = share(group, 0, now);
	/* A thread that read its clock before, and comes after. */
	ck_assert_double_eq(share(group, 0, now - SECOND / 100), before);
	mt_stall_add(&session, group, 0, now - SECOND / 100);
	ck_assert_double_eq_tol(share(group, 0, now), before, 1e-3);
	/* 49 days on, the milliseconds begin anew. */
	now += (UINT64_C(1) << 32) * 1000000;
	ck_assert_double_le(share(group, 0, now), 1);
	/* Any word at all is a number. */
	ck_assert_double_le(mt_stall_share(UINT64_MAX, 2, now) / 1048576.0,
			    4096);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("stall");

	tcase_add_checked_fixture(tc, set_up, teardown);
	tcase_add_test(tc, shares_are_those_of_the_formula);
	tcase_add_test(tc, a_share_kept_up_is_what_it_is);
	tcase_add_test(tc, clocks_that_disagree_a_little_do_no_harm);
	return run_case(tc, "stall");
}
