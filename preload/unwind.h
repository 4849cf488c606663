/* SPDX-License-Identifier: MIT */
/*
 * unwind.h - the call stack of a thread that met a limit.
 */
#ifndef MT_PRELOAD_UNWIND_H
#define MT_PRELOAD_UNWIND_H

#include "core/layout.h"

/**
 * mt_unwind - where in the program this thread is
 * @record: its frames and modules are filled in, the shim's own left out; they
 *	stay empty where a stack can't be had
 * @may_load: the unwinder may be loaded, which takes the loader's locks and
 *	memory: in a wrapper of the malloc family, and not in a signal handler
 *
 * libunwind is loaded at the first call, if it is there.  No lock of ours may
 * be held.  Ten stacks a second per process, and none where little is left of
 * this thread's own.
 */
void mt_unwind(struct mt_record *record, bool may_load);

#endif
