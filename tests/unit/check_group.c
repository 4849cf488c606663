/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>

#include "core/group.h"
#include "core/process.h"
#include "tests/unit/session.h"

static uint32_t make_path(const char *path)
{
	uint32_t group = MT_NONE;

	ck_assert_int_eq(mt_group_make_path(&session, MT_ROOT, path, 0, &group),
			 0);
	return group;
}

static uint64_t ident_of(uint32_t group)
{
	return load_seq_cst(&session.groups[group].ident);
}

/* Leave a record as a process that died, or stopped, in the middle would. */
static void leave_in_state(uint32_t group, uint64_t state)
{
	store_seq_cst(&session.groups[group].ident,
		      (ident_of(group) & ~UINT64_C(0xf)) | state);
}

static unsigned nr_live_named(const char *name)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < mt_table_high(&session, MT_GROUPS); i++) {
		if (mt_group_is_live(&session, i) &&
		    strcmp(session.groups[i].name, name) == 0)
			n++;
	}
	return n;
}

static unsigned nr_in_use(void)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < session.header->tables[MT_GROUPS].capacity;
	     i++)
		n += (ident_of(i) & 0xf) != MT_GROUP_FREE;
	return n;
}

static const char *path_of(uint32_t group)
{
	static char path[MT_DEPTH_MAX * MT_NAME_MAX];

	mt_group_path(&session, group, path, sizeof(path));
	return path;
}

START_TEST(a_path_makes_what_is_missing_and_finds_what_is_there)
{
	uint32_t deep = make_path("/a/b/c");
	uint32_t sibling = make_path("/a/b/d");

	ck_assert_str_eq(path_of(deep), "/a/b/c");
	ck_assert_uint_eq(make_path("/a/b/c"), deep);
	ck_assert_uint_eq(make_path("//a///b/c/"), deep);
	ck_assert_uint_eq(mt_group_find(&session, "/a/b/c"), deep);
	ck_assert_uint_eq(load_relaxed(&session.groups[deep].parent),
			  load_relaxed(&session.groups[sibling].parent));
	ck_assert_uint_eq(nr_live_named("b"), 1);
	ck_assert_uint_eq(mt_group_find(&session, "/a/b/x"), MT_NONE);
	ck_assert_uint_eq(mt_group_find(&session, "/c"), MT_NONE);
	ck_assert_uint_eq(mt_group_find(&session, "a"), MT_NONE);
	ck_assert_uint_eq(mt_group_find(&session, "/"), MT_ROOT);
	ck_assert_str_eq(path_of(MT_ROOT), "/");
}
END_TEST

START_TEST(a_relative_path_starts_at_its_base)
{
	uint32_t base = make_path("/a");
	uint32_t below;
	uint32_t same;

	ck_assert_int_eq(mt_group_make_path(&session, base, "x/y", 0, &below),
			 0);
	ck_assert_str_eq(path_of(below), "/a/x/y");
	ck_assert_int_eq(mt_group_make_path(&session, base, "", 0, &same), 0);
	ck_assert_uint_eq(same, base);
	ck_assert_int_eq(mt_group_make_path(&session, base, "/z", 0, &below),
			 0);
	ck_assert_str_eq(path_of(below), "/z");
}
END_TEST

START_TEST(a_new_group_is_empty_and_unlimited)
{
	uint32_t group = make_path("/a");
	uint32_t again;

	mt_counter_force_max(&session, group, 5);
	mt_counter_set_low(&session, group, 6);
	mt_counter_charge(&session, group, 4, NULL);
	mt_counter_uncharge(&session, group, 4, NULL);
	mt_group_event(&session, group, MT_EVENT_MAX);
	mt_group_retire(&session, group);

	again = make_path("/b");

	/* The same record, with nothing of its last life. */
	ck_assert_uint_eq(again, group);
	ck_assert_int_eq(load_relaxed(&session.groups[again].max),
			 MT_UNLIMITED);
	ck_assert_int_eq(load_relaxed(&session.groups[again].low), 0);
	ck_assert_int_eq(peak_of(again), 0);
	ck_assert_uint_eq(
		load_relaxed(&session.groups[again].events[MT_EVENT_MAX]), 0);
	ck_assert_int_eq(
		load_relaxed(&session.groups[MT_ROOT].children_low_usage), 0);
}
END_TEST

