/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>

#include "core/counter.h"
#include "core/group.h"
#include "core/reader.h"
#include "tests/unit/session.h"

static struct mt_reader reader;
static unsigned char *copy;
static size_t copy_size;

/* A copy of the session, as the file is now. */
static int load(void)
{
	size_t size;
	int ret;
	int fd;

	ret = mt_reader_open(session_path, &fd, &size);
	if (ret)
		return ret;
	free(copy);
	copy_size = size;
	copy = aligned_alloc(64, (size + 63) & ~(size_t)63);
	memset(copy, 0, size);
	ret = mt_reader_load(&reader, fd, copy, size);
	close(fd);
	return ret;
}

static struct mt_header *header(void)
{
	return (struct mt_header *)copy;
}

static int check_copy(void)
{
	return mt_reader_check(&reader, copy, copy_size);
}

static struct mt_group *group_at(uint32_t index)
{
	const struct mt_table *table = &header()->tables[MT_GROUPS];

	return (void *)(copy + table->offset + (size_t)index * table->stride);
}

static void open_session(void)
{
	setup();
	ck_assert_int_eq(load(), 0);
}

static void close_session(void)
{
	teardown();
	free(copy);
	copy = NULL;
}

static const char *cleaned(const char *text)
{
	static char buf[64];

	memset(buf, 'x', sizeof(buf));
	memcpy(buf, text, strlen(text) + 1);
	mt_reader_clean(buf, sizeof(buf));
	return buf;
}

START_TEST(names_are_made_fit_for_terminals_and_json)
{
	ck_assert_str_eq(cleaned(""), "");
	ck_assert_str_eq(cleaned("cc1.4711"), "cc1.4711");
	ck_assert_str_eq(cleaned("\x1b[2J\n\t\x7f"), "?[2J???");
	/* Two, three and four bytes of UTF-8. */
	ck_assert_str_eq(cleaned("\u00e9\u20ac\U0001f600"),
			 "\u00e9\u20ac\U0001f600");
	/* CSI in its eight-bit form, as a byte and in UTF-8. */
	ck_assert_str_eq(cleaned("\x9b"
				 "2J"),
			 "?2J");
	ck_assert_str_eq(cleaned("\xc2\x9b"
				 "2J"),
			 "??2J");
	/* Cut in the middle, as the kernel cuts a comm. */
	ck_assert_str_eq(cleaned("abc\xe2\x82"), "abc??");
	ck_assert_str_eq(cleaned("\xe2\x82"
				 "bc"),
			 "??bc");
	/* Longer than need be, a surrogate, past the last, no such start. */
	ck_assert_str_eq(cleaned("\xc0\xaf"), "??");
	ck_assert_str_eq(cleaned("\xe0\x80\xaf"), "???");
	ck_assert_str_eq(cleaned("\xed\xa0\x80"), "???");
	ck_assert_str_eq(cleaned("\xf4\x90\x80\x80"), "????");
	ck_assert_str_eq(cleaned("\xff\xfe\x80"), "???");
}
END_TEST

START_TEST(a_name_without_an_end_gets_one)
{
	char text[4] = { 'a', 'b', 'c', '\xc3' };
	char none[1] = { 'a' };

	mt_reader_clean(text, sizeof(text));
	mt_reader_clean(none, sizeof(none));
	mt_reader_clean(NULL, 0);

	ck_assert_str_eq(text, "abc");
	ck_assert_str_eq(none, "");
}
END_TEST

START_TEST(what_is_no_plain_file_is_not_opened)
{
	char path[160];
	size_t size = 1;
	int fd = -2;

	snprintf(path, sizeof(path), "%s-x", session_path);
	ck_assert_int_eq(mt_reader_open(path, &fd, &size), -ENOENT);
	ck_assert_int_eq(symlink(session_path, path), 0);
	ck_assert_int_eq(mt_reader_open(path, &fd, &size), -ELOOP);
	unlink(path);
	/* Without a writer a blocking open would wait for ever. */
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(mt_reader_open(path, &fd, &size), -EINVAL);
	unlink(path);
	ck_assert_int_eq(mt_reader_open(session_dir, &fd, &size), -EINVAL);

	/* Out-parameters are untouched on failure. */
	ck_assert_int_eq(fd, -2);
	ck_assert_uint_eq(size, 1);
}
END_TEST

START_TEST(a_file_of_an_absurd_size_is_refused)
{
	size_t size;
	int fd;

	ck_assert_int_eq(truncate(session_path, sizeof(struct mt_header) - 1),
			 0);
	ck_assert_int_eq(mt_reader_open(session_path, &fd, &size), -EINVAL);
	ck_assert_int_eq(truncate(session_path, (off_t)1 << 40), 0);
	ck_assert_int_eq(mt_reader_open(session_path, &fd, &size), -EINVAL);
}
END_TEST

