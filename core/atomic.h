/* SPDX-License-Identifier: MIT */
/*
 * atomic.h - the only file that spells a memory order.
 *
 * The order is part of the name, so that the orders in use can be read off
 * this page and found with grep.  Statistics are relaxed; publishing is
 * release and acquire; a handshake over two variables is seq_cst, with a
 * comment at both ends that names the partner.
 */
#ifndef MT_CORE_ATOMIC_H
#define MT_CORE_ATOMIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define load_relaxed(p) atomic_load_explicit((p), memory_order_relaxed)
#define load_acquire(p) atomic_load_explicit((p), memory_order_acquire)
#define load_seq_cst(p) atomic_load_explicit((p), memory_order_seq_cst)
#define store_relaxed(p, v)                                                    \
	atomic_store_explicit((p), (v), memory_order_relaxed)
#define store_release(p, v)                                                    \
	atomic_store_explicit((p), (v), memory_order_release)
#define store_seq_cst(p, v)                                                    \
	atomic_store_explicit((p), (v), memory_order_seq_cst)

/* These return the value before the operation. */
#define fetch_add_relaxed(p, v)                                                \
	atomic_fetch_add_explicit((p), (v), memory_order_relaxed)
#define fetch_add_seq_cst(p, v)                                                \
	atomic_fetch_add_explicit((p), (v), memory_order_seq_cst)
#define fetch_or_seq_cst(p, v)                                                 \
	atomic_fetch_or_explicit((p), (v), memory_order_seq_cst)
#define fetch_and_seq_cst(p, v)                                                \
	atomic_fetch_and_explicit((p), (v), memory_order_seq_cst)
#define exchange_acq_rel(p, v)                                                 \
	atomic_exchange_explicit((p), (v), memory_order_acq_rel)
#define exchange_seq_cst(p, v)                                                 \
	atomic_exchange_explicit((p), (v), memory_order_seq_cst)

/* @expected is updated when these return false. */
#define cas_seq_cst(p, expected, v)                                            \
	atomic_compare_exchange_strong_explicit((p), (expected), (v),          \
						memory_order_seq_cst,          \
						memory_order_seq_cst)
#define cas_weak_seq_cst(p, expected, v)                                       \
	atomic_compare_exchange_weak_explicit((p), (expected), (v),            \
					      memory_order_seq_cst,            \
					      memory_order_seq_cst)
#define cas_weak_relaxed(p, expected, v)                                       \
	atomic_compare_exchange_weak_explicit((p), (expected), (v),            \
					      memory_order_relaxed,            \
					      memory_order_relaxed)

#define fence_seq_cst() atomic_thread_fence(memory_order_seq_cst)
#define fence_acquire() atomic_thread_fence(memory_order_acquire)
#define fence_release() atomic_thread_fence(memory_order_release)

/* For plain bytes that may be rewritten while they are read: whoever reads
 * them looks afterwards whether what he read was still valid. */
#define load_byte_relaxed(p)     __atomic_load_n((p), __ATOMIC_RELAXED)
#define store_byte_relaxed(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)

/* Keeps the compiler, not the CPU, from moving accesses: for what a signal
 * handler on the same thread may look at. */
#define fence_signal() atomic_signal_fence(memory_order_seq_cst)

/* A spin-wait hint. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

#endif