START_TEST(names_are_checked)
{
	char name[MT_NAME_MAX + 1];
	uint32_t group;

	static const char *const bad[] = { "",     ".",       "..",   "a/b",
					   "a\nb", "\x1b[2J", "a\x7f" };

	for (size_t i = 0; i < MT_ARRAY_SIZE(bad); i++)
		ck_assert_int_eq(
			mt_group_make(&session, MT_ROOT, bad[i], 0, &group),
			-EINVAL);
	memset(name, 'n', sizeof(name));
	name[MT_NAME_MAX] = '\0';
	ck_assert_int_eq(mt_group_make(&session, MT_ROOT, name, 0, &group),
			 -ENAMETOOLONG);
	name[MT_NAME_MAX - 1] = '\0';
	ck_assert_int_eq(mt_group_make(&session, MT_ROOT, name, 0, &group), 0);
	ck_assert_str_eq(session.groups[group].name, name);
	ck_assert_int_eq(mt_group_make(&session, MT_ROOT, "...", 0, &group), 0);
}
END_TEST

START_TEST(the_tree_is_no_deeper_than_sixteen_levels)
{
	char path[2 * MT_DEPTH_MAX + 1] = "";
	uint32_t group;

	/* "/" is one of them: fifteen below it. */
	for (int i = 0; i < MT_DEPTH_MAX - 1; i++)
		strcat(path, "/x");
	group = make_path(path);
	ck_assert_str_eq(path_of(group), path);

	strcat(path, "/x");
	ck_assert_int_eq(mt_group_make_path(&session, MT_ROOT, path, 0, &group),
			 -E2BIG);

	/* The deepest that could be had is given all the same. */
	path[strlen(path) - 2] = '\0';
	ck_assert_str_eq(path_of(group), path);
	/* And a charge there still reaches "/". */
	mt_counter_charge(&session, group, 3, NULL);
	ck_assert_int_eq(usage_of(MT_ROOT), 3);
}
END_TEST

START_TEST(a_path_is_cut_to_the_buffer)
{
	uint32_t group = make_path("/abc/def");
	char buf[16];

	for (size_t size = 0; size <= sizeof(buf); size++) {
		size_t len;

		memset(buf, '#', sizeof(buf));
		len = mt_group_path(&session, group, buf, size);
		for (size_t i = size; i < sizeof(buf); i++)
			ck_assert_int_eq(buf[i], '#');
		if (size) {
			ck_assert_uint_eq(strlen(buf), len);
			ck_assert_int_eq(strncmp(buf, "/abc/def", len), 0);
		}
	}
	ck_assert_str_eq(buf, "/abc/def");
	mt_group_path(&session, MT_NONE, buf, sizeof(buf));
	ck_assert_ptr_nonnull(strchr(buf, '?'));
}
END_TEST

START_TEST(a_full_table_says_so_and_goes_on_when_one_is_free)
{
	struct mt_segment_config config = { 0 };
	uint32_t groups[5];
	uint32_t group;

	session_close();
	config.capacity[MT_GROUPS] = 4;
	session_open(&config);
	for (int i = 0; i < 3; i++) {
		char path[8];

		snprintf(path, sizeof(path), "/g%d", i);
		groups[i] = make_path(path);
	}

	ck_assert_int_eq(mt_group_make(&session, MT_ROOT, "h", 0, &group),
			 -ENOSPC);
	ck_assert_int_eq(
		mt_group_make_path(&session, MT_ROOT, "/g1/h", 0, &group),
		-ENOSPC);
	ck_assert_uint_eq(group, groups[1]);
	/* Those that are there are found all the same. */
	ck_assert_uint_eq(make_path("/g2"), groups[2]);

	mt_group_retire(&session, groups[1]);
	ck_assert_uint_eq(make_path("/h"), groups[1]);
}
END_TEST

