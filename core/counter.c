/* SPDX-License-Identifier: MIT */
/*
 * counter.c - charging a tree of page counters.
 *
 * One atomic add per level, then a look at the limit: add first and test
 * second, so that the hot line sees one atomic and no compare-and-swap loop.
 * The price is that a large charge about to be refused can make a small one
 * beside it fail as well; the error is never larger than the large one.
 */
#include "core/counter.h"

#include <errno.h>
#include <string.h>

#include "core/atomic.h"

struct walk {
	uint32_t depth;
	uint32_t group[MT_DEPTH_MAX];
	int64_t usage[MT_DEPTH_MAX]; /* after our add */
};

static struct mt_group *group_at(struct mt_session *session, uint32_t group)
{
	return &session->groups[group];
}

/* Another process may have scribbled over the segment: stay inside it. */
static bool group_valid(const struct mt_session *session, uint32_t group)
{
	return group < session->header->tables[MT_GROUPS].capacity;
}

static void publish_one(_Atomic int64_t *own, int64_t want,
			_Atomic int64_t *parent_sum)
{
	int64_t before;

	/* No write at all in the common case, usage well above its claim. */
	if (load_relaxed(own) == want)
		return;
	/*
	 * The parent moves by exactly what the exchange changed, so its sum
	 * survives every race.  The own value can be stale for a moment when
	 * two publish in the opposite order to their adds: mt_counter_settle()
	 * and the next charge repair that.
	 */
	before = exchange_acq_rel(own, want);
	if (before != want && parent_sum)
		fetch_add_relaxed(parent_sum, want - before);
}

static void publish(struct mt_session *session, struct mt_group *group,
		    int64_t usage)
{
	int64_t min = load_relaxed(&group->min);
	int64_t low = load_relaxed(&group->low);
	struct mt_group *parent = NULL;
	uint32_t up;

	if (!min && !low && !load_relaxed(&group->min_usage) &&
	    !load_relaxed(&group->low_usage))
		return;
	usage = MT_MAX(usage, 0);
	up = load_relaxed(&group->parent);
	if (group_valid(session, up))
		parent = group_at(session, up);
	publish_one(&group->min_usage, MT_MIN(usage, min),
		    parent ? &parent->children_min_usage : NULL);
	publish_one(&group->low_usage, MT_MIN(usage, low),
		    parent ? &parent->children_low_usage : NULL);
}

static void raise_peak(_Atomic int64_t *peak, int64_t usage)
{
	int64_t seen = load_relaxed(peak);

	while (seen < usage && !cas_weak_relaxed(peak, &seen, usage))
		;
}

/* The charge went through at every level: now, and only now, it is a peak. */
static void note_peaks(struct mt_session *session, const struct walk *walk)
{
	for (uint32_t i = 0; i < walk->depth; i++) {
		struct mt_group *group = group_at(session, walk->group[i]);

		raise_peak(&group->peak_local, walk->usage[i]);
		raise_peak(&group->peak, walk->usage[i]);
	}
}

/*
 * A thread may be killed between any two instructions, and what it stored
 * before is then there for the reaper: only the compiler must keep the order.
 */
static void op_at(struct mt_thread *op, uint32_t levels, uint32_t lowest)
{
	if (!op)
		return;
	fence_signal();
	store_relaxed(&op->op_at, (uint64_t)levels << 32 | lowest);
	fence_signal();
}

void mt_counter_cancel(struct mt_session *session, uint32_t index,
		       int64_t pages)
{
	struct mt_group *group = group_at(session, index);
	int64_t usage = fetch_add_seq_cst(&group->usage, -pages) - pages;

	if (unlikely(usage < 0)) {
		/*
		 * Impossible, so count it.  Give back what is missing by a
		 * difference: adds between the two are not lost.
		 */
		int64_t missing = MT_MIN(-usage, pages);

		usage = fetch_add_seq_cst(&group->usage, missing) + missing;
		fetch_add_relaxed(&group->underflows, 1);
	}
	publish(session, group, usage);
}

