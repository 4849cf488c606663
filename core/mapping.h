/* SPDX-License-Identifier: MIT */
/*
 * mapping.h - the mapping table: whose is which range of addresses.
 *
 * One table per process.  Records live in a flat array of slots, in a file
 * beside the segment when it can be had, so that a tool can match it with
 * the kernel's view without stopping the program; the index over them is
 * private and can be rebuilt from the slots at any time.
 *
 * Charged, by the kernel's rule: private and writable (now or ever since) and
 * not NORESERVE; shared memory once per object and page.  Everything else is
 * tracked.
 *
 * The table itself charges nobody: operations report what has to be charged
 * and uncharged through callbacks.  It takes no lock and does no system call
 * except to grow: the caller serializes.
 */
#ifndef MT_CORE_MAPPING_H
#define MT_CORE_MAPPING_H

#include "core/layout.h"

/* What a record is; the first three may be charged (as ANON, FILE, SHMEM). */
enum mt_map_type {
	MT_MAP_FREE,
	MT_MAP_ANON,        /* private anonymous, /dev/zero */
	MT_MAP_FILE,        /* private file */
	MT_MAP_SHMEM,       /* shared anonymous, memfd, shm, System V */
	MT_MAP_SHARED_FILE, /* never charged */
	MT_MAP_DEVICE,      /* shared device memory; never charged */
	MT_MAP_BRK,
	MT_MAP_STACK, /* a thread's; never charged */
};

/* Bits of a record's state. */
#define MT_MAP_WRITE     1u /* PROT_WRITE now */
#define MT_MAP_ACCOUNT   2u /* charged, as the kernel's VM_ACCOUNT */
#define MT_MAP_NORESERVE 4u
#define MT_MAP_HUGETLB   8u
#define MT_MAP_GROWSDOWN 16u
#define MT_MAP_NONE      32u /* PROT_NONE: reserved, for statistics */

/* One record in the file: 64 bytes, read by other processes. */
struct mt_map_slot {
	_Atomic uint32_t seq;   /* odd while it changes */
	_Atomic uint32_t type;  /* enum mt_map_type; MT_MAP_FREE: no record */
	_Atomic uint64_t start; /* address, page-aligned */
	_Atomic uint64_t end;
	_Atomic uint32_t group;  /* index in the segment, or MT_HOME's value */
	_Atomic uint32_t state;  /* MT_MAP_* bits */
	_Atomic uint64_t object; /* identity of the shared object; 0: none */
	_Atomic uint64_t offset; /* in the object, bytes */
	uint64_t reserved[2];
};

#endif
