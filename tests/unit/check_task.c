/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <signal.h>

#include "core/audit.h"
#include "core/group.h"
#include "core/process.h"
#include "tests/unit/session.h"

/*
 * One process with two tasks, in this tree; the batch is 64 pages:
 *
 *	"/" --- a --- b
 *		 \--- s
 */
static uint32_t process;
static uint32_t a;
static uint32_t b;
static uint32_t s;
static struct mt_task one;
static struct mt_task two;

static void setup_tasks(void)
{
	setup();
	process = join_self();
	ck_assert_int_eq(mt_group_make_path(&session, 0, "/a/b", 0, &b), 0);
	ck_assert_int_eq(mt_group_make_path(&session, 0, "/a/s", 0, &s), 0);
	a = mt_group_find(&session, "/a");
	mt_task_attach(&session, &one, process, 1);
	mt_task_attach(&session, &two, process, 2);
}

static bool charge(struct mt_task *task, uint32_t group, int64_t pages)
{
	uint32_t nobody;

	return mt_charge(&session, task, group, MT_HEAP, pages, &nobody);
}

static void uncharge(struct mt_task *task, uint32_t group, int64_t pages)
{
	mt_uncharge(&session, task, group, MT_HEAP, pages);
}

static int64_t stock_of(struct mt_task *task, uint32_t group)
{
	return mt_task_stock(&session, task, group);
}

static int64_t charged(void)
{
	return mt_process_charged(&session, process);
}

static void reap_self(void)
{
	ck_assert(
		mt_process_reap(&session, process,
				load_relaxed(&session.processes[process].state),
				MT_ENDED_EXITED));
}

/* Used and stock of all lines of @group itself, and how many there are. */
static int64_t words_of(uint32_t group, unsigned *ret_lines)
{
	int64_t pages = 0;

	*ret_lines = 0;
	for (uint32_t i = 0; i < mt_table_high(&session, MT_LINES); i++) {
		struct mt_line *line = &session.lines[i];
		uint64_t ident = load_relaxed(&line->ident);

		if (!ident || mt_line_group(ident) != group)
			continue;
		++*ret_lines;
		for (int k = 0; k < MT_NR_KINDS; k++) {
			uint64_t word = load_relaxed(&line->word[k]);

			pages += mt_word_used(word) + mt_word_stock(word);
		}
	}
	return pages;
}

static int64_t own_words(void)
{
	int64_t pages = 0;

	for (uint32_t p = 0; p < mt_table_high(&session, MT_PROCESSES); p++) {
		for (int k = 0; k < MT_NR_KINDS; k++)
			pages += mt_word_used(
				load_relaxed(&session.processes[p].word[k]));
	}
	return pages;
}

/* At rest every counter is the sum of the words at and below it. */
static void expect_conserved(void)
{
	unsigned n;
	int64_t at_b = words_of(b, &n);
	int64_t at_s = words_of(s, &n);
	int64_t at_a = words_of(a, &n) + at_b + at_s;

	ck_assert_int_eq(usage_of(b), at_b);
	ck_assert_int_eq(usage_of(s), at_s);
	ck_assert_int_eq(usage_of(a), at_a);
	ck_assert_int_eq(usage_of(MT_ROOT),
			 at_a + words_of(MT_ROOT, &n) + own_words());
	ck_assert_int_eq(mt_audit_drift(&session), 0);
}

START_TEST(a_word_keeps_its_parts_apart)
{
	static const int64_t used[] = { 0, 1, -1, INT64_C(549755813887),
					-INT64_C(549755813888) };
	static const int64_t stock[] = { 0, 1, MT_BATCH_MAX, 0x1ffff };

	for (size_t i = 0; i < MT_ARRAY_SIZE(used); i++) {
		for (size_t k = 0; k < MT_ARRAY_SIZE(stock); k++) {
			uint64_t word = mt_word_with((uint64_t)0x55 << 17,
						     used[i], stock[k]);

			ck_assert_int_eq(mt_word_used(word), used[i]);
			ck_assert_int_eq(mt_word_stock(word), stock[k]);
			ck_assert_uint_eq(word >> 17 & 0x7f, 0x55);
		}
	}
}
END_TEST

