/* SPDX-License-Identifier: MIT */
/*
 * audit.c - see audit.h.
 *
 * The quiet moment is found as a sequence lock finds one, over all threads:
 * add up their sequence numbers, which only grow, before and after reading
 * everything else.  Equal sums mean that none of them moved; that none was odd
 * means that none was inside.  Consuming from a stock and giving back to it
 * change no sum, and need not be quiet.
 *
 * Where threads never rest at the same time by themselves, the gate is closed:
 * whoever is about to begin waits, until it opens or for a millisecond.  A
 * thread that is stopped inside an operation keeps us from it all the same;
 * then the drift stays, and is taken back when that one has gone on or died.
 *
 * The correction is a subtraction, not a store: an operation that begins
 * between the look and the correction loses nothing.
 */
#include "core/audit.h"

#include <errno.h>
#include <string.h>

#include "core/atomic.h"
#include "core/counter.h"
#include "core/process.h"
#include "core/sys.h"

#define ATTEMPTS 16

struct quiet {
	uint64_t moves; /* of everything that only grows */
	bool rest;      /* nobody was inside */
};

static struct quiet look(struct mt_session *session)
{
	struct mt_header *header = session->header;
	struct quiet quiet = { 0, true };
	uint32_t high = mt_table_high(session, MT_THREADS);

	for (uint32_t i = 0; i < high; i++) {
		uint64_t seq = load_seq_cst(&session->threads[i].seq);

		quiet.moves += seq;
		if ((seq & 1) && load_seq_cst(&session->threads[i].ident))
			quiet.rest = false;
	}
	high = mt_table_high(session, MT_PROCESSES);
	for (uint32_t i = 0; i < high; i++) {
		struct mt_process *process = &session->processes[i];
		uint64_t slotless = load_seq_cst(&process->slotless);
		uint64_t state = load_seq_cst(&process->state);

		/* begun in the low half, under way in the high half */
		quiet.moves += slotless & UINT32_MAX;
		quiet.moves += state >> 8 & 0xffffff;
		if ((state & 0xff) == MT_PROC_REAPING ||
		    ((state & 0xff) != MT_PROC_FREE && slotless >> 32))
			quiet.rest = false;
	}
	quiet.moves += load_seq_cst(&header->reaped);
	quiet.moves += load_seq_cst(&header->processes_total);
	return quiet;
}

/* Add @pages to the sums of @group and all above it. */
static void add_upward(struct mt_session *session, int64_t *sums,
		       uint32_t capacity, uint32_t group, int64_t pages)
{
	for (int i = 0; group < capacity && i < MT_DEPTH_MAX; i++) {
		sums[group] += pages;
		group = load_relaxed(&session->groups[group].parent);
	}
}

static void sum_words(struct mt_session *session, int64_t *sums,
		      uint32_t capacity)
{
	uint32_t high = mt_table_high(session, MT_LINES);

	for (uint32_t i = 0; i < high; i++) {
		struct mt_line *line = &session->lines[i];
		uint64_t ident = load_acquire(&line->ident);

		for (int k = 0; ident && k < MT_NR_KINDS; k++) {
			uint64_t word = load_acquire(&line->word[k]);

			add_upward(session, sums, capacity,
				   mt_line_group(ident),
				   mt_word_used(word) + mt_word_stock(word));
		}
	}
	high = mt_table_high(session, MT_PROCESSES);
	for (uint32_t i = 0; i < high; i++) {
		for (int k = 0; k < MT_NR_KINDS; k++)
			add_upward(session, sums, capacity, MT_ROOT,
				   mt_word_used(load_acquire(
					   &session->processes[i].word[k])));
	}
}

static uint32_t nr_groups(struct mt_session *session)
{
	return MT_MIN(mt_table_high(session, MT_GROUPS), 4096u);
}

/* The published claims of the children, against the parents' sums. */
static void measure_claims(struct mt_session *session,
			   struct mt_audit_scratch *scratch, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct mt_group *group = &session->groups[i];

		scratch->min_usage[i] =
			load_relaxed(&group->children_min_usage);
		scratch->low_usage[i] =
			load_relaxed(&group->children_low_usage);
	}
	for (uint32_t i = 0; i < n; i++) {
		struct mt_group *group = &session->groups[i];
		uint32_t parent = load_relaxed(&group->parent);

		if (parent >= n)
			continue;
		scratch->min_usage[parent] -= load_relaxed(&group->min_usage);
		scratch->low_usage[parent] -= load_relaxed(&group->low_usage);
	}
}

static void measure(struct mt_session *session,
		    struct mt_audit_scratch *scratch, uint32_t n)
{
	memset(scratch->words, 0, n * sizeof(scratch->words[0]));
	sum_words(session, scratch->words, n);
	for (uint32_t i = 0; i < n; i++)
		scratch->words[i] = load_seq_cst(&session->groups[i].usage) -
				    scratch->words[i];
	measure_claims(session, scratch, n);
}

