/* SPDX-License-Identifier: MIT */
/*
 * The operations on the words, beside each other in every order and cut short
 * by death at every store: core's own code, within the bounds of each test.
 *
 * At every point: usage is not below the sum of the words, and where only
 * mt_charge() is used that sum is not above a limit.  At the end: exact
 * without a death, and after a death when the dead are reaped and an audit
 * was made; what the living hold is what they were given.
 */
#include "tests/unit/interleave.h"

#include "core/sys.h"

#define mt_sys_getpid()       il_getpid()
#define mt_sys_gettid()       il_getpid()
#define mt_sys_kill(pid, sig) il_kill_0(pid)
/* A quarter of a gate's time from one look to the next. */
#define mt_sys_clock_ns(id)   (now_ns += 250000)
#define mt_sys_yield()        ((void)0)

static uint64_t now_ns;

#include "core/audit.c"
#include "core/counter.c"
#include "core/task.c"
#define remember remember_ended
#include "core/process.c"
#undef remember

#include "tests/unit/session.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#define BATCH     4
#define PROCESSES 4
#define TASKS     4
#define GROUPS    4

/*
 * The tree; "/" is 0:
 *
 *	"/" --- a --- b
 *		 \--- s
 */
static uint32_t a;
static uint32_t b;
static uint32_t s;

/* What is not in the segment, and belongs to a state all the same. */
static struct world {
	struct mt_task task[TASKS];
	int64_t held[PROCESSES][GROUPS]; /* what its threads were given */
	bool audited;                    /* an audit found its quiet moment */
} world;

static struct {
	struct world world;
	char header[4096];
	char tables[MT_NR_TABLES][8192];
} start;

static bool limited; /* no sum of words may be above a max */
static bool drifted; /* from the start: exact only after an audit */
static struct mt_audit_scratch scratch[3];

static struct mt_task *task(unsigned t)
{
	return &world.task[t];
}

static int64_t *held(unsigned t, uint32_t group)
{
	return &world.held[task(t)->process - 1][group];
}

static void take(unsigned t, uint32_t group, int64_t pages)
{
	uint32_t refuser;

	if (mt_charge(&session, task(t), group, MT_HEAP, pages, &refuser))
		*held(t, group) += pages;
}

static void give(unsigned t, uint32_t group, int64_t pages)
{
	mt_uncharge(&session, task(t), group, MT_HEAP, pages);
	*held(t, group) -= pages;
}

static void move(unsigned t, uint32_t from, uint32_t to, int64_t pages)
{
	mt_move_charge(&session, task(t), from, MT_HEAP, to, MT_ANON, pages);
	*held(t, from) -= pages;
	*held(t, to) += pages;
}

static void attach(unsigned t, uint32_t process)
{
	mt_task_attach(&session, task(t), process, 10 + t);
}

/* A task without a slot. */
static void attach_loose(unsigned t, uint32_t process)
{
	memset(task(t), 0, sizeof(*task(t)));
	task(t)->process = process + 1;
}

static void run_audit(struct mt_audit_scratch *in)
{
	int64_t pages;

	if (mt_audit(&session, in, &pages) == MT_AUDIT_DONE)
		world.audited = true;
}

/* As an observer does who sees a process, or its reaper, dead. */
static void reap_the_dead(void)
{
	for (uint32_t i = 0; i < mt_table_high(&session, MT_PROCESSES); i++) {
		uint64_t state = load_acquire(&session.processes[i].state);

		if (STATE(state) != MT_PROC_FREE &&
		    il_kill_0((int)PID(state)) == -ESRCH)
			mt_process_reap(&session, i, state, MT_ENDED_EXITED);
	}
}