static void unwind(struct mt_session *session, const struct walk *walk,
		   int64_t pages, struct mt_thread *op)
{
	for (uint32_t i = 0; i < walk->depth; i++) {
		/* Disown the level first: dying in between leaves too much. */
		op_at(op, walk->depth - 1 - i,
		      i + 1 < walk->depth ? walk->group[i + 1] : 0);
		mt_counter_cancel(session, walk->group[i], pages);
	}
}

bool mt_counter_try_charge(struct mt_session *session, uint32_t index,
			   int64_t pages, struct mt_thread *op,
			   uint32_t *ret_refuser)
{
	struct walk walk = { 0 };

	while (group_valid(session, index) && walk.depth < MT_DEPTH_MAX) {
		struct mt_group *group = group_at(session, index);
		/*
		 * Pairs with mt_counter_set_max() and _force_max().  We write
		 * usage and then read max; they write max and then read usage.
		 * All four are seq_cst, so at least one of us sees the other.
		 */
		int64_t usage = fetch_add_seq_cst(&group->usage, pages) + pages;

		if (unlikely(usage > load_seq_cst(&group->max))) {
			fetch_add_relaxed(&group->usage, -pages);
			fetch_add_relaxed(&group->failcnt, 1);
			unwind(session, &walk, pages, op);
			*ret_refuser = index;
			return false;
		}
		publish(session, group, usage);
		walk.group[walk.depth] = index;
		walk.usage[walk.depth++] = usage;
		op_at(op, walk.depth, walk.group[0]);
		index = load_relaxed(&group->parent);
	}
	note_peaks(session, &walk);
	return true;
}

static void charge(struct mt_session *session, uint32_t index, uint32_t top,
		   int64_t pages, struct mt_thread *op)
{
	struct walk walk = { 0 };

	while (index != top && group_valid(session, index) &&
	       walk.depth < MT_DEPTH_MAX) {
		struct mt_group *group = group_at(session, index);
		int64_t usage = fetch_add_seq_cst(&group->usage, pages) + pages;

		publish(session, group, usage);
		walk.group[walk.depth] = index;
		walk.usage[walk.depth++] = usage;
		op_at(op, walk.depth, walk.group[0]);
		index = load_relaxed(&group->parent);
	}
	note_peaks(session, &walk);
}

void mt_counter_charge(struct mt_session *session, uint32_t index,
		       int64_t pages, struct mt_thread *op)
{
	charge(session, index, MT_NONE, pages, op);
}

void mt_counter_charge_below(struct mt_session *session, uint32_t index,
			     uint32_t top, int64_t pages)
{
	charge(session, index, top, pages, NULL);
}

static void uncharge(struct mt_session *session, uint32_t index, uint32_t top,
		     int64_t pages, struct mt_thread *op)
{
	uint32_t lowest = index;
	uint32_t levels = 0;

	while (index != top && group_valid(session, index) &&
	       levels < MT_DEPTH_MAX) {
		op_at(op, ++levels, lowest);
		mt_counter_cancel(session, index, pages);
		index = load_relaxed(&group_at(session, index)->parent);
	}
}

void mt_counter_uncharge(struct mt_session *session, uint32_t index,
			 int64_t pages, struct mt_thread *op)
{
	uncharge(session, index, MT_NONE, pages, op);
}

void mt_counter_uncharge_below(struct mt_session *session, uint32_t index,
			       uint32_t top, int64_t pages)
{
	uncharge(session, index, top, pages, NULL);
}

int mt_counter_set_max(struct mt_session *session, uint32_t index, int64_t max)
{
	struct mt_group *group = group_at(session, index);

	for (;;) {
		int64_t usage = load_seq_cst(&group->usage);
		int64_t old;

		if (usage > max)
			return -EBUSY;
		/* Pairs with mt_counter_try_charge(). */
		old = exchange_seq_cst(&group->max, max);
		if (load_seq_cst(&group->usage) <= usage || max >= old)
			return 0;
		/* A charge slipped in between: it may have seen the old one. */
		store_seq_cst(&group->max, old);
		cpu_relax();
	}
}

