/* SPDX-License-Identifier: MIT */
/*
 * fuzz_reader.c - any bytes as a segment, through the reader, the model and
 * its JSON: an error or numbers that parse, never a fault.
 *
 * With libFuzzer:
 *	clang -g -O1 -fsanitize=fuzzer,address,undefined -std=gnu17 \
 *	      -D_GNU_SOURCE -I. tests/fuzz/fuzz_reader.c core/reader.c \
 *	      tools/model.c tools/proc.c tools/format.c -lcjson
 * With -DMT_FUZZ_MAIN, and without "fuzzer", the same mutations each time:
 * ROUNDS of them (100000) of a small segment that has something of everything.
 * -w FILE writes that segment, for libFuzzer to start from.  corpus/ keeps what
 * `make fuzz` found worth keeping.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/atomic.h"
#include "core/mapping.h"
#include "tools/model.h"

#ifndef MT_FUZZ_MAIN
#define MT_FUZZ_MAIN 0
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "fuzz_reader: %s\n", what);
	abort();
}

static void must_parse(cJSON *object)
{
	char *text = cJSON_PrintUnformatted(object);
	cJSON *again;

	must(text != NULL, "no text");
	again = cJSON_Parse(text);
	must(again != NULL, "JSON that doesn't parse");
	cJSON_Delete(again);
	cJSON_Delete(object);
	free(text);
}

static void look_at(struct model *model)
{
	char text[16];

	for (uint32_t i = 0; i < model->nr_order; i++) {
		const struct model_group *g = &model->groups[model->order[i]];
		struct mt_record record;

		must(strlen(g->path) < sizeof(g->path), "a path without end");
		model_size(model, g->charged, text);
		must(strlen(text) < sizeof(text), "a size without end");
		mt_reader_is_below(&model->reader, i, MT_ROOT);
		mt_reader_record(&model->reader, i, &record);
	}
	must_parse(model_json(model, false));
	must_parse(model_json(model, true));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct model model;
	void *buf = calloc(1, size + 1);

	must(buf != NULL, "no memory");
	memcpy(buf, data, size);
	if (model_from_copy(&model, buf, size))
		return 0;
	look_at(&model);
	model_free(&model);
	return 0;
}

#if MT_FUZZ_MAIN
#define FILE_SIZE 12288

static const struct {
	uint32_t stride;
	uint32_t capacity;
} shapes[MT_NR_TABLES] = {
	[MT_GROUPS] = { sizeof(struct mt_group), 6 },
	[MT_PROCESSES] = { sizeof(struct mt_process), 4 },
	[MT_THREADS] = { sizeof(struct mt_thread), 4 },
	[MT_LINES] = { sizeof(struct mt_line), 8 },
	[MT_ENDED] = { sizeof(struct mt_ended), 4 },
	[MT_RECORDS] = { sizeof(struct mt_record), 2 },
	[MT_RULES] = { sizeof(struct mt_rule), 1 },
	[MT_PEAKS] = { sizeof(struct mt_peak), 4 },
};

static uint64_t seed = 1;

static uint64_t random_number(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static void *record_at(uint8_t *file, enum mt_table_id table, uint32_t index)
{
	struct mt_table *t = &((struct mt_header *)file)->tables[table];

	store_relaxed(&t->high, index + 1);
	return file + t->offset + (size_t)index * t->stride;
}

static void fill_header(uint8_t *file)
{
	struct mt_header *header = (struct mt_header *)file;
	uint64_t at = sizeof(*header);

	store_relaxed(&header->magic, MT_SEGMENT_MAGIC);
	header->major = MT_SEGMENT_MAJOR;
	header->header_size = sizeof(*header);
	header->segment_size = FILE_SIZE;
	header->page_size = 4096;
	header->batch = MT_BATCH_DEFAULT;
	strcpy(header->name, "fuzz");
	for (int t = 0; t < MT_NR_TABLES; t++) {
		header->tables[t].offset = at;
		header->tables[t].stride = shapes[t].stride;
		header->tables[t].capacity = shapes[t].capacity;
		at += (uint64_t)shapes[t].stride * shapes[t].capacity;
	}
	must(at <= FILE_SIZE, "the file is too small");
}

static void fill_groups(uint8_t *file)
{
	for (uint32_t i = 0; i < shapes[MT_GROUPS].capacity; i++) {
		struct mt_group *group = record_at(file, MT_GROUPS, i);

		store_relaxed(&group->ident, (uint64_t)MT_GROUP_LIVE);
		store_relaxed(&group->parent, i ? (i - 1) / 2 : MT_NONE);
		store_relaxed(&group->high, MT_UNLIMITED);
		store_relaxed(&group->max, MT_UNLIMITED);
		store_relaxed(&group->usage, 100);
		snprintf(group->name, sizeof(group->name), "g%u", i);
	}
}

static void fill_rest(uint8_t *file)
{
	for (uint32_t i = 0; i < 4; i++) {
		struct mt_process *process = record_at(file, MT_PROCESSES, i);
		struct mt_thread *thread = record_at(file, MT_THREADS, i);
		struct mt_ended *ended = record_at(file, MT_ENDED, i);

		store_relaxed(&process->state,
			      (uint64_t)getpid() << 32 | MT_PROC_LIVE);
		store_relaxed(&process->home, i);
		strcpy(process->comm, "program");
		store_relaxed(&thread->ident, (uint64_t)(i + 1) << 32 | 1);
		store_relaxed(&ended->seq, 2);
		ended->peak = i;
		strcpy(ended->comm, "ended");
	}
	for (uint32_t i = 0; i < 8; i++) {
		struct mt_line *line = record_at(file, MT_LINES, i);

		store_relaxed(&line->ident, mt_line_ident(i % 4, i, i % 6));
		for (int k = 0; k < MT_NR_KINDS; k++)
			store_relaxed(&line->word[k],
				      mt_word_with(0, 10 * k, 3));
	}
	for (uint32_t i = 0; i < 2; i++) {
		struct mt_record *record = record_at(file, MT_RECORDS, i);

		store_relaxed(&record->seq, 2 * (i + 1));
		strcpy(record->path, "/g0");
	}
}

/* A byte, or a number that is likely to matter. */
static void mutate(uint8_t *file, size_t size)
{
	static const uint64_t numbers[] = { 0,
					    1,
					    MT_NONE,
					    INT64_MAX,
					    (uint64_t)INT64_MIN,
					    UINT64_MAX,
					    (uint64_t)MT_UNLIMITED };
	unsigned count = 1 + (unsigned)(random_number() % 8);

	for (unsigned i = 0; i < count; i++) {
		/* The header's share is larger than its size. */
		size_t range =
			random_number() % 4 ? size : sizeof(struct mt_header);
		size_t at = random_number() % range;

		if (random_number() % 2) {
			file[at] = (uint8_t)random_number();
			continue;
		}
		at = MT_MIN(at & ~(size_t)7, size - 8);
		memcpy(file + at,
		       &numbers[random_number() % MT_ARRAY_SIZE(numbers)],
		       random_number() % 2 ? 8 : 4);
	}
}