START_TEST(a_file_cut_short_while_it_is_read_is_an_error)
{
	struct mt_reader other;
	size_t size;
	int fd;

	ck_assert_int_eq(mt_reader_open(session_path, &fd, &size), 0);
	/* In the middle of "/", the first record of the first table. */
	ck_assert_int_eq(truncate(session_path, 65536 + 64), 0);

	ck_assert_int_eq(mt_reader_load(&other, fd, copy, size), -EINVAL);
	ck_assert_int_eq(truncate(session_path, 0), 0);
	ck_assert_int_eq(mt_reader_load(&other, fd, copy, size), -EINVAL);
	close(fd);
}
END_TEST

START_TEST(another_version_and_an_unfinished_one_are_told_apart)
{
	header()->minor = 77; /* later, but of our kind */
	ck_assert_int_eq(check_copy(), 0);
	header()->major = MT_SEGMENT_MAJOR + 1;
	ck_assert_int_eq(check_copy(), -EPROTO);
	store_relaxed(&header()->magic, 0);
	ck_assert_int_eq(check_copy(), -EAGAIN);
	store_relaxed(&header()->magic, 42);
	ck_assert_int_eq(check_copy(), -EINVAL);
	ck_assert_int_eq(mt_reader_check(&reader, copy, 100), -EINVAL);
}
END_TEST

START_TEST(tables_that_reach_past_the_end_are_refused)
{
	struct mt_table *table = &header()->tables[MT_LINES];
	const struct mt_table good = *table;

	table->offset = copy_size + 8;
	ck_assert_int_eq(check_copy(), -EINVAL);
	table->offset = UINT64_MAX - 7;
	ck_assert_int_eq(check_copy(), -EINVAL);
	*table = good;
	table->capacity = UINT32_MAX;
	ck_assert_int_eq(check_copy(), -EINVAL);
	*table = good;
	table->capacity = 0;
	ck_assert_int_eq(check_copy(), -EINVAL);
	*table = good;
	table->stride = 0;
	ck_assert_int_eq(check_copy(), -EINVAL);
	table->stride = 65;
	ck_assert_int_eq(check_copy(), -EINVAL);
	*table = good;
	header()->segment_size--;
	ck_assert_int_eq(check_copy(), -EINVAL);
	header()->segment_size++;
	header()->page_size = 0;
	ck_assert_int_eq(check_copy(), -EINVAL);
	header()->page_size = 4095;
	ck_assert_int_eq(check_copy(), -EINVAL);
}
END_TEST

START_TEST(a_high_mark_past_the_capacity_counts_as_full)
{
	struct mt_table *table = &header()->tables[MT_GROUPS];
	struct mt_group group;

	store_relaxed(&table->high, UINT32_MAX);
	ck_assert_int_eq(check_copy(), 0);

	ck_assert_uint_eq(mt_reader_count(&reader, MT_GROUPS), table->capacity);
	ck_assert(!mt_reader_group(&reader, table->capacity, &group));
	ck_assert(!mt_reader_group(&reader, MT_NONE, &group));
}
END_TEST

/* 5 pages charged to /a/b, of 9. */
START_TEST(records_come_out_as_they_went_in)
{
	struct mt_process process;
	struct mt_group group;
	uint32_t b;
	char path[64];

	ck_assert_int_eq(mt_group_make_path(&session, MT_ROOT, "/a/b", 0, &b),
			 0);
	mt_counter_charge(&session, b, 5, NULL);
	mt_counter_force_max(&session, b, 9);
	ck_assert_int_eq(load(), 0);

	ck_assert_uint_eq(mt_reader_count(&reader, MT_GROUPS), 3);
	ck_assert(mt_reader_group(&reader, b, &group));
	ck_assert_int_eq(load_relaxed(&group.usage), 5);
	ck_assert_int_eq(load_relaxed(&group.max), 9);
	ck_assert_str_eq(group.name, "b");
	mt_reader_path(&reader, b, path, sizeof(path));
	ck_assert_str_eq(path, "/a/b");
	mt_reader_path(&reader, MT_ROOT, path, sizeof(path));
	ck_assert_str_eq(path, "/");
	ck_assert(mt_reader_is_below(&reader, b, MT_ROOT));
	ck_assert(!mt_reader_is_below(&reader, MT_ROOT, b));
	ck_assert_str_eq(reader.header.name, "test");
	ck_assert(!mt_reader_process(&reader, 0, &process));
	mt_counter_uncharge(&session, b, 5, NULL);
}
END_TEST

