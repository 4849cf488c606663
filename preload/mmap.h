/* SPDX-License-Identifier: MIT */
/*
 * mmap.h - the mapping family's life around the start and around forks.
 */
#ifndef MT_PRELOAD_MMAP_H
#define MT_PRELOAD_MMAP_H

#include <stddef.h>
#include <stdint.h>

/* Find libc's functions. */
void mt_mmap_resolve(void);

void mt_mmap_prefork(void);
void mt_mmap_postfork_parent(void);
void mt_mmap_postfork_child(void);

#endif
