/* SPDX-License-Identifier: MIT */
/*
 * account.h - what the hooks call to charge: this process's and this thread's
 * place in the session.
 *
 * Safe from the first instruction of the process on: before the shim has
 * started, pages are noted and charged when it starts; where the segment
 * can't be had, everything succeeds and nothing is counted.  A forked child
 * joins by itself at its first charge.
 */
#ifndef MT_PRELOAD_ACCOUNT_H
#define MT_PRELOAD_ACCOUNT_H

#include "core/task.h"

/* Thread-local storage of the shim must be initial-exec and small. */
#define MT_TLS __thread __attribute__((tls_model("initial-exec")))

/* Set by a hook, looked at by the wrapper around it; see mt_flags. */
#define MT_REFUSED 1u /* a charge was refused at mt_refuser */
#define MT_INSIDE                                                              \
	2u /* this thread is inside the shim's own start or limit
			 path: do not enter it again */

#define MT_LATER                                                               \
	4u /* this thread is to be throttled, or others want pages back:       \
	      limit.h */

/* One byte per thread: the only thing a wrapper tests after each call. */
extern MT_TLS uint8_t mt_flags;
/* The refusing group, while MT_REFUSED is set, and what it refused. */
extern MT_TLS uint32_t mt_refuser;
extern MT_TLS int64_t mt_refused;

/* The process's default group as charges name it, whatever its index in the
 * segment is at the moment: resolved at each charge. */
#define MT_HOME (MT_NONE - 1)

/* For what the shim makes the program's libraries do: charged to nobody. */
#define MT_NOBODY (MT_NONE - 2)

/**
 * mt_account_charge - charge this thread's process
 * @group: an index, or MT_HOME
 *
 * Hook-safe: atomics, and one drain of the stocks below the refuser.
 *
 * Return: false when refused: MT_REFUSED is set in mt_flags, mt_refuser says
 * by whom.
 */
bool mt_account_charge(uint32_t group, enum mt_kind kind, int64_t pages);

/* Charge where refusing is impossible. */
void mt_account_charge_forced(uint32_t group, enum mt_kind kind, int64_t pages);

void mt_account_uncharge(uint32_t group, enum mt_kind kind, int64_t pages);

/* @pages of @from become @to's; no limit is looked at. */
void mt_account_move(uint32_t from, enum mt_kind from_kind, uint32_t to,
		     enum mt_kind to_kind, int64_t pages);

/* Does somebody want pages back?  Then MT_LATER is set.  Hook-safe, and a few
 * loads: for hooks that charge nothing. */
void mt_account_look(void);

/* Pages of the allocator's own (base blocks, internal slices), uncharged. */
void mt_account_metadata(int64_t pages);

/* A thread's stack of @pages is there, and goes: tracked.  Return: what to end
 * it with. */
uint64_t mt_account_stack_begin(uint32_t pages);
void mt_account_stack_end(uint32_t pages, uint64_t mark);

/* Make sure that this process has joined, as far as it can.  Cheap when it
 * has.  Return: is anything counted? */
bool mt_account_start(void);

/* The group that this thread's new mappings belong to: MT_HOME, or the one
 * it has entered. */
uint32_t mt_account_current(void);

/* Enter a group, MT_HOME to return, or MT_NOBODY; the heap follows (heap.h). */
void mt_account_enter(uint32_t group);

/* Is this the same process image that set @mark?  See mt_account_mark(): a
 * number that differs between a process and its forked child. */
uint64_t mt_account_mark(void);

/* Is this the session's first process, and not a vfork child in its memory? */
bool mt_account_is_first(void);

/* Before an exec of what can't be followed, and after it failed (NULL):
 * mt_process_leaving(). */
void mt_account_leaving(const char *name);

/* This thread's state in the session; only where there is one and the process
 * has joined. */
struct mt_task *mt_account_task(void);

/* The group behind MT_HOME, or @group itself. */
uint32_t mt_account_resolve(uint32_t group);

/* The session and this process's slot (MT_NONE: not counted). */
struct mt_session *mt_account_session(void);
uint32_t mt_account_process(void);

/* One line on stderr (or in the log file), through write(2): "memtally: ..."
 * Parts are concatenated; NULL ends. */
void mt_warn(const char *part, ...) __attribute__((sentinel));

#endif
