/* SPDX-License-Identifier: MIT */
/*
 * symbol.c - names by libdw.
 */
#include "tools/symbol.h"

#include <elfutils/libdwfl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/reader.h"

/* A file, opened once. */
struct known {
	struct known *next;
	struct mt_module module;
	Dwfl *dwfl;
	Dwfl_Module *found; /* NULL: it has no names for us */
	GElf_Addr bias;
};

static struct known *all;

static void open_module(struct known *known)
{
	static char *debug_path;
	static const Dwfl_Callbacks callbacks = {
		.find_elf = dwfl_build_id_find_elf,
		.find_debuginfo = dwfl_standard_find_debuginfo,
		.section_address = dwfl_offline_section_address,
		.debuginfo_path = &debug_path,
	};
	static const uint8_t none[sizeof(known->module.build_id)];
	const unsigned char *id;
	Dwfl_Module *module;
	GElf_Addr at;
	int length;

	if (known->module.path[0] != '/')
		return;
	known->dwfl = dwfl_begin(&callbacks);
	if (!known->dwfl)
		return;
	module = dwfl_report_offline(known->dwfl, "", known->module.path, -1);
	dwfl_report_end(known->dwfl, NULL, NULL);
	if (!module || !dwfl_module_getelf(module, &known->bias))
		return;
	length = dwfl_module_build_id(module, &id, &at);
	if (memcmp(known->module.build_id, none, sizeof(none)) != 0 &&
	    (length <= 0 || memcmp(known->module.build_id, id,
				   MT_MIN((size_t)length, sizeof(none))) != 0))
		return;
	known->found = module;
}

static struct known *find(const struct mt_module *module)
{
	struct known *known;

	for (known = all; known; known = known->next) {
		if (memcmp(&known->module, module, sizeof(*module)) == 0)
			return known;
	}
	known = calloc(1, sizeof(*known));
	if (!known)
		return NULL;
	known->module = *module;
	known->next = all;
	all = known;
	open_module(known);
	return known;
}

static void name(const struct known *known, uint64_t offset, struct symbol *ret)
{
	/* Of the call: it returns to what comes after. */
	GElf_Addr address = known->bias + offset - 1;
	const char *text = dwfl_module_addrname(known->found, address);
	Dwfl_Line *line = dwfl_module_getsrc(known->found, address);

	if (text)
		snprintf(ret->function, sizeof(ret->function), "%s", text);
	if (line)
		text = dwfl_lineinfo(line, NULL, &ret->line, NULL, NULL, NULL);
	if (line && text)
		snprintf(ret->file, sizeof(ret->file), "%s", text);
	/* Which version of a symbol it is says nothing here. */
	ret->function[strcspn(ret->function, "@")] = '\0';
	mt_reader_clean(ret->function, sizeof(ret->function));
	mt_reader_clean(ret->file, sizeof(ret->file));
}

void symbol_look_up(const struct mt_record *record, uint32_t frame,
		    struct symbol *ret)
{
	uint64_t word = record->frames[frame];
	uint32_t module = (uint32_t)(word >> 56);
	const struct known *known;

	memset(ret, 0, sizeof(*ret));
	ret->offset = word & ((UINT64_C(1) << 56) - 1);
	if (module >= MT_RECORD_MODULES || !record->modules[module].path[0]) {
		strcpy(ret->module, "?");
		return;
	}
	snprintf(ret->module, sizeof(ret->module), "%s",
		 record->modules[module].path);
	known = find(&record->modules[module]);
	if (known && known->found)
		name(known, ret->offset, ret);
}
