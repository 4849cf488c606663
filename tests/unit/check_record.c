/* SPDX-License-Identifier: MIT */
#include <pthread.h>

#include "core/counter.h"
#include "core/group.h"
#include "core/reader.h"
#include "core/record.h"
#include "tests/unit/session.h"

#define CAPACITY 8

static void set_up(void)
{
	struct mt_segment_config config = { .batch = 64 };

	config.capacity[MT_RECORDS] = CAPACITY;
	session_open(&config);
}

static void write_one(uint64_t pages)
{
	struct mt_record record;

	mt_record_begin(&session, &record, MT_RECORD_REFUSED, MT_ROOT, 100);
	record.pages = (int64_t)pages;
	/* So that a mixture of two can be told. */
	for (int i = 0; i < MT_RECORD_FRAMES; i++)
		record.frames[i] = pages;
	record.nr_frames = MT_RECORD_FRAMES;
	ck_assert(mt_record_write(&session, &record));
}

/* Reads all whole ones; returns how many, the numbers in order of place. */
static int read_all(struct mt_record *records)
{
	struct mt_reader reader;
	int n = 0;
	void *buf;
	size_t size;
	int fd;

	ck_assert_int_eq(mt_reader_open(session_path, &fd, &size), 0);
	buf = aligned_alloc(64, (size + 63) & ~(size_t)63);
	ck_assert_int_eq(mt_reader_load(&reader, fd, buf, size), 0);
	for (uint32_t i = 0; i < mt_reader_count(&reader, MT_RECORDS); i++)
		n += mt_reader_record(&reader, i, &records[n]);
	close(fd);
	free(buf);
	return n;
}

START_TEST(a_record_says_what_there_was)
{
	struct mt_record records[CAPACITY];
	struct mt_record record;
	uint32_t process = join_self();
	uint32_t limited;

	ck_assert_int_eq(
		mt_group_make_path(&session, 0, "/limited", 0, &limited), 0);
	for (int i = 0; i < 9; i++) {
		char path[128];
		uint32_t group;

		snprintf(path, sizeof(path), "%s/a-name-of-some-length-%d",
			 i % 3 ? "/limited" : "/limited/below/and/further/down",
			 i);
		ck_assert_int_eq(
			mt_group_make_path(&session, 0, path, 0, &group), 0);
		mt_counter_charge(&session, group, 10 * (i + 1), NULL);
	}
	mt_counter_charge(&session, MT_ROOT, 1000, NULL);
	mt_record_begin(&session, &record, MT_RECORD_REFUSED, limited, 460);
	mt_record_who(&session, &record, process, 77);
	record.pages = 11;
	ck_assert(mt_record_write(&session, &record));

	ck_assert_int_eq(read_all(records), 1);
	ck_assert_uint_eq(load_relaxed(&records[0].seq), 2);
	ck_assert_uint_eq(records[0].what, MT_RECORD_REFUSED);
	ck_assert_uint_eq(records[0].group, limited);
	ck_assert_str_eq(records[0].path, "/limited");
	ck_assert_int_eq(records[0].usage, 450);
	ck_assert_int_eq(records[0].limit, 460);
	ck_assert_int_eq(records[0].pages, 11);
	ck_assert_uint_eq(records[0].pid, (uint32_t)getpid());
	ck_assert_uint_eq(records[0].tid, 77);
	ck_assert_str_eq(records[0].comm, session.processes[process].comm);
	/* Of the subtree only, the largest first: 120 is of groups inside. */
	ck_assert_int_eq(records[0].largest[0].pages, 120);
	ck_assert_int_eq(records[0].largest[4].pages, 90);
	/* Too long a path loses its beginning. */
	for (int i = 0; i < 5; i++)
		ck_assert_uint_lt(strlen(records[0].largest[i].path), 56);
	ck_assert_str_eq(records[0].largest[4].path,
			 "/limited/a-name-of-some-length-8");
}
END_TEST

START_TEST(the_last_are_kept)
{
	struct mt_record records[CAPACITY];

	for (uint64_t i = 0; i < 3 * CAPACITY + 2; i++)
		write_one(i);
	ck_assert_int_eq(read_all(records), CAPACITY);
	for (int i = 0; i < CAPACITY; i++) {
		uint64_t n = load_relaxed(&records[i].seq) / 2 - 1;

		ck_assert_uint_ge(n, 2 * CAPACITY + 2);
		ck_assert_int_eq(records[i].pages, (int64_t)n);
		ck_assert_uint_eq(n % CAPACITY, (uint64_t)i);
	}
}
END_TEST

START_TEST(half_a_record_is_none)
{
	struct mt_record records[CAPACITY];

	for (uint64_t i = 0; i < CAPACITY; i++)
		write_one(i);
	/* Died while writing; and one that was written over by two. */
	store_relaxed(&session.records[3].seq, 2 * (3 + CAPACITY) + 1);
	session.records[5].frames[7]++;
	ck_assert_int_eq(read_all(records), CAPACITY - 2);
	/* A round later both places are of use again. */
	for (uint64_t i = 0; i < CAPACITY; i++)
		write_one(CAPACITY + i);
	ck_assert_int_eq(read_all(records), CAPACITY - 1);
	for (uint64_t i = 0; i < CAPACITY; i++)
		write_one(2 * CAPACITY + i);
	ck_assert_int_eq(read_all(records), CAPACITY);
}
END_TEST

static _Atomic uint64_t next;
static _Atomic bool stop;

static void *write_often(void *arg)
{
	(void)arg;
	for (int i = 0; i < 3000; i++)
		write_one(fetch_add_relaxed(&next, 1));
	return NULL;
}

static void *read_often(void *arg)
{
	struct mt_record records[CAPACITY];

	while (!load_relaxed(&stop)) {
		int n = read_all(records);

		for (int i = 0; i < n; i++)
			for (int k = 0; k < MT_RECORD_FRAMES; k++)
				ck_assert_uint_eq(records[i].frames[k],
						  (uint64_t)records[i].pages);
	}
	return arg;
}

START_TEST(readers_see_whole_records_only)
{
	struct mt_record records[CAPACITY];
	pthread_t threads[4];
	pthread_t reader;

	write_one(fetch_add_relaxed(&next, 1));
	pthread_create(&reader, NULL, read_often, NULL);
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, write_often, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	store_relaxed(&stop, true);
	pthread_join(reader, NULL);
	ck_assert_int_ge(read_all(records), CAPACITY - 3);
	ck_assert_uint_eq(load_relaxed(&session.header->record_seq), 12001);
	/* Those that slept a whole round are old news. */
	ck_assert_uint_ge(load_relaxed(&session.header->events), 6000);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("record");

	tcase_add_checked_fixture(tc, set_up, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_record_says_what_there_was);
	tcase_add_test(tc, the_last_are_kept);
	tcase_add_test(tc, half_a_record_is_none);
	tcase_add_test(tc, readers_see_whole_records_only);
	return run_case(tc, "record");
}