/* Save or restore all that is in use of the segment. */
static void copy_state(bool save)
{
	struct mt_header *header = session.header;

	for (int t = 0; t < MT_NR_TABLES; t++) {
		struct mt_table *table = &header->tables[t];
		size_t size = (size_t)table->stride * table->capacity;
		char *at = (char *)header + table->offset;

		if (save)
			ck_assert_uint_le(size, sizeof(start.tables[t]));
		memcpy(save ? start.tables[t] : at, save ? at : start.tables[t],
		       size);
	}
	if (save) {
		memcpy(start.header, header, sizeof(*header));
		start.world = world;
	} else {
		memcpy(header, start.header, sizeof(*header));
		world = start.world;
		now_ns = 0;
	}
}

static void restore(void)
{
	copy_state(false);
}

/* Plain loads, which are no steps: it is done after every store. */
static int64_t usage(uint32_t group)
{
	return atomic_load(&session.groups[group].usage);
}

static int64_t sum_of(const _Atomic uint64_t *words)
{
	int64_t sum = 0;

	for (int k = 0; k < MT_NR_KINDS; k++) {
		uint64_t word = atomic_load(&words[k]);

		sum += mt_word_used(word) + mt_word_stock(word);
	}
	return sum;
}

static void sum_up(int64_t *sums)
{
	uint32_t high = mt_table_high(&session, MT_LINES);

	memset(sums, 0, GROUPS * sizeof(*sums));
	for (uint32_t i = 0; i < high; i++) {
		struct mt_line *line = &session.lines[i];
		uint64_t ident = atomic_load(&line->ident);

		if (ident)
			sums[mt_line_group(ident)] += sum_of(line->word);
	}
	sums[a] += sums[b] + sums[s];
	sums[MT_ROOT] += sums[a];
	for (uint32_t i = 0; i < PROCESSES; i++)
		sums[MT_ROOT] += sum_of(session.processes[i].word);
}

static int64_t max_of(uint32_t group)
{
	return atomic_load(&session.groups[group].max);
}

static void check(void)
{
	int64_t sums[GROUPS];

	sum_up(sums);
	for (uint32_t g = 0; g < GROUPS; g++) {
		il_expect(usage(g), >=, sums[g], session.groups[g].name);
		if (limited)
			il_expect(sums[g], <=, max_of(g), "committed");
	}
}

/* The counters are the sums, and the claims' sums are the claims. */
static void expect_exact(const char *when)
{
	int64_t min[GROUPS] = { 0 };
	int64_t low[GROUPS] = { 0 };
	int64_t sums[GROUPS];

	sum_up(sums);
	for (uint32_t g = 0; g < GROUPS; g++) {
		struct mt_group *group = &session.groups[g];

		il_expect(usage(g), ==, sums[g], when);
		il_expect(usage(g), <=, max_of(g), "limit");
		il_expect(load_relaxed(&group->underflows), ==, 0, "under");
		if (g == MT_ROOT)
			continue;
		min[load_relaxed(&group->parent)] +=
			load_relaxed(&group->min_usage);
		low[load_relaxed(&group->parent)] +=
			load_relaxed(&group->low_usage);
	}
	for (uint32_t g = 0; g < GROUPS; g++) {
		struct mt_group *group = &session.groups[g];

		il_expect(load_relaxed(&group->children_min_usage), ==, min[g],
			  "min");
		il_expect(load_relaxed(&group->children_low_usage), ==, low[g],
			  "low");
	}
}

/* What a process holds in a group. */
static int64_t used_by(uint32_t process, uint32_t group)
{
	int64_t pages = 0;

	for (uint32_t i = 0; i < mt_table_high(&session, MT_LINES); i++) {
		struct mt_line *line = &session.lines[i];
		uint64_t ident = load_relaxed(&line->ident);

		if (!ident || mt_line_process(ident) != process ||
		    mt_line_group(ident) != group)
			continue;
		for (int k = 0; k < MT_NR_KINDS; k++)
			pages += mt_word_used(load_relaxed(&line->word[k]));
	}
	for (int k = 0; group == MT_ROOT && k < MT_NR_KINDS; k++)
		pages += mt_word_used(
			load_relaxed(&session.processes[process].word[k]));
	return pages;
}