START_TEST(a_lines_identity_keeps_its_parts_apart)
{
	uint64_t ident = mt_line_ident(0xffff0, 0xfffe0, 0xffff1);

	ck_assert_uint_eq(mt_line_process(ident), 0xffff0);
	ck_assert_uint_eq(mt_line_thread(ident), 0xfffe0);
	ck_assert_uint_eq(mt_line_group(ident), 0xffff1);
	ident = mt_line_ident(3, MT_NONE, 4);
	ck_assert_uint_eq(mt_line_thread(ident), MT_NONE);
	ck_assert_uint_ne(mt_line_ident(0, MT_NONE, 0), 0);
}
END_TEST

START_TEST(a_small_charge_takes_a_batch_and_the_next_come_out_of_it)
{
	ck_assert(charge(&one, b, 1));
	ck_assert_int_eq(usage_of(b), 64);
	ck_assert_int_eq(stock_of(&one, b), 63);
	ck_assert_int_eq(charged(), 1);

	for (int i = 0; i < 63; i++)
		ck_assert(charge(&one, b, 1));
	ck_assert_int_eq(usage_of(b), 64);
	ck_assert_int_eq(stock_of(&one, b), 0);
	ck_assert_int_eq(charged(), 64);

	ck_assert(charge(&one, b, 1));
	ck_assert_int_eq(usage_of(MT_ROOT), 128);
	expect_conserved();
}
END_TEST

START_TEST(a_charge_of_a_batch_or_more_is_exact)
{
	ck_assert(charge(&one, b, 64));
	ck_assert_int_eq(usage_of(b), 64);
	ck_assert(charge(&one, b, 1000));
	ck_assert_int_eq(usage_of(b), 1064);
	ck_assert_int_eq(stock_of(&one, b), 0);
	expect_conserved();
}
END_TEST

START_TEST(pages_given_back_fill_the_stock_up_to_a_batch)
{
	ck_assert(charge(&one, b, 200));

	uncharge(&one, b, 30);
	uncharge(&one, b, 34);
	/* 64 in stock: still charged. */
	ck_assert_int_eq(stock_of(&one, b), 64);
	ck_assert_int_eq(usage_of(b), 200);
	ck_assert_int_eq(charged(), 136);

	/* One more is above the batch: the whole stock goes, and the one. */
	uncharge(&one, b, 1);
	ck_assert_int_eq(stock_of(&one, b), 0);
	ck_assert_int_eq(usage_of(b), 135);

	/* More than a batch at once goes past the stock. */
	uncharge(&one, b, 65);
	ck_assert_int_eq(usage_of(b), 70);
	ck_assert_int_eq(charged(), 70);
	expect_conserved();
}
END_TEST

START_TEST(a_stock_serves_its_own_kind_and_group)
{
	uint32_t nobody;

	ck_assert(charge(&one, b, 1));
	ck_assert(mt_charge(&session, &one, b, MT_ANON, 1, &nobody));
	ck_assert(charge(&one, s, 1));

	/* Three stocks of 63. */
	ck_assert_int_eq(usage_of(b), 128);
	ck_assert_int_eq(usage_of(s), 64);
	ck_assert_int_eq(mt_process_charged_kind(&session, process, MT_ANON),
			 1);
	ck_assert_int_eq(mt_process_charged_kind(&session, process, MT_HEAP),
			 2);
	expect_conserved();
}
END_TEST

START_TEST(near_a_limit_a_charge_is_exact)
{
	mt_counter_force_max(&session, a, 70);
	ck_assert(charge(&one, b, 64));

	/* No room for a batch: 64 + 64. */
	ck_assert(charge(&one, b, 5));

	ck_assert_int_eq(usage_of(b), 69);
	ck_assert_int_eq(stock_of(&one, b), 0);
	/* What there is room for is no batch: none was tried. */
	ck_assert_uint_eq(load_relaxed(&session.groups[a].failcnt), 0);
	ck_assert_int_eq(peak_of(b), 69);
}
END_TEST