/* What the fuzzer starts from. */
static int write_seed(const char *path, const uint8_t *file)
{
	FILE *to = fopen(path, "w");

	must(to && fwrite(file, FILE_SIZE, 1, to) == 1, "can't write");
	return fclose(to) != 0;
}

/* The same for a mapping table, which is read from its file. */
static void fuzz_tables(const uint8_t *segment, unsigned rounds)
{
	uint8_t table[sizeof(struct mt_map_header) +
		      300 * sizeof(struct mt_map_slot)] = { 0 };
	struct mt_map_header *header = (struct mt_map_header *)table;
	struct mt_map_slot *slots = (struct mt_map_slot *)(header + 1);
	char dir[] = "/tmp/fuzz_reader.XXXXXX";
	char path[64];
	struct model model;

	must(mkdtemp(dir) != NULL, "no directory");
	store_relaxed(&header->magic, MT_MAP_MAGIC);
	header->header_size = sizeof(*header);
	header->stride = sizeof(*slots);
	store_relaxed(&header->high, 300);
	for (uint32_t i = 0; i < 300; i++) {
		store_relaxed(&slots[i].type, i % (MT_MAP_STACK + 1));
		store_relaxed(&slots[i].start, UINT64_C(0x10000) * i);
		store_relaxed(&slots[i].end, UINT64_C(0x10000) * i + 0x8000);
		store_relaxed(&slots[i].group, i % 2 ? i % 6 : MT_NONE - 1);
	}
	for (unsigned round = 0; round < rounds; round++) {
		uint8_t bad[sizeof(table)];
		void *buf = calloc(1, FILE_SIZE);
		int fd;

		memcpy(buf, segment, FILE_SIZE);
		must(model_from_copy(&model, buf, FILE_SIZE) == 0, "refused");
		snprintf(model.path, sizeof(model.path), "%s/s", dir);
		memcpy(bad, table, sizeof(bad));
		mutate(bad, sizeof(bad));
		snprintf(path, sizeof(path), "%s/s@0.0", dir);
		fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		must(write(fd, bad, sizeof(bad) - random_number() % 99) > 0,
		     "can't write");
		close(fd);
		model_tracked(&model, &model.processes[0]);
		look_at(&model);
		model_free(&model);
	}
	unlink(path);
	rmdir(dir);
}

int main(int argc, char **argv)
{
	unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 100000;
	uint8_t *good = calloc(1, FILE_SIZE);
	uint8_t *bad = malloc(FILE_SIZE);

	must(good && bad, "no memory");
	fill_header(good);
	fill_groups(good);
	fill_rest(good);
	if (argc > 2 && strcmp(argv[1], "-w") == 0) {
		int ret = write_seed(argv[2], good);

		free(good);
		free(bad);
		return ret;
	}
	for (unsigned long i = 0; i < rounds; i++) {
		memcpy(bad, good, FILE_SIZE);
		mutate(bad, FILE_SIZE);
		LLVMFuzzerTestOneInput(bad, FILE_SIZE);
	}
	fuzz_tables(good, (unsigned)(rounds / 20));
	printf("%lu mutations survived\n", rounds);
	free(good);
	free(bad);
	return 0;
}
#endif
