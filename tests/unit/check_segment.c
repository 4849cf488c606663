/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "core/group.h"
#include "core/sys.h"
#include "tests/unit/session.h"

/* Attach @path for a moment: what the attempt returned. */
static int try_attach(const char *path)
{
	struct mt_session other;
	int ret = mt_segment_attach(&other, path);

	if (!ret)
		mt_segment_detach(&other);
	return ret;
}

START_TEST(a_new_segment_says_what_it_is)
{
	const struct mt_header *h = session.header;
	struct stat st;

	ck_assert_int_eq(stat(session_path, &st), 0);

	ck_assert_uint_eq(st.st_mode, S_IFREG | 0600);
	ck_assert_uint_eq((uint64_t)st.st_size, h->segment_size);
	ck_assert_uint_eq(session.size, h->segment_size);
	ck_assert(load_acquire(&h->magic) == MT_SEGMENT_MAGIC);
	ck_assert_int_eq(memcmp(&session.header->magic, "MEMTALLY", 8), 0);
	ck_assert_uint_eq(h->major, MT_SEGMENT_MAJOR);
	ck_assert_uint_eq(h->minor, MT_SEGMENT_MINOR);
	ck_assert_uint_eq(h->header_size, sizeof(*h));
	ck_assert_uint_eq(h->page_size, (uint32_t)sysconf(_SC_PAGESIZE));
	ck_assert_uint_eq(h->batch, MT_BATCH_DEFAULT);
	ck_assert_uint_eq(h->uid, geteuid());
	ck_assert_uint_eq(h->pid_ns, own_ns());
	ck_assert_str_eq(h->name, "test");
	ck_assert_str_eq(session.path, session_path);
}
END_TEST

START_TEST(a_new_segment_has_the_root_group_and_nothing_else)
{
	const struct mt_group *root = &session.groups[MT_ROOT];

	ck_assert(mt_group_is_live(&session, MT_ROOT));
	ck_assert_str_eq(root->name, "/");
	ck_assert_uint_eq(load_relaxed(&root->parent), MT_NONE);
	ck_assert_int_eq(load_relaxed(&root->max), MT_UNLIMITED);
	ck_assert_int_eq(load_relaxed(&root->high), MT_UNLIMITED);
	ck_assert_int_eq(usage_of(MT_ROOT), 0);
	ck_assert_uint_eq(mt_table_high(&session, MT_GROUPS), 1);
	for (int t = MT_PROCESSES; t < MT_NR_TABLES; t++)
		ck_assert_uint_eq(mt_table_high(&session, (enum mt_table_id)t),
				  0);
}
END_TEST

START_TEST(a_new_segment_takes_what_it_is_asked_for)
{
	struct mt_segment_config config = { 0 };
	char longer[100];

	memset(longer, 'x', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	config.command = longer;
	config.batch = 7;
	config.flags = MT_SESSION_BY_PROG;
	for (int t = 0; t < MT_NR_TABLES; t++)
		config.capacity[t] = (uint32_t)t + 1;
	session_close();

	session_open(&config);

	ck_assert_uint_eq(session.header->batch, 7);
	ck_assert_uint_eq(session.header->flags & MT_SESSION_BY_MASK,
			  MT_SESSION_BY_PROG);
	/* Cut to what the field holds. */
	ck_assert_uint_eq(strlen(session.header->command), MT_NAME_MAX - 1);
	for (int t = 0; t < MT_NR_TABLES; t++)
		ck_assert_uint_eq(session.header->tables[t].capacity,
				  (uint32_t)t + 1);
	ck_assert_int_eq(try_attach(session_path), 0);
}
END_TEST

START_TEST(a_path_in_use_is_left_alone)
{
	struct mt_segment_config config = { .name = "test" };
	struct mt_session other = { 0 };

	store_relaxed(&session.groups[MT_ROOT].usage, 4711);

	ck_assert_int_eq(mt_segment_create(&other, session_path, &config),
			 -EEXIST);

	ck_assert_ptr_null(other.header);
	ck_assert_int_eq(mt_segment_attach(&other, session_path), 0);
	ck_assert_int_eq(load_relaxed(&other.groups[MT_ROOT].usage), 4711);
	mt_segment_detach(&other);
}
END_TEST

START_TEST(bad_configurations_are_refused_and_leave_no_file)
{
	struct mt_segment_config bad[4] = {
		{ .name = "a/b" },
		{ .name = NULL },
		{ .name = "x", .batch = MT_BATCH_MAX + 1 },
		{ .name = "x", .capacity = { [MT_LINES] = 0x100000 } },
	};
	char path[128];

	snprintf(path, sizeof(path), "%s/bad", session_dir);
	for (size_t i = 0; i < MT_ARRAY_SIZE(bad); i++) {
		struct mt_session other = { 0 };

		ck_assert_int_eq(mt_segment_create(&other, path, &bad[i]),
				 -EINVAL);
		ck_assert_int_eq(access(path, F_OK), -1);
		ck_assert_ptr_null(other.header);
	}
}
END_TEST

/* What can be made can be attached: no capacity is accepted by one alone. */
START_TEST(the_largest_segment_can_be_attached_or_is_not_made)
{
	struct mt_segment_config config = { .name = "test" };
	struct mt_session other = { 0 };
	char path[128];
	int ret;

	snprintf(path, sizeof(path), "%s/large", session_dir);
	for (int t = 0; t < MT_NR_TABLES; t++)
		config.capacity[t] = 0xffff0;

	ret = mt_segment_create(&other, path, &config);

	if (!ret) {
		mt_segment_detach(&other);
		ck_assert_int_eq(try_attach(path), 0);
	} else {
		ck_assert_int_eq(ret, -EINVAL);
	}
}
END_TEST

START_TEST(what_one_process_stores_another_reads)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		struct mt_session other;

		if (mt_segment_attach(&other, session_path))
			_exit(1);
		mt_counter_charge(&other, MT_ROOT, 7, NULL);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);

	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(usage_of(MT_ROOT), 7);
}
END_TEST

