/* SPDX-License-Identifier: MIT */
/*
 * reclaim.c - the order of reclaim.
 */
#include "core/reclaim.h"

#include <time.h>

#include "core/atomic.h"
#include "core/counter.h"
#include "core/group.h"
#include "core/process.h"
#include "core/sys.h"

#define ASKED       4 /* processes at once */
#define PATIENCE_MS 6 /* for one who was asked and hasn't answered */

bool mt_want_from(struct mt_session *session, const struct mt_want *want,
		  uint32_t group, struct mt_protection *ret, bool *kept)
{
	enum mt_protection_tier tier;

	if (!mt_counter_is_below(session, group, want->target))
		return false;
	mt_protection_of(session, want->target, group, true, ret);
	tier = mt_protection_tier(ret);
	if (tier == MT_PROTECT_LOW && !want->despite_low)
		*kept = true;
	return tier == MT_PROTECT_NONE ||
	       (tier == MT_PROTECT_LOW && want->despite_low);
}

bool mt_want_first(const struct mt_protection *one,
		   const struct mt_protection *other)
{
	enum mt_protection_tier a = mt_protection_tier(one);
	enum mt_protection_tier b = mt_protection_tier(other);

	if (a != b)
		return a < b;
	return mt_protection_excess(one) > mt_protection_excess(other);
}

void mt_want_note(struct mt_session *session, uint32_t group,
		  const struct mt_protection *protection)
{
	if (protection->usage > 0 &&
	    mt_protection_tier(protection) == MT_PROTECT_LOW)
		mt_group_event(session, group, MT_EVENT_LOW);
}

/* Half a word, the other being when: whom it is wanted of, whether low matters,
 * and how many pages, rounded up to a power of two. */
static uint32_t pack_want(const struct mt_want *want)
{
	uint64_t pages =
		(uint64_t)MT_MIN(MT_MAX(want->pages, 1), MT_CHARGE_MAX);
	uint32_t log = 64 - (uint32_t)__builtin_clzll(pages);

	return (uint32_t)want->write_back << 27 | log << 21 |
	       (uint32_t)want->despite_low << 20 | (want->target & 0xfffff);
}

struct mt_want mt_want_asked(uint64_t word)
{
	return (struct mt_want){
		.target = (uint32_t)word & 0xfffff,
		.pages = INT64_C(1) << (word >> 21 & 0x3f),
		.despite_low = word >> 20 & 1,
		.write_back = word >> 27 & 1,
	};
}

/* Those to ask next, the first first. */
struct chosen {
	uint32_t process;
	uint32_t group;
	struct mt_protection protection;
};

static void choose(struct chosen *chosen, unsigned *n, const struct chosen *one)
{
	unsigned at;

	/* A process may hold more than one group: its first counts. */
	for (at = 0; at < *n && chosen[at].process != one->process; at++)
		;
	if (at < *n && !mt_want_first(&one->protection, &chosen[at].protection))
		return;
	if (at == *n && *n < ASKED)
		++*n;
	else if (at == *n &&
		 !mt_want_first(&one->protection, &chosen[--at].protection))
		return;
	for (; at > 0 &&
	       mt_want_first(&one->protection, &chosen[at - 1].protection);
	     at--)
		chosen[at] = chosen[at - 1];
	chosen[at] = *one;
}

static bool ask(struct mt_process *process, const struct mt_want *want,
		uint32_t now_ms)
{
	uint64_t seen = load_relaxed(&process->asked);
	uint64_t wish = (uint64_t)now_ms << 32 | pack_want(want);

	/* Not the same again, or it would seem answered. */
	if (wish == seen)
		wish += UINT64_C(1) << 32;
	return cas_seq_cst(&process->asked, &seen, wish);
}

static uint32_t clock_ms(void)
{
	return (uint32_t)(mt_sys_clock_ns(CLOCK_MONOTONIC) / 1000000);
}

void mt_want_write_back(struct mt_session *session, uint32_t group)
{
	const struct mt_want want = { .target = group, .write_back = true };
	uint32_t high = mt_table_high(session, MT_PROCESSES);

	mt_group_event(session, group, (enum mt_event)MT_EVENT_DIRTY);
	for (uint32_t i = 0; i < high; i++) {
		struct mt_process *process = &session->processes[i];

		/* Its mappings may be of a group that its home isn't below. */
		if ((load_acquire(&process->state) & 0xff) == MT_PROC_LIVE &&
		    load_relaxed(&process->map_file))
			ask(process, &want, clock_ms());
	}
}

unsigned mt_want_ask(struct mt_session *session, const struct mt_want *want,
		     uint32_t own, bool *kept)
{
	uint32_t high = mt_table_high(session, MT_LINES);
	uint32_t now_ms = clock_ms();
	struct chosen chosen[ASKED];
	unsigned n = 0;
	unsigned asked = 0;

	for (uint32_t i = 0; i < high; i++) {
		uint64_t ident = load_acquire(&session->lines[i].ident);
		struct chosen one = { mt_line_process(ident),
				      mt_line_group(ident),
				      { 0 } };
		const struct mt_process *process;
		uint64_t word;

		if (!ident || one.process == own ||
		    one.process >= mt_table_high(session, MT_PROCESSES) ||
		    mt_word_used(load_relaxed(
			    &session->lines[i].word[MT_HEAP])) <= 0)
			continue;
		process = &session->processes[one.process];
		word = load_relaxed(&process->asked);
		if (!mt_want_from(session, want, one.group, &one.protection,
				  kept))
			continue;
		if (word == load_acquire(&process->answered))
			choose(chosen, &n, &one);
		else if (now_ms - (uint32_t)(word >> 32) < PATIENCE_MS)
			asked++;
	}
	for (unsigned i = 0; i < n; i++) {
		if (!ask(&session->processes[chosen[i].process], want, now_ms))
			continue;
		mt_want_note(session, chosen[i].group, &chosen[i].protection);
		asked++;
	}
	return asked;
}

uint32_t mt_victim(struct mt_session *session, uint32_t group)
{
	uint32_t high = mt_table_high(session, MT_PROCESSES);
	uint32_t best = MT_NONE;
	int64_t most = 0;

	for (uint32_t i = 0; i < high; i++) {
		uint64_t state = load_acquire(&session->processes[i].state);
		int64_t pages;

		if ((state & 0xff) != MT_PROC_LIVE)
			continue;
		pages = mt_process_charged_below(session, i, group);
		if (pages > most) {
			most = pages;
			best = i;
		}
	}
	return best;
}

uint32_t mt_victim_group(struct mt_session *session, uint32_t victim,
			 uint32_t limited)
{
	uint32_t group = load_acquire(&session->processes[victim].home);
	uint32_t found = MT_NONE;

	if (load_relaxed(&session->header->on_max) == MT_ON_MAX_KILL_GROUP)
		return limited;
	for (int i = 0; i < MT_DEPTH_MAX; i++) {
		if (group >= session->header->tables[MT_GROUPS].capacity)
			break;
		if (load_relaxed(&session->groups[group].flags) &
		    MT_GROUP_OOM_GROUP)
			found = group;
		if (group == limited)
			break;
		group = load_relaxed(&session->groups[group].parent);
	}
	return found;
}
