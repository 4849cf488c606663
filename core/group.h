/* SPDX-License-Identifier: MIT */
/*
 * group.h - the tree's nodes: find, make, name, take down.
 *
 * A name is unique below its parent.  Making one is lock-free: fill in a
 * free record, publish it as a candidate, look whether another of the same
 * name is there, and become live.  Of two candidates the lower index wins;
 * anyone may finish the winner's work, so nobody waits for the dead or the
 * stopped.
 */
#ifndef MT_CORE_GROUP_H
#define MT_CORE_GROUP_H

#include "core/counter.h"

/* A path's component is 1 to 63 bytes without '/' or control characters, and
 * neither "." nor "..". */
bool mt_group_name_ok(const char *name, size_t len);

/**
 * mt_group_make - the group @name below @parent, made if need be
 * @flags: MT_GROUP_* for a new one; MT_GROUP_EXCLUSIVE promises that nobody
 *	   else makes that name at the same time, and spares a second search
 * @ret_group: its index
 *
 * Return: 0; -EINVAL a bad name; -ENAMETOOLONG; -E2BIG deeper than
 * MT_DEPTH_MAX; -ENOSPC no free record; -ENOENT the parent is not in use, or
 * was retired meanwhile.  Callers then use the parent.
 */
int mt_group_make(struct mt_session *session, uint32_t parent, const char *name,
		  uint32_t flags, uint32_t *ret_group);

/**
 * mt_group_make_path - walk @path from @base ("/" when it starts with '/'),
 * making what isn't there
 *
 * @ret_group is set even on failure: to the deepest group that could be had.
 *
 * Until the caller uses it, a group may be retired and its record be given to
 * another name: mt_group_hold() tells the one, a second call of this the other.
 */
int mt_group_make_path(struct mt_session *session, uint32_t base,
		       const char *path, uint32_t flags, uint32_t *ret_group);

/* The group at absolute @path, or MT_NONE.  Changes nothing. */
uint32_t mt_group_find(struct mt_session *session, const char *path);

/**
 * mt_group_hold - may @group be used, now that the caller does?
 *
 * The use comes first: a line or a child below it, a process's home.  One that
 * is being retired is taken back; its retirer may find the use a moment later.
 */
bool mt_group_hold(struct mt_session *session, uint32_t group);

/* Is @group a record in use? */
bool mt_group_is_live(const struct mt_session *session, uint32_t group);

/**
 * mt_group_path - the absolute path of a group, as text
 *
 * Return: its length; the text is cut at @size - 1 bytes.  "?" for a record
 * that isn't in use.
 */
size_t mt_group_path(const struct mt_session *session, uint32_t group,
		     char *buf, size_t size);

/**
 * mt_group_retire - free a group's record if nothing needs it any more
 *
 * Nothing: no live process has it as its default, no line and no group is
 * below it, its usage is zero and it is not MT_GROUP_KEEP.  Harmless to call
 * at any time.  Its parents are tried as well.
 */
void mt_group_retire(struct mt_session *session, uint32_t group);

/* Retire every group that can be, and end what the dead left half done. */
void mt_group_sweep(struct mt_session *session);

/**
 * mt_group_matches - does a path match a pattern?
 *
 * '?' is any one byte and '*' any number of them, both except '/'; all else
 * is itself.
 */
bool mt_group_matches(const char *path, const char *pattern);

/* What a rule sets: pages, or MT_RULE_UNSET. */
struct mt_rule_limits {
	int64_t min;
	int64_t low;
	int64_t high;
	int64_t max;
};

/* Set those limits that are not MT_RULE_UNSET; lowered ones by force. */
void mt_group_set_limits(struct mt_session *session, uint32_t group,
			 const struct mt_rule_limits *limits);

/**
 * mt_group_add_rule - limits for every group whose path matches @pattern
 *
 * Groups that are there get them now, lowered limits by force; those made
 * later are made with them.
 *
 * Return: 0; -EINVAL no absolute pattern, or longer than 127 bytes; -ENOSPC.
 */
int mt_group_add_rule(struct mt_session *session, const char *pattern,
		      const struct mt_rule_limits *limits);

/* Count an event at the group, and at it and all ancestors; who waits on
 * header.events is woken.  Not for fast paths: a system call. */
void mt_group_event(struct mt_session *session, uint32_t group,
		    enum mt_event event);

#endif