#define TABLE(t, field)                                                        \
	(offsetof(struct mt_header, tables) +                                  \
	 sizeof(struct mt_table) * (size_t)(t) +                               \
	 offsetof(struct mt_table, field))
#define HEADER(field) offsetof(struct mt_header, field)

/* One field changed, and what attaching must say then. */
static const struct change {
	const char *what;
	size_t at;
	size_t size;
	uint64_t value;
	int ret;
} changes[] = {
	{ "no magic yet", HEADER(magic), 8, 0, -EINVAL },
	{ "another magic", HEADER(magic), 8, 0x3130474553474355, -EINVAL },
	{ "the next major version", HEADER(major), 2, MT_SEGMENT_MAJOR + 1,
	  -EPROTO },
	{ "the next minor version", HEADER(minor), 2, MT_SEGMENT_MINOR + 1,
	  -EPROTO },
	{ "a longer header", HEADER(header_size), 4, 4096, -EPROTO },
	{ "longer records", TABLE(MT_LINES, stride), 4, 128, -EPROTO },
	{ "no stride", TABLE(MT_GROUPS, stride), 4, 0, -EPROTO },
	{ "another size", HEADER(segment_size), 8, 65536, -EINVAL },
	{ "no page size", HEADER(page_size), 4, 0, -EINVAL },
	{ "no batch", HEADER(batch), 4, 0, -EINVAL },
	{ "a batch that no word holds", HEADER(batch), 4, MT_BATCH_MAX + 1,
	  -EINVAL },
	{ "no records", TABLE(MT_LINES, capacity), 4, 0, -EINVAL },
	{ "records past the end", TABLE(MT_RECORDS, capacity), 4, UINT32_MAX,
	  -EINVAL },
	{ "a table past the end", TABLE(MT_GROUPS, offset), 8, UINT64_MAX - 63,
	  -EINVAL },
	{ "a table in the header", TABLE(MT_GROUPS, offset), 8, 64, -EINVAL },
	{ "a table askew", TABLE(MT_GROUPS, offset), 8, 65536 + 8, -EINVAL },
};

START_TEST(a_segment_that_is_not_ours_is_refused)
{
	const struct change *c = &changes[_i];
	int fd = open(session_path, O_RDWR);

	ck_assert_int_eq(pwrite(fd, &c->value, c->size, (off_t)c->at),
			 (ssize_t)c->size);
	close(fd);

	ck_assert_msg(try_attach(session_path) == c->ret, "%s", c->what);
}
END_TEST

START_TEST(a_segment_cut_short_is_refused)
{
	const off_t sizes[] = {
		(off_t)session.size - 1, 131072, 65536, 65535, 4096, 1, 0
	};

	for (size_t i = 0; i < MT_ARRAY_SIZE(sizes); i++) {
		ck_assert_int_eq(truncate(session_path, sizes[i]), 0);
		ck_assert_int_eq(try_attach(session_path), -EINVAL);
	}
}
END_TEST

