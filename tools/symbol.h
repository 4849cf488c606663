/* SPDX-License-Identifier: MIT */
/*
 * symbol.h - names for the frames of a call stack, from the files they are in.
 */
#ifndef MT_TOOLS_SYMBOL_H
#define MT_TOOLS_SYMBOL_H

#include "core/layout.h"

struct symbol {
	char module[128];   /* path of the file, or "?" */
	char function[256]; /* "" when it isn't known */
	char file[256];     /* of the source; "" when it isn't known */
	int line;
	uint64_t offset; /* from where the module was loaded */
};

/**
 * symbol_look_up - what is known of one frame
 * @record: whose
 * @frame: its number, below nr_frames
 *
 * A file that was replaced since (another build-id) gives no names.  Files stay
 * open for the next.
 */
void symbol_look_up(const struct mt_record *record, uint32_t frame,
		    struct symbol *ret);

#endif