START_TEST(near_a_limit_batches_shrink)
{
	uint32_t threads = mt_table_high(&session, MT_THREADS) + 30;
	int64_t batch = 1200 / 2 / threads;

	ck_assert_int_lt(batch, 64);
	/* Plenty of room, at every level: a whole batch. */
	mt_counter_force_max(&session, a, 64 * 1000);
	ck_assert(charge(&one, b, 1));
	ck_assert_int_eq(stock_of(&one, b), 63);
	mt_drain(&session, &one, b);

	ck_assert_int_eq(load_relaxed(&session.groups[a].usage), 1);
	mt_counter_force_max(&session, a, 1201);
	mt_segment_raise_high(&session, MT_THREADS, threads - 1);
	ck_assert(charge(&one, b, 1));
	ck_assert_int_eq(stock_of(&one, b), batch - 1);
	/* The limit of a group beside it is no matter. */
	mt_counter_force_max(&session, s, 2);
	mt_counter_force_max(&session, a, MT_UNLIMITED);
	ck_assert(charge(&two, b, 1));
	ck_assert_int_eq(stock_of(&two, b), 63);
}
END_TEST

START_TEST(the_last_page_is_reached_through_the_stocks_of_others)
{
	uint32_t refuser = MT_NONE;

	mt_counter_force_max(&session, a, 100);
	/* 63 of one's batch are ahead of use, in a sibling group. */
	ck_assert(charge(&one, s, 1));
	for (int i = 0; i < 99; i++)
		ck_assert(charge(&two, b, 1));

	ck_assert_int_eq(usage_of(a), 100);
	ck_assert_int_eq(charged(), 100);
	ck_assert(!mt_charge(&session, &two, b, MT_HEAP, 1, &refuser));
	ck_assert_uint_eq(refuser, a);
	ck_assert_int_eq(usage_of(a), 100);
	ck_assert_int_eq(peak_of(a), 100);
	expect_conserved();
}
END_TEST

START_TEST(a_forced_charge_passes_the_limit_and_leaves_the_stock)
{
	mt_counter_force_max(&session, a, 10);
	ck_assert(charge(&one, b, 1));

	mt_charge_forced(&session, &one, b, MT_HEAP, 20);

	ck_assert_int_eq(stock_of(&one, b), 1);
	ck_assert_int_eq(usage_of(a), 21 + 1);
	ck_assert_int_eq(charged(), 21);
	expect_conserved();
}
END_TEST

START_TEST(a_drain_takes_the_stocks_below_and_no_others)
{
	ck_assert(charge(&one, b, 1));
	ck_assert(charge(&two, s, 4));
	ck_assert(charge(&two, MT_ROOT, 10));

	/* b: 63, s: 60; the stock of "/" is not below a. */
	ck_assert_int_eq(mt_drain(&session, &two, a), 63 + 60);

	ck_assert_int_eq(usage_of(b), 1);
	ck_assert_int_eq(usage_of(s), 4);
	ck_assert_int_eq(stock_of(&two, MT_ROOT), 54);
	ck_assert_int_eq(usage_of(MT_ROOT), 1 + 4 + 64);
	ck_assert_uint_eq(load_relaxed(&session.groups[a].drains), 123);
	ck_assert_int_eq(mt_drain(&session, &two, a), 0);
	ck_assert_int_eq(charged(), 15);
	expect_conserved();
}
END_TEST

START_TEST(what_one_thread_charged_another_may_give_back)
{
	ck_assert(charge(&one, b, 1000));

	uncharge(&two, b, 400);
	uncharge(&two, b, 600);

	/* One word holds 1000 and the other -1000. */
	ck_assert_int_eq(charged(), 0);
	ck_assert_int_eq(usage_of(b), 0);
	expect_conserved();

	/* And below a batch, through the stock of the one who gives back. */
	ck_assert(charge(&one, b, 100));
	uncharge(&two, b, 40);
	ck_assert_int_eq(stock_of(&two, b), 40);
	ck_assert_int_eq(charged(), 60);
	ck_assert_int_eq(usage_of(b), 100);
	expect_conserved();
}
END_TEST

