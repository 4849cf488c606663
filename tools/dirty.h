/* SPDX-License-Identifier: MIT */
/*
 * dirty.h - pages of shared file mappings that are in memory, written to, or on
 * their way to the disk; by group.
 *
 * From /proc/PID/smaps, on request: it costs the kernel a walk over the page
 * tables of the process, under its lock.
 */
#ifndef MT_TOOLS_DIRTY_H
#define MT_TOOLS_DIRTY_H

#include "tools/model.h"

/* Pages, in the subtree. */
struct dirty {
	int64_t mapped;
	int64_t dirty;
	int64_t writeback; /* -1: only root is told */
};

/**
 * dirty_read - of all living processes in our pid namespace
 * @ret: one for each of model->groups, by index
 * @with_writeback: look for that as well; costs a look at each page
 */
void dirty_read(const struct model *model, struct dirty *ret,
		bool with_writeback);

#endif
