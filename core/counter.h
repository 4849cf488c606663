/* SPDX-License-Identifier: MIT */
/*
 * counter.h - the hierarchical page counter: the kernel's arithmetic, in a
 * shared segment, on groups named by index.
 *
 * Lock-free; any thread of any process, from signal handlers and extent
 * hooks too.  A walk goes bottom up, from the group named to "/".  Charges
 * that a thread makes are recorded in a word as well: that is task.h; here
 * is only the tree.
 *
 * Deliberate differences from the kernel: peaks are raised only after a
 * charge went through at every level (no phantom peaks), and an underflow is
 * clamped by a difference, never by a store, so that no concurrent charge is
 * lost.
 */
#ifndef MT_CORE_COUNTER_H
#define MT_CORE_COUNTER_H

#include "core/segment.h"

/**
 * mt_counter_try_charge - charge a group and all its ancestors, or none
 * @session: where
 * @group: where the charge enters the tree
 * @pages: 1 to MT_CHARGE_MAX
 * @op: the calling thread's slot, to note progress for a reaper, or NULL
 * @ret_refuser: set on false only: the lowest group past its max
 *
 * Usage may equal max.  Adds first and tests second, so that a large charge
 * about to be refused can make a small one beside it fail as well.
 */
bool mt_counter_try_charge(struct mt_session *session, uint32_t group,
			   int64_t pages, struct mt_thread *op,
			   uint32_t *ret_refuser);

/* Charge without looking at limits. */
void mt_counter_charge(struct mt_session *session, uint32_t group,
		       int64_t pages, struct mt_thread *op);

/**
 * mt_counter_common - the lowest group that both are, or are below
 *
 * Return: its index, or MT_NONE in a garbled tree.
 */
uint32_t mt_counter_common(const struct mt_session *session, uint32_t a,
			   uint32_t b);

/* Charge, and take off, @group and its ancestors below @top only. */
void mt_counter_charge_below(struct mt_session *session, uint32_t group,
			     uint32_t top, int64_t pages);
void mt_counter_uncharge_below(struct mt_session *session, uint32_t group,
			       uint32_t top, int64_t pages);

/* Take @pages off one level only. */
void mt_counter_cancel(struct mt_session *session, uint32_t group,
		       int64_t pages);

/* Take @pages off @group and all its ancestors. */
void mt_counter_uncharge(struct mt_session *session, uint32_t group,
			 int64_t pages, struct mt_thread *op);

/**
 * mt_counter_set_max - cgroup v1's limit write: refuse below usage
 *
 * Return: 0, or -EBUSY when usage is above @max.
 */
int mt_counter_set_max(struct mt_session *session, uint32_t group, int64_t max);

/* cgroup v2's: the new limit holds for new charges at once, whatever the
 * usage.  Return: pages by which usage is above it, or 0. */
int64_t mt_counter_force_max(struct mt_session *session, uint32_t group,
			     int64_t max);

/* Set a claim and publish it on every ancestor-or-self.  Callers serialize. */
void mt_counter_set_min(struct mt_session *session, uint32_t group,
			int64_t min);
void mt_counter_set_low(struct mt_session *session, uint32_t group,
			int64_t low);
void mt_counter_set_high(struct mt_session *session, uint32_t group,
			 int64_t high);

/* Publish the claims that @group's present usage covers: exact at rest. */
void mt_counter_settle(struct mt_session *session, uint32_t group);

/* cgroup v1's reset: both peaks fall to the present usage. */
void mt_counter_reset_peak(struct mt_session *session, uint32_t group);

/* Is @group @ancestor, or below it?  Bounded, whatever the segment holds. */
bool mt_counter_is_below(const struct mt_session *session, uint32_t group,
			 uint32_t ancestor);

/**
 * mt_counter_overage - by how much usage is above `high`, relative to it
 *
 * (usage - high) / high with 20 binary digits behind the point, floored; a
 * `high` of 0 counts as 1.  0 when it isn't above.  Capped at 64.0, where any
 * delay has long reached its most.  The kernel's formula, as is the next.
 */
uint64_t mt_counter_overage(int64_t usage, int64_t high);

/**
 * mt_counter_delay_ms - how long a charge above `high` is to be held up
 * @overage: the highest of all levels
 * @pages: charged since the last delay
 *
 * 64 s times the overage squared, times pages / 64; 2 s at most.  Delays of
 * up to 10 ms are not worth their sleep: that is the caller's to say.
 */
uint64_t mt_counter_delay_ms(uint64_t overage, int64_t pages);

#endif