START_TEST(a_thread_that_ends_leaves_its_pages_to_its_process)
{
	unsigned lines;

	ck_assert(charge(&one, b, 100));
	ck_assert(charge(&one, s, 7));
	uncharge(&two, b, 30);

	mt_task_detach(&session, &two);
	/* Its word, -30, becomes the process's; its stock of 30 is given up. */
	ck_assert_int_eq(usage_of(b), 70);
	ck_assert_int_eq(charged(), 77);
	expect_conserved();

	mt_task_detach(&session, &one);
	ck_assert_int_eq(usage_of(b), 70);
	ck_assert_int_eq(usage_of(s), 7);
	ck_assert_int_eq(charged(), 77);
	/* One line is left of the two for b. */
	ck_assert_int_eq(words_of(b, &lines), 70);
	ck_assert_uint_eq(lines, 1);
	for (uint32_t i = 0; i < mt_table_high(&session, MT_THREADS); i++)
		ck_assert_uint_eq(load_relaxed(&session.threads[i].ident), 0);
	expect_conserved();

	reap_self();
	ck_assert_int_eq(usage_of(MT_ROOT), 0);
}
END_TEST

START_TEST(a_thread_goes_on_after_its_end)
{
	ck_assert(charge(&one, b, 100));
	mt_task_detach(&session, &one);

	/* Destructors of other libraries, which run later. */
	ck_assert(charge(&one, b, 3));
	uncharge(&one, b, 60);
	ck_assert(charge(&one, MT_ROOT, 5));
	mt_task_detach(&session, &one);

	ck_assert_int_eq(charged(), 48);
	ck_assert_int_eq(usage_of(b), 43);
	expect_conserved();
}
END_TEST

START_TEST(threads_that_come_and_go_use_slots_again)
{
	uint32_t high = mt_table_high(&session, MT_THREADS);
	unsigned lines;

	for (int i = 0; i < 1000; i++) {
		struct mt_task task;

		mt_task_attach(&session, &task, process, 10);
		ck_assert(charge(&task, b, 2));
		mt_task_detach(&session, &task);
	}

	ck_assert_uint_le(mt_table_high(&session, MT_THREADS), high + 1);
	ck_assert_int_eq(words_of(b, &lines), 2000);
	ck_assert_uint_eq(lines, 1);
	ck_assert_int_eq(usage_of(b), 2000);
	expect_conserved();
}
END_TEST

START_TEST(a_thread_may_charge_more_groups_than_it_remembers)
{
	uint32_t groups[3 * MT_TASK_LINES];
	uint32_t before = mt_table_high(&session, MT_LINES);

	for (size_t i = 0; i < MT_ARRAY_SIZE(groups); i++) {
		char path[16];

		snprintf(path, sizeof(path), "/a/s/g%zu", i);
		ck_assert_int_eq(mt_group_make_path(&session, MT_ROOT, path, 0,
						    &groups[i]),
				 0);
	}
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < MT_ARRAY_SIZE(groups); i++)
			ck_assert(charge(&one, groups[i], 1));
	}

	/* Each group has one line and one batch of 64, found again. */
	ck_assert_uint_eq(mt_table_high(&session, MT_LINES),
			  before + MT_ARRAY_SIZE(groups));
	ck_assert_int_eq(usage_of(s), 64 * (int64_t)MT_ARRAY_SIZE(groups));

	/* Those that it no longer remembers are retired, too. */
	mt_task_detach(&session, &one);
	ck_assert_int_eq(usage_of(s), 3 * (int64_t)MT_ARRAY_SIZE(groups));
	for (uint32_t i = 0; i < mt_table_high(&session, MT_LINES); i++) {
		uint64_t ident = load_relaxed(&session.lines[i].ident);

		ck_assert(!ident || mt_line_thread(ident) == MT_NONE);
	}
	ck_assert_int_eq(mt_audit_drift(&session), 0);
}
END_TEST

