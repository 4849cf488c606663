/* SPDX-License-Identifier: MIT */
/*
 * maplock.h - the lock around the mapping table, and what is done where it
 * can't be had.
 *
 * A signal handler may map and unmap while its own thread holds the lock.
 * Blocking signals would cost two system calls a time; here the handler leaves
 * what it did in a queue, and the holder does that to the table on its way
 * out.  So does a thread that has waited for long on a holder that lives:
 * collectors stop threads by a signal, wherever they are, and map meanwhile.
 */
#ifndef MT_PRELOAD_MAPLOCK_H
#define MT_PRELOAD_MAPLOCK_H

#include "core/mapping.h"

enum mt_map_op_kind {
	MT_OP_INSERT,  /* range; @paid pages are charged already */
	MT_OP_PUNCH,   /* range.start to .end */
	MT_OP_PROTECT, /* range.start to .end; range.state as for protect */
	MT_OP_MOVE,    /* range.start to .end went to @to, now @len long */
	MT_OP_COPY,    /* the same, and is still there */
};

/* Something done to the address space that the table has yet to learn. */
struct mt_map_op {
	enum mt_map_op_kind kind;
	struct mt_map_range range;
	uint64_t to;
	uint64_t len;
	int64_t paid;
	bool sparse; /* see mt_mapping_land() */
};

/**
 * mt_maplock_take - take the lock
 * @frame: __builtin_frame_address(0) of the hook that the program called
 *
 * Return: false when the caller can't have it: it does its system call, and
 * then mt_maplock_defer().
 */
bool mt_maplock_take(void *frame);

/* Give it back, after doing what was deferred. */
void mt_maplock_release(void);

/* Leave an operation to the holder. */
void mt_maplock_defer(const struct mt_map_op *op);

/* Is nobody inside, and nothing deferred? */
bool mt_maplock_idle(void);

/* Did this thread hold it when it was last here?  In a new process: does the
 * code that we interrupted? */
bool mt_maplock_is_mine(void);

/* A new process: nobody holds it. */
void mt_maplock_reset(void);

/* How often something may have been missed, or done twice. */
uint64_t mt_maplock_uncertain(void);

/* Given by mmap.c, called with the lock held. */
void mt_mmap_do(const struct mt_map_op *op);
void mt_mmap_recover(void);

#endif
