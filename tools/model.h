/* SPDX-License-Identifier: MIT */
/*
 * model.h - a moment of a session: its segment, added up.
 */
#ifndef MT_TOOLS_MODEL_H
#define MT_TOOLS_MODEL_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "core/mapping.h"
#include "core/protection.h"
#include "core/reader.h"

/* The longest path of a group, NUL included. */
#define MODEL_PATH (MT_DEPTH_MAX * MT_NAME_MAX)

struct model_group {
	bool used;
	struct mt_group record;
	char path[MODEL_PATH];
	int64_t stock;                   /* pages in stocks, in the subtree */
	int64_t charged;                 /* pages used, in the subtree */
	int64_t kinds[MT_NR_KINDS];      /* charged, in the subtree */
	struct mt_protection protection; /* now, from "/" down, recursive */
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
	uint32_t *by_slot; /* index in @processes + 1, or 0 */
	uint32_t nr_slots; /* size of @by_slot */
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

/* The same without asking the kernel after the processes: all seem alive.
 * For one number in a hurry. */
int model_load_quick(struct model *model, const char *path);

/* The same from a copy in memory; @buf is calloc()ed and the model's own from
 * now on, also on failure. */
int model_from_copy(struct model *model, void *buf, size_t size);

/* Is it there, as far as can be told? */
bool model_is_alive(const struct model *model,
		    const struct model_process *process);

void model_free(struct model *model);

/* Add an integer to an object, with all its digits. */
void model_put(cJSON *object, const char *key, int64_t value);

/* The object of `stat --json`; @ended: a final summary, of ended processes. */
cJSON *model_json(const struct model *model, bool ended);

/* Reserved, file_mapped, shared and stack pages of a process's mapping table,
 * per group of @model when it isn't NULL.  Returns the reserved ones. */
int64_t model_tracked(struct model *model, const struct model_process *process);

/* Calls @each for every record of a process's mapping table, until it returns
 * false.  A group's value may be MT_HOME's: the process's default group. */
void model_mappings(const struct model *model,
		    const struct model_process *process,
		    bool (*each)(void *arg, const struct mt_map_range *range),
		    void *arg);

/* Pages in bytes.  What a damaged segment says may not fit: then the largest
 * number that does. */
static inline int64_t model_bytes(const struct model *model, int64_t pages)
{
	int64_t bytes;

	if (__builtin_mul_overflow(pages, model->page, &bytes))
		return pages < 0 ? INT64_MIN : INT64_MAX;
	return bytes;
}

/* The same as people read it.  @buf: 16 bytes. */
const char *model_size(const struct model *model, int64_t pages, char *buf);

/* "live", "dead" or "stale". */
const char *model_state(const struct model *model);

#endif
