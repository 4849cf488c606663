/* SPDX-License-Identifier: MIT */
/*
 * cmd_events.c - memtally events: what happened at limits, and where.
 */
#include <cjson/cJSON.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/atomic.h"
#include "tools/cmd.h"
#include "tools/find.h"
#include "tools/model.h"
#include "tools/reap.h"
#include "tools/symbol.h"

static const char help[] =
	"Examples:\n"
	"  memtally events                  of the only live session\n"
	"  memtally events -f build         and go on until it ends\n"
	"  memtally events --json build | jq 'select(.event == \"killed\")'\n"
	"\n"
	"Usage: memtally events [-f] [--json] [SESSION]\n"
	"\n"
	"What was refused, killed, stopped or slowed down, and thresholds: "
	"who,\n"
	"at whose limit, who held most then, and where in the program it was.\n"
	"The last 256 are kept, and stay until memtally gc.\n";

/* Looked at so often, with -f. */
#define LOOK_NS 100000000

static const char *const names[] = {
	[MT_RECORD_REFUSED] = "refused", [MT_RECORD_KILLED] = "killed",
	[MT_RECORD_STOPPED] = "stopped", [MT_RECORD_HIGH] = "high",
	[MT_RECORD_RISE] = "rise",       [MT_RECORD_FALL] = "fall",
};

static uint64_t number(const struct mt_record *record)
{
	return load_relaxed(&record->seq) / 2 - 1;
}

static const char *name_of(const struct mt_record *record)
{
	return record->what < MT_ARRAY_SIZE(names) && names[record->what]
		       ? names[record->what]
		       : "unknown";
}

