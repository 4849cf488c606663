/* SPDX-License-Identifier: MIT */
/*
 * mapping.h - the mapping table: whose is which range of addresses.
 *
 * One table per process.  Records are a flat array in private memory, so that
 * nothing another process does to a file can harm the program, with two trees
 * over them that can be rebuilt from the records at any moment; and a mirror
 * in a file beside the segment, when it can be had, so that a tool can match
 * it with the kernel's view without stopping the program.
 *
 * Charged, by the kernel's rule: private and writable (now or ever since) and
 * not NORESERVE; shared memory once per object and page.  Everything else is
 * tracked.
 *
 * The table itself charges nobody: operations write what is to be charged and
 * uncharged on a bill.  It takes no lock and does no system call except to
 * grow: the caller serializes.
 *
 * A shared object's page is paid for once in a process, however often it is
 * mapped, by the group that mapped it first and until its last mapping goes.
 * So a record of shared memory names the group that pays, and all records
 * that cover a page of an object name the same: where another group maps what
 * is paid for already, its mapping becomes records of the paying group.
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
#define MT_MAP_WRITE      1u /* PROT_WRITE now */
#define MT_MAP_ACCOUNT    2u /* charged, as the kernel's VM_ACCOUNT */
#define MT_MAP_NORESERVE  4u
#define MT_MAP_HUGETLB    8u /* never charged, and not by the kernel either */
#define MT_MAP_GROWSDOWN  16u
#define MT_MAP_NONE       32u /* PROT_NONE: reserved, for statistics */
#define MT_MAP_HUGE_SHIFT 8   /* bits 8-13: log2 of the huge page's size */

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

/* "MT-MAPS\0", little endian. */
#define MT_MAP_MAGIC UINT64_C(0x005350414d2d544d)
#define MT_MAP_MAJOR 1
#define MT_MAP_MINOR 0

/* No file has more records. */
#define MT_MAP_CAPACITY (1u << 20)

/* The file's first 64 bytes; record i is at header_size + (i - 1) * stride. */
struct mt_map_header {
	_Atomic uint64_t magic; /* stored last */
	uint16_t major;
	uint16_t minor;
	uint32_t header_size;
	uint32_t stride;
	uint32_t page_size;
	uint32_t capacity;        /* records that fit in the file */
	_Atomic uint32_t high;    /* records above were never used */
	_Atomic uint32_t missing; /* records that found no room in the file */
	uint32_t pid;
	uint64_t reserved[3];
};

_Static_assert(sizeof(struct mt_map_slot) == 64, "mapping: slot");
_Static_assert(offsetof(struct mt_map_slot, object) == 32, "mapping: slot");
_Static_assert(sizeof(struct mt_map_header) == 64, "mapping: header");

/* A record, or a part of one, as a plain value. */
struct mt_map_range {
	uint64_t start;
	uint64_t end;
	uint64_t object;
	uint64_t offset;
	uint32_t group;
	uint32_t type;
	uint32_t state;
};

#define MT_BILL_ENTRIES 8

/*
 * What is to be charged (> 0) and uncharged (< 0).  What the caller charged
 * ahead it enters as a negative amount; opposites cancel.  When more groups
 * meet than there are entries, @spill gets the rest at once.
 */
struct mt_mapping_bill {
	uint32_t nr;
	struct {
		uint32_t group;
		uint32_t kind; /* enum mt_kind */
		int64_t pages;
	} entry[MT_BILL_ENTRIES];
	void (*spill)(uint32_t group, enum mt_kind kind, int64_t pages);
};

/*
 * Records taken out, to be put back if the system call fails.  The first and
 * the last are copies, as they may be parts; those between keep their nodes,
 * in a chain.
 */
struct mt_mapping_taken {
	struct mt_map_range part[2];
	uint32_t nr_parts;
	uint32_t chain; /* of nodes; 0: none */
	uint64_t epoch;
};

struct mt_mapping_node;

struct mt_mapping {
	struct mt_mapping_node *nodes; /* [0] is "none" */
	uint32_t capacity;             /* of nodes */
	uint32_t high;                 /* nodes below were used once */
	uint32_t free;                 /* chain of free ones */
	uint32_t root[2];              /* by address; by object and offset */
	_Atomic uint32_t nr;           /* records */
	uint64_t epoch;                /* bumped by each rebuild */
	uint64_t lost;                 /* records that found no memory */
	uint32_t page_shift;

	/* The mirror. */
	struct mt_map_header *file;
	uint32_t file_mapped; /* records mapped */
	uint32_t file_backed; /* records with memory behind them */
	bool file_full;       /* it can't grow any more */
};

/* Start empty.  Forgets, but does not unmap, what was there. */
void mt_mapping_init(struct mt_mapping *map, uint64_t page_size);

/* Unmap all the table's memory and start empty, without a file. */
void mt_mapping_finish(struct mt_mapping *map);

/**
 * mt_mapping_create_file - make the mirror's file
 * @path: must not exist
 * @ret_mapped: records that are mapped
 *
 * Touches no table: call it without the lock, and then mt_mapping_publish()
 * with it.  Return: NULL when it can't be had.
 */
struct mt_map_header *mt_mapping_create_file(const char *path,
					     uint64_t page_size,
					     uint32_t *ret_mapped);

/* Mirror the table in @file from now on. */
void mt_mapping_publish(struct mt_mapping *map, struct mt_map_header *file,
			uint32_t mapped);

/* Add to a bill. */
void mt_mapping_bill_add(struct mt_mapping_bill *bill, uint32_t group,
			 enum mt_kind kind, int64_t pages);

