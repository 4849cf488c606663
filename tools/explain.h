/* SPDX-License-Identifier: MIT */
/*
 * explain.h - every resident byte of a process by what it is, so that memtally's
 * numbers can be set against the kernel's.
 */
#ifndef MT_TOOLS_EXPLAIN_H
#define MT_TOOLS_EXPLAIN_H

#include "tools/model.h"
#include "tools/smaps.h"

enum explain_kind {
	EXPLAIN_HEAP,    /* malloc's, with its cached pages and metadata */
	EXPLAIN_ANON,    /* private anonymous mappings of the program */
	EXPLAIN_FILE,    /* private file mappings of the program */
	EXPLAIN_SHMEM,   /* shared memory */
	EXPLAIN_SHARED,  /* shared file mappings */
	EXPLAIN_DEVICE,  /* of devices */
	EXPLAIN_BRK,     /* the break */
	EXPLAIN_STACK,   /* of the first thread */
	EXPLAIN_STACKS,  /* of the others */
	EXPLAIN_TEXT,    /* program and libraries: code */
	EXPLAIN_RODATA,  /* what is only read */
	EXPLAIN_DATA,    /* what is written, relocations among it */
	EXPLAIN_KERNEL,  /* vdso and its like */
	EXPLAIN_OWN,     /* memtally's library and segment */
	EXPLAIN_UNKNOWN, /* nobody told us of it */
	EXPLAIN_NR_KINDS,
};

struct explain_category {
	enum explain_kind kind;
	uint32_t group;   /* of the model; MT_NONE: no group's */
	int64_t resident; /* bytes */
	int64_t charged;  /* bytes */
};

struct explain {
	const struct model *model;
	const struct model_process *process;
	int64_t resident;              /* of all; the sum of the categories' */
	struct explain_category *list; /* the largest first */
	uint32_t nr;
	uint32_t room;
	/* Called for each mapping, or part of one, if it isn't NULL. */
	void (*each)(const struct explain *explain,
		     const struct smaps_range *mapping, uint64_t start,
		     uint64_t end, enum explain_kind kind, uint32_t group,
		     int64_t resident);
};

const char *explain_name(enum explain_kind kind);

/**
 * explain_process - sort a process's mappings into categories
 * @explain: model, process and each are set, the rest is zero
 *
 * Reads smaps, and pagemap where one mapping of the kernel's is of several
 * groups.  Return: 0 or -errno of the first.
 */
int explain_process(struct explain *explain);

/* What is known, of 1. */
double explain_coverage(const struct explain *explain);

void explain_free(struct explain *explain);

#endif
