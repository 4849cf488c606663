/* SPDX-License-Identifier: MIT */
/*
 * base.h - compiler words used everywhere.
 */
#ifndef MT_CORE_BASE_H
#define MT_CORE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* Put on the symbols a preloaded library offers; everything else is hidden. */
#define MT_EXPORT __attribute__((visibility("default")))
#define MT_COLD   __attribute__((cold, noinline))
#define MT_UNUSED __attribute__((unused))

/* Two lines: the adjacent-line prefetcher pairs 64-byte lines. */
#define MT_CACHELINE 64

#define MT_MIN(a, b)     ((a) < (b) ? (a) : (b))
#define MT_MAX(a, b)     ((a) > (b) ? (a) : (b))
#define MT_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#endif
