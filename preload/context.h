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

#endif