START_TEST(a_group_in_use_is_not_retired)
{
	uint32_t group = make_path("/g");
	struct mt_task task;
	uint32_t process = join_self();
	uint32_t child;

	/* Pages. */
	mt_counter_charge(&session, group, 1, NULL);
	mt_group_retire(&session, group);
	ck_assert(mt_group_is_live(&session, group));
	mt_counter_uncharge(&session, group, 1, NULL);

	/* A group below. */
	child = make_path("/g/child");
	mt_group_retire(&session, group);
	ck_assert(mt_group_is_live(&session, group));
	store_relaxed(&session.groups[child].flags, MT_GROUP_KEEP);
	mt_group_retire(&session, child);
	ck_assert(mt_group_is_live(&session, child));
	store_relaxed(&session.groups[child].flags, 0);

	/* A process that calls it home. */
	store_seq_cst(&session.processes[process].home, child);
	mt_group_retire(&session, child);
	ck_assert(mt_group_is_live(&session, child));
	store_seq_cst(&session.processes[process].home, MT_NONE);

	/* A thread that may charge there. */
	mt_task_attach(&session, &task, process, 1);
	mt_charge_forced(&session, &task, child, MT_HEAP, 5);
	mt_uncharge(&session, &task, child, MT_HEAP, 5);
	mt_drain(&session, &task, child);
	ck_assert_int_eq(usage_of(child), 0);
	mt_group_retire(&session, child);
	ck_assert(mt_group_is_live(&session, child));
	mt_process_reap(&session, process,
			load_relaxed(&session.processes[process].state),
			MT_ENDED_EXITED);

	/* Nothing of all that: it goes, and the empty one above it with it. */
	mt_group_retire(&session, child);
	ck_assert(!mt_group_is_live(&session, child));
	ck_assert(!mt_group_is_live(&session, group));
	ck_assert(mt_group_is_live(&session, MT_ROOT));
	ck_assert_uint_eq(nr_in_use(), 1);
}
END_TEST

START_TEST(the_root_is_never_retired)
{
	mt_group_retire(&session, MT_ROOT);
	mt_group_sweep(&session);
	mt_group_retire(&session, MT_NONE);
	ck_assert(mt_group_is_live(&session, MT_ROOT));
}
END_TEST

START_TEST(a_retired_groups_claims_leave_its_parents_sums)
{
	uint32_t parent = make_path("/p");
	uint32_t group = make_path("/p/g");

	mt_counter_set_low(&session, group, 10);
	mt_counter_charge(&session, group, 4, NULL);
	mt_counter_uncharge(&session, group, 4, NULL);
	/* Stale, as a race may leave it. */
	store_relaxed(&session.groups[group].low_usage, 4);
	store_relaxed(&session.groups[parent].children_low_usage, 4);
	store_relaxed(&session.groups[parent].flags, MT_GROUP_KEEP);

	mt_group_retire(&session, group);

	ck_assert(!mt_group_is_live(&session, group));
	ck_assert_int_eq(
		load_relaxed(&session.groups[parent].children_low_usage), 0);
}
END_TEST

START_TEST(a_child_of_a_group_that_has_gone_is_not_made)
{
	uint32_t gone = make_path("/g");
	uint32_t group = MT_ROOT;

	mt_group_retire(&session, gone);

	ck_assert_int_eq(mt_group_make(&session, gone, "child", 0, &group),
			 -ENOENT);
	ck_assert_int_eq(mt_group_make(&session, MT_NONE, "child", 0, &group),
			 -ENOENT);

	ck_assert_uint_eq(nr_in_use(), 1);
}
END_TEST

