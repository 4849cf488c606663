/* SPDX-License-Identifier: MIT */
/*
 * plan.h - a tree of groups on paper, and what its claims are worth.
 *
 * Described in JSON or read from a cgroup v2 directory; pages throughout.
 */
#ifndef MT_TOOLS_PLAN_H
#define MT_TOOLS_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/protection.h"

struct plan_node {
	char *name;
	char *parent_name; /* as given; NULL: none was */
	uint32_t parent;   /* MT_NONE: the root's */
	uint32_t depth;
	struct mt_protection p;
	int64_t children; /* usage of all children together */
	bool in_reach;    /* below the target, or the target itself */
};

struct plan {
	struct plan_node *nodes; /* as given; 0 is the root */
	uint32_t nr;
	uint32_t room;
	uint32_t *in_order; /* as a tree: parents before children */
	uint32_t *reclaim;  /* who gives pages up, the first first */
	uint32_t nr_reclaim;
	bool recursive;
	uint32_t target;
	char why[256]; /* what was wrong */
};

/**
 * plan_read_json - a tree from text
 *
 * {"nodes": [{"name", "parent", "usage", "min", "low"} ...], "recursive",
 * "reclaim_root"}: pages; a claim may be left out (0), null or "max"; a parent
 * left out is "root", which is there without being described.  Recursive and
 * reclaimed from the root unless it says otherwise.
 *
 * Return: false with plan->why.
 */
bool plan_read_json(struct plan *plan, const char *text, size_t length);

/* The tree of a cgroup v2 directory, which becomes the root.  Return: as
 * above. */
bool plan_read_cgroup(struct plan *plan, const char *dir);

/* Work out everything else.  Return: false with plan->why. */
bool plan_compute(struct plan *plan);

/* Pages that a node itself holds, as far as what its children hold tells. */
int64_t plan_own(const struct plan_node *node);

/* Of those, what may be taken from it in its tier. */
int64_t plan_excess(const struct plan_node *node);

void plan_free(struct plan *plan);

#endif