static void expect_held(void)
{
	for (uint32_t p = 0; p < mt_table_high(&session, MT_PROCESSES); p++) {
		uint64_t state = load_relaxed(&session.processes[p].state);

		if (il_is_dead(p))
			il_expect((long long)STATE(state), ==, MT_PROC_FREE,
				  "not reaped");
		for (uint32_t g = 0; g < GROUPS; g++)
			il_expect(used_by(p, g), ==,
				  il_is_dead(p) ? 0 : world.held[p][g], "held");
	}
}

static void verify(void)
{
	int64_t pages;

	if (il.deaths == il.plan->deaths && (world.audited || !drifted))
		expect_exact("without a death");
	reap_the_dead();
	if (mt_audit(&session, &scratch[2], &pages) != MT_AUDIT_DONE)
		il_fail("no audit");
	il_look();
	expect_exact("after an audit");
	expect_held();
	il_expect(load_relaxed(&session.header->fallbacks), ==, 0, "fallback");
}

static void setup_world(void)
{
	struct mt_segment_config config = {
		.batch = BATCH,
		.capacity = { GROUPS, PROCESSES, TASKS + 1, 12, 4, 1, 1, 1 },
	};

	session_open(&config);
	memset(&world, 0, sizeof(world));
	limited = true;
	drifted = false;
	ck_assert_int_eq(
		mt_group_make_path(&session, 0, "/a/b", MT_GROUP_KEEP, &b), 0);
	ck_assert_int_eq(
		mt_group_make_path(&session, 0, "/a/s", MT_GROUP_KEEP, &s), 0);
	a = mt_group_find(&session, "/a");
	for (uint32_t p = 0; p < PROCESSES; p++)
		ck_assert_uint_eq(join_as(IL_PID + p, 0), p);
}

static void explore(struct il_plan plan, unsigned long at_least)
{
	il.plan = NULL;
	plan.base = session.header;
	ck_assert_uint_le(session.size, IL_WORDS * 4);
	plan.reset = restore;
	plan.check = check;
	plan.verify = verify;
	copy_state(true);
	ck_assert_uint_ge(il_explore(&plan), at_least);
}

/* What the actors do. */

static void drain_a(void)
{
	mt_drain(&session, task(1), a);
}

static void audit_all(void)
{
	run_audit(&scratch[0]);
}

static void audit_too(void)
{
	run_audit(&scratch[1]);
}

static void take_3(void)
{
	take(0, b, 3);
}

static void take_3_too(void)
{
	take(1, b, 3);
}

static void force_3(void)
{
	mt_charge_forced(&session, task(0), b, MT_HEAP, 3);
	*held(0, b) += 3;
}

static void take_and_give(void)
{
	take(0, b, 3);
	give(0, b, 2);
}

static void give_and_take(void)
{
	give(0, b, 5);
	take(0, b, 5);
}

static void exit_at_once(void)
{
}

static void take_1_then_2(void)
{
	take(0, b, 1);
	take(0, b, 2);
}

static void give_3(void)
{
	give(0, b, 3);
}

static void give_5(void)
{
	give(0, b, 5);
}

static void second_takes_2(void)
{
	take(2, b, 2);
}

static void second_gives_5(void)
{
	give(2, b, 5);
}

static void leave(void)
{
	mt_task_detach(&session, task(0));
}

static void leave_and_come_back(void)
{
	mt_task_detach(&session, task(0));
	attach(3, 0);
	take(3, s, 1);
}

static void move_to_s(void)
{
	move(0, b, s, 3);
}

static void limit_a_to_6(void)
{
	mt_counter_set_max(&session, a, 6);
}

/* One of them gets a batch, and the other what is left of it by a drain. */
START_TEST(charges_below_one_limit)
{
	struct il_plan plan = {
		.name = "charge, charge",
		.actors = { { .run = take_3, .process = 0, .dies = true },
			    { .run = take_3_too, .process = 1, .dies = true } },
		.preemptions = 2,
		.deaths = 1,
	};

	attach(0, 0);
	attach(1, 1);
	mt_counter_force_max(&session, a, 6);
	explore(plan, 2000);
}
END_TEST

