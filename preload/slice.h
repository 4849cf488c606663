/* SPDX-License-Identifier: MIT */
/*
 * slice.h - spans of address space that serve one owner's heap only.
 *
 * Reserved PROT_NONE in multiples of 64 MiB, so that one load from a flat
 * table tells whose memory a pointer is, and whether it is ours at all.
 * Handed out front to back and never given back: jemalloc keeps what it got.
 * Under a limit on address space (ulimit -v) it is taken as needed, in huge
 * pages, and given back.
 *
 * Lock-free; raw system calls only; safe in an extent hook.
 */
#ifndef MT_PRELOAD_SLICE_H
#define MT_PRELOAD_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base.h"

#define MT_GRANULE_SHIFT 26
#define MT_GRANULE       (UINT64_C(1) << MT_GRANULE_SHIFT)
#if defined(__aarch64__)
#define MT_ADDRESS_BITS 48
#else
#define MT_ADDRESS_BITS 47
#endif
#define MT_GRANULES (UINT64_C(1) << (MT_ADDRESS_BITS - MT_GRANULE_SHIFT))

/* Owners; from MT_OWNER_GROUPS on, one for each other group. */
enum {
	MT_OWNER_NONE,     /* not ours */
	MT_OWNER_MIXED,    /* look closer: mt_slice_owner_slow() */
	MT_OWNER_INTERNAL, /* jemalloc's own, uncharged */
	MT_OWNER_HOME,
	MT_OWNER_GROUPS,
};
#define MT_OWNERS 1004

extern uint16_t mt_slice_owners[MT_GRANULES];

uint32_t mt_slice_owner_slow(uintptr_t address);

/* Whose is the memory at @p?  @p may be any number. */
static inline uint32_t mt_slice_owner(const void *p)
{
	uintptr_t granule = (uintptr_t)p >> MT_GRANULE_SHIFT;
	uint32_t owner;

	if (unlikely(granule >= MT_GRANULES))
		return MT_OWNER_NONE;
	owner = mt_slice_owners[granule];
	if (unlikely(owner == MT_OWNER_MIXED))
		return mt_slice_owner_slow((uintptr_t)p);
	return owner;
}

/* In the usual case, and in no more instructions: home memory? */
static inline bool mt_slice_is_home(const void *p)
{
	uintptr_t granule = (uintptr_t)p >> MT_GRANULE_SHIFT;

	return likely(granule < MT_GRANULES) &&
	       mt_slice_owners[granule] == MT_OWNER_HOME;
}

/* The limit on address space that this process started under, if it makes
 * frugality necessary; else 0. */
uint64_t mt_slice_limit(void);

/**
 * mt_slice_take - address space for @owner
 * @size, @align: bytes; multiples of the page size, @align a power of two
 *
 * Readable and writable, not populated, not charged.  NULL when address space
 * is exhausted or limited.
 */
void *mt_slice_take(uint32_t owner, size_t size, size_t align);

/* Unmap what was taken, or any part of it; under a limit only. */
bool mt_slice_drop(void *addr, size_t len);

/* Does the system make huge pages by itself (THP "always")?  Known from the
 * first mt_slice_take() on. */
extern bool mt_slice_huge;

/**
 * mt_slice_pay - note that this process paid for a range of pages
 *
 * The notes are wiped in a forked child: what its parent paid is not the
 * child's to give back.
 *
 * Return: how many of them it had not paid for before.
 */
size_t mt_slice_pay(void *addr, size_t len);

/* How many pages of a range would mt_slice_pay() note? */
size_t mt_slice_unpaid(void *addr, size_t len);

/* Take the notes back.  Return: how many of the pages were paid for. */
size_t mt_slice_unpay(void *addr, size_t len);

/**
 * mt_slice_chunk - the huge page that a touch of @addr would make
 * @len: its length
 *
 * NULL when it makes none: something in it was paid for already (then it was
 * paid for as a whole, or there is a table of small pages), or it may be
 * inherited.
 */
void *mt_slice_chunk(void *addr, size_t *len);

/* Make no huge page of a chunk. */
void mt_slice_keep_small(void *addr, size_t len);

#endif