START_TEST(a_line_that_a_thread_lost_ends_with_it)
{
	unsigned lines;

	ck_assert(charge(&one, b, 100));
	/* A handler that remembered another at the same moment did this. */
	for (int i = 0; i < MT_TASK_LINES; i++)
		one.lines[i].line = 0;

	mt_task_detach(&session, &one);

	ck_assert_int_eq(words_of(b, &lines), 100);
	for (uint32_t i = 0; i < mt_table_high(&session, MT_LINES); i++) {
		uint64_t ident = load_relaxed(&session.lines[i].ident);

		ck_assert(!ident || mt_line_thread(ident) == MT_NONE);
	}
	expect_conserved();
}
END_TEST

static void charge_and_give_back(int signo)
{
	(void)signo;
	/* 10 stay: from "/" and from b. */
	if (!charge(&one, b, 9) || !charge(&one, MT_ROOT, 4))
		abort();
	uncharge(&one, b, 2);
	uncharge(&one, MT_ROOT, 1);
}

START_TEST(a_handler_inside_an_operation_loses_nothing)
{
	uint64_t seq = load_relaxed(&session.threads[one.thread - 1].seq);

	signal(SIGUSR1, charge_and_give_back);
	ck_assert(charge(&one, b, 100));

	/* As if the signal came between two instructions of an operation. */
	one.depth = 1;
	raise(SIGUSR1);
	ck_assert_uint_eq(one.depth, 1);
	one.depth = 0;

	ck_assert_int_eq(charged(), 110);
	ck_assert_int_eq(usage_of(b), 107);
	expect_conserved();
	/* It was counted in the process's own way, and has ended there. */
	ck_assert_uint_eq(
		load_relaxed(&session.processes[process].slotless) >> 32, 0);
	ck_assert_uint_eq(load_relaxed(&session.processes[process].slotless) &
				  UINT32_MAX,
			  4);
	/* Outside of one it is an operation like any other. */
	raise(SIGUSR1);
	ck_assert_int_eq(charged(), 120);
	expect_conserved();
	ck_assert_uint_eq(
		load_relaxed(&session.threads[one.thread - 1].seq) & 1, 0);
	ck_assert_uint_gt(load_relaxed(&session.threads[one.thread - 1].seq),
			  seq);
}
END_TEST

static volatile sig_atomic_t nr_signals;
static _Atomic bool storm_over;

static void count_and_charge(int signo)
{
	(void)signo;
	nr_signals++;
	if (!charge(&one, b, 5))
		abort();
	uncharge(&one, b, 5);
}

static void *send_signals(void *arg)
{
	pthread_t target = *(pthread_t *)arg;

	while (!load_relaxed(&storm_over)) {
		pthread_kill(target, SIGUSR1);
		sched_yield();
	}
	return NULL;
}

START_TEST(a_storm_of_signals_loses_nothing)
{
	pthread_t self = pthread_self();
	struct timespec since;
	pthread_t sender;
	int64_t held = 0;

	signal(SIGUSR1, count_and_charge);
	store_relaxed(&storm_over, false);
	clock_gettime(CLOCK_MONOTONIC, &since);
	pthread_create(&sender, NULL, send_signals, &self);
	/* Sizes on both sides of the batch, so that all paths are met. */
	while (nr_signals < 200 && !session_deadline_passed(&since)) {
		for (int64_t n = 1; n < 150; n += 7) {
			ck_assert(charge(&one, b, n));
			held += n;
		}
		for (int64_t n = 1; n < 150; n += 14) {
			uncharge(&one, b, n);
			held -= n;
		}
		/* A sanitizer delivers signals in calls that it knows. */
		free(malloc(1));
	}
	store_relaxed(&storm_over, true);
	pthread_join(sender, NULL);

	ck_assert_int_ge(nr_signals, 200);
	ck_assert_int_eq(charged(), held);
	expect_conserved();
}
END_TEST