START_TEST(charges_where_there_is_room_for_one)
{
	struct il_plan plan = {
		.name = "charge, charge, refused",
		.actors = { { .run = take_3, .process = 0, .dies = true },
			    { .run = take_3_too, .process = 1, .dies = true } },
		.preemptions = 2,
		.deaths = 1,
	};

	attach(0, 0);
	attach(1, 1);
	/* Each has a line, without a stock. */
	take(0, b, 4);
	take(1, b, 4);
	mt_counter_force_max(&session, a, 11);
	explore(plan, 2000);
}
END_TEST

START_TEST(a_charge_while_the_limit_is_lowered)
{
	struct il_plan plan = {
		.name = "charge, charge, set max",
		.actors = { { .run = take_3, .process = 0 },
			    { .run = take_3_too, .process = 1 },
			    { .run = limit_a_to_6, .process = 2 } },
		.preemptions = 2,
	};

	/* A limit that is tried and taken back may be below what is held. */
	limited = false;
	attach(0, 0);
	attach(1, 1);
	mt_counter_force_max(&session, a, 100);
	explore(plan, 2000);
}
END_TEST

START_TEST(a_charge_and_its_stock_while_another_drains)
{
	struct il_plan plan = {
		.name = "charge, drain",
		.actors = { { .run = take_1_then_2,
			      .process = 0,
			      .dies = true },
			    { .run = drain_a, .process = 1, .dies = true } },
		.preemptions = 3,
		.deaths = 1,
	};

	attach(0, 0);
	attach(1, 1);
	take(0, b, 2);
	explore(plan, 2000);
}
END_TEST

START_TEST(a_forced_charge_while_another_drains)
{
	struct il_plan plan = {
		.name = "forced charge, drain",
		.actors = { { .run = force_3, .process = 0, .dies = true },
			    { .run = drain_a, .process = 1, .dies = true } },
		.preemptions = 2,
		.deaths = 2,
	};

	attach(0, 0);
	attach(1, 1);
	take(0, b, 2);
	explore(plan, 2000);
}
END_TEST

START_TEST(a_process_of_two_threads_dies_and_is_reaped)
{
	struct il_plan plan = {
		.name = "give, take, reap",
		.actors = { { .run = give_5, .process = 0, .dies = true },
			    { .run = second_takes_2, .process = 0 },
			    { .run = reap_the_dead,
			      .process = 2,
			      .dies = true,
			      .after = 1 } },
		.preemptions = 2,
		.deaths = 2,
	};

	attach(0, 0);
	attach(1, 1);
	attach(2, 0);
	/* Taken by the second, so that what the first gives is a debt. */
	take(2, b, 7);
	take(1, b, 1);
	explore(plan, 2000);
}
END_TEST

START_TEST(the_dead_are_reaped_while_others_charge_and_drain)
{
	struct il_plan plan = {
		.name = "take, reap, drain",
		.actors = { { .run = take_3,
			      .process = 0,
			      .dies = true,
			      .exits = true },
			    { .run = drain_a, .process = 1, .dies = true },
			    { .run = reap_the_dead,
			      .process = 2,
			      .after = 1 } },
		.preemptions = 2,
		.deaths = 1,
	};

	attach(0, 0);
	attach(1, 1);
	take(0, b, 2);
	take(1, b, 1);
	explore(plan, 2000);
}
END_TEST

START_TEST(two_reapers_of_whom_one_dies)
{
	struct il_plan plan = {
		.name = "give, take, reap, reap",
		.actors = { { .run = give_and_take,
			      .process = 0,
			      .dies = true,
			      .exits = true },
			    { .run = reap_the_dead,
			      .process = 1,
			      .dies = true,
			      .after = 1 },
			    { .run = reap_the_dead,
			      .process = 2,
			      .after = 1 } },
		.preemptions = 2,
		.deaths = 2,
	};

	attach(0, 0);
	take(0, b, 5);
	explore(plan, 2000);
}
END_TEST