/* @scratch holds by how much each number is too high: subtract it. */
static int64_t correct(struct mt_session *session,
		       struct mt_audit_scratch *scratch, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct mt_group *group = &session->groups[i];
		int64_t drift = scratch->words[i];

		if (scratch->min_usage[i])
			fetch_add_relaxed(&group->children_min_usage,
					  -scratch->min_usage[i]);
		if (scratch->low_usage[i])
			fetch_add_relaxed(&group->children_low_usage,
					  -scratch->low_usage[i]);
		if (!drift)
			continue;
		fetch_add_seq_cst(&group->usage, -drift);
		if (drift > 0)
			fetch_add_relaxed(&group->repairs, (uint64_t)drift);
		mt_counter_settle(session, i);
	}
	return n ? scratch->words[MT_ROOT] : 0;
}

/* May the audit be taken from this one?  Only from the dead. */
static bool auditor_is_dead(struct mt_session *session, uint64_t auditor)
{
	/* 0, not known yet or any more: then only who is gone is dead. */
	uint64_t since = load_seq_cst(&session->header->audit_ns);

	return (uint32_t)auditor == (uint32_t)mt_process_pid_ns() &&
	       mt_process_pid_life((uint32_t)(auditor >> 32), since) == MT_DEAD;
}

static bool take_auditor(struct mt_session *session)
{
	struct mt_header *header = session->header;
	uint64_t me =
		(uint64_t)mt_sys_getpid() << 32 | (uint32_t)mt_process_pid_ns();
	uint64_t held = 0;

	if (!cas_seq_cst(&header->auditor, &held, me)) {
		if (!auditor_is_dead(session, held))
			return false;
		/* So that nobody judges us by when the dead one began. */
		store_seq_cst(&header->audit_ns, 0);
		if (!cas_seq_cst(&header->auditor, &held, me))
			return false;
	}
	store_seq_cst(&header->audit_ns, mt_sys_clock_ns(CLOCK_BOOTTIME));
	return true;
}

static void leave_auditor(struct mt_session *session)
{
	store_seq_cst(&session->header->audit_ns, 0);
	store_seq_cst(&session->header->auditor, 0);
}

static bool try_once(struct mt_session *session,
		     struct mt_audit_scratch *scratch, int64_t *ret_pages)
{
	uint32_t n = nr_groups(session);
	uint64_t doubts = load_seq_cst(&session->header->doubts);
	struct quiet before = look(session);
	struct quiet after;

	if (!before.rest)
		return false;
	measure(session, scratch, n);
	after = look(session);
	if (!after.rest || after.moves != before.moves)
		return false;
	*ret_pages = correct(session, scratch, n);
	store_seq_cst(&session->header->settled, doubts);
	return true;
}

/* Nobody comes to rest by himself: let nobody begin, for a millisecond. */
static bool try_gated(struct mt_session *session,
		      struct mt_audit_scratch *scratch, int64_t *ret_pages)
{
	uint64_t deadline = mt_sys_clock_ns(CLOCK_MONOTONIC) + MT_GATE_NS;
	bool done;

	store_seq_cst(&session->header->gate, deadline);
	do {
		mt_sys_yield();
		done = try_once(session, scratch, ret_pages);
	} while (!done && mt_sys_clock_ns(CLOCK_MONOTONIC) < deadline);
	store_seq_cst(&session->header->gate, 0);
	return done;
}

bool mt_audit_is_due(const struct mt_session *session)
{
	return load_relaxed(&session->header->doubts) !=
	       load_relaxed(&session->header->settled);
}

enum mt_audit_result mt_audit(struct mt_session *session,
			      struct mt_audit_scratch *scratch,
			      int64_t *ret_pages)
{
	struct mt_header *header = session->header;
	bool done = false;

	*ret_pages = 0;
	if (!take_auditor(session))
		return MT_AUDIT_BUSY;
	for (int i = 0; i < ATTEMPTS && !done; i++)
		done = try_once(session, scratch, ret_pages);
	if (!done)
		done = try_gated(session, scratch, ret_pages);
	if (!done)
		fetch_add_relaxed(&header->repair_pending, 1);
	else if (*ret_pages > 0)
		fetch_add_relaxed(&header->repairs, (uint64_t)*ret_pages);
	leave_auditor(session);
	return done ? MT_AUDIT_DONE : MT_AUDIT_BUSY;
}

int64_t mt_audit_drift(struct mt_session *session)
{
	uint32_t high = mt_table_high(session, MT_LINES);
	int64_t words = 0;

	for (uint32_t i = 0; i < high; i++) {
		struct mt_line *line = &session->lines[i];

		for (int k = 0; load_acquire(&line->ident) && k < MT_NR_KINDS;
		     k++) {
			uint64_t word = load_acquire(&line->word[k]);

			words += mt_word_used(word) + mt_word_stock(word);
		}
	}
	high = mt_table_high(session, MT_PROCESSES);
	for (uint32_t i = 0; i < high; i++) {
		for (int k = 0; k < MT_NR_KINDS; k++)
			words += mt_word_used(
				load_acquire(&session->processes[i].word[k]));
	}
	return load_seq_cst(&session->groups[MT_ROOT].usage) - words;
}