static void open_tiny(uint32_t threads, uint32_t lines)
{
	struct mt_segment_config config = { 0 };

	session_close();
	config.capacity[MT_THREADS] = threads;
	config.capacity[MT_LINES] = lines;
	session_open(&config);
	process = join_self();
	ck_assert_int_eq(mt_group_make_path(&session, 0, "/a/b", 0, &b), 0);
	ck_assert_int_eq(mt_group_make_path(&session, 0, "/a/s", 0, &s), 0);
	a = mt_group_find(&session, "/a");
}

START_TEST(without_a_thread_slot_charges_are_exact_and_counted)
{
	open_tiny(1, 64);
	mt_task_attach(&session, &one, process, 1);
	mt_task_attach(&session, &two, process, 2);
	ck_assert_uint_eq(two.thread, 0);
	ck_assert_uint_eq(load_relaxed(&session.header->fallbacks), 1);

	ck_assert(charge(&two, b, 3));
	ck_assert(charge(&two, MT_ROOT, 4));

	/* Without a stock, and at the right group. */
	ck_assert_int_eq(usage_of(b), 3);
	ck_assert_int_eq(usage_of(MT_ROOT), 7);
	expect_conserved();
	uncharge(&two, b, 3);
	uncharge(&two, MT_ROOT, 4);
	ck_assert_int_eq(usage_of(MT_ROOT), 0);
	expect_conserved();
}
END_TEST

START_TEST(without_lines_charges_go_to_the_process_at_the_root)
{
	open_tiny(8, 1);
	mt_task_attach(&session, &one, process, 1);
	mt_task_attach(&session, &two, process, 2);
	ck_assert(charge(&one, b, 1));
	ck_assert_uint_eq(load_relaxed(&session.header->fallbacks), 0);

	ck_assert(charge(&two, s, 10));
	ck_assert(charge(&two, MT_ROOT, 5));

	/* Nothing is lost, and it isn't silent. */
	ck_assert_uint_eq(load_relaxed(&session.header->fallbacks), 1);
	ck_assert_int_eq(charged(), 16);
	ck_assert_int_eq(usage_of(s), 0);
	ck_assert_int_eq(usage_of(MT_ROOT), 64 + 15);
	expect_conserved();
	uncharge(&two, s, 10);
	uncharge(&two, MT_ROOT, 5);
	uncharge(&one, b, 1);
	ck_assert_int_eq(charged(), 0);
	expect_conserved();
	reap_self();
	ck_assert_int_eq(usage_of(MT_ROOT), 0);
}
END_TEST

START_TEST(a_line_ensured_serves_all_threads_when_the_table_is_full)
{
	open_tiny(8, 1);
	ck_assert(mt_task_ensure_line(&session, process, b));
	ck_assert(mt_task_ensure_line(&session, process, b));
	ck_assert(mt_task_ensure_line(&session, process, MT_ROOT));
	ck_assert(!mt_task_ensure_line(&session, process, s));
	mt_task_attach(&session, &one, process, 1);
	mt_task_attach(&session, &two, process, 2);

	ck_assert(charge(&one, b, 10));
	uncharge(&two, b, 3);

	ck_assert_int_eq(usage_of(b), 7);
	ck_assert_int_eq(charged(), 7);
	expect_conserved();
	mt_task_detach(&session, &one);
	mt_task_detach(&session, &two);
	ck_assert_int_eq(usage_of(b), 7);
	expect_conserved();
}
END_TEST