START_TEST(links_directories_and_pipes_are_refused)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/link", session_dir);
	ck_assert_int_eq(symlink(session_path, path), 0);
	ck_assert_int_eq(try_attach(path), -ELOOP);

	ck_assert_int_eq(try_attach(session_dir), -EISDIR);

	/* And it doesn't wait for somebody to open the other end. */
	snprintf(path, sizeof(path), "%s/pipe", session_dir);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(try_attach(path), -EINVAL);

	ck_assert_int_eq(try_attach("/nonexistent/test"), -ENOENT);
	ck_assert_int_eq(try_attach("relative"), -EINVAL);
}
END_TEST

START_TEST(a_segment_that_others_may_open_is_refused)
{
	static const mode_t modes[] = { 0644, 0604, 0640, 0620, 0601, 0666 };

	for (size_t i = 0; i < MT_ARRAY_SIZE(modes); i++) {
		ck_assert_int_eq(chmod(session_path, modes[i]), 0);
		ck_assert_int_eq(try_attach(session_path), -EPERM);
	}
	ck_assert_int_eq(chmod(session_path, 0600), 0);
	ck_assert_int_eq(try_attach(session_path), 0);
	if (geteuid() == 0) {
		ck_assert_int_eq(chown(session_path, 65534, 65534), 0);
		ck_assert_int_eq(try_attach(session_path), -EPERM);
	}
}
END_TEST

START_TEST(names_of_sessions_are_fit_for_files)
{
	char longest[MT_NAME_MAX + 1];

	ck_assert(mt_session_name_ok("make.4711"));
	ck_assert(mt_session_name_ok("x"));
	ck_assert(mt_session_name_ok("\xc3\xa9t\xc3\xa9"));
	ck_assert(!mt_session_name_ok(""));
	ck_assert(!mt_session_name_ok("."));
	ck_assert(!mt_session_name_ok(".."));
	ck_assert(!mt_session_name_ok("a/b"));
	ck_assert(!mt_session_name_ok("a\nb"));
	ck_assert(!mt_session_name_ok("a\x7f"));
	/* "SESSION@3.7" is the mapping file of its slot 3. */
	ck_assert(!mt_session_name_ok("a@b"));

	memset(longest, 'x', sizeof(longest));
	longest[MT_NAME_MAX] = '\0';
	ck_assert(!mt_session_name_ok(longest));
	longest[MT_NAME_MAX - 1] = '\0';
	ck_assert(mt_session_name_ok(longest));
}
END_TEST

START_TEST(a_mapping_file_is_named_after_slot_and_generation)
{
	char path[MT_PATH_MAX + MT_MAP_SUFFIX];
	char want[128];

	snprintf(want, sizeof(want), "%s@%u.%u", session_path, 0u, 16777215u);
	mt_segment_map_path(&session, 0, 16777215, path);
	ck_assert_str_eq(path, want);
	/* The longest suffix there is fits: "@4294967295.4294967295". */
	ck_assert_uint_lt(strlen("@4294967295.4294967295"), MT_MAP_SUFFIX);
}
END_TEST

START_TEST(the_place_of_sessions_is_private_or_another)
{
	static char place[MT_PATH_MAX];
	char want[128];
	struct stat st;

	snprintf(want, sizeof(want), "%s/memtally", session_dir);

	/* Not there, and not to be made. */
	mt_place_dir(place, session_dir, false);
	ck_assert_str_ne(place, want);
	ck_assert_int_eq(access(want, F_OK), -1);

	ck_assert_int_eq(mt_place_dir(place, session_dir, true), 0);
	ck_assert_str_eq(place, want);
	ck_assert_int_eq(stat(want, &st), 0);
	ck_assert_uint_eq(st.st_mode, S_IFDIR | 0700);
	ck_assert_int_eq(mt_place_dir(place, session_dir, false), 0);
	ck_assert_str_eq(place, want);

	/* Open to others, it isn't used. */
	ck_assert_int_eq(chmod(want, 0755), 0);
	mt_place_dir(place, session_dir, false);
	ck_assert_str_ne(place, want);

	/* Nor is a link to a good one. */
	ck_assert_int_eq(rmdir(want), 0);
	ck_assert_int_eq(symlink(session_dir, want), 0);
	mt_place_dir(place, session_dir, false);
	ck_assert_str_ne(place, want);
}
END_TEST

