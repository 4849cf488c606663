/* SPDX-License-Identifier: MIT */
/*
 * maplock.h - the lock around the mapping table, and what a signal handler
 * does instead of taking it.
 *
 * A handler may map and unmap while its own thread holds the lock.  Blocking
 * signals would cost two system calls a time; here the handler leaves what it
 * did to the table in a queue, and the holder does it on its way out.
 */
#ifndef MT_PRELOAD_MAPLOCK_H
#define MT_PRELOAD_MAPLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "core/mapping.h"

/* Something done to the address space that the table has yet to learn. */
struct mt_map_op {
	enum {
		MT_OP_NONE,
		MT_OP_INSERT,  /* range, charged already, over what was there */
		MT_OP_PUNCH,   /* range.start to range.end */
		MT_OP_SHIFT,   /* range.start to .end went to @to */
		MT_OP_PROTECT, /* range.state: MT_MAP_WRITE, MT_MAP_NONE */
	} what;
	struct mt_range range;
	uint64_t to;
};

/* Does an operation, with the lock held; given by mmap.c. */
typedef void mt_map_do_fn(const struct mt_map_op *op);

/**
 * mt_maplock_take - take the lock
 * @rebuild: called when the lock was found orphaned: its holder was killed,
 *	     or left by a jump out of a handler
 *
 * Return: false in a signal handler whose own thread holds it: then
 * mt_maplock_defer().
 */
bool mt_maplock_take(void (*rebuild)(void));

/* Give it back, after doing what handlers left. */
void mt_maplock_release(mt_map_do_fn *do_op);

/* Leave an operation to this thread's interrupted holder of the lock.
 * Return: false when too many are waiting. */
bool mt_maplock_defer(const struct mt_map_op *op);

/* A new process: nobody holds it. */
void mt_maplock_reset(void);

#endif