START_TEST(a_move_changes_group_and_nothing_above)
{
	ck_assert(charge(&one, b, 100));

	mt_move_charge(&session, &two, b, MT_HEAP, s, MT_ANON, 70);

	ck_assert_int_eq(usage_of(b), 30);
	ck_assert_int_eq(usage_of(s), 70);
	ck_assert_int_eq(usage_of(a), 100);
	ck_assert_int_eq(usage_of(MT_ROOT), 100);
	/* Common ancestors saw nothing: never 170. */
	ck_assert_int_eq(peak_of(a), 100);
	ck_assert_int_eq(peak_of(MT_ROOT), 100);
	ck_assert_int_eq(peak_of(s), 70);
	ck_assert_int_eq(mt_process_charged_kind(&session, process, MT_HEAP),
			 30);
	ck_assert_int_eq(mt_process_charged_kind(&session, process, MT_ANON),
			 70);
	expect_conserved();

	/* To an ancestor, and back down. */
	mt_move_charge(&session, &one, s, MT_ANON, a, MT_ANON, 70);
	ck_assert_int_eq(usage_of(s), 0);
	ck_assert_int_eq(usage_of(a), 100);
	mt_move_charge(&session, &one, a, MT_ANON, b, MT_HEAP, 70);
	ck_assert_int_eq(usage_of(b), 100);
	ck_assert_int_eq(usage_of(a), 100);
	ck_assert_int_eq(peak_of(a), 100);
	expect_conserved();
}
END_TEST

START_TEST(a_move_between_kinds_moves_no_counter)
{
	ck_assert(charge(&one, b, 100));

	mt_move_charge(&session, &two, b, MT_HEAP, b, MT_SHMEM, 100);

	ck_assert_int_eq(usage_of(b), 100);
	ck_assert_int_eq(peak_of(b), 100);
	ck_assert_int_eq(mt_process_charged_kind(&session, process, MT_HEAP),
			 0);
	ck_assert_int_eq(mt_process_charged_kind(&session, process, MT_SHMEM),
			 100);
	expect_conserved();
}
END_TEST

START_TEST(a_move_pays_no_heed_to_limits)
{
	ck_assert(charge(&one, b, 100));
	mt_counter_force_max(&session, a, 100);
	mt_counter_force_max(&session, s, 10);

	mt_move_charge(&session, &one, b, MT_HEAP, s, MT_HEAP, 100);

	ck_assert_int_eq(usage_of(s), 100);
	ck_assert_uint_eq(load_relaxed(&session.groups[a].failcnt), 0);
	expect_conserved();
}
END_TEST

START_TEST(a_process_remembers_its_peak)
{
	ck_assert(charge(&one, b, 300));
	uncharge(&two, b, 200);
	ck_assert(charge(&two, s, 100));

	/* Stocks included; 300, then 100, then 200. */
	ck_assert_int_eq(load_relaxed(&session.processes[process].usage), 200);
	ck_assert_int_eq(load_relaxed(&session.processes[process].peak), 300);
}
END_TEST

START_TEST(an_operation_is_told_from_rest)
{
	struct mt_thread *thread = &session.threads[one.thread - 1];
	uint64_t seq = load_relaxed(&thread->seq);

	/* A batch touches the tree; what comes out of the stock doesn't. */
	ck_assert(charge(&one, b, 1));
	ck_assert_uint_eq(load_relaxed(&thread->seq), seq + 2);
	ck_assert(charge(&one, b, 1));
	uncharge(&one, b, 2);
	ck_assert_uint_eq(load_relaxed(&thread->seq), seq + 2);
	ck_assert_int_eq(load_relaxed(&thread->op_pages), 0);

	/* A vfork child that was killed inside left it odd. */
	store_relaxed(&thread->seq, seq + 3);
	ck_assert(charge(&one, b, 100));
	ck_assert_uint_eq(load_relaxed(&thread->seq) & 1, 0);
	ck_assert_uint_gt(load_relaxed(&thread->seq), seq + 3);
}
END_TEST

#define LIMIT      2000
#define NR_THREADS 4

static _Atomic int64_t committed;

/* Charges and gives back at random in b and s; drains now and then. */
static void *churn(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg * 2654435761u + 1;
	struct mt_task task;
	int64_t held[2] = { 0, 0 };

	mt_task_attach(&session, &task, process, seed | 1);
	for (int i = 0; i < 20000; i++) {
		uint32_t group;
		int64_t n;
		int which;

		seed = seed * 1103515245u + 12345u;
		which = seed >> 30 & 1;
		group = which ? b : s;
		n = 1 + (int64_t)(seed >> 16) % 100;
		if (seed >> 31) {
			if (charge(&task, group, n)) {
				held[which] += n;
				fetch_add_seq_cst(&committed, n);
			}
		} else if (held[which] >= n) {
			fetch_add_seq_cst(&committed, -n);
			uncharge(&task, group, n);
			held[which] -= n;
		}
		ck_assert_int_le(load_seq_cst(&committed), LIMIT);
		if (i % 500 == 0)
			mt_drain(&session, &task, i % 1000 ? b : MT_ROOT);
	}
	if ((uintptr_t)arg & 1)
		mt_task_detach(&session, &task);
	return NULL;
}

