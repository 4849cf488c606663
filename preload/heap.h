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

/* This thread's owner class while it has entered another group; 0: home. */
extern MT_TLS uint32_t mt_heap_entered;

/* Make the allocator ready.  Any entry point but free() may be the first. */
void mt_heap_init(void);

/* mallocx flags for memory of an owner other than home. */
int mt_heap_flags(uint32_t owner);

/* Give cached (dirty) heap pages of this process back to the system: of
 * @group's arenas, or of all with MT_NONE.  No lock may be held.
 * Return: pages given back. */
size_t mt_heap_purge(uint32_t group);

/* This thread's allocations go to @group's arena from now on (MT_HOME: the
 * process's default group). */
void mt_heap_enter(uint32_t group);

/* The three steps of a fork. */
void mt_heap_prefork(void);
void mt_heap_postfork_parent(void);
void mt_heap_postfork_child(void);

/* A thread begins, and ends. */
void mt_heap_thread_start(void);
void mt_heap_thread_exit(void);

#endif
