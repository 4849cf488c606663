/* SPDX-License-Identifier: MIT */
#ifndef MT_PRELOAD_EXEC_H
#define MT_PRELOAD_EXEC_H

/* Find libc's functions. */
void mt_exec_resolve(void);

#endif