/* The kind a record is charged as. */
enum mt_kind mt_mapping_kind(uint32_t type);

/* Is it charged, by the kernel's rule?  Of @state, the access counts. */
bool mt_mapping_accountable(uint32_t type, uint32_t state);

/**
 * mt_mapping_insert - note a mapping, replacing what lies there
 * @range: state without MT_MAP_ACCOUNT, which is set where it applies
 *
 * Return: false when there was no memory for (all of) it: what is missing is
 * untracked and not on the bill.
 */
bool mt_mapping_insert(struct mt_mapping *map, const struct mt_map_range *range,
		       struct mt_mapping_bill *bill);

/**
 * mt_mapping_take - take a range out
 * @ret_taken: follow with _put_back() or _forget()
 */
void mt_mapping_take(struct mt_mapping *map, uint64_t start, uint64_t end,
		     struct mt_mapping_bill *bill,
		     struct mt_mapping_taken *ret_taken);

/* The same for good. */
void mt_mapping_punch(struct mt_mapping *map, uint64_t start, uint64_t end,
		      struct mt_mapping_bill *bill);

/* The taken record that ends at @end.  Return: is there one? */
bool mt_mapping_taken_last(struct mt_mapping *map,
			   const struct mt_mapping_taken *taken, uint64_t end,
			   struct mt_map_range *ret_range);

/* Undo a take. */
void mt_mapping_put_back(struct mt_mapping *map, struct mt_mapping_taken *taken,
			 struct mt_mapping_bill *bill);

/* A take is final.  Nothing to do, and no lock needed, without a chain. */
void mt_mapping_forget(struct mt_mapping *map, struct mt_mapping_taken *taken);

/**
 * mt_mapping_land - put taken records down elsewhere (mremap)
 * @start: where @old_start has moved to; may be the same
 * @old_len, @len: bytes before and after
 *
 * What lies there is replaced; a longer range continues its last record; of a
 * shorter one the end is dropped.  @sparse: only what was known is replaced:
 * newer kernels move several mappings at once, and leave what lies where they
 * have gaps.
 */
void mt_mapping_land(struct mt_mapping *map, struct mt_mapping_taken *taken,
		     uint64_t old_start, uint64_t old_len, uint64_t start,
		     uint64_t len, bool sparse, struct mt_mapping_bill *bill);

/* Map again what lies at @old_start (mremap with DONTUNMAP, or of length 0):
 * what is charged there is charged again, shared memory aside. */
void mt_mapping_copy(struct mt_mapping *map, uint64_t old_start,
		     uint64_t old_len, uint64_t start, uint64_t len,
		     bool sparse, struct mt_mapping_bill *bill);

/**
 * mt_mapping_protect - note new access rights
 * @state: MT_MAP_WRITE, MT_MAP_NONE or neither
 *
 * What becomes writable for the first time is charged, and stays so.
 */
void mt_mapping_protect(struct mt_mapping *map, uint64_t start, uint64_t end,
			uint32_t state, struct mt_mapping_bill *bill);

/* What would it cost?  The table stays as it is. */
void mt_mapping_protect_cost(struct mt_mapping *map, uint64_t start,
			     uint64_t end, uint32_t state,
			     struct mt_mapping_bill *bill);
void mt_mapping_punch_cost(struct mt_mapping *map, uint64_t start, uint64_t end,
			   struct mt_mapping_bill *bill);
void mt_mapping_copy_cost(struct mt_mapping *map, uint64_t start, uint64_t end,
			  struct mt_mapping_bill *bill);

/* Pages of an object that no record covers. */
int64_t mt_mapping_object_cost(struct mt_mapping *map, uint64_t object,
			       uint64_t offset, uint64_t len);

/* The charge of @group's for growing @last by @len bytes; 0 when its kind
 * isn't charged. */
int64_t mt_mapping_growth_cost(struct mt_mapping *map,
			       const struct mt_map_range *last, uint64_t len);

/**
 * mt_mapping_regroup - re-charge a range to another group
 *
 * Shared memory: the pages, and so every other mapping of them.
 */
void mt_mapping_regroup(struct mt_mapping *map, uint64_t start, uint64_t end,
			uint32_t group, struct mt_mapping_bill *bill);

/* The first record that ends after @address.  To iterate, go on from its end.
 * Return: is there one? */
bool mt_mapping_find(struct mt_mapping *map, uint64_t address,
		     struct mt_map_range *ret_range);

/* The first record of @object that starts at @offset or after. */
bool mt_mapping_find_object(struct mt_mapping *map, uint64_t object,
			    uint64_t offset, struct mt_map_range *ret_range);

/* Somebody left in the middle of an operation: make the trees anew. */
void mt_mapping_rebuild(struct mt_mapping *map);

/* What is known and not charged, in pages. */
struct mt_mapping_tracked {
	int64_t reserved;    /* private, without a promise of memory */
	int64_t file_mapped; /* files, not written to privately */
	int64_t shared;      /* shared memory as mapped, each view counted */
	int64_t stack;
};

/* Add one record to @sum. */
void mt_mapping_track(const struct mt_map_range *range, uint64_t page_size,
		      struct mt_mapping_tracked *sum);

void mt_mapping_tracked(struct mt_mapping *map,
			struct mt_mapping_tracked *ret_tracked);

/* Is all as it should be?  For tests: O(n log n). */
bool mt_mapping_check(struct mt_mapping *map);

/**
 * mt_map_slot_read - read a record of another process
 *
 * Return: false: there is none, or it changed each time it was looked at.
 */
bool mt_map_slot_read(const struct mt_map_slot *slot,
		      struct mt_map_range *ret_range);

#endif