static const char *base(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static void print_time(uint64_t ns)
{
	time_t second = (time_t)(ns / 1000000000);
	struct tm tm;
	char text[32];

	if (!localtime_r(&second, &tm) ||
	    !strftime(text, sizeof(text), "%H:%M:%S", &tm))
		strcpy(text, "?");
	printf("%s.%03u ", text, (unsigned)(ns / 1000000 % 1000));
}

static void print_what(const struct model *model, const struct mt_record *r)
{
	const char *limit = r->what == MT_RECORD_HIGH   ? "high"
			    : r->what >= MT_RECORD_RISE ? r->name
							: "max";
	char a[16];
	char b[16];
	char c[16];

	printf("%-8s %s:", name_of(r), r->path);
	if (r->what == MT_RECORD_KILLED)
		printf(" %s[%u], who held %s", r->victim_comm, r->victim,
		       model_size(model, r->victim_pages, a));
	else if (r->pages)
		printf(" %s", model_size(model, r->pages, a));
	printf(" %s %s[%u]", r->what == MT_RECORD_KILLED ? "for" : "by",
	       r->comm, r->pid);
	if (r->tid && r->tid != r->pid)
		printf(" thread %u", r->tid);
	printf("; usage %s of %s %s\n", model_size(model, r->usage, b), limit,
	       r->limit >= MT_UNLIMITED ? "max"
					: model_size(model, r->limit, c));
}

static void print_record(const struct model *model, const struct mt_record *r)
{
	char text[16];

	print_time(r->time_ns);
	print_what(model, r);
	for (int i = 0; i < MT_RECORD_LARGEST && r->largest[i].path[0]; i++)
		printf("%s%s %s", i ? ", " : "    most: ", r->largest[i].path,
		       model_size(model, r->largest[i].pages, text));
	if (r->largest[0].path[0])
		putchar('\n');
	for (uint32_t i = 0; i < r->nr_frames; i++) {
		struct symbol symbol;

		symbol_look_up(r, i, &symbol);
		printf("    #%-2u ", i);
		if (symbol.function[0])
			printf("%s  ", symbol.function);
		if (symbol.file[0])
			printf("%s:%d\n", symbol.file, symbol.line);
		else
			printf("%s+0x%" PRIx64 "\n", base(symbol.module),
			       symbol.offset);
	}
}

static void put_pages(cJSON *object, const char *key, const struct model *model,
		      int64_t pages)
{
	if (pages >= MT_UNLIMITED)
		cJSON_AddNullToObject(object, key);
	else
		model_put(object, key, model_bytes(model, pages));
}

static void put_stack(cJSON *object, const struct mt_record *r)
{
	cJSON *list = cJSON_AddArrayToObject(object, "stack");

	for (uint32_t i = 0; i < r->nr_frames; i++) {
		cJSON *frame = cJSON_CreateObject();
		uint32_t module = (uint32_t)(r->frames[i] >> 56);
		char id[2 * sizeof(r->modules[0].build_id) + 1] = "";
		struct symbol symbol;

		symbol_look_up(r, i, &symbol);
		for (size_t k = 0; module < MT_RECORD_MODULES &&
				   k < sizeof(r->modules[0].build_id);
		     k++)
			sprintf(id + 2 * k, "%02x",
				r->modules[module].build_id[k]);
		cJSON_AddStringToObject(frame, "module", symbol.module);
		cJSON_AddStringToObject(frame, "build_id", id);
		model_put(frame, "offset", (int64_t)symbol.offset);
		if (symbol.function[0])
			cJSON_AddStringToObject(frame, "function",
						symbol.function);
		if (symbol.file[0]) {
			cJSON_AddStringToObject(frame, "file", symbol.file);
			model_put(frame, "line", symbol.line);
		}
		cJSON_AddItemToArray(list, frame);
	}
}

static void print_json(const struct model *model, const struct mt_record *r)
{
	cJSON *object = cJSON_CreateObject();
	cJSON *list;
	char *text;

	model_put(object, "number", (int64_t)number(r));
	cJSON_AddNumberToObject(object, "time", (double)r->time_ns / 1e9);
	cJSON_AddStringToObject(object, "event", name_of(r));
	cJSON_AddStringToObject(object, "group", r->path);
	model_put(object, "pid", r->pid);
	model_put(object, "tid", r->tid);
	cJSON_AddStringToObject(object, "comm", r->comm);
	put_pages(object, "bytes", model, r->pages);
	put_pages(object, "current", model, r->usage);
	put_pages(object, "limit", model, r->limit);
	if (r->name[0])
		cJSON_AddStringToObject(object, "threshold", r->name);
	if (r->what == MT_RECORD_KILLED) {
		cJSON *victim = cJSON_AddObjectToObject(object, "victim");

		model_put(victim, "pid", r->victim);
		cJSON_AddStringToObject(victim, "comm", r->victim_comm);
		put_pages(victim, "bytes", model, r->victim_pages);
	}
	list = cJSON_AddArrayToObject(object, "largest");
	for (int i = 0; i < MT_RECORD_LARGEST && r->largest[i].path[0]; i++) {
		cJSON *entry = cJSON_CreateObject();

		cJSON_AddStringToObject(entry, "group", r->largest[i].path);
		put_pages(entry, "bytes", model, r->largest[i].pages);
		cJSON_AddItemToArray(list, entry);
	}
	put_stack(object, r);
	text = cJSON_PrintUnformatted(object);
	if (text)
		puts(text);
	free(text);
	cJSON_Delete(object);
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = number(a);
	uint64_t y = number(b);

	return x < y ? -1 : x > y;
}

/* Those that are new since *@next. */
static int print_new(const struct model *model, bool json, uint64_t *next)
{
	uint32_t most = mt_reader_count(&model->reader, MT_RECORDS);
	struct mt_record *records = aligned_alloc(
		_Alignof(struct mt_record), (most + 1) * sizeof(*records));
	uint32_t n = 0;

	if (!records)
		return CMD_FAILED;
	for (uint32_t i = 0; i < most; i++) {
		if (mt_reader_record(&model->reader, i, &records[n]) &&
		    number(&records[n]) >= *next)
			n++;
	}
	qsort(records, n, sizeof(*records), by_number);
	for (uint32_t i = 0; i < n; i++) {
		if (json)
			print_json(model, &records[i]);
		else
			print_record(model, &records[i]);
		*next = number(&records[i]) + 1;
	}
	free(records);
	return flush_output() ? CMD_OK : CMD_FAILED;
}

static int show(const char *path, bool json, bool follow)
{
	struct timespec pause = { 0, LOOK_NS };
	uint64_t next = 0;
	int status = CMD_OK;

	for (bool first = true;; first = false) {
		struct model model;
		bool live;
		int ret;

		reap_path(path);
		ret = model_load(&model, path);
		/* Removed while we looked on: it has ended, too. */
		if (ret && !first)
			return CMD_OK;
		if (ret) {
			complain(path, segment_error(ret));
			return segment_status(ret);
		}
		live = model.nr_alive ||
		       load_relaxed(&model.reader.header.supervisor);
		status = print_new(&model, json, &next);
		model_free(&model);
		if (status || !follow || !live)
			return status;
		nanosleep(&pause, NULL);
	}
}

int cmd_events(int argc, char **argv)
{
	static const struct option options[] = { { "json", 0, NULL, 'j' },
						 { "help", 0, NULL, 'h' },
						 { NULL, 0, NULL, 0 } };
	bool follow = false;
	bool json = false;
	char path[4096];
	int status;
	int opt;

	while ((opt = getopt_long(argc, argv, "fh", options, NULL)) != -1) {
		switch (opt) {
		case 'f':
			follow = true;
			break;
		case 'j':
			json = true;
			break;
		case 'h':
			fputs(help, stdout);
			return flush_output() ? CMD_OK : CMD_FAILED;
		default:
			return CMD_USAGE;
		}
	}
	if (argc - optind > 1) {
		complain("events", "one session at a time");
		return CMD_USAGE;
	}
	status = find_session(argv[optind], path);
	return status ? status : show(path, json, follow);
}
