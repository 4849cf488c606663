/* SPDX-License-Identifier: MIT */
/*
 * protection.c - effective min and low.
 *
 * The numbers are read one by one while others change them: each guard below
 * keeps its own subtraction and division defined, and none relies on another's.
 */
#include "core/protection.h"

#include "core/atomic.h"

/* a * b / c, floored; c is not 0.  Where b, read later, is more than c: as much
 * as there can be. */
static int64_t scale(int64_t a, int64_t b, int64_t c)
{
	unsigned __int128 q = (unsigned __int128)a * (uint64_t)b / (uint64_t)c;

	return (int64_t)MT_MIN(q, (unsigned __int128)MT_UNLIMITED);
}

int64_t mt_protection_share(int64_t usage, int64_t claim, int64_t parent_usage,
			    int64_t parent_effective, int64_t siblings_claim,
			    bool recursive)
{
	int64_t covered = MT_MIN(usage, claim);
	int64_t spare = parent_effective - siblings_claim;
	int64_t unclaimed = parent_usage - siblings_claim;

	/* More is claimed than there is: to each its part. */
	if (spare < 0)
		return scale(covered, parent_effective, siblings_claim);
	if (!recursive || spare == 0 || unclaimed <= 0 || usage <= covered)
		return covered;
	return MT_MIN(covered + scale(spare, usage - covered, unclaimed),
		      MT_UNLIMITED);
}

void mt_protection_step(struct mt_protection *group,
			const struct mt_protection *parent, bool recursive)
{
	if (group->usage <= 0)
		return;
	if (!parent) {
		group->emin = group->min;
		group->elow = group->low;
		return;
	}
	group->emin = mt_protection_share(
		group->usage, group->min, parent->usage, parent->emin,
		parent->children_min_usage, recursive);
	group->elow = mt_protection_share(
		group->usage, group->low, parent->usage, parent->elow,
		parent->children_low_usage, recursive);
}

enum mt_protection_tier mt_protection_tier(const struct mt_protection *group)
{
	if (group->usage <= 0 ||
	    group->usage > MT_MAX(group->emin, group->elow))
		return MT_PROTECT_NONE;
	return group->usage > group->emin ? MT_PROTECT_LOW : MT_PROTECT_MIN;
}

int64_t mt_protection_excess(const struct mt_protection *group)
{
	int64_t held = mt_protection_tier(group) == MT_PROTECT_NONE
			       ? MT_MAX(group->emin, group->elow)
			       : group->emin;

	return MT_MAX(group->usage - held, 0);
}

/* Another process may have scribbled over it. */
static int64_t sane(int64_t pages)
{
	return MT_MIN(MT_MAX(pages, 0), MT_UNLIMITED);
}

void mt_protection_look(const struct mt_group *group, struct mt_protection *ret)
{
	ret->usage = sane(load_relaxed(&group->usage));
	ret->min = sane(load_relaxed(&group->min));
	ret->low = sane(load_relaxed(&group->low));
	ret->children_min_usage =
		sane(load_relaxed(&group->children_min_usage));
	ret->children_low_usage =
		sane(load_relaxed(&group->children_low_usage));
	ret->emin = sane(load_relaxed(&group->emin));
	ret->elow = sane(load_relaxed(&group->elow));
}

void mt_protection_of(struct mt_session *session, uint32_t target,
		      uint32_t group, bool recursive, struct mt_protection *ret)
{
	uint32_t capacity = session->header->tables[MT_GROUPS].capacity;
	struct mt_protection above;
	uint32_t path[MT_DEPTH_MAX] = { 0 };
	uint32_t at = group;
	uint32_t depth;

	for (depth = 0; at != target; depth++) {
		if (at >= capacity || depth == MT_DEPTH_MAX) {
			*ret = (struct mt_protection){ 0 };
			return;
		}
		path[depth] = at;
		at = load_relaxed(&session->groups[at].parent);
	}
	mt_protection_look(&session->groups[target], ret);
	ret->emin = ret->elow = 0;
	for (uint32_t i = depth; i-- > 0;) {
		struct mt_group *g = &session->groups[path[i]];

		above = *ret;
		mt_protection_look(g, ret);
		mt_protection_step(ret, i + 1 == depth ? NULL : &above,
				   recursive);
		store_relaxed(&g->emin, ret->emin);
		store_relaxed(&g->elow, ret->elow);
	}
}
