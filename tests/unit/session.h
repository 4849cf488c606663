/* SPDX-License-Identifier: MIT */
/*
 * session.h - a throw-away session for a test, in a directory of its own on
 * tmpfs that goes when the test, or its process, ends.
 */
#ifndef MT_TESTS_SESSION_H
#define MT_TESTS_SESSION_H

#include <check.h>
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/atomic.h"
#include "core/process.h"
#include "core/segment.h"

static char session_dir[64];
static char session_path[96];
static struct mt_session session;

static inline void session_remove_dir(void)
{
	DIR *dir = opendir(session_dir);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			unlinkat(dirfd(dir), entry->d_name, 0);
	}
	if (dir)
		closedir(dir);
	rmdir(session_dir);
}

/* Sets the paths and makes an empty directory; removed at exit at the latest:
 * a failed test never comes to its teardown. */
static inline void session_make_dir(void)
{
	static pid_t owner;

	if (owner != getpid()) {
		owner = getpid();
		atexit(session_remove_dir);
	}
	snprintf(session_dir, sizeof(session_dir), "/dev/shm/memtally-test-%d",
		 (int)getpid());
	snprintf(session_path, sizeof(session_path), "%s/test", session_dir);
	session_remove_dir();
	ck_assert_int_eq(mkdir(session_dir, 0700), 0);
}

static inline void session_open(const struct mt_segment_config *given)
{
	struct mt_segment_config config = { .name = "test" };

	if (given)
		config = *given;
	config.name = "test";
	session_make_dir();
	ck_assert_int_eq(mt_segment_create(&session, session_path, &config), 0);
}

static inline void session_close(void)
{
	mt_segment_detach(&session);
	session_remove_dir();
}

static inline void setup(void)
{
	session_open(NULL);
}

static inline void teardown(void)
{
	session_close();
}

static inline int64_t usage_of(uint32_t group)
{
	return load_relaxed(&session.groups[group].usage);
}

static inline int64_t peak_of(uint32_t group)
{
	return load_relaxed(&session.groups[group].peak);
}

/* Joins as @pid; at @joined_ns on the boot clock, or now if that is 0. */
static inline uint32_t join_as(uint32_t pid, uint64_t joined_ns)
{
	struct mt_process_facts facts;
	uint32_t process = MT_NONE;

	mt_process_facts(&facts);
	facts.pid = pid;
	if (joined_ns)
		facts.now_ns = joined_ns;
	ck_assert_int_eq(mt_process_join(&session, &facts, &process), 0);
	return process;
}

static inline uint32_t join_self(void)
{
	return join_as((uint32_t)getpid(), 0);
}

static inline uint64_t own_ns(void)
{
	struct mt_process_facts facts;

	mt_process_facts(&facts);
	return facts.pid_ns;
}

static inline bool session_deadline_passed(const struct timespec *since)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec - since->tv_sec > 20;
}

/* Waits until @condition holds; fails the test when it doesn't in 20 s. */
#define wait_until(condition)                                                  \
	do {                                                                   \
		struct timespec since_;                                        \
		clock_gettime(CLOCK_MONOTONIC, &since_);                       \
		while (!(condition)) {                                         \
			ck_assert_msg(!session_deadline_passed(&since_),       \
				      "never came true: %s", #condition);      \
			sched_yield();                                         \
		}                                                              \
	} while (0)

/* Run one suite of one case, as every program here does. */
static inline int run_case(TCase *tc, const char *name)
{
	Suite *s = suite_create(name);
	SRunner *runner;
	int failed;

	suite_add_tcase(s, tc);
	runner = srunner_create(s);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
