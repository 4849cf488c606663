/* SPDX-License-Identifier: MIT */
/*
 * session.h - a throw-away session for a test.
 */
#ifndef MT_TESTS_SESSION_H
#define MT_TESTS_SESSION_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/atomic.h"
#include "core/segment.h"

static char session_dir[64];
static char session_path[96];
static struct mt_session session;

static inline void session_open(const struct mt_segment_config *given)
{
	struct mt_segment_config config = { .name = "test" };

	if (given)
		config = *given;
	config.name = "test";
	snprintf(session_dir, sizeof(session_dir), "/dev/shm/mt-unit-%d",
		 (int)getpid());
	mkdir(session_dir, 0700);
	snprintf(session_path, sizeof(session_path), "%s/test", session_dir);
	ck_assert_int_eq(mt_segment_create(&session, session_path, &config), 0);
}

static inline void session_close(void)
{
	mt_segment_detach(&session);
	unlink(session_path);
	rmdir(session_dir);
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
