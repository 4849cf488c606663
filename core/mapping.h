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

/* The file's header, in front of the slots. */
struct mt_map_header {
	_Atomic uint64_t magic; /* stored last */
	uint16_t major;
	uint16_t minor;
	uint32_t header_size;
	uint32_t stride;
	uint32_t page_size;
	uint32_t pid;
	_Atomic uint32_t high;      /* no record at or above was ever used */
	_Atomic uint32_t uncertain; /* operations that may have been lost */
	uint32_t reserved0;
	uint64_t reserved[3];
};

#define MT_MAP_MAGIC UINT64_C(0x5350414d59544d54)
#define MT_MAP_MAJOR 1

#define MT_MAP_CAPACITY (1u << 18)
#define MT_MAP_FILE_SIZE                                                       \
	(sizeof(struct mt_map_header) +                                        \
	 MT_MAP_CAPACITY * sizeof(struct mt_map_slot))

/* A record as a plain value. */
struct mt_range {
	uint64_t start;
	uint64_t end;
	enum mt_map_type type;
	uint32_t group;
	uint32_t state;
	uint64_t object;
	uint64_t offset;
};

struct mt_map_node {
	uint32_t left; /* + 1 */
	uint32_t right;
	uint32_t in_tree;
};

struct mt_map {
	struct mt_map_header *header;
	struct mt_map_slot *slots;
	struct mt_map_node *nodes;
	uint32_t capacity;
	uint32_t backed;
	uint32_t free; /* + 1 */
	uint32_t root; /* + 1 */
	uint32_t nr_shmem;
	uint32_t nr_views;
	uint64_t page_size;
	bool shared;
};

typedef void (*mt_map_account_fn)(void *arg, uint32_t group, enum mt_kind kind,
				  int64_t pages);

int mt_map_init(struct mt_map *map, const char *path, uint32_t pid);
void mt_map_finish(struct mt_map *map);
bool mt_map_kind(const struct mt_range *range, enum mt_kind *ret_kind);
uint32_t mt_map_detach(struct mt_map *map, uint64_t start, uint64_t end);
void mt_map_weigh(struct mt_map *map, uint32_t list, mt_map_account_fn fn,
		  void *arg);
void mt_map_attach(struct mt_map *map, uint32_t list);
void mt_map_free(struct mt_map *map, uint32_t list, mt_map_account_fn fn,
		 void *arg);
void mt_map_shift(struct mt_map *map, uint32_t list, uint64_t from,
		  uint64_t to);
int mt_map_insert(struct mt_map *map, const struct mt_range *range,
		  mt_map_account_fn fn, void *arg);
void mt_map_would_account(struct mt_map *map, uint64_t start, uint64_t end,
			  mt_map_account_fn fn, void *arg);
void mt_map_protect(struct mt_map *map, uint64_t start, uint64_t end,
		    bool writable, bool none);
bool mt_map_next(const struct mt_map *map, uint64_t address,
		 struct mt_range *ret_range);
bool mt_map_find(const struct mt_map *map, uint64_t address,
		 struct mt_range *ret_range);
void mt_map_rebuild(struct mt_map *map);

#endif