/* A debt and a credit in the dead one's words, of one group. */
START_TEST(two_reapers_of_a_debt)
{
	struct il_plan plan = {
		.name = "give, reap, reap",
		.actors = { { .run = second_gives_5,
			      .process = 0,
			      .dies = true,
			      .exits = true },
			    { .run = reap_the_dead,
			      .process = 1,
			      .dies = true,
			      .after = 1 },
			    { .run = reap_the_dead,
			      .process = 2,
			      .dies = true,
			      .after = 1 } },
		.preemptions = 2,
		.deaths = 2,
	};

	attach(0, 0);
	attach(2, 0);
	take(0, b, 9);
	take(2, b, 1);
	explore(plan, 2000);
}
END_TEST

/* It gives what another process took, so that nothing settles its debt. */
START_TEST(two_reapers_of_a_debt_to_another)
{
	struct il_plan plan = {
		.name = "give another's, reap, reap",
		.actors = { { .run = give_5,
			      .process = 0,
			      .dies = true,
			      .exits = true },
			    { .run = reap_the_dead,
			      .process = 2,
			      .dies = true,
			      .after = 1 },
			    { .run = reap_the_dead,
			      .process = 3,
			      .after = 1 } },
		.preemptions = 2,
		.deaths = 2,
	};

	attach(0, 0);
	attach(1, 1);
	take(0, b, 1);
	take(1, b, 8);
	explore(plan, 2000);
}
END_TEST

START_TEST(a_line_is_claimed_while_its_owner_is_reaped)
{
	struct il_plan plan = {
		.name = "reap, take",
		.actors = { { .run = exit_at_once,
			      .process = 0,
			      .exits = true },
			    { .run = reap_the_dead,
			      .process = 2,
			      .dies = true,
			      .after = 1 },
			    { .run = take_3_too, .process = 1 } },
		.preemptions = 2,
		.deaths = 1,
	};

	attach(0, 0);
	attach(1, 1);
	take(0, b, 3);
	take(0, s, 5);
	store_relaxed(&session.header->tables[MT_LINES].hint, 0);
	explore(plan, 2000);
}
END_TEST

/* With a second thread, which may come to the same line, or without. */
static void plan_exit(const char *name, void (*second)(void))
{
	struct il_plan plan = {
		.name = name,
		.actors = { { .run = leave, .process = 0, .dies = true },
			    { .run = drain_a, .process = 1, .dies = !second },
			    { .run = second, .process = 0 } },
		.preemptions = 2,
		.deaths = 1,
	};

	explore(plan, 2000);
}

START_TEST(a_thread_ends_while_another_drains)
{
	attach(0, 0);
	attach(1, 1);
	attach(2, 0);
	take(0, b, 3);
	plan_exit("exit, drain, take", second_takes_2);
}
END_TEST

START_TEST(a_thread_ends_and_leaves_its_words_to_a_line)
{
	attach(0, 0);
	attach(1, 1);
	attach(2, 0);
	ck_assert(mt_task_ensure_line(&session, 0, b));
	take(0, b, 3);
	plan_exit("exit, drain, with an heir", NULL);
}
END_TEST

START_TEST(a_thread_ends_that_gave_more_than_it_took)
{
	attach(0, 0);
	attach(1, 1);
	attach(2, 0);
	ck_assert(mt_task_ensure_line(&session, 0, b));
	take(2, b, 9);
	take(0, b, 1);
	give(0, b, 5);
	plan_exit("exit of a debtor, drain", NULL);
}
END_TEST

/* The line it leaves is another group's when the drainer comes to it. */
START_TEST(a_line_changes_its_owner_under_a_drainer)
{
	struct il_plan plan = {
		.name = "exit, reuse, drain",
		.actors = { { .run = leave_and_come_back,
			      .process = 0,
			      .dies = true },
			    { .run = drain_a, .process = 1, .dies = true } },
		.preemptions = 2,
		.deaths = 1,
	};

	attach(0, 0);
	attach(1, 1);
	ck_assert(mt_task_ensure_line(&session, 0, b));
	take(0, b, 1);
	explore(plan, 2000);
}
END_TEST