START_TEST(threads_at_a_limit_never_pass_it_and_lose_nothing)
{
	pthread_t threads[NR_THREADS];

	store_relaxed(&committed, 0);
	mt_counter_force_max(&session, a, LIMIT);
	for (uintptr_t i = 0; i < NR_THREADS; i++)
		pthread_create(&threads[i], NULL, churn, (void *)i);
	for (int i = 0; i < NR_THREADS; i++)
		pthread_join(threads[i], NULL);

	ck_assert_int_eq(charged(), load_relaxed(&committed));
	ck_assert_int_le(peak_of(a), LIMIT);
	expect_conserved();
	/* All but what is used can be had. */
	mt_drain(&session, &one, MT_ROOT);
	ck_assert_int_eq(usage_of(MT_ROOT), load_relaxed(&committed));
	reap_self();
	ck_assert_int_eq(usage_of(MT_ROOT), 0);
	for (uint32_t g = 0; g < mt_table_high(&session, MT_GROUPS); g++)
		ck_assert_uint_eq(load_relaxed(&session.groups[g].underflows),
				  0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("task");

	tcase_add_checked_fixture(tc, setup_tasks, teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_word_keeps_its_parts_apart);
	tcase_add_test(tc, a_lines_identity_keeps_its_parts_apart);
	tcase_add_test(
		tc, a_small_charge_takes_a_batch_and_the_next_come_out_of_it);
	tcase_add_test(tc, a_charge_of_a_batch_or_more_is_exact);
	tcase_add_test(tc, pages_given_back_fill_the_stock_up_to_a_batch);
	tcase_add_test(tc, a_stock_serves_its_own_kind_and_group);
	tcase_add_test(tc, near_a_limit_a_charge_is_exact);
	tcase_add_test(tc, near_a_limit_batches_shrink);
	tcase_add_test(tc,
		       the_last_page_is_reached_through_the_stocks_of_others);
	tcase_add_test(tc,
		       a_forced_charge_passes_the_limit_and_leaves_the_stock);
	tcase_add_test(tc, a_drain_takes_the_stocks_below_and_no_others);
	tcase_add_test(tc, what_one_thread_charged_another_may_give_back);
	tcase_add_test(tc, a_thread_that_ends_leaves_its_pages_to_its_process);
	tcase_add_test(tc, a_thread_goes_on_after_its_end);
	tcase_add_test(tc, threads_that_come_and_go_use_slots_again);
	tcase_add_test(tc, a_thread_may_charge_more_groups_than_it_remembers);
	tcase_add_test(tc, a_line_that_a_thread_lost_ends_with_it);
	tcase_add_test(tc, a_handler_inside_an_operation_loses_nothing);
	tcase_add_test(tc, a_storm_of_signals_loses_nothing);
	tcase_add_test(tc, without_a_thread_slot_charges_are_exact_and_counted);
	tcase_add_test(tc, without_lines_charges_go_to_the_process_at_the_root);
	tcase_add_test(
		tc, a_line_ensured_serves_all_threads_when_the_table_is_full);
	tcase_add_test(tc, a_move_changes_group_and_nothing_above);
	tcase_add_test(tc, a_move_between_kinds_moves_no_counter);
	tcase_add_test(tc, a_move_pays_no_heed_to_limits);
	tcase_add_test(tc, a_process_remembers_its_peak);
	tcase_add_test(tc, an_operation_is_told_from_rest);
	tcase_add_test(tc, threads_at_a_limit_never_pass_it_and_lose_nothing);
	return run_case(tc, "task");
}
