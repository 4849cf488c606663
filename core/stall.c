/* SPDX-License-Identifier: MIT */
/*
 * stall.c - fading averages in one word each: when (milliseconds of
 * CLOCK_MONOTONIC, 32 bits of them) in the high half, how much in the low.
 */
#include "core/stall.h"

#include "core/atomic.h"

#define ONE (UINT64_C(1) << 63)

/* 2^63 e^(-1 ms / window), rounded. */
static const uint64_t per_ms[MT_NR_STALLS] = {
	UINT64_C(9222449745766413324), /* 10 s */
	UINT64_C(9223218315268511672), /* 60 s */
	UINT64_C(9223341292332560524), /* 300 s */
};

static uint64_t times(uint64_t a, uint64_t b)
{
	return (uint64_t)((unsigned __int128)a * b >> 63);
}

/* What is left of 1 after @ms, in 1/2^63. */
static uint64_t left_after(unsigned window, uint32_t ms)
{
	uint64_t factor = per_ms[window];
	uint64_t left = ONE;

	for (; ms && left; ms >>= 1) {
		if (ms & 1)
			left = times(left, factor);
		factor = times(factor, factor);
	}
	return left;
}

static uint32_t in_ms(uint64_t ns)
{
	return (uint32_t)(ns / 1000000);
}

static uint32_t since(uint64_t avg, uint32_t now_ms)
{
	uint32_t ms = now_ms - (uint32_t)(avg >> 32);

	/* Written by one whose clock was read a little later. */
	return ms > UINT32_MAX / 2 ? 0 : ms;
}

static uint32_t faded(uint64_t avg, unsigned window, uint32_t now_ms)
{
	return (uint32_t)times(avg & UINT32_MAX,
			       left_after(window, since(avg, now_ms)));
}

uint32_t mt_stall_share(uint64_t avg, unsigned window, uint64_t now_ns)
{
	return faded(avg, window, in_ms(now_ns));
}

/* Waiting all of the last @us is worth what had faded of 1 in that time. */
static uint32_t worth(unsigned window, uint64_t us)
{
	uint32_t ms = (uint32_t)MT_MIN(us / 1000, UINT32_MAX);
	uint64_t gone = ONE - left_after(window, ms);
	uint64_t of_next = (left_after(window, ms) -
			    left_after(window, ms == UINT32_MAX ? ms : ms + 1));

	gone += of_next / 1000 * (us % 1000);
	return (uint32_t)(gone >> 43);
}

static void raise_avg(_Atomic uint64_t *avg, unsigned window, uint32_t now_ms,
		      uint32_t more)
{
	uint64_t seen = load_relaxed(avg);
	uint64_t share;

	do {
		share = (uint64_t)faded(seen, window, now_ms) + more;
		share = MT_MIN(share, UINT32_MAX);
	} while (!cas_weak_relaxed(avg, &seen, (uint64_t)now_ms << 32 | share));
}

void mt_stall_add(struct mt_session *session, uint32_t group, uint64_t us,
		  uint64_t now_ns)
{
	uint32_t now_ms = in_ms(now_ns);
	uint32_t more[MT_NR_STALLS];

	for (unsigned w = 0; w < MT_NR_STALLS; w++)
		more[w] = worth(w, us);
	for (int i = 0; i < MT_DEPTH_MAX; i++) {
		struct mt_group *at;

		if (group >= session->header->tables[MT_GROUPS].capacity)
			return;
		at = &session->groups[group];
		fetch_add_relaxed(&at->stall_us, us);
		for (unsigned w = 0; w < MT_NR_STALLS; w++)
			raise_avg(&at->stall_avg[w], w, now_ms, more[w]);
		group = load_relaxed(&at->parent);
	}
}