int64_t mt_counter_force_max(struct mt_session *session, uint32_t index,
			     int64_t max)
{
	struct mt_group *group = group_at(session, index);
	int64_t usage;

	exchange_seq_cst(&group->max, max);
	usage = load_seq_cst(&group->usage);
	return usage > max ? usage - max : 0;
}

static void publish_upward(struct mt_session *session, uint32_t index)
{
	for (int i = 0; group_valid(session, index) && i < MT_DEPTH_MAX; i++) {
		struct mt_group *group = group_at(session, index);

		publish(session, group, load_seq_cst(&group->usage));
		index = load_relaxed(&group->parent);
	}
}

void mt_counter_set_min(struct mt_session *session, uint32_t index, int64_t min)
{
	store_seq_cst(&group_at(session, index)->min, min);
	publish_upward(session, index);
}

void mt_counter_set_low(struct mt_session *session, uint32_t index, int64_t low)
{
	store_seq_cst(&group_at(session, index)->low, low);
	publish_upward(session, index);
}

void mt_counter_set_high(struct mt_session *session, uint32_t index,
			 int64_t high)
{
	store_seq_cst(&group_at(session, index)->high, high);
}

void mt_counter_settle(struct mt_session *session, uint32_t index)
{
	struct mt_group *group = group_at(session, index);

	publish(session, group, load_seq_cst(&group->usage));
}

void mt_counter_reset_peak(struct mt_session *session, uint32_t index)
{
	struct mt_group *group = group_at(session, index);
	int64_t usage = load_relaxed(&group->usage);

	/* This order keeps the local peak at or below the other. */
	store_relaxed(&group->peak_local, usage);
	store_relaxed(&group->peak, usage);
}

bool mt_counter_is_below(const struct mt_session *session, uint32_t group,
			 uint32_t ancestor)
{
	for (int i = 0; group_valid(session, group) && i < MT_DEPTH_MAX; i++) {
		if (group == ancestor)
			return true;
		group = load_relaxed(&session->groups[group].parent);
	}
	return false;
}

uint32_t mt_counter_common(const struct mt_session *session, uint32_t a,
			   uint32_t b)
{
	for (int i = 0; group_valid(session, a) && i < MT_DEPTH_MAX; i++) {
		if (mt_counter_is_below(session, b, a))
			return a;
		a = load_relaxed(&session->groups[a].parent);
	}
	return MT_NONE;
}

#define OVERAGE_SHIFT 20
#define DELAY_SHIFT   14 /* 2^6 s at an overage of 1 */
#define DELAY_MOST    2000

uint64_t mt_counter_overage(int64_t usage, int64_t high)
{
	uint64_t most = UINT64_C(64) << OVERAGE_SHIFT;
	uint64_t base = (uint64_t)MT_MAX(high, 1);
	uint64_t above;

	if (usage <= (int64_t)base)
		return 0;
	above = (uint64_t)usage - base;
	if (above / base >= 64)
		return most;
	/* No group is so large that the digits lost here count. */
	while (above >> (64 - OVERAGE_SHIFT) && base > 1) {
		above >>= 1;
		base >>= 1;
	}
	return (above << OVERAGE_SHIFT) / base;
}

uint64_t mt_counter_delay_ms(uint64_t overage, int64_t pages)
{
	uint64_t ms = overage * overage * 1000;

	ms = ms >> OVERAGE_SHIFT >> DELAY_SHIFT;
	ms = ms * (uint64_t)MT_MIN(pages, MT_CHARGE_MAX / 1024) /
	     MT_BATCH_DEFAULT;
	return MT_MIN(ms, (uint64_t)DELAY_MOST);
}
