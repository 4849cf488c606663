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
 * The correction is a subtraction, not a store: an operation that begins
 * between the look and the correction loses nothing.
 */
#include "core/audit.h"

#include <errno.h>
#include <string.h>

#include "core/atomic.h"
#include "core/counter.h"
#include "core/sys.h"

#define ATTEMPTS 64

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

static void measure(struct mt_session *session,
		    struct mt_audit_scratch *scratch, uint32_t n)
{
	memset(scratch->words, 0, n * sizeof(scratch->words[0]));
	sum_words(session, scratch->words, n);
	for (uint32_t i = 0; i < n; i++)
		scratch->words[i] = load_seq_cst(&session->groups[i].usage) -
				    scratch->words[i];
}

/* The published claims of the children, against the parents' sums. */
static void correct_claims(struct mt_session *session,
			   struct mt_audit_scratch *scratch, uint32_t n)
{
	memset(scratch->min_usage, 0, n * sizeof(scratch->min_usage[0]));
	memset(scratch->low_usage, 0, n * sizeof(scratch->low_usage[0]));
	for (uint32_t i = 0; i < n; i++) {
		struct mt_group *group = &session->groups[i];
		uint32_t parent = load_relaxed(&group->parent);

		if (parent >= n)
			continue;
		scratch->min_usage[parent] += load_relaxed(&group->min_usage);
		scratch->low_usage[parent] += load_relaxed(&group->low_usage);
	}
	for (uint32_t i = 0; i < n; i++) {
		struct mt_group *group = &session->groups[i];
		int64_t min = load_relaxed(&group->children_min_usage) -
			      scratch->min_usage[i];
		int64_t low = load_relaxed(&group->children_low_usage) -
			      scratch->low_usage[i];

		if (min)
			fetch_add_relaxed(&group->children_min_usage, -min);
		if (low)
			fetch_add_relaxed(&group->children_low_usage, -low);
	}
}

/* @scratch->words holds each group's drift: subtract it. */
static int64_t correct(struct mt_session *session,
		       struct mt_audit_scratch *scratch, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct mt_group *group = &session->groups[i];
		int64_t drift = scratch->words[i];

		if (!drift)
			continue;
		fetch_add_seq_cst(&group->usage, -drift);
		if (drift > 0)
			fetch_add_relaxed(&group->repairs, (uint64_t)drift);
		mt_counter_settle(session, i);
	}
	return n ? scratch->words[MT_ROOT] : 0;
}

static bool take_auditor(struct mt_session *session)
{
	struct mt_header *header = session->header;
	uint64_t me = (uint64_t)mt_sys_getpid() << 32 |
		      (uint64_t)(uint32_t)mt_sys_gettid();
	uint64_t held = 0;

	while (!cas_seq_cst(&header->auditor, &held, me)) {
		if (held && mt_sys_kill((int)(held >> 32), 0) != -ESRCH)
			return false;
	}
	return true;
}

static bool try_once(struct mt_session *session,
		     struct mt_audit_scratch *scratch, int64_t *ret_pages)
{
	uint32_t n = nr_groups(session);
	struct quiet before = look(session);
	struct quiet after;

	if (!before.rest)
		return false;
	measure(session, scratch, n);
	after = look(session);
	if (!after.rest || after.moves != before.moves)
		return false;
	*ret_pages = correct(session, scratch, n);
	correct_claims(session, scratch, n);
	return true;
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
		fetch_add_relaxed(&header->repair_pending, 1);
	else if (*ret_pages > 0)
		fetch_add_relaxed(&header->repairs, (uint64_t)*ret_pages);
	store_seq_cst(&header->auditor, 0);
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
