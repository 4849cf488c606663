/* SPDX-License-Identifier: MIT */
/*
 * protection.h - what min and low are worth to a group, as things stand.
 *
 * A claim protects as far as usage and the claims of all ancestors below the
 * reclaim's target cover it: those values are called effective.  They hold for
 * one target, the group whose limit started the reclaim (or "/"), whose own
 * claims don't count.
 *
 * The kernel's formula, by its documented behaviour, on exact integers.
 */
#ifndef MT_CORE_PROTECTION_H
#define MT_CORE_PROTECTION_H

#include "core/segment.h"

/* What of a group counts.  Pages. */
struct mt_protection {
	int64_t usage;
	int64_t min;
	int64_t low;
	int64_t children_min_usage; /* sums of min(usage, claim) over children */
	int64_t children_low_usage;
	int64_t emin; /* results; those of an empty group are left alone */
	int64_t elow;
};

/**
 * mt_protection_share - one claim's effective value
 * @usage: of the group
 * @claim: its min or low
 * @parent_usage: of its parent
 * @parent_effective: the same claim's effective value there
 * @siblings_claim: sum of min(usage, claim) over the parent's children, this
 *	one included
 * @recursive: what the parent has and no child claims is shared among them, by
 *	the usage that they don't claim (cgroup v2's memory_recursiveprot)
 *
 * All 0 to MT_UNLIMITED.  Products are of 128 bits, quotients floored.
 */
int64_t mt_protection_share(int64_t usage, int64_t claim, int64_t parent_usage,
			    int64_t parent_effective, int64_t siblings_claim,
			    bool recursive);

/**
 * mt_protection_step - effective min and low of a group
 * @parent: its parent, done already; NULL when that is the target
 */
void mt_protection_step(struct mt_protection *group,
			const struct mt_protection *parent, bool recursive);

/* How a group stands in a reclaim. */
enum mt_protection_tier {
	MT_PROTECT_NONE, /* above its effective low: the first to be asked */
	MT_PROTECT_LOW,  /* below that: if the others have not enough */
	MT_PROTECT_MIN,  /* below its effective min: never */
};

/* The tier of a group; an empty one has nothing to protect or to give. */
enum mt_protection_tier mt_protection_tier(const struct mt_protection *group);

/* Pages above what protects it in its tier. */
int64_t mt_protection_excess(const struct mt_protection *group);

/* What counts of a group's record, made sane; emin and elow as they were left
 * by the last reclaim. */
void mt_protection_look(const struct mt_group *group,
			struct mt_protection *ret);

/**
 * mt_protection_of - a group's effective claims in a reclaim of @target
 *
 * Goes down from @target to @group, and stores emin and elow in the records on
 * its way.  Of what isn't below @target, and of @target,
 * nothing is protected.  Bounded, whatever the segment holds.
 */
void mt_protection_of(struct mt_session *session, uint32_t target,
		      uint32_t group, bool recursive,
		      struct mt_protection *ret);

#endif