START_TEST(an_exclusive_name_that_is_there_is_used_again)
{
	uint32_t first = make_path("/sh.4711");
	uint32_t second;

	/* A process that execs itself while its old group has to stay. */
	store_relaxed(&session.groups[first].flags, MT_GROUP_KEEP);

	ck_assert_int_eq(mt_group_make(&session, MT_ROOT, "sh.4711",
				       MT_GROUP_EXCLUSIVE, &second),
			 0);

	ck_assert_uint_eq(second, first);
	ck_assert_uint_eq(nr_live_named("sh.4711"), 1);
}
END_TEST

START_TEST(a_candidate_whose_maker_died_is_made_live_by_whoever_needs_it)
{
	uint32_t group = make_path("/a");

	leave_in_state(group, MT_GROUP_CANDIDATE);

	ck_assert_uint_eq(make_path("/a"), group);
	ck_assert(mt_group_is_live(&session, group));
	ck_assert_uint_eq(nr_live_named("a"), 1);
}
END_TEST

START_TEST(a_group_whose_retirer_died_is_taken_back_by_whoever_needs_it)
{
	uint32_t group = make_path("/a");
	uint64_t ident;

	leave_in_state(group, MT_GROUP_RETIRING);
	ident = ident_of(group);

	ck_assert_uint_eq(make_path("/a"), group);
	ck_assert(mt_group_is_live(&session, group));
	ck_assert_uint_eq(nr_live_named("a"), 1);
	/* Was it only stopped, its next step fails: another generation. */
	ck_assert_uint_ne(ident_of(group) & ~UINT64_C(0xf),
			  ident & ~UINT64_C(0xf));
}
END_TEST

START_TEST(whoever_uses_a_group_that_is_being_retired_keeps_it)
{
	uint32_t group = make_path("/a");
	uint32_t process = join_self();

	leave_in_state(group, MT_GROUP_RETIRING);

	ck_assert(mt_task_ensure_line(&session, process, group));

	ck_assert(mt_group_is_live(&session, group));
	mt_group_retire(&session, group);
	ck_assert(mt_group_is_live(&session, group));
}
END_TEST

START_TEST(of_two_candidates_the_lower_wins_whoever_looks)
{
	uint32_t x = make_path("/x");
	uint32_t y = make_path("/y");
	uint32_t low = make_path("/same");
	uint32_t high;

	/* Three who make one name at once: one at "x" has looked already, one
	 * is a candidate below, one above. */
	leave_in_state(low, MT_GROUP_CLAIMED);
	high = make_path("/same");
	leave_in_state(low, MT_GROUP_CANDIDATE);
	leave_in_state(high, MT_GROUP_CANDIDATE);
	ck_assert_uint_lt(low, high);

	ck_assert_uint_eq(make_path("/same"), low);

	ck_assert_uint_eq(nr_live_named("same"), 1);
	ck_assert_uint_eq(ident_of(high) & 0xf, MT_GROUP_FREE);
	ck_assert(mt_group_is_live(&session, x));
	ck_assert(mt_group_is_live(&session, y));
}
END_TEST

START_TEST(of_a_live_group_and_a_candidate_the_live_one_stays)
{
	uint32_t low = make_path("/same");
	uint32_t high;

	leave_in_state(low, MT_GROUP_CLAIMED);
	high = make_path("/same");
	leave_in_state(low, MT_GROUP_CANDIDATE);

	/* The lower index would win among candidates; here it comes late. */
	ck_assert_uint_eq(make_path("/same"), high);

	ck_assert_uint_eq(nr_live_named("same"), 1);
}
END_TEST