static bool is_populated(const void *at)
{
	uintptr_t page = (uintptr_t)at & ~(mt_page_size() - 1);
	unsigned char there = 0;

	ck_assert_int_eq(mincore((void *)page, 1, &there), 0);
	return there & 1;
}

/* Has every record that is said to be backed memory, to its last byte? */
static void expect_no_holes(void)
{
	for (int t = 0; t < MT_NR_TABLES; t++) {
		struct mt_table *table = &session.header->tables[t];
		char *first = (char *)session.header + table->offset;
		uint32_t backed = load_acquire(&table->backed);

		ck_assert_uint_le(backed, table->capacity);
		for (uint32_t i = 0; i < backed; i++) {
			char *record = first + (size_t)i * table->stride;

			ck_assert(is_populated(record));
			ck_assert(is_populated(record + table->stride - 1));
		}
	}
}

START_TEST(a_record_gets_memory_before_its_first_use)
{
	struct mt_table *lines = &session.header->tables[MT_LINES];
	uint32_t before = load_acquire(&lines->backed);

	/* At first a piece of each table, and far from all of it. */
	ck_assert_uint_ge(before, 1);
	ck_assert_uint_lt(before, lines->capacity);
	ck_assert(!is_populated(&session.lines[lines->capacity - 1]));
	expect_no_holes();

	/* Nothing to do for those that have it. */
	ck_assert(mt_segment_back(&session, MT_LINES, before - 1));
	ck_assert_uint_eq(load_acquire(&lines->backed), before);

	ck_assert(mt_segment_back(&session, MT_LINES, before));
	ck_assert_uint_gt(load_acquire(&lines->backed), before);
	expect_no_holes();

	/* Far ahead: all up to there. */
	for (int t = 0; t < MT_NR_TABLES; t++) {
		uint32_t last = session.header->tables[t].capacity - 1;

		ck_assert(mt_segment_back(&session, (enum mt_table_id)t, last));
		ck_assert(!mt_segment_back(&session, (enum mt_table_id)t,
					   last + 1));
		ck_assert(!mt_segment_back(&session, (enum mt_table_id)t,
					   MT_NONE));
	}
	expect_no_holes();
}
END_TEST

static void *back_upwards(void *arg)
{
	uint32_t step = *(const uint32_t *)arg;

	for (uint32_t i = 0; i < 16384; i += step)
		ck_assert(mt_segment_back(&session, MT_LINES, i));
	return NULL;
}

START_TEST(threads_that_grow_a_table_leave_no_hole)
{
	static const uint32_t steps[4] = { 100, 333, 700, 1024 };
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, back_upwards,
			       (void *)(uintptr_t)&steps[i]);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);

	/* 15360 = 15 * 1024 is the furthest of all. */
	ck_assert_uint_gt(
		load_acquire(&session.header->tables[MT_LINES].backed), 15360);
	expect_no_holes();
}
END_TEST

START_TEST(the_high_mark_only_rises)
{
	mt_segment_raise_high(&session, MT_LINES, 9);
	ck_assert_uint_eq(mt_table_high(&session, MT_LINES), 10);
	mt_segment_raise_high(&session, MT_LINES, 3);
	ck_assert_uint_eq(mt_table_high(&session, MT_LINES), 10);
}
END_TEST

/* In a child with a mount namespace of its own: a tmpfs of @bytes over the
 * test's directory.  Returns false where that isn't allowed. */
static bool mount_tiny(const char *bytes)
{
	return unshare(CLONE_NEWNS) == 0 &&
	       mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("tiny", session_dir, "tmpfs", 0, bytes) == 0;
}

#define CANNOT_MOUNT 77

static int create_on_full(void)
{
	struct mt_segment_config config = { .name = "test" };
	struct mt_session other = { 0 };

	/* A header and a piece of each of six tables need more than this. */
	if (!mount_tiny("size=32k,mode=0700"))
		return CANNOT_MOUNT;
	if (mt_segment_create(&other, session_path, &config) != -ENOSPC)
		return 1;
	if (other.header)
		return 2;
	return access(session_path, F_OK) == 0 ? 3 : 0;
}

