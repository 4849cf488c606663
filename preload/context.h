/* SPDX-License-Identifier: MIT */
/*
 * context.h - where this thread is: in a signal handler, perhaps.
 */
#ifndef MT_PRELOAD_CONTEXT_H
#define MT_PRELOAD_CONTEXT_H

#include "core/base.h"

/**
 * mt_in_handler - may this thread be running a signal handler?
 *
 * What it interrupted may have been the allocator, whose locks would then never
 * be had.  Nobody tells, so the stack is searched for the frame that the kernel
 * makes: some 10 to 100 us.  Errs on the side of yes.
 */
bool mt_in_handler(void);

/* May this process call the kernel only as a filter allows?  Then what the
 * program itself never does could end it.  Known from the start, and from
 * prctl() and seccomp calls through libc. */
bool mt_in_sandbox(void);

/* At the library's start. */
void mt_context_start(void);

/* A filter is about to be installed. */
void mt_context_sandbox(void);

#endif