static void seed_drift(void)
{
	fetch_add_relaxed(&session.groups[b].usage, 2);
	fetch_add_relaxed(&session.groups[a].usage, 2);
	fetch_add_relaxed(&session.groups[MT_ROOT].usage, 1);
	drifted = true;
}

START_TEST(an_audit_beside_charging)
{
	struct il_plan plan = {
		.name = "take, give, audit",
		.actors = { { .run = take_and_give,
			      .process = 0,
			      .dies = true },
			    { .run = audit_all,
			      .process = 1,
			      .dies = true,
			      .patience = 120 } },
		.preemptions = 2,
		.deaths = 1,
	};

	attach(0, 0);
	take(0, b, 4);
	seed_drift();
	explore(plan, 2000);
}
END_TEST

START_TEST(an_audit_beside_a_thread_that_ends)
{
	struct il_plan plan = {
		.name = "exit, audit",
		.actors = { { .run = leave, .process = 0, .dies = true },
			    { .run = audit_all,
			      .process = 1,
			      .dies = true,
			      .patience = 120 } },
		.preemptions = 2,
		.deaths = 1,
	};

	attach(0, 0);
	ck_assert(mt_task_ensure_line(&session, 0, b));
	take(0, b, 3);
	seed_drift();
	explore(plan, 2000);
}
END_TEST

START_TEST(an_audit_beside_a_drain)
{
	struct il_plan plan = {
		.name = "give, drain, audit",
		.actors = { { .run = give_3, .process = 0 },
			    { .run = drain_a, .process = 1, .dies = true },
			    { .run = audit_all,
			      .process = 2,
			      .dies = true,
			      .patience = 120 } },
		.preemptions = 2,
		.deaths = 1,
	};

	attach(0, 0);
	attach(1, 1);
	take(0, b, 6);
	take(0, b, 2);
	seed_drift();
	explore(plan, 2000);
}
END_TEST

START_TEST(two_audits_of_which_one_dies)
{
	struct il_plan plan = {
		.name = "take, audit, audit",
		.actors = { { .run = audit_all,
			      .process = 1,
			      .dies = true,
			      .patience = 120 },
			    { .run = audit_too, .process = 2, .patience = 120 },
			    { .run = take_3, .process = 0 } },
		.preemptions = 2,
		.deaths = 1,
	};

	attach(0, 0);
	seed_drift();
	explore(plan, 2000);
}
END_TEST

START_TEST(an_audit_beside_a_reaper)
{
	struct il_plan plan = {
		.name = "take, reap, audit",
		.actors = { { .run = take_3,
			      .process = 0,
			      .dies = true,
			      .exits = true },
			    { .run = reap_the_dead,
			      .process = 1,
			      .dies = true,
			      .after = 1 },
			    { .run = audit_all,
			      .process = 2,
			      .after = 1,
			      .patience = 120 } },
		.preemptions = 1,
		.deaths = 2,
	};

	attach(0, 0);
	take(0, b, 5);
	seed_drift();
	explore(plan, 2000);
}
END_TEST

/* Pages are never off both counters, nor is either below its words. */
START_TEST(a_move_beside_a_drain)
{
	struct il_plan plan = {
		.name = "move, drain",
		.actors = { { .run = move_to_s, .process = 0, .dies = true },
			    { .run = drain_a, .process = 1, .dies = true } },
		.preemptions = 3,
		.deaths = 2,
	};

	attach(0, 0);
	attach(1, 1);
	take(0, b, 3);
	take(0, s, 1);
	explore(plan, 2000);
}
END_TEST

START_TEST(claims_are_published_by_two)
{
	struct il_plan plan = {
		.name = "claims",
		.actors = { { .run = take_and_give,
			      .process = 0,
			      .dies = true },
			    { .run = take_3_too, .process = 1, .dies = true } },
		.preemptions = 2,
		.deaths = 1,
	};

	attach(0, 0);
	attach(1, 1);
	mt_counter_set_min(&session, b, 12);
	mt_counter_set_low(&session, a, 10);
	explore(plan, 2000);
}
END_TEST

