/* SPDX-License-Identifier: MIT */
/*
 * limit.h - what happens at a limit, in the wrappers, with no lock held.
 *
 * The hooks only leave marks in mt_flags; here are the rounds of a refused
 * charge, the sleep of one above `high`, and the answer to others who want
 * pages back.
 */
#ifndef MT_PRELOAD_LIMIT_H
#define MT_PRELOAD_LIMIT_H

#include "preload/account.h"

#define MEMTALLY_NO_FUNCTIONS
#include "preload/memtally.h"

/* How far a refused call has come; zero at first. */
struct mt_limit_rounds {
	unsigned nr;         /* rounds so far */
	unsigned fruitless;  /* since the last that brought something */
	unsigned asked;      /* processes that may still answer */
	uint64_t waiting_ns; /* when policy "wait" began, CLOCK_MONOTONIC */
	/* Set by the caller: it may have interrupted the allocator, so nothing
	 * of this process's is purged. */
	bool heap_is_busy;
};

/**
 * mt_limit_round - one round of the limit path
 *
 * Call after a refusal: clears MT_REFUSED; drains the stocks below the
 * refuser, reaps the dead, gives this process's cached pages back and asks
 * other processes for theirs, for whom it waits a millisecond; when that
 * brings nothing, does what the session's policy says.  Counts `max` once a
 * round, and `oom` before the policy.  errno is left alone.
 *
 * Return: true: try the same call again; false: give up, ENOMEM.
 */
bool mt_limit_round(struct mt_limit_rounds *rounds);

/**
 * mt_limit_later - what MT_LATER in mt_flags stands for: be throttled above
 * `high`, answer others who want pages back
 * @heap_is_free: in a wrapper of the malloc family.  A signal handler that maps
 *	memory may have interrupted the allocator, whose locks are then held:
 *	nothing is purged from there.
 */
void mt_limit_later(bool heap_is_free);

/* The program's own caches: memtally_reclaim_add() and _del(). */
int mt_limit_reclaim_add(memtally_group group, memtally_reclaim_fn fn,
			 void *arg, int cost);
void mt_limit_reclaim_del(memtally_group group, memtally_reclaim_fn fn,
			  void *arg);

#endif
