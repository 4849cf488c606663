/* SPDX-License-Identifier: MIT */
/*
 * reclaim.h - whose pages go when a group is at its limit: in which order they
 * are asked for, and who is to die when there are none.
 *
 * Nothing here gives pages back or kills: that is for who holds them, and for
 * the limit path.
 */
#ifndef MT_CORE_RECLAIM_H
#define MT_CORE_RECLAIM_H

#include "core/protection.h"

/* What is wanted back, and of whom. */
struct mt_want {
	uint32_t target; /* the group at its limit: of it and those below */
	int64_t pages;
	bool despite_low; /* there wasn't enough elsewhere */
	bool write_back;  /* shared file mappings, and nothing is purged */
};

/**
 * mt_want_from - may something be taken from a group?
 * @ret: what protects it
 * @kept: set where low alone keeps it; else left alone
 */
bool mt_want_from(struct mt_session *session, const struct mt_want *want,
		  uint32_t group, struct mt_protection *ret, bool *kept);

/* Is the first of two to be asked before the second? */
bool mt_want_first(const struct mt_protection *one,
		   const struct mt_protection *other);

/* It is asked although it is below its low: an event. */
void mt_want_note(struct mt_session *session, uint32_t group,
		  const struct mt_protection *protection);

/**
 * mt_want_ask - ask processes that hold heap below the target for what they
 * have cached
 * @own: the caller's slot, or MT_NONE
 * @kept: as in mt_want_from()
 *
 * Those with most above what protects them, four at a time.  Each gives back on
 * its next way through a wrapper.  Who was asked and hasn't answered isn't asked
 * again, and counts for some milliseconds only: it may be idle for hours.
 *
 * Return: how many may still answer.
 */
unsigned mt_want_ask(struct mt_session *session, const struct mt_want *want,
		     uint32_t own, bool *kept);

/* Ask all processes below @group to write their shared file mappings back: an
 * event. */
void mt_want_write_back(struct mt_session *session, uint32_t group);

/* What a process was asked for: see struct mt_process's asked. */
struct mt_want mt_want_asked(uint64_t word);

/* The process that holds most below @group; MT_NONE: nobody holds anything. */
uint32_t mt_victim(struct mt_session *session, uint32_t group);

/* The group whose processes die together with @victim: the highest with
 * oom.group from the victim's up to the limited one, or that, if the policy is
 * kill-group; MT_NONE: it alone. */
uint32_t mt_victim_group(struct mt_session *session, uint32_t victim,
			 uint32_t limited);

#endif
