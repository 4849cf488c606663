/* SPDX-License-Identifier: MIT */
/*
 * mmap.h - the calls that change the address space: mmap and its family, brk,
 * System V shared memory.
 */
#ifndef MT_PRELOAD_MMAP_H
#define MT_PRELOAD_MMAP_H

#include "core/mapping.h"

/* Libc's syscall(), for syscall.c. */
extern uintptr_t mt_syscall_next __attribute__((visibility("hidden")));

/* Find libc's functions; until then, system calls take their place. */
void mt_mmap_resolve(void);

/*
 * Around fork.  There is nothing to do: the child finds out by itself that the
 * table isn't its own, at its first call that matters, as it must after a raw
 * clone; most children exec before that.
 */
static inline void mt_mmap_prefork(void)
{
}

static inline void mt_mmap_postfork_parent(void)
{
}

static inline void mt_mmap_postfork_child(void)
{
}

/* Re-charge what is mapped in [addr, addr + len) to @group.  Return: 0, or
 * -EAGAIN: the table can't be had now. */
int mt_mmap_regroup(void *addr, size_t len, uint32_t group);

/* Write the shared file mappings of @group, and below it, back to their files.
 * Takes as long as the disk does. */
void mt_mmap_write_back(uint32_t group);

/* What this process has mapped and isn't charged. */
void mt_mmap_tracked(struct mt_mapping_tracked *ret_tracked);

#endif
