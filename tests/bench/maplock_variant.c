/* SPDX-License-Identifier: MIT */
/*
 * maplock_variant.c - other locks for the mapping table, to compare with
 * preload/maplock.c.  LOCK says which:
 *
 *	1 plain     no thought of signals: a handler that maps waits for ever
 *	2 disable   all signals blocked, and unblocked after
 *	3 restore   all signals blocked, and the mask put back after
 *	4 mixed     put back one time in eight, unblocked else
 *
 * (The kernel's choices of 2010 for the lock in each page's record.)
 */
#include "preload/maplock.h"

#include <signal.h>

#include "core/atomic.h"
#include "core/sys.h"

#define SPINS 100

static _Atomic uint32_t word;

#if LOCK >= 2
static uint64_t saved; /* written by the holder only */
static bool restores;

static uint64_t block(void)
{
	uint64_t all = ~UINT64_C(0);
	uint64_t old = 0;

	mt_syscall4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, 8);
	return old;
}

static void unblock(uint64_t mask)
{
	mt_syscall4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, 8);
}
#endif

bool mt_maplock_take(void *frame MT_UNUSED)
{
#if LOCK >= 2
	uint64_t old = block();
#if LOCK == 4
	static _Atomic uint32_t turn;
	bool mine = fetch_add_relaxed(&turn, 1) % 8 == 0;
#else
	bool mine = LOCK == 3;
#endif
#endif
	uint32_t tries = 0;
	uint32_t none = 0;

	while (!cas_seq_cst(&word, &none, 1)) {
		none = 0;
		if (++tries < SPINS)
			cpu_relax();
		else
			mt_sys_yield();
	}
#if LOCK >= 2
	saved = old;
	restores = mine;
#endif
	return true;
}

void mt_maplock_release(void)
{
#if LOCK >= 2
	uint64_t mask = restores ? saved : 0;
#endif

	store_release(&word, 0);
#if LOCK >= 2
	unblock(mask);
#endif
}

void mt_maplock_defer(const struct mt_map_op *op MT_UNUSED)
{
}

bool mt_maplock_idle(void)
{
	return !load_acquire(&word);
}

bool mt_maplock_is_mine(void)
{
	return false;
}

void mt_maplock_reset(void)
{
	store_seq_cst(&word, 0);
}

uint64_t mt_maplock_uncertain(void)
{
	return 0;
}
