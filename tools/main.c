/* SPDX-License-Identifier: MIT */
/*
 * main.c - memtally's verbs.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/reader.h"
#include "tools/cmd.h"

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
} verbs[] = {
	{ "run", cmd_run, "start a program in a new session" },
	{ "ls", cmd_ls, "list sessions" },
	{ "stat", cmd_stat, "show who holds how much" },
	{ "top", cmd_top, "watch it live" },
	{ "show", cmd_show, "print a group's files as cgroup v2 does" },
	{ "get", cmd_get, "print a group's limits" },
	{ "set", cmd_set, "change a group's limits" },
	{ "events", cmd_events, "say what happened at limits" },
	{ "plan", cmd_plan, "say what a tree's min and low are worth" },
	{ "explain", cmd_explain, "set it against what is in memory" },
	{ "doctor", cmd_doctor, "say whether it will work here" },
	{ "gc", cmd_gc, "remove sessions whose processes are gone" },
};

#define NR_VERBS (sizeof(verbs) / sizeof(verbs[0]))

void complain(const char *what, const char *why)
{
	char line[1024];
	int n;

	/* A name may be as long as it likes: what is wrong comes after it. */
	n = snprintf(line, sizeof(line), "%.700s%s%s%.200s", what,
		     strnlen(what, 701) > 700 ? "..." : "", why ? ": " : "",
		     why ? why : "");
	if (n < 0)
		return;
	mt_reader_clean(line, sizeof(line));
	fprintf(stderr, "memtally: %s\n", line);
}

const char *segment_error(int error)
{
	switch (-error) {
	case EPROTO:
		return "made by another version of memtally";
	case EINVAL:
		return "not a session, or cut short";
	case EAGAIN:
		return "not ready yet";
	case EPERM:
		return "belongs to another user, or is open to others";
	case ELOOP:
		return "a symbolic link";
	case EMEDIUMTYPE:
		return "not in memory (tmpfs)";
	case EFBIG:
		return "the file size limit (ulimit -f) is too low";
	case ENOENT:
		return "no such session";
	default:
		return strerror(-error);
	}
}

int segment_status(int error)
{
	return error == -EPROTO || error == -EINVAL ? CMD_UNREADABLE
						    : CMD_FAILED;
}

bool flush_output(void)
{
	if (!fflush(stdout) && !ferror(stdout))
		return true;
	/* Who closed the pipe has seen enough: no need to tell. */
	if (errno != EPIPE)
		complain("standard output", strerror(errno));
	return false;
}

static void usage(FILE *to)
{
	fputs("Examples:\n"
	      "  memtally run -m 2G -- make -j8     a build, limited as a "
	      "whole\n"
	      "  memtally run -- ./server           then, from another "
	      "terminal:\n"
	      "  memtally stat                      who holds how much, now\n"
	      "  memtally stat --json NAME | jq .   the same for a script\n"
	      "\n"
	      "Usage: memtally VERB [OPTION]...\n"
	      "\n",
	      to);
	for (size_t i = 0; i < NR_VERBS; i++)
		fprintf(to, "  %-6s %s\n", verbs[i].name, verbs[i].help);
	fputs("\nmemtally VERB --help says more.\n", to);
}

/* Edits between two words: inserted, removed, changed or swapped letters. */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[3][32];
	size_t n = strlen(b);
	size_t m = strlen(a);

	if (n > 30 || m > 30)
		return 99;
	for (size_t j = 0; j <= n; j++)
		row[0][j] = (unsigned)j;
	for (size_t i = 1; i <= m; i++) {
		unsigned *now = row[i % 3];
		unsigned *up = row[(i - 1) % 3];
		unsigned *upup = row[(i + 1) % 3];

		now[0] = (unsigned)i;
		for (size_t j = 1; j <= n; j++) {
			unsigned best = up[j - 1] + (a[i - 1] != b[j - 1]);

			best = up[j] + 1 < best ? up[j] + 1 : best;
			best = now[j - 1] + 1 < best ? now[j - 1] + 1 : best;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] &&
			    a[i - 2] == b[j - 1] && upup[j - 2] + 1 < best)
				best = upup[j - 2] + 1;
			now[j] = best;
		}
	}
	return row[m % 3][n];
}

static int unknown(const char *verb)
{
	const char *near = NULL;
	unsigned least = 3;
	char why[64];

	for (size_t i = 0; i < NR_VERBS; i++) {
		unsigned d = distance(verb, verbs[i].name);

		if (d < least) {
			least = d;
			near = verbs[i].name;
		}
	}
	snprintf(why, sizeof(why),
		 near ? "no such command; did you mean %s?"
		      : "no such command; see --help",
		 near);
	complain(verb, why);
	return CMD_USAGE;
}

static int call(size_t i, int argc, char **argv)
{
	char label[32];

	/* For getopt's own complaints: they begin with it. */
	snprintf(label, sizeof(label), "memtally: %s", verbs[i].name);
	argv[0] = label;
	/* A closed pipe is an error to return, except for what run starts. */
	if (verbs[i].run != cmd_run)
		signal(SIGPIPE, SIG_IGN);
	return verbs[i].run(argc, argv);
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : NULL;

	if (!verb) {
		usage(stderr);
		return CMD_USAGE;
	}
	if (strcmp(verb, "-h") == 0 || strcmp(verb, "--help") == 0 ||
	    strcmp(verb, "help") == 0) {
		usage(stdout);
		return flush_output() ? CMD_OK : CMD_FAILED;
	}
	if (strcmp(verb, "--version") == 0) {
		puts("memtally 0.1.0");
		return flush_output() ? CMD_OK : CMD_FAILED;
	}
	for (size_t i = 0; i < NR_VERBS; i++) {
		if (strcmp(verb, verbs[i].name) == 0)
			return call(i, argc - 1, argv + 1);
	}
	return unknown(verb);
}
