/* SPDX-License-Identifier: MIT */
/*
 * task.h - what a thread charges with: its slot, its words, its stock.
 *
 * Every charge is recorded in exactly one word: of the thread that made it,
 * or of its process (ended threads, threads without a slot, signal handlers
 * inside an operation).  Uncharging goes to the word of the thread that
 * uncharges, so that one thread's `used` may be negative; the sum over the
 * process is what it holds.
 *
 * Order, which a death at any instruction may cut short: a charge touches
 * the ancestors bottom up and the own word last; an uncharge, and a drain by
 * anyone, the word first and the ancestors after.  So usage is never below
 * the sum of the words.
 *
 *	operation	 touches		    seq
 *	consume, refill	 own word, one CAS	    no
 *	charge, uncharge tree and own word	    odd meanwhile
 *	drain		 any word, then the tree    drainer's odd meanwhile
 *	reap		 a dead process's words, then the tree
 *
 * All of it is lock-free and safe in an extent hook and in a signal handler
 * that interrupted any of it.
 */
#ifndef MT_CORE_TASK_H
#define MT_CORE_TASK_H

#include "core/segment.h"

#define MT_TASK_LINES 6

/*
 * Private to one thread, in memory that the kernel wipes on fork: after a
 * fork all indices read 0, "none".  Indices are stored plus one for that.
 */
struct mt_task {
	uint32_t process;        /* slot + 1 */
	uint32_t thread;         /* slot + 1; 0: attached without one */
	volatile uint32_t depth; /* operations under way: 0 or 1, and 2 for a
				    handler inside one */
	uint32_t next_victim;
	/* Charged into the tree while a level was above its `high`, and where;
	 * for the caller to take. */
	uint32_t over_group;
	int64_t over_pages;
	uint32_t evicted; /* it has lines that lines[] doesn't know */
	struct {
		uint32_t group; /* + 1 */
		uint32_t line;  /* + 1 */
	} lines[MT_TASK_LINES];
};

/**
 * mt_task_attach - give a thread a slot
 * @process: its process's slot
 *
 * Without a free slot the task works all the same, with its process's words
 * and no stock; header.fallbacks counts it.
 */
void mt_task_attach(struct mt_session *session, struct mt_task *task,
		    uint32_t process, uint32_t tid);

/* Make sure that a process has a line of its own for @group, so that its
 * threads can charge there whatever becomes of the tables.  Return: has it? */
bool mt_task_ensure_line(struct mt_session *session, uint32_t process,
			 uint32_t group);

/* The thread ends: words go to the process's lines, stocks to the tree. */
void mt_task_detach(struct mt_session *session, struct mt_task *task);

/**
 * mt_charge - charge, through the stock
 * @pages: 1 to MT_CHARGE_MAX
 * @ret_refuser: set on false only
 *
 * Stock; then a batch; then exactly @pages; then exactly @pages again after
 * draining the stocks below the refuser.  No event is counted.
 */
bool mt_charge(struct mt_session *session, struct mt_task *task, uint32_t group,
	       enum mt_kind kind, int64_t pages, uint32_t *ret_refuser);

/* The same without the drain: the kernel's order, for tests and numbers. */
bool mt_charge_once(struct mt_session *session, struct mt_task *task,
		    uint32_t group, enum mt_kind kind, int64_t pages,
		    uint32_t *ret_refuser);

/* Charge whatever the limits say; never touches the stock. */
void mt_charge_forced(struct mt_session *session, struct mt_task *task,
		      uint32_t group, enum mt_kind kind, int64_t pages);

/* Give back, through the stock: above the batch all of it goes. */
void mt_uncharge(struct mt_session *session, struct mt_task *task,
		 uint32_t group, enum mt_kind kind, int64_t pages);

/**
 * mt_move_charge - the pages change kind or group; no counter of a common
 * ancestor moves.  Forced: limits of the new group are not looked at.
 */
void mt_move_charge(struct mt_session *session, struct mt_task *task,
		    uint32_t from, enum mt_kind from_kind, uint32_t to,
		    enum mt_kind to_kind, int64_t pages);

/**
 * mt_drain - take every stock below @group back
 *
 * Synchronous: when it returns, the pages are off the counters.
 * Return: how many.
 */
int64_t mt_drain(struct mt_session *session, struct mt_task *task,
		 uint32_t group);

/* The pages a thread holds ahead of use, for @group. */
int64_t mt_task_stock(struct mt_session *session, struct mt_task *task,
		      uint32_t group);

#endif
