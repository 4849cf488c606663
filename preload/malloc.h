/* SPDX-License-Identifier: MIT */
#ifndef MT_PRELOAD_MALLOC_H
#define MT_PRELOAD_MALLOC_H

/* Find the next allocator in line. */
void mt_malloc_resolve(void);

#endif
