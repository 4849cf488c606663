/* SPDX-License-Identifier: MIT */
/*
 * cmd.h - the verbs of memtally, and what they share.
 */
#ifndef MT_TOOLS_CMD_H
#define MT_TOOLS_CMD_H

#include <stdbool.h>
#include <stddef.h>

#define MT_VERSION "0.1.0"

/* Exit statuses. */
enum {
	CMD_OK = 0,
	CMD_FAILED = 1, /* failed, or nothing matched */
	CMD_USAGE = 2,
	CMD_UNREADABLE = 3, /* a segment of another major version, or garbage */
	CMD_BEFORE = 125,   /* run: memtally failed before the start */
	CMD_NOEXEC = 126,
	CMD_NOTFOUND = 127,
};

int cmd_run(int argc, char **argv);
int cmd_ls(int argc, char **argv);
int cmd_stat(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_show(int argc, char **argv);
int cmd_get(int argc, char **argv);
int cmd_set(int argc, char **argv);
int cmd_events(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_gc(int argc, char **argv);

/* "memtally: what: why", one line on stderr; control characters become '?'.
 * @why may be NULL. */
void complain(const char *what, const char *why);

/* Why a segment can't be used: text for a negative error number. */
const char *segment_error(int error);

/* The exit status that goes with it. */
int segment_status(int error);

/* Flush standard output; false, with a line said, when that failed. */
bool flush_output(void);

#endif
