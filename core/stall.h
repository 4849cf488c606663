/* SPDX-License-Identifier: MIT */
/*
 * stall.h - time that threads lost at a group's limits.
 *
 * A total, and its share of the time that passed, averaged over the last 10,
 * 60 and 300 s: each moment weighs e^(-age / window), as in the kernel's load
 * and pressure averages.  Several threads that wait at once count each.
 *
 * Nobody ticks: an average carries the moment it was true at, whoever adds to
 * it or reads it lets it fade until now.
 */
#ifndef MT_CORE_STALL_H
#define MT_CORE_STALL_H

#include "core/segment.h"

/**
 * mt_stall_add - a thread has waited, at a limit of @group or above it
 * @us: how long, until now
 * @now_ns: CLOCK_MONOTONIC
 *
 * Counts at @group and all its ancestors.
 */
void mt_stall_add(struct mt_session *session, uint32_t group, uint64_t us,
		  uint64_t now_ns);

/**
 * mt_stall_share - an average as it is now
 * @avg: an element of a group's stall_avg
 * @window: its index
 * @now_ns: CLOCK_MONOTONIC
 *
 * Return: threads' worth of time, in 1/2^20: 1 << 20 is one thread that waits
 * all the time.
 */
uint32_t mt_stall_share(uint64_t avg, unsigned window, uint64_t now_ns);

#endif
