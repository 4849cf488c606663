/* SPDX-License-Identifier: MIT */
#include "core/counter.h"
#include "core/group.h"
#include "core/protection.h"
#include "tests/unit/session.h"

#define MAX   MT_UNLIMITED
#define NODES 8

struct node {
	const char *name;
	int parent;
	int64_t usage, min, low;
	int64_t emin, elow, min_usage, low_usage, children_min, children_low;
};

static const struct vector {
	const char *id;
	int recursive;
	int target;
	struct node node[NODES];
} vectors[] = {
#define NODE(...)                                                              \
	{                                                                      \
		__VA_ARGS__                                                    \
	}
#define VECTOR(id, recursive, target, ...)                                     \
	{ #id, recursive, target, { __VA_ARGS__ } },
#include "tests/unit/protection.def"
};

static uint32_t groups[NODES];

static int nr_nodes(const struct vector *v)
{
	int n = 0;

	while (n < NODES && v->node[n].name)
		n++;
	return n;
}

/* Usage is of the whole subtree: what its children don't have is its own. */
static void build(const struct vector *v)
{
	int n = nr_nodes(v);

	for (int i = 0; i < n; i++) {
		const struct node *node = &v->node[i];
		int64_t own = node->usage;

		if (i)
			ck_assert_int_eq(
				mt_group_make(&session, groups[node->parent],
					      node->name, 0, &groups[i]),
				0);
		for (int k = 0; k < n; k++)
			if (v->node[k].parent == i)
				own -= v->node[k].usage;
		mt_counter_charge(&session, groups[i], own, NULL);
	}
	for (int i = 1; i < n; i++) {
		mt_counter_set_min(&session, groups[i], v->node[i].min);
		mt_counter_set_low(&session, groups[i], v->node[i].low);
	}
}

START_TEST(trees_are_protected_as_the_kernel_does)
{
	const struct vector *v = &vectors[_i];
	struct mt_protection p;

	build(v);
	for (int i = 0; i < nr_nodes(v); i++)
		mt_protection_of(&session, groups[v->target], groups[i],
				 v->recursive, &p);
	for (int i = 0; i < nr_nodes(v); i++) {
		const struct node *want = &v->node[i];
		const struct mt_group *g = &session.groups[groups[i]];

		ck_assert_msg(load_relaxed(&g->emin) == want->emin &&
				      load_relaxed(&g->elow) == want->elow,
			      "%s: %s: emin %ld not %ld, elow %ld not %ld",
			      v->id, want->name, (long)load_relaxed(&g->emin),
			      (long)want->emin, (long)load_relaxed(&g->elow),
			      (long)want->elow);
		ck_assert_int_eq(load_relaxed(&g->min_usage), want->min_usage);
		ck_assert_int_eq(load_relaxed(&g->low_usage), want->low_usage);
		ck_assert_int_eq(load_relaxed(&g->children_min_usage),
				 want->children_min);
		ck_assert_int_eq(load_relaxed(&g->children_low_usage),
				 want->children_low);
	}
}
END_TEST

/* A pass over A { B, C }, and what it leaves. */
static void pass(uint32_t target, bool recursive, int64_t elow_a,
		 int64_t elow_b, int64_t elow_c)
{
	const int64_t want[] = { 0, elow_a, elow_b, elow_c };
	struct mt_protection p;

	for (int i = 1; i < 4; i++)
		mt_protection_of(&session, target, groups[i], recursive, &p);
	for (int i = 1; i < 4; i++) {
		const struct mt_group *g = &session.groups[groups[i]];

		ck_assert_int_eq(load_relaxed(&g->elow), want[i]);
		ck_assert_int_eq(load_relaxed(&g->emin), 0);
	}
}

START_TEST(values_stay_until_a_pass_writes_others)
{
	static const struct vector v = {
		"Q01",
		0,
		0,
		{ { "root", -1, 1000, 0, 0, 0, 0, 0, 0, 0, 0 },
		  { "A", 0, 1000, 0, 500, 0, 0, 0, 0, 0, 0 },
		  { "B", 1, 600, 0, 400, 0, 0, 0, 0, 0, 0 },
		  { "C", 1, 400, 0, 400, 0, 0, 0, 0, 0, 0 } }
	};
	uint32_t a, b, c;

	build(&v);
	a = groups[1], b = groups[2], c = groups[3];
	pass(MT_ROOT, false, 500, 250, 250);
	mt_counter_uncharge(&session, b, 600, NULL);
	pass(MT_ROOT, false, 500, 250, 400);
	mt_counter_uncharge(&session, c, 100, NULL);
	pass(MT_ROOT, false, 500, 250, 300);
	mt_counter_set_low(&session, a, 100);
	pass(MT_ROOT, false, 100, 250, 100);
	mt_counter_charge(&session, b, 50, NULL);
	pass(MT_ROOT, false, 100, 14, 85);
	pass(a, false, 100, 400, 400);
	mt_counter_set_low(&session, c, 0);
	pass(MT_ROOT, true, 100, 50, 50);
	for (int i = 1; i < 4; i++)
		mt_counter_set_low(&session, groups[i], 0);
	pass(MT_ROOT, false, 0, 0, 0);
}
END_TEST

/* Where the formula of the first kernels differed. */
START_TEST(one_claim_at_a_time)
{
	ck_assert_int_eq(mt_protection_share(524288, 786432, 1572864, 524288,
					     786432, false),
			 349525);
	ck_assert_int_eq(mt_protection_share(524288, 262144, 1572864, 524288,
					     786432, false),
			 174762);
	ck_assert_int_eq(
		mt_protection_share(0, 2621440, 1572864, 524288, 786432, false),
		0);
	ck_assert_int_eq(mt_protection_share(100, 300, 500, 1000, 400, false),
			 100);
	/* Products that 64 bits can't hold, and quotients that nothing should. */
	ck_assert_int_eq(
		mt_protection_share(MAX, MAX, MAX, MAX - 1, MAX, false),
		MAX - 1);
	ck_assert_int_eq(mt_protection_share(MAX / 2, 0, MAX, MAX, 0, true),
			 MAX / 2);
	ck_assert_int_eq(mt_protection_share(MAX, 0, 1, MAX, 0, true), MAX);
}
END_TEST

/* ---- a second way to compute it ---- */

static struct mt_protection tree[64];
static int parents[64];
static int nr;
static uint64_t seed = 88172645463325252;

static int64_t draw(int64_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (int64_t)(seed % (uint64_t)below);
}

static void grow_tree(void)
{
	nr = 2 + (int)draw(62);
	memset(tree, 0, sizeof(tree));
	for (int i = 0; i < nr; i++) {
		parents[i] = i ? (int)draw(i) : -1;
		tree[i].min = draw(3) ? draw(500) : 0;
		tree[i].low = draw(3) ? draw(2000) : draw(9) ? 0 : MAX;
	}
	for (int i = 0; i < nr; i++) {
		int64_t own = draw(4) ? draw(1000) : 0;

		for (int k = i; k >= 0; k = parents[k])
			tree[k].usage += own;
	}
	for (int i = 1; i < nr; i++) {
		struct mt_protection *p = &tree[parents[i]];

		p->children_min_usage += MT_MIN(tree[i].usage, tree[i].min);
		p->children_low_usage += MT_MIN(tree[i].usage, tree[i].low);
	}
}

/* From the text of the documentation, with fractions: what a parent has goes to
 * its children by their needs; what is over, by what they use beyond them. */
static void expect_below(int at, long double emin, long double elow)
{
	long double need_min = 0, need_low = 0;
	const struct mt_protection *p = &tree[at];

	for (int i = 1; i < nr; i++) {
		if (parents[i] != at)
			continue;
		need_min += MT_MIN(tree[i].usage, tree[i].min);
		need_low += MT_MIN(tree[i].usage, tree[i].low);
	}
	for (int i = 1; i < nr; i++) {
		const struct mt_protection *c = &tree[i];
		long double min = MT_MIN(c->usage, c->min);
		long double low = MT_MIN(c->usage, c->low);

		if (parents[i] != at || c->usage == 0)
			continue;
		if (at == 0) {
			min = c->min;
			low = c->low;
		} else {
			if (need_min > emin)
				min *= emin / need_min;
			else if (p->usage > need_min)
				min += (emin - need_min) * (c->usage - min) /
				       (p->usage - need_min);
			if (need_low > elow)
				low *= elow / need_low;
			else if (p->usage > need_low)
				low += (elow - need_low) * (c->usage - low) /
				       (p->usage - need_low);
		}
		/* Floored: never more, and never a page less. */
		ck_assert(c->emin <= min + 1e-3L && c->emin > min - 1 - 1e-3L);
		ck_assert(c->elow <= low + 1e-3L && c->elow > low - 1 - 1e-3L);
		expect_below(i, c->emin, c->elow);
	}
}

START_TEST(random_trees_agree_with_the_documentation)
{
	for (int round = 0; round < 3000; round++) {
		grow_tree();
		for (int i = 1; i < nr; i++)
			mt_protection_step(
				&tree[i], parents[i] ? &tree[parents[i]] : NULL,
				true);
		expect_below(0, 0, 0);
		for (int i = 0; i < nr; i++) {
			int64_t min = 0, low = 0;

			for (int k = i + 1; k < nr; k++) {
				if (parents[k] != i)
					continue;
				min += tree[k].emin;
				low += tree[k].elow;
			}
			/* Children get no more than there is. */
			ck_assert(i == 0 || min <= tree[i].emin);
			ck_assert(i == 0 || low <= tree[i].elow);
		}
	}
}
END_TEST

START_TEST(tiers_say_who_is_asked_first)
{
	struct mt_protection p = { .usage = 100, .emin = 20, .elow = 60 };

	ck_assert_int_eq(mt_protection_tier(&p), MT_PROTECT_NONE);
	ck_assert_int_eq(mt_protection_excess(&p), 40);
	p.usage = 60;
	ck_assert_int_eq(mt_protection_tier(&p), MT_PROTECT_LOW);
	ck_assert_int_eq(mt_protection_excess(&p), 40);
	p.usage = 20;
	ck_assert_int_eq(mt_protection_tier(&p), MT_PROTECT_MIN);
	ck_assert_int_eq(mt_protection_excess(&p), 0);
	/* min counts where it is more than low. */
	p = (struct mt_protection){ .usage = 100, .emin = 70, .elow = 0 };
	ck_assert_int_eq(mt_protection_tier(&p), MT_PROTECT_NONE);
	ck_assert_int_eq(mt_protection_excess(&p), 30);
	p.usage = 0;
	ck_assert_int_eq(mt_protection_tier(&p), MT_PROTECT_NONE);
	ck_assert_int_eq(mt_protection_excess(&p), 0);
}
END_TEST

START_TEST(outside_the_target_and_in_garbage_nothing_is_protected)
{
	struct mt_protection p;

	build(&vectors[2]);
	mt_protection_of(&session, groups[2], groups[1], true, &p);
	ck_assert_int_eq(p.emin + p.elow, 0);
	mt_protection_of(&session, groups[1], groups[1], true, &p);
	ck_assert_int_eq(p.emin + p.elow, 0);
	/* A cycle, and an index past the table. */
	store_relaxed(&session.groups[groups[1]].parent, groups[2]);
	mt_protection_of(&session, MT_ROOT, groups[2], true, &p);
	ck_assert_int_eq(p.emin + p.elow, 0);
	store_relaxed(&session.groups[groups[1]].parent, MT_NONE - 1);
	mt_protection_of(&session, MT_ROOT, groups[2], true, &p);
	ck_assert_int_eq(p.emin + p.elow, 0);
	/* Numbers that can't be. */
	store_relaxed(&session.groups[groups[1]].parent, MT_ROOT);
	store_relaxed(&session.groups[groups[2]].usage, INT64_MIN);
	store_relaxed(&session.groups[groups[1]].children_min_usage, INT64_MAX);
	store_relaxed(&session.groups[groups[1]].min, INT64_MIN);
	mt_protection_of(&session, MT_ROOT, groups[3], true, &p);
	ck_assert_int_ge(p.emin, 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("protection");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, trees_are_protected_as_the_kernel_does, 0,
			    MT_ARRAY_SIZE(vectors));
	tcase_add_test(tc, values_stay_until_a_pass_writes_others);
	tcase_add_test(tc, one_claim_at_a_time);
	tcase_add_test(tc, random_trees_agree_with_the_documentation);
	tcase_add_test(tc, tiers_say_who_is_asked_first);
	tcase_add_test(tc,
		       outside_the_target_and_in_garbage_nothing_is_protected);
	return run_case(tc, "protection");
}
