/* SPDX-License-Identifier: MIT */
/*
 * smaps.h - a process's mappings as the kernel tells them, with what of each is
 * in memory.
 */
#ifndef MT_TOOLS_SMAPS_H
#define MT_TOOLS_SMAPS_H

#include <stdbool.h>
#include <stdint.h>

struct smaps_range {
	uint64_t start; /* addresses */
	uint64_t end;
	char mode[5];   /* "rwxp" */
	bool file;      /* has an inode */
	bool noreserve; /* mapped without a promise of memory */
	char name[512]; /* of the file, or "[heap]" and its like; "" */
	/* Bytes. */
	int64_t resident;
	int64_t dirty;
	int64_t anonymous;
	int64_t huge; /* file pages that hugetlbfs has, and no other count */
};

/**
 * smaps_read - call @each for every mapping of a process, in order
 *
 * Costs the kernel a walk over the process's page tables.  Return: 0; -ENOENT
 * there is no such process; -EACCES it is not ours to look at; other -errno.
 */
int smaps_read(uint32_t pid,
	       void (*each)(void *arg, const struct smaps_range *range),
	       void *arg);

#endif
