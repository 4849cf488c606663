/* SPDX-License-Identifier: MIT */
#ifndef MT_PRELOAD_THREAD_H
#define MT_PRELOAD_THREAD_H

/* Find libc's functions. */
void mt_thread_resolve(void);

#endif
