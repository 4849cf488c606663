/* SPDX-License-Identifier: MIT */
/*
 * model.h - a moment of a session: its segment, added up.
 */
#ifndef MT_TOOLS_MODEL_H
#define MT_TOOLS_MODEL_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "core/reader.h"

struct model_group {
	bool used;
	struct mt_group record;
	char path[256];
	uint32_t index;
	int64_t stock;              /* pages in stocks, in the subtree */
	int64_t words;              /* used and in stock, in the subtree */
	int64_t kinds[MT_NR_KINDS]; /* charged, in the subtree */
	uint32_t depth;
	int64_t tracked[4]; /* reserved, file_mapped, shared, stack: pages */
};

struct model_process {
	struct mt_process record;
	uint32_t slot;
	uint32_t pid;
	uint32_t generation;
	uint32_t threads;
	bool alive; /* as far as can be told */
	int64_t kinds[MT_NR_KINDS];
	int64_t charged;
};

struct model {
	struct mt_reader reader;
	void *buf;
	char path[4096];            /* of the segment */
	struct model_group *groups; /* by index */
	uint32_t nr_groups;         /* size of @groups */
	uint32_t *order;            /* indices of used groups, parents first */
	uint32_t nr_order;
	struct model_process *processes;
	uint32_t nr_processes;
	uint32_t nr_alive;
	int64_t drift;   /* pages */
	int64_t page;    /* bytes */
	uint64_t pid_ns; /* ours: pids of another mean nothing here */
};

/**
 * model_load - read a session
 *
 * Return: 0 or a negative error number, see segment_error().
 */
int model_load(struct model *model, const char *path);
void model_free(struct model *model);

/* The object of `stat --json`; @ended: a final summary, of ended processes. */
cJSON *model_json(const struct model *model, bool ended);

/* Reserved, file_mapped, shared and stack pages of a process's mapping table,
 * per group of @model when it isn't NULL.  Returns the reserved ones. */
int64_t model_tracked(struct model *model, const struct model_process *process);

/* "live", "dead" or "stale". */
const char *model_state(const struct model *model);

#endif
