/* SPDX-License-Identifier: MIT */
/*
 * maplock.c - see maplock.h.
 *
 * One word: the holder's thread id, and PENDING when its queue isn't empty.
 * Only the holder's own thread (in a handler) adds to the queue, so a plain
 * ring with a signal fence is enough.
 */
#include "preload/maplock.h"

#include <errno.h>

#include "core/atomic.h"
#include "core/sys.h"
#include "preload/account.h"

#define PENDING  0x80000000u
#define RING     256u
#define SPINS    100
/* Yields before the holder is looked for: about 10 ms. */
#define PATIENCE 2000

static _Atomic uint32_t word;
static struct mt_map_op ring[RING];
static _Atomic uint32_t ring_head; /* next to do */
static _Atomic uint32_t ring_tail; /* next free */

/* The frame in which this thread took the lock last. */
static MT_TLS volatile uintptr_t my_frame;
static MT_TLS uint32_t cached_tid;
static MT_TLS uint64_t cached_mark;

static uint32_t my_tid(void)
{
	uint64_t mark = mt_account_mark();

	if (unlikely(cached_mark != mark)) {
		cached_tid = (uint32_t)mt_sys_gettid();
		cached_mark = mark;
	}
	return cached_tid;
}

/*
 * We hold it, and here we are again: a handler above the holder's frame, or
 * has the holder been left by a jump?  Then our frame is an older one.  On
 * another stack (sigaltstack) nothing can be told, and it counts as a handler.
 */
static bool orphaned(uintptr_t here)
{
	uintptr_t there = my_frame;

	/* The same depth is no deeper: we can't be inside ourselves. */
	return there && here >= there && here - there < (8u << 20);
}

static bool is_gone(uint32_t tid)
{
	return mt_syscall3(SYS_tgkill, mt_sys_getpid(), tid, 0) == -ESRCH;
}

static void took_it(uintptr_t here)
{
	fence_signal();
	my_frame = here;
	fence_signal();
}

static void inherit(void (*rebuild)(void), uintptr_t here)
{
	took_it(here);
	store_relaxed(&ring_head, load_relaxed(&ring_tail));
	rebuild();
}

bool mt_maplock_take(void (*rebuild)(void))
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);
	uint32_t me = my_tid();

	for (unsigned tries = 0;; tries++) {
		uint32_t seen = 0;

		/* Before it is ours and again after: a handler in between
		 * takes it, and leaves its own. */
		if ((load_relaxed(&word) & ~PENDING) != me)
			my_frame = here;
		fence_signal();
		if (likely(cas_seq_cst(&word, &seen, me))) {
			took_it(here);
			return true;
		}
		if ((seen & ~PENDING) == me) {
			if (!orphaned(here))
				return false;
			store_seq_cst(&word, me);
			inherit(rebuild, here);
			return true;
		}
		if (tries < SPINS) {
			cpu_relax();
			continue;
		}
		mt_sys_yield();
		if (tries % PATIENCE == 0 && is_gone(seen & ~PENDING) &&
		    cas_seq_cst(&word, &seen, me)) {
			inherit(rebuild, here);
			return true;
		}
	}
}

bool mt_maplock_defer(const struct mt_map_op *op)
{
	uint32_t tail = load_relaxed(&ring_tail);

	/* A handler in a handler may take the same place: it asks again. */
	do {
		if (tail - load_relaxed(&ring_head) >= RING)
			return false;
	} while (!cas_weak_relaxed(&ring_tail, &tail, tail + 1));
	ring[tail % RING] = *op;
	fence_signal();
	fetch_or_seq_cst(&word, PENDING);
	return true;
}

void mt_maplock_release(mt_map_do_fn *do_op)
{
	uint32_t me = load_relaxed(&word) & ~PENDING;
	uint32_t seen = me;

	while (unlikely(!cas_seq_cst(&word, &seen, 0))) {
		if ((seen & ~PENDING) != me)
			return; /* taken from us: we seemed to be gone */
		fetch_and_seq_cst(&word, ~PENDING);
		while (load_relaxed(&ring_head) != load_relaxed(&ring_tail)) {
			struct mt_map_op *op =
				&ring[load_relaxed(&ring_head) % RING];

			do_op(op);
			fetch_add_relaxed(&ring_head, 1);
		}
		seen = me;
	}
}

void mt_maplock_reset(void)
{
	store_relaxed(&ring_head, 0);
	store_relaxed(&ring_tail, 0);
	store_seq_cst(&word, 0);
}