START_TEST(claims_are_published_beside_an_audit)
{
	struct il_plan plan = {
		.name = "claims, audit",
		.actors = { { .run = take_and_give, .process = 0 },
			    { .run = audit_all,
			      .process = 1,
			      .patience = 120 } },
		.preemptions = 3,
	};

	attach(0, 0);
	mt_counter_set_min(&session, b, 12);
	mt_counter_set_low(&session, a, 10);
	explore(plan, 1000);
}
END_TEST

/* Its pages are in the process's line, and its operations counted there. */
START_TEST(a_thread_without_a_slot)
{
	struct il_plan plan = {
		.name = "without a slot, audit",
		.actors = { { .run = take_3, .process = 0, .dies = true },
			    { .run = second_takes_2, .process = 0 },
			    { .run = audit_all,
			      .process = 1,
			      .patience = 120 } },
		.preemptions = 1,
		.deaths = 1,
	};

	attach_loose(0, 0);
	attach_loose(2, 0);
	take(0, b, 1);
	explore(plan, 2000);
}
END_TEST

static void handler_takes_and_gives(void)
{
	take(0, b, 2);
	give(0, b, 1);
}

START_TEST(a_signal_handler_inside_an_operation)
{
	struct il_plan plan = {
		.name = "handler, drain",
		.actors = { { .run = take_and_give,
			      .process = 0,
			      .dies = true },
			    { .run = handler_takes_and_gives,
			      .process = 0,
			      .handler = 1 },
			    { .run = drain_a, .process = 1 } },
		.preemptions = 2,
		.deaths = 1,
	};

	attach(0, 0);
	attach(1, 1);
	take(0, b, 1);
	explore(plan, 2000);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("interleavings");

	/* A sanitizer knows no stack but a thread's, and less of the dead. */
	if (SANITIZED)
		return EXIT_SUCCESS;
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup_world, teardown);
	tcase_add_test(tc, charges_below_one_limit);
	tcase_add_test(tc, charges_where_there_is_room_for_one);
	tcase_add_test(tc, a_charge_while_the_limit_is_lowered);
	tcase_add_test(tc, a_charge_and_its_stock_while_another_drains);
	tcase_add_test(tc, a_forced_charge_while_another_drains);
	tcase_add_test(tc, a_process_of_two_threads_dies_and_is_reaped);
	tcase_add_test(tc, the_dead_are_reaped_while_others_charge_and_drain);
	tcase_add_test(tc, two_reapers_of_whom_one_dies);
	tcase_add_test(tc, two_reapers_of_a_debt);
	tcase_add_test(tc, two_reapers_of_a_debt_to_another);
	tcase_add_test(tc, a_line_is_claimed_while_its_owner_is_reaped);
	tcase_add_test(tc, a_thread_ends_while_another_drains);
	tcase_add_test(tc, a_thread_ends_and_leaves_its_words_to_a_line);
	tcase_add_test(tc, a_thread_ends_that_gave_more_than_it_took);
	tcase_add_test(tc, a_line_changes_its_owner_under_a_drainer);
	tcase_add_test(tc, an_audit_beside_charging);
	tcase_add_test(tc, an_audit_beside_a_thread_that_ends);
	tcase_add_test(tc, an_audit_beside_a_drain);
	tcase_add_test(tc, two_audits_of_which_one_dies);
	tcase_add_test(tc, an_audit_beside_a_reaper);
	tcase_add_test(tc, a_move_beside_a_drain);
	tcase_add_test(tc, claims_are_published_by_two);
	tcase_add_test(tc, claims_are_published_beside_an_audit);
	tcase_add_test(tc, a_thread_without_a_slot);
	tcase_add_test(tc, a_signal_handler_inside_an_operation);
	return run_case(tc, "interleavings");
}