static int grow_on_full(void)
{
	struct mt_segment_config config = { .name = "test" };
	struct mt_session other;
	int ret = 0;

	/* A header and 16 KiB or a page more for each table: 125 KiB. */
	if (!mount_tiny("size=160k,mode=0700"))
		return CANNOT_MOUNT;
	if (mt_segment_create(&other, session_path, &config))
		return 1;
	if (mt_segment_back(&other, MT_LINES, 16383))
		return 2;
	/* Groups until there is no room; a SIGBUS would be a failure. */
	for (int i = 0; !ret && i < 4096; i++) {
		uint32_t group;
		char name[16];

		snprintf(name, sizeof(name), "g%d", i);
		ret = mt_group_make(&other, MT_ROOT, name, 0, &group);
	}
	if (ret != -ENOSPC)
		return 3;
	if (mt_table_high(&other, MT_GROUPS) >=
	    other.header->tables[MT_GROUPS].capacity)
		return 4;
	/* What has memory goes on. */
	mt_counter_charge(&other, 1, 5, NULL);
	return load_relaxed(&other.groups[MT_ROOT].usage) == 5 ? 0 : 5;
}

static int charge_on_full(void)
{
	struct mt_segment_config config = { .name = "test" };
	struct mt_session other;
	struct mt_process_facts facts;
	struct mt_task task;
	struct timespec begin;
	uint32_t process;
	uint32_t refuser;

	if (!mount_tiny("size=256k,mode=0700"))
		return CANNOT_MOUNT;
	if (mt_segment_create(&other, session_path, &config))
		return 1;
	mt_process_facts(&facts);
	if (mt_process_join(&other, &facts, &process))
		return 2;
	mt_task_attach(&other, &task, process, 1);
	/* Use up the lines that have memory, and all memory that is left. */
	while (mt_segment_back(&other, MT_LINES,
			       mt_table_high(&other, MT_LINES))) {
		uint32_t i = mt_table_high(&other, MT_LINES);

		store_relaxed(&other.lines[i].ident, MT_LINE_USED);
		mt_segment_raise_high(&other, MT_LINES, i);
	}
	clock_gettime(CLOCK_MONOTONIC, &begin);
	/* Charges go on, in the process's own word, and at no great price:
	 * looking for a line asks the kernel once, not once per line. */
	for (int i = 0; i < 2000; i++) {
		if (!mt_charge(&other, &task, MT_ROOT, MT_HEAP, 3, &refuser))
			return 3;
	}
	if (session_deadline_passed(&begin))
		return 4;
	return mt_process_charged(&other, process) == 6000 ? 0 : 5;
}

START_TEST(a_full_tmpfs_is_an_error_and_never_a_signal)
{
	int (*const scenes[])(void) = { create_on_full, grow_on_full,
					charge_on_full };
	pid_t child = fork();
	int status;

	if (child == 0)
		_exit(scenes[_i]());
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	if (WEXITSTATUS(status) == CANNOT_MOUNT)
		fprintf(stderr, "full tmpfs: skipped, may not mount one\n");
	else
		ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("segment");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_new_segment_says_what_it_is);
	tcase_add_test(tc, a_new_segment_has_the_root_group_and_nothing_else);
	tcase_add_test(tc, a_new_segment_takes_what_it_is_asked_for);
	tcase_add_test(tc, a_path_in_use_is_left_alone);
	tcase_add_test(tc, bad_configurations_are_refused_and_leave_no_file);
	tcase_add_test(tc, the_largest_segment_can_be_attached_or_is_not_made);
	tcase_add_test(tc, what_one_process_stores_another_reads);
	tcase_add_loop_test(tc, a_segment_that_is_not_ours_is_refused, 0,
			    (int)MT_ARRAY_SIZE(changes));
	tcase_add_test(tc, a_segment_cut_short_is_refused);
	tcase_add_test(tc, links_directories_and_pipes_are_refused);
	tcase_add_test(tc, a_segment_that_others_may_open_is_refused);
	tcase_add_test(tc, names_of_sessions_are_fit_for_files);
	tcase_add_test(tc, a_mapping_file_is_named_after_slot_and_generation);
	tcase_add_test(tc, the_place_of_sessions_is_private_or_another);
	tcase_add_test(tc, a_record_gets_memory_before_its_first_use);
	tcase_add_test(tc, threads_that_grow_a_table_leave_no_hole);
	tcase_add_test(tc, the_high_mark_only_rises);
	tcase_add_loop_test(tc, a_full_tmpfs_is_an_error_and_never_a_signal, 0,
			    3);
	return run_case(tc, "segment");
}
