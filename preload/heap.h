/* SPDX-License-Identifier: MIT */
/*
 * heap.h - jemalloc over slices of address space, charged page by page in
 * extent hooks.
 *
 * malloc.c has the symbols, slice.c the address space; here are arenas,
 * hooks, purging and groups.
 */
#ifndef MT_PRELOAD_HEAP_H
#define MT_PRELOAD_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/account.h"
#include "preload/slice.h"

/* In mt_flags while this thread has entered a group other than home; and
 * then the owner class of that group. */
#define MT_ELSEWHERE 0x80u
extern MT_TLS uint32_t mt_heap_entered;

/* Make the allocator ready.  Any entry point but free() may be the first. */
void mt_heap_init(void);

/* Options that depend on the process, for jemalloc's start; or NULL. */
char *mt_heap_options(void);

/* mallocx flags for memory of an owner other than home: its arena, and this
 * thread's cache for it if it has one.  May allocate. */
int mt_heap_flags(uint32_t owner);

/**
 * mt_heap_purge - give cached (dirty) heap pages back to the system
 * @group: whose arenas, MT_HOME among them; MT_NONE: all
 *
 * No lock may be held.  Caches of other threads stay as they are.
 *
 * Return: pages given back.
 */
size_t mt_heap_purge(uint32_t group);

/* The groups that this process has heap arenas for: how many there are, and
 * the one of a number below that (the first is MT_HOME). */
uint32_t mt_heap_nr_groups(void);
uint32_t mt_heap_group(uint32_t n);

/* This thread's allocations go to @group's arena from now on (MT_HOME: the
 * process's default group).  May allocate. */
void mt_heap_enter(uint32_t group);

/* Does the pointer lie in one of our slices? */
static inline int mt_heap_owns(const void *p)
{
	return mt_slice_owner(p) != MT_OWNER_NONE;
}

/* The three steps of a fork, in our order: around libc's, after the program's
 * own handlers. */
void mt_heap_prefork(void);
void mt_heap_postfork_parent(void);
void mt_heap_postfork_child(void);

/**
 * mt_heap_thread_start - first thing in a new thread
 *
 * Lets jemalloc register for the thread's end, and no more: a thread that
 * never allocates pays some tens of nanoseconds.  One that first touches the
 * heap in its last destructors would leave jemalloc a pointer to thread-local
 * memory that is no longer there.
 */
void mt_heap_thread_start(void);

/* The thread is about to end: flush and pool explicit caches. */
void mt_heap_thread_exit(void);

#endif