START_TEST(a_sweep_frees_what_the_dead_left_half_done)
{
	uint32_t candidate = make_path("/p/candidate");
	uint32_t retiring = make_path("/q/retiring");
	uint32_t claimed = make_path("/claimed");
	uint32_t busy = make_path("/busy");
	pid_t child = fork();

	if (child == 0)
		_exit(0);
	waitpid(child, NULL, 0);
	leave_in_state(candidate, MT_GROUP_CANDIDATE);
	leave_in_state(retiring, MT_GROUP_RETIRING);
	/* Claimed by one that is dead, and by one that isn't. */
	store_seq_cst(&session.groups[claimed].ident,
		      MT_GROUP_CLAIMED | (uint64_t)child << 24);
	store_seq_cst(&session.groups[busy].ident,
		      MT_GROUP_CLAIMED | (uint64_t)getpid() << 24);

	mt_group_sweep(&session);
	mt_group_sweep(&session);

	ck_assert_uint_eq(ident_of(claimed) & 0xf, MT_GROUP_FREE);
	ck_assert_uint_eq(ident_of(busy) & 0xf, MT_GROUP_CLAIMED);
	/* "/", and the one that is being made. */
	ck_assert_uint_eq(nr_in_use(), 2);
}
END_TEST

START_TEST(events_count_at_the_group_and_above_it)
{
	uint32_t group = make_path("/a/b");
	uint32_t above = mt_group_find(&session, "/a");

	mt_group_event(&session, group, MT_EVENT_MAX);
	mt_group_event(&session, above, MT_EVENT_MAX);
	mt_group_event(&session, MT_NONE, MT_EVENT_MAX);

#define EVENTS(g, field) load_relaxed(&session.groups[g].field[MT_EVENT_MAX])
	ck_assert_uint_eq(EVENTS(group, events), 1);
	ck_assert_uint_eq(EVENTS(above, events), 2);
	ck_assert_uint_eq(EVENTS(MT_ROOT, events), 2);
	ck_assert_uint_eq(EVENTS(group, events_local), 1);
	ck_assert_uint_eq(EVENTS(above, events_local), 1);
	ck_assert_uint_eq(EVENTS(MT_ROOT, events_local), 0);
#undef EVENTS
}
END_TEST

#define NR_THREADS 4
/* They step together: under ThreadSanitizer, on few processors, slowly. */
#ifdef __SANITIZE_THREAD__
#define ROUNDS 60
#else
#define ROUNDS 1500
#endif

static pthread_barrier_t barrier;
static uint32_t made[NR_THREADS];