/* Two kinds of other writers: one with longer records, one with shorter. */
START_TEST(longer_and_shorter_records_are_read_as_far_as_they_go)
{
	struct mt_table *table = &header()->tables[MT_GROUPS];
	struct mt_group group;

	table->stride += 64;
	table->capacity = 16;
	store_relaxed(&table->high, 2);
	memcpy(group_at(1), group_at(0), sizeof(group));
	memcpy(group_at(1)->name, "later", 6);
	ck_assert_int_eq(check_copy(), 0);
	ck_assert(mt_reader_group(&reader, 1, &group));
	ck_assert_str_eq(group.name, "later");

	/* As far as `events`: what comes after reads as zero. */
	table->stride = offsetof(struct mt_group, events);
	memcpy(group_at(1), group_at(0), table->stride);
	store_relaxed(&group_at(1)->usage, 3);
	ck_assert_int_eq(check_copy(), 0);
	ck_assert(mt_reader_group(&reader, 1, &group));
	ck_assert_int_eq(load_relaxed(&group.usage), 3);
	ck_assert_uint_eq(load_relaxed(&group.events[MT_EVENT_MAX]), 0);
	ck_assert_str_eq(group.name, "");
}
END_TEST

START_TEST(a_cycle_of_groups_ends)
{
	char path[MT_DEPTH_MAX * MT_NAME_MAX];

	store_relaxed(&header()->tables[MT_GROUPS].high, 4);
	for (uint32_t i = 1; i < 4; i++) {
		memcpy(group_at(i), group_at(0), sizeof(struct mt_group));
		snprintf(group_at(i)->name, MT_NAME_MAX, "g%u", i);
		store_relaxed(&group_at(i)->parent, i % 3 + 1);
	}
	ck_assert_int_eq(check_copy(), 0);

	mt_reader_path(&reader, 1, path, sizeof(path));
	ck_assert_uint_lt(strlen(path), sizeof(path));
	ck_assert(!mt_reader_is_below(&reader, 1, MT_ROOT));
}
END_TEST

START_TEST(a_path_is_cut_to_whole_names)
{
	uint32_t group;
	char path[12];

	ck_assert_int_eq(mt_group_make_path(&session, MT_ROOT,
					    "/first/second/third", 0, &group),
			 0);
	ck_assert_int_eq(load(), 0);

	for (size_t size = 1; size <= sizeof(path); size++) {
		memset(path, 'x', sizeof(path));
		mt_reader_path(&reader, group, path, size);
		ck_assert_str_eq(path, size < 7 ? "" : "/first");
	}
}
END_TEST

/* Whatever bytes there are: numbers or an error, in bounded time. */
START_TEST(any_content_is_survived)
{
	unsigned char *good = malloc(copy_size);
	uint32_t seed = 7;
	char path[64];

	memcpy(good, copy, copy_size);
	for (int round = 0; round < 20000; round++) {
		memcpy(copy, good, sizeof(struct mt_header));
		memcpy(copy + 65536, good + 65536, 4096);
		for (int i = 0; i < 1 + round % 8; i++) {
			size_t at;

			seed = seed * 1103515245u + 12345u;
			at = (seed >> 8) % (sizeof(struct mt_header) + 2048);
			if (at >= sizeof(struct mt_header))
				at += 65536 - sizeof(struct mt_header);
			copy[at] = (unsigned char)(seed >> 24);
		}
		if (check_copy())
			continue;
		for (uint32_t i = 0; i < 100; i++) {
			union {
				struct mt_group group;
				struct mt_process process;
				struct mt_thread thread;
				struct mt_line line;
				struct mt_ended ended;
				struct mt_record record;
			} r;

			mt_reader_group(&reader, i, &r.group);
			mt_reader_process(&reader, i, &r.process);
			mt_reader_thread(&reader, i, &r.thread);
			mt_reader_line(&reader, i, &r.line);
			mt_reader_ended(&reader, i, &r.ended);
			mt_reader_record(&reader, i, &r.record);
			mt_reader_path(&reader, i, path, sizeof(path));
			ck_assert_uint_lt(strlen(path), sizeof(path));
			mt_reader_is_below(&reader, i, 3);
		}
	}
	free(good);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("reader");

	tcase_add_checked_fixture(tc, open_session, close_session);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, names_are_made_fit_for_terminals_and_json);
	tcase_add_test(tc, a_name_without_an_end_gets_one);
	tcase_add_test(tc, what_is_no_plain_file_is_not_opened);
	tcase_add_test(tc, a_file_of_an_absurd_size_is_refused);
	tcase_add_test(tc, a_file_cut_short_while_it_is_read_is_an_error);
	tcase_add_test(tc,
		       another_version_and_an_unfinished_one_are_told_apart);
	tcase_add_test(tc, tables_that_reach_past_the_end_are_refused);
	tcase_add_test(tc, a_high_mark_past_the_capacity_counts_as_full);
	tcase_add_test(tc, records_come_out_as_they_went_in);
	tcase_add_test(tc,
		       longer_and_shorter_records_are_read_as_far_as_they_go);
	tcase_add_test(tc, a_cycle_of_groups_ends);
	tcase_add_test(tc, a_path_is_cut_to_whole_names);
	tcase_add_test(tc, any_content_is_survived);
	return run_case(tc, "reader");
}
