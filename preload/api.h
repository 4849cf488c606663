/* SPDX-License-Identifier: MIT */
/*
 * api.h - the one object that programs which know memtally look for.
 *
 * A table of functions, its own size first: it grows at the end, and a caller
 * asks whether it reaches the entry it wants.
 */
#ifndef MT_PRELOAD_API_H
#define MT_PRELOAD_API_H

#include <stddef.h>
#include <stdint.h>

struct memtally_api {
	size_t size; /* bytes of this table */

	/*
	 * The group at @path, made if need be: "cache" lies below this
	 * process's group, "/cache" is shared by the session.  0 is "/".  When
	 * it can't be had, the nearest ancestor that can.  Any thread; not from
	 * a signal handler.
	 */
	uint32_t (*group_get)(const char *path);

	/* This thread's allocations and mappings go to @group from now on.
	 * Returns what to give to leave(). */
	uint32_t (*enter)(uint32_t group);

	void (*leave)(uint32_t previous);
};

extern const struct memtally_api memtally_api_v1;

#endif
