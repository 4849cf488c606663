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

/* One table, for the help and for the shells' completions. */
static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
	const char *options; /* as they are typed, blanks between */
	const char *operand; /* what completes: session, pid, group, file */
} verbs[] = {
	{ "run", cmd_run, "start a program in a new session",
	  "-m --max -H --high --low --min -p --property -g --group --by "
	  "--on-max -n --name -s --summary --batch --best-effort --no-follow "
	  "-x --exec",
	  "command" },
	{ "ls", cmd_ls, "list sessions", "--json", "" },
	{ "stat", cmd_stat, "show who holds how much",
	  "-w -c --json --pid --value", "session" },
	{ "top", cmd_top, "watch it live", "-d -n -b -1 -C -R -U", "session" },
	{ "show", cmd_show, "print a group's files as cgroup v2 does", "",
	  "group" },
	{ "get", cmd_get, "print a group's limits", "", "group" },
	{ "set", cmd_set, "change a group's limits", "", "group" },
	{ "events", cmd_events, "say what happened at limits", "-f --json",
	  "session" },
	{ "plan", cmd_plan, "say what a tree's min and low are worth",
	  "--json --cgroup", "file" },
	{ "explain", cmd_explain, "set it against what is in memory",
	  "--maps --json", "pid" },
	{ "doctor", cmd_doctor, "say whether it will work here", "",
	  "command" },
	{ "gc", cmd_gc, "remove sessions whose processes are gone", "-n", "" },
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
		fprintf(to, "  %-7s %s\n", verbs[i].name, verbs[i].help);
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

/* ---- completions ---- */

static void complete_bash(void)
{
	fputs("# bash completion for memtally\n"
	      "_memtally_sessions() {\n"
	      "\tmemtally ls --json 2>/dev/null |\n"
	      "\t\tsed -n 's/.*\"name\":[[:space:]]*\"\\([^\"]*\\)\".*/\\1/p'\n"
	      "}\n"
	      "_memtally() {\n"
	      "\tlocal word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]}\n"
	      "\tlocal words=\n"
	      "\tif [ \"$COMP_CWORD\" -eq 1 ]; then\n"
	      "\t\twords='",
	      stdout);
	for (size_t i = 0; i < NR_VERBS; i++)
		printf("%s ", verbs[i].name);
	fputs("--help --version'\n"
	      "\t\tmapfile -t COMPREPLY < <(compgen -W \"$words\" -- "
	      "\"$word\")\n"
	      "\t\treturn\n"
	      "\tfi\n"
	      "\tcase $verb in\n",
	      stdout);
	for (size_t i = 0; i < NR_VERBS; i++) {
		const char *operand = verbs[i].operand;
		const char *more = !strcmp(operand, "session")
					   ? " $(_memtally_sessions)"
				   : !strcmp(operand, "pid")
					   ? " $(compgen -A job; ls /proc | "
					     "grep '^[0-9]')"
					   : "";
		const char *kind = !strcmp(operand, "command")
					   ? "-A command -A file "
				   : !strcmp(operand, "file") ? "-A file "
							      : "";

		printf("\t%s)\n\t\twords=\"%s --help%s\"\n"
		       "\t\tmapfile -t COMPREPLY < <(compgen %s-W \"$words\" "
		       "-- \"$word\")\n\t\t;;\n",
		       verbs[i].name, verbs[i].options, more, kind);
	}
	fputs("\tesac\n}\ncomplete -F _memtally memtally\n", stdout);
}

static void complete_zsh(void)
{
	fputs("#compdef memtally\n"
	      "if (( CURRENT == 2 )); then\n"
	      "\tlocal -a verbs=(\n",
	      stdout);
	for (size_t i = 0; i < NR_VERBS; i++) {
		printf("\t\t'%s:", verbs[i].name);
		for (const char *c = verbs[i].help; *c; c++)
			fputs(*c == '\'' ? "'\\''" : (char[]){ *c, 0 }, stdout);
		fputs("'\n", stdout);
	}
	fputs("\t)\n\t_describe verb verbs\n\treturn\nfi\n"
	      "case $words[2] in\n",
	      stdout);
	for (size_t i = 0; i < NR_VERBS; i++) {
		const char *operand = verbs[i].operand;

		printf("%s)\n\tcompadd -- %s --help\n", verbs[i].name,
		       verbs[i].options);
		if (!strcmp(operand, "session"))
			fputs("\tcompadd -- ${(f)\"$(memtally ls 2>/dev/null | "
			      "awk 'NR > 1 { print $1 }')\"}\n",
			      stdout);
		else if (!strcmp(operand, "pid"))
			fputs("\t_pids\n", stdout);
		else if (!strcmp(operand, "command"))
			fputs("\t_command_names -e; _files\n", stdout);
		else if (!strcmp(operand, "file"))
			fputs("\t_files\n", stdout);
		fputs("\t;;\n", stdout);
	}
	fputs("esac\n", stdout);
}

static void complete_fish(void)
{
	for (size_t i = 0; i < NR_VERBS; i++) {
		const char *operand = verbs[i].operand;
		char options[256];
		char *rest = options;
		char *option;

		printf("complete -c memtally -n __fish_use_subcommand -f -a %s "
		       "-d \"%s\"\n",
		       verbs[i].name, verbs[i].help);
		snprintf(options, sizeof(options), "%s", verbs[i].options);
		while ((option = strsep(&rest, " "))) {
			if (!*option)
				continue;
			printf("complete -c memtally -n "
			       "'__fish_seen_subcommand_from %s' %s %s\n",
			       verbs[i].name, option[1] == '-' ? "-l" : "-s",
			       option + 1 + (option[1] == '-'));
		}
		if (!strcmp(operand, "session"))
			printf("complete -c memtally -n "
			       "'__fish_seen_subcommand_from %s' -f -a "
			       "'(memtally ls 2>/dev/null | awk \"NR > 1 { "
			       "print \\$1 }\")'\n",
			       verbs[i].name);
		else if (!strcmp(operand, "pid"))
			printf("complete -c memtally -n "
			       "'__fish_seen_subcommand_from %s' -f -a "
			       "'(__fish_complete_pids)'\n",
			       verbs[i].name);
	}
}

static int completions(const char *shell)
{
	if (shell && !strcmp(shell, "bash"))
		complete_bash();
	else if (shell && !strcmp(shell, "zsh"))
		complete_zsh();
	else if (shell && !strcmp(shell, "fish"))
		complete_fish();
	else {
		complain("completions", "for bash, zsh or fish");
		return CMD_USAGE;
	}
	return flush_output() ? CMD_OK : CMD_FAILED;
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
		puts("memtally " MT_VERSION);
		return flush_output() ? CMD_OK : CMD_FAILED;
	}
	if (strcmp(verb, "completions") == 0)
		return completions(argv[2]);
	for (size_t i = 0; i < NR_VERBS; i++) {
		if (strcmp(verb, verbs[i].name) == 0)
			return call(i, argc - 1, argv + 1);
	}
	return unknown(verb);
}