static void *make_the_same(void *arg)
{
	uint32_t *ret = arg;

	for (int i = 0; i < ROUNDS; i++) {
		pthread_barrier_wait(&barrier);
		*ret = make_path("/same");
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

START_TEST(of_threads_that_make_one_name_exactly_one_does)
{
	pthread_t threads[NR_THREADS];

	pthread_barrier_init(&barrier, NULL, NR_THREADS + 1);
	for (int t = 0; t < NR_THREADS; t++)
		pthread_create(&threads[t], NULL, make_the_same, &made[t]);
	for (int i = 0; i < ROUNDS; i++) {
		pthread_barrier_wait(&barrier);
		pthread_barrier_wait(&barrier);
		for (int t = 1; t < NR_THREADS; t++)
			ck_assert_uint_eq(made[t], made[0]);
		ck_assert_uint_eq(nr_live_named("same"), 1);
		ck_assert_uint_eq(nr_in_use(), 2);
		mt_group_retire(&session, made[0]);
		ck_assert_uint_eq(nr_in_use(), 1);
	}
	for (int t = 0; t < NR_THREADS; t++)
		pthread_join(threads[t], NULL);
	pthread_barrier_destroy(&barrier);
}
END_TEST

static void drop_lines(uint32_t process)
{
	for (uint32_t i = 0; i < mt_table_high(&session, MT_LINES); i++) {
		uint64_t ident = load_seq_cst(&session.lines[i].ident);

		if (ident && mt_line_process(ident) == process)
			store_seq_cst(&session.lines[i].ident, 0);
	}
}

static void *make_and_retire(void *arg)
{
	uint32_t process = *(uint32_t *)arg;
	_Atomic uint32_t *home = &session.processes[process].home;
	char path[16];

	for (int i = 0; i < 4 * ROUNDS; i++) {
		uint32_t group = MT_NONE;
		uint32_t last;

		/* As mt_process_make_home() does: use it, then look whether
		 * it is still the one of that name. */
		do {
			last = group;
			store_seq_cst(home, group);
			ck_assert_int_eq(mt_group_make_path(&session, MT_ROOT,
							    "/p/q", 0, &group),
					 0);
		} while (group != last);

		/* Used, neither it nor what it hangs on goes. */
		mt_group_path(&session, group, path, sizeof(path));
		ck_assert_str_eq(path, "/p/q");
		ck_assert(mt_task_ensure_line(&session, process, group));
		ck_assert_uint_ge(
			ident_of(load_relaxed(&session.groups[group].parent)) &
				0xf,
			MT_GROUP_LIVE);
		drop_lines(process);
		store_seq_cst(home, MT_NONE);
		mt_group_retire(&session, group);
	}
	return NULL;
}

START_TEST(a_group_that_is_used_is_there_while_others_retire_it)
{
	uint32_t processes[NR_THREADS];
	pthread_t threads[NR_THREADS];

	for (int t = 0; t < NR_THREADS; t++) {
		processes[t] = join_as((uint32_t)t + 1, 0);
		pthread_create(&threads[t], NULL, make_and_retire,
			       &processes[t]);
	}
	for (int t = 0; t < NR_THREADS; t++)
		pthread_join(threads[t], NULL);

	mt_group_sweep(&session);
	ck_assert_uint_eq(nr_in_use(), 1);
}
END_TEST

START_TEST(a_pattern_matches_within_a_component)
{
	static const struct {
		const char *path;
		const char *pattern;
		bool matches;
	} cases[] = {
		{ "/cc1.4711", "/cc1.*", true },
		{ "/cc1.4711", "/cc1*", true },
		{ "/cc1plus.4711", "/cc1.*", false },
		{ "/cc1.4711/x", "/cc1.*", false },
		{ "/cc1.4711/x", "/*/x", true },
		{ "/cc1.4711/x", "/cc1.*/?", true },
		{ "/a/b/c", "/*/c", false },
		{ "/a/b/c", "/*/*/*", true },
		{ "/a/b/c", "/*", false },
		{ "/aXbXc", "/a*X*c", true },
		{ "/aXbX", "/a*X*c", false },
		{ "/aaab", "/*ab", true },
		{ "/a", "/a*", true },
		{ "/a", "/a?", false },
		{ "/a/", "/a?", false },
		{ "/", "/", true },
		{ "/", "/*", true },
		{ "/a", "/", false },
		{ "/[x]", "/[x]", true },
		{ "/x", "/[x]", false },
	};

	for (size_t i = 0; i < MT_ARRAY_SIZE(cases); i++)
		ck_assert_msg(
			mt_group_matches(cases[i].path, cases[i].pattern) ==
				cases[i].matches,
			"%s and %s", cases[i].path, cases[i].pattern);
}
END_TEST

static const struct mt_rule_limits unset = { MT_RULE_UNSET, MT_RULE_UNSET,
					     MT_RULE_UNSET, MT_RULE_UNSET };

START_TEST(a_rule_is_for_groups_that_are_there_and_for_those_to_come)
{
	struct mt_rule_limits limits = unset;
	uint32_t before = make_path("/cc1.1");
	uint32_t other = make_path("/ld.1");
	uint32_t after;

	limits.max = 100;
	limits.low = 7;
	ck_assert_int_eq(mt_group_add_rule(&session, "/cc1.*", &limits), 0);
	limits = unset;
	limits.max = 50;
	ck_assert_int_eq(mt_group_add_rule(&session, "/cc1.2*", &limits), 0);
	after = make_path("/cc1.22/x");
	ck_assert_int_eq(load_relaxed(&session.groups[before].max), 100);
	ck_assert_int_eq(load_relaxed(&session.groups[before].low), 7);
	ck_assert_int_eq(load_relaxed(&session.groups[before].min), 0);
	ck_assert_int_eq(load_relaxed(&session.groups[other].max),
			 MT_UNLIMITED);
	ck_assert_int_eq(load_relaxed(&session.groups[after].max),
			 MT_UNLIMITED);
	after = mt_group_find(&session, "/cc1.22");
	/* The last that says something is right. */
	ck_assert_int_eq(load_relaxed(&session.groups[after].max), 50);
	ck_assert_int_eq(load_relaxed(&session.groups[after].low), 7);
}
END_TEST

START_TEST(rules_that_make_no_sense_or_find_no_room_are_refused)
{
	char text[200] = "/";

	memset(text + 1, 'a', sizeof(text) - 2);
	ck_assert_int_eq(mt_group_add_rule(&session, text, &unset), -EINVAL);
	ck_assert_int_eq(mt_group_add_rule(&session, "a", &unset), -EINVAL);
	ck_assert_int_eq(mt_group_add_rule(&session, "", &unset), -EINVAL);
	text[127] = '\0';
	ck_assert_int_eq(mt_group_add_rule(&session, text, &unset), 0);
	for (uint32_t i = 1; i < session.header->tables[MT_RULES].capacity; i++)
		ck_assert_int_eq(mt_group_add_rule(&session, "/a", &unset), 0);
	ck_assert_int_eq(mt_group_add_rule(&session, "/a", &unset), -ENOSPC);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("group");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_pattern_matches_within_a_component);
	tcase_add_test(
		tc, a_rule_is_for_groups_that_are_there_and_for_those_to_come);
	tcase_add_test(tc,
		       rules_that_make_no_sense_or_find_no_room_are_refused);
	tcase_add_test(tc,
		       a_path_makes_what_is_missing_and_finds_what_is_there);
	tcase_add_test(tc, a_relative_path_starts_at_its_base);
	tcase_add_test(tc, a_new_group_is_empty_and_unlimited);
	tcase_add_test(tc, names_are_checked);
	tcase_add_test(tc, the_tree_is_no_deeper_than_sixteen_levels);
	tcase_add_test(tc, a_path_is_cut_to_the_buffer);
	tcase_add_test(tc, a_full_table_says_so_and_goes_on_when_one_is_free);
	tcase_add_test(tc, a_group_in_use_is_not_retired);
	tcase_add_test(tc, the_root_is_never_retired);
	tcase_add_test(tc, a_retired_groups_claims_leave_its_parents_sums);
	tcase_add_test(tc, a_child_of_a_group_that_has_gone_is_not_made);
	tcase_add_test(tc, an_exclusive_name_that_is_there_is_used_again);
	tcase_add_test(
		tc,
		a_candidate_whose_maker_died_is_made_live_by_whoever_needs_it);
	tcase_add_test(
		tc,
		a_group_whose_retirer_died_is_taken_back_by_whoever_needs_it);
	tcase_add_test(tc, whoever_uses_a_group_that_is_being_retired_keeps_it);
	tcase_add_test(tc, of_two_candidates_the_lower_wins_whoever_looks);
	tcase_add_test(tc, of_a_live_group_and_a_candidate_the_live_one_stays);
	tcase_add_test(tc, a_sweep_frees_what_the_dead_left_half_done);
	tcase_add_test(tc, events_count_at_the_group_and_above_it);
	tcase_add_test(tc, of_threads_that_make_one_name_exactly_one_does);
	tcase_add_test(tc,
		       a_group_that_is_used_is_there_while_others_retire_it);
	return run_case(tc, "group");
}
