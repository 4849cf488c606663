/* SPDX-License-Identifier: MIT */
/*
 * heap.h - jemalloc over slices of address space, charged page by page in
 * extent hooks.
 *
 * malloc.c has the symbols; here are arenas, slices, owners and purging.
 */
#ifndef MT_PRELOAD_HEAP_H
#define MT_PRELOAD_HEAP_H

#include <stddef.h>
#include <stdint.h>

/* Give cached (dirty) heap pages of this process back: of @group's arenas
 * and those of no other, or of all with MT_NONE.  No lock may be held. */
void mt_heap_purge(uint32_t group);

/* This thread's allocations go to @group's arena from now on (MT_HOME: the
 * process's default group). */
void mt_heap_enter(uint32_t group);

/* Does the pointer lie in one of our slices? */
int mt_heap_owns(const void *p);

/* The three steps of a fork, in our order: around libc's, after the program's
 * own handlers. */
void mt_heap_prefork(void);
void mt_heap_postfork_parent(void);
void mt_heap_postfork_child(void);

/* The thread is about to end: flush and pool explicit caches. */
void mt_heap_thread_exit(void);

#endif
