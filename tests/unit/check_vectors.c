/* SPDX-License-Identifier: MIT */
#include "core/counter.h"
#include "core/group.h"
#include "core/process.h"
#include "tests/unit/session.h"
#include "tests/unit/vectors.h"

static uint32_t nodes[5];

static void build(const struct vector *v)
{
	nodes[0] = MT_ROOT;
	for (int i = 1; i < v->nr_nodes; i++) {
		char name[8];

		snprintf(name, sizeof(name), "n%d", i);
		ck_assert_int_eq(mt_group_make(&session,
					       nodes[v->node[i].parent], name,
					       0, &nodes[i]),
				 0);
		mt_counter_force_max(&session, nodes[i], v->node[i].max);
		mt_counter_set_min(&session, nodes[i], v->node[i].min);
		mt_counter_set_low(&session, nodes[i], v->node[i].low);
	}
}

static int node_of(uint32_t group)
{
	for (int i = 0; i < 5; i++) {
		if (nodes[i] == group)
			return i;
	}
	return -1;
}

static void perform(const struct vector_step *step)
{
	uint32_t group = nodes[step->node];
	uint32_t refuser = MT_NONE;
	bool ok;

	switch (step->op) {
	case OP_CHARGE:
		mt_counter_charge(&session, group, step->n, NULL);
		break;
	case OP_TRY_CHARGE:
		ok = mt_counter_try_charge(&session, group, step->n, NULL,
					   &refuser);
		ck_assert_int_eq(ok, step->ok);
		if (!ok)
			ck_assert_int_eq(node_of(refuser), step->fail_at);
		break;
	case OP_UNCHARGE:
		mt_counter_uncharge(&session, group, step->n, NULL);
		break;
	case OP_SET_MAX:
		ok = mt_counter_set_max(&session, group, step->n) == 0;
		ck_assert_int_eq(ok, step->ok);
		break;
	case OP_FORCE_MAX:
		mt_counter_force_max(&session, group, step->n);
		break;
	case OP_SET_MIN:
		mt_counter_set_min(&session, group, step->n);
		break;
	case OP_SET_LOW:
		mt_counter_set_low(&session, group, step->n);
		break;
	case OP_RESET:
		mt_counter_reset_peak(&session, group);
		break;
	}
}

static void compare(const struct vector *v, const struct vector_step *step)
{
	for (int i = 0; i < v->nr_nodes; i++) {
		const struct vector_state *want = &step->state[i];
		struct mt_group *g = &session.groups[nodes[i]];

		ck_assert_int_eq(load_relaxed(&g->usage), want->usage);
		ck_assert_int_eq(load_relaxed(&g->peak), want->peak);
		ck_assert_int_eq((int64_t)load_relaxed(&g->failcnt),
				 want->failcnt);
		ck_assert_int_eq(load_relaxed(&g->min_usage), want->min_usage);
		ck_assert_int_eq(load_relaxed(&g->low_usage), want->low_usage);
		ck_assert_int_eq(load_relaxed(&g->children_min_usage),
				 want->children_min);
		ck_assert_int_eq(load_relaxed(&g->children_low_usage),
				 want->children_low);
	}
}

START_TEST(counter_scripts_give_the_kernels_numbers)
{
	const struct vector *v = &vectors[_i];

	build(v);
	for (int i = 0; i < v->nr_steps; i++) {
		perform(&v->step[i]);
		compare(v, &v->step[i]);
	}
}
END_TEST

/* S01: one thread, group B below A (max 200), batch 64. */
static struct mt_task task;
static uint32_t a;
static uint32_t b;

/* The vectors' peak_B is 228 and then 256 after the refused charges; here it
 * is the highest usage committed so far, and usage has not come down yet. */
static void expect(int64_t n, bool ok, int64_t stock, int64_t usage,
		   uint64_t failcnt)
{
	uint32_t refuser = MT_NONE;

	ck_assert_int_eq(
		mt_charge_once(&session, &task, b, MT_HEAP, n, &refuser), ok);
	if (!ok)
		ck_assert_uint_eq(refuser, a);
	ck_assert_int_eq(mt_task_stock(&session, &task, b), stock);
	ck_assert_int_eq(usage_of(a), usage);
	ck_assert_int_eq(usage_of(b), usage);
	ck_assert_uint_eq(load_relaxed(&session.groups[a].failcnt), failcnt);
	ck_assert_uint_eq(load_relaxed(&session.groups[b].failcnt), 0);
	ck_assert_int_eq(peak_of(b), usage);
}

START_TEST(stock_script_gives_the_kernels_numbers)
{
	struct mt_process_facts facts;
	uint32_t process;

	mt_process_facts(&facts);
	ck_assert_int_eq(mt_process_join(&session, &facts, &process), 0);
	mt_task_attach(&session, &task, process, 1);
	ck_assert_int_eq(mt_group_make(&session, MT_ROOT, "A", 0, &a), 0);
	ck_assert_int_eq(mt_group_make(&session, a, "B", 0, &b), 0);
	mt_counter_force_max(&session, a, 200);

	expect(1, true, 63, 64, 0);     /* a batch of 64 */
	expect(1, true, 62, 64, 0);     /* from the stock */
	expect(62, true, 0, 64, 0);     /* all of it */
	expect(1, true, 63, 128, 0);    /* the next batch */
	expect(100, false, 63, 128, 1); /* 228 > 200 */
	expect(64, true, 63, 192, 1);   /* a batch's worth, past the stock */
	expect(1, true, 62, 192, 1);
	expect(30, true, 32, 192, 1);
	/* Neither a batch (256) nor exactly 40 (232): two refusals. */
	expect(40, false, 32, 192, 3);

	mt_uncharge(&session, &task, b, MT_HEAP, 20);
	ck_assert_int_eq(mt_task_stock(&session, &task, b), 52);
	/* 52 + 60 is above the batch: the whole stock goes back. */
	mt_uncharge(&session, &task, b, MT_HEAP, 60);
	ck_assert_int_eq(mt_task_stock(&session, &task, b), 0);
	ck_assert_int_eq(usage_of(a), 80);
	/* More than a batch goes past the stock. */
	mt_uncharge(&session, &task, b, MT_HEAP, 65);
	ck_assert_int_eq(usage_of(a), 15);
	ck_assert_int_eq(usage_of(b), 15);
	/* Committed peaks: the refused 228 and 256 left no trace. */
	ck_assert_int_eq(peak_of(b), 192);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("vectors");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, counter_scripts_give_the_kernels_numbers, 0,
			    (int)MT_ARRAY_SIZE(vectors));
	tcase_add_test(tc, stock_script_gives_the_kernels_numbers);
	return run_case(tc, "vectors");
}
