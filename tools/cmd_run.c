/* SPDX-License-Identifier: MIT */
/*
 * cmd_run.c - memtally run: start a command in a session, watch over it, and
 * say at the end what it held.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/atomic.h"
#include "core/audit.h"
#include "core/counter.h"
#include "core/group.h"
#include "core/process.h"
#include "core/target.h"
#include "tools/cmd.h"
#include "tools/format.h"
#include "tools/library.h"
#include "tools/model.h"
#include "tools/supervise.h"

static const char help[] =
	"Examples:\n"
	"  memtally run -- ./server            and memtally stat elsewhere\n"
	"  memtally run -m 2G -- make -j8      malloc fails above 2G in all\n"
	"  memtally run -s json:out.json -- ./job\n"
	"\n"
	"Usage: memtally run [OPTION]... [--] CMD [ARG]...\n"
	"\n"
	"  -m, --max SIZE       the most that CMD and its children may hold\n"
	"  -n, --name NAME      name of the session (CMD.PID)\n"
	"  -s, --summary KIND   text, json or none, perhaps with :FILE\n"
	"  -H, --high SIZE      above it they are slowed down, not refused\n"
	"      --low SIZE, --min SIZE   what others leave them, if they can; "
	"or "
	"always\n"
	"  -p, --property K=V   MemoryMax= MemoryHigh= MemoryLow= MemoryMin=\n"
	"  -g, --group 'GLOB:max=SIZE[,high=SIZE,low=SIZE,min=SIZE]'\n"
	"                       for every group whose path matches, now or "
	"later\n"
	"      --on-max POLICY  when nothing can be reclaimed: enomem "
	"(default), "
	"wait=SEC,\n"
	"                       kill (the largest process), kill-group, stop\n"
	"      --by proc|prog|none   a group for each process, each program, "
	"or none\n"
	"      --batch PAGES    pages a thread charges ahead (64)\n"
	"      --no-follow      only the first process\n"
	"      --best-effort    start even what can't be covered\n"
	"  -x, --exec           become CMD: same pid, no summary\n"
	"\n"
	"SIZE: K M G T, max, or 75% (of the memory there is).\n"
	"Inside a session, CMD gets a subgroup of it.\n"
	"Exit status: CMD's own; 128+N when signal N ended it; 125 memtally\n"
	"failed before; 126 CMD can't be executed; 127 CMD wasn't found.\n";

#define RULES_MOST 64

struct rule {
	char pattern[128];
	struct mt_rule_limits limits;
};

struct run {
	char **command;
	const char *name;
	struct mt_rule_limits limits; /* bytes; MT_RULE_UNSET */
	uint32_t on_max;              /* MT_ON_MAX_* */
	uint32_t wait_ms;
	uint32_t batch;
	uint32_t flags;
	struct rule rules[RULES_MOST];
	unsigned nr_rules;
	const char *summary; /* text, json or none, perhaps with :FILE */
	FILE *summary_to;    /* that file, or NULL: standard error */
	bool best_effort;
	bool exec;
	bool nested;
	bool uncovered; /* leave the library away */
	char session_name[MT_NAME_MAX];
	char path[MT_PATH_MAX]; /* of the segment */
	char library[MT_PATH_MAX];
	uint32_t group; /* what -m limits, and the summary is of */
	char group_path[1024];
	struct mt_session session;
};

static int failed(const char *what, const char *why)
{
	complain(what, why);
	return CMD_BEFORE;
}

enum {
	OPT_BY = 256,
	OPT_BATCH,
	OPT_NO_FOLLOW,
	OPT_BEST_EFFORT,
	OPT_LOW,
	OPT_MIN,
	OPT_ON_MAX
};

static const struct option options[] = {
	{ "max", 1, NULL, 'm' },
	{ "name", 1, NULL, 'n' },
	{ "summary", 1, NULL, 's' },
	{ "by", 1, NULL, OPT_BY },
	{ "batch", 1, NULL, OPT_BATCH },
	{ "no-follow", 0, NULL, OPT_NO_FOLLOW },
	{ "best-effort", 0, NULL, OPT_BEST_EFFORT },
	{ "exec", 0, NULL, 'x' },
	{ "high", 1, NULL, 'H' },
	{ "low", 1, NULL, OPT_LOW },
	{ "min", 1, NULL, OPT_MIN },
	{ "property", 1, NULL, 'p' },
	{ "group", 1, NULL, 'g' },
	{ "on-max", 1, NULL, OPT_ON_MAX },
	{ "help", 0, NULL, 'h' },
	{ NULL, 0, NULL, 0 }
};

static const struct mt_rule_limits unset = { MT_RULE_UNSET, MT_RULE_UNSET,
					     MT_RULE_UNSET, MT_RULE_UNSET };

static int set_by(struct run *run, const char *by)
{
	run->flags &= ~MT_SESSION_BY_MASK;
	if (strcmp(by, "proc") == 0)
		run->flags |= MT_SESSION_BY_PROC;
	else if (strcmp(by, "prog") == 0)
		run->flags |= MT_SESSION_BY_PROG;
	else if (strcmp(by, "none") == 0)
		run->flags |= MT_SESSION_BY_NONE;
	else
		return failed(by, "--by takes proc, prog or none");
	return 0;
}

static bool summary_ok(const char *kind)
{
	size_t n = strcspn(kind, ":");

	if (kind[n] && !kind[n + 1])
		return false;
	return (n == 4 && (strncmp(kind, "text", n) == 0 ||
			   strncmp(kind, "json", n) == 0 ||
			   strncmp(kind, "none", n) == 0));
}

static int set_batch(struct run *run, const char *text)
{
	char *end;
	long n = strtol(text, &end, 10);

	if (*end || end == text || n < 1 || n > MT_BATCH_MAX)
		return failed(text, "--batch takes 1 to 65536 pages");
	run->batch = (uint32_t)n;
	return 0;
}

/* One of the four limits, by its name here or in systemd's files. */
static int64_t *limit_named(struct mt_rule_limits *limits, const char *key,
			    size_t len)
{
	static const struct {
		const char *name;
		const char *property;
		size_t offset;
	} all[] = {
		{ "max", "MemoryMax", offsetof(struct mt_rule_limits, max) },
		{ "high", "MemoryHigh", offsetof(struct mt_rule_limits, high) },
		{ "low", "MemoryLow", offsetof(struct mt_rule_limits, low) },
		{ "min", "MemoryMin", offsetof(struct mt_rule_limits, min) },
	};

	for (size_t i = 0; i < MT_ARRAY_SIZE(all); i++) {
		if ((strlen(all[i].name) == len &&
		     strncmp(key, all[i].name, len) == 0) ||
		    (strlen(all[i].property) == len &&
		     strncmp(key, all[i].property, len) == 0))
			return (int64_t *)((char *)limits + all[i].offset);
	}
	return NULL;
}

static int set_limit(struct mt_rule_limits *limits, const char *key,
		     const char *size)
{
	int64_t bytes;

	if (parse_size(size, &bytes))
		return failed(size, "not a size (512M, 75%, max)");
	*limit_named(limits, key, strlen(key)) = bytes;
	return 0;
}

/* KEY=SIZE; @known: which of the two sets of names. */
static int set_by_text(struct mt_rule_limits *limits, const char *text,
		       bool properties, const char *form)
{
	size_t len = strcspn(text, "=");
	int64_t *limit = limit_named(limits, text, len);
	int64_t bytes;

	if (!text[len] || !limit || (text[0] == 'M') != properties)
		return failed(text, form);
	if (parse_size(text + len + 1, &bytes))
		return failed(text + len + 1, "not a size (512M, 75%, max)");
	/* In bytes until the session's page size is known. */
	*limit = bytes;
	return 0;
}

/* GLOB:key=SIZE[,key=SIZE]... */
static int add_rule(struct run *run, const char *text)
{
	static const char form[] =
		"--group takes '/PATTERN:max=SIZE[,high=...,low=...,min=...]'";
	const char *colon = strrchr(text, ':');
	struct rule *rule = &run->rules[run->nr_rules];
	char keys[128];
	char *rest = keys;
	char *key;

	if (run->nr_rules == RULES_MOST)
		return failed(text, "more than 64 groups given");
	if (!colon || text[0] != '/' ||
	    (size_t)(colon - text) >= sizeof(rule->pattern) ||
	    strlen(colon + 1) >= sizeof(keys))
		return failed(text, form);
	snprintf(rule->pattern, sizeof(rule->pattern), "%.*s",
		 (int)(colon - text), text);
	rule->limits = unset;
	strcpy(keys, colon + 1);
	while ((key = strsep(&rest, ","))) {
		int ret = set_by_text(&rule->limits, key, false, form);

		if (ret)
			return ret;
	}
	run->nr_rules++;
	return 0;
}

static int set_on_max(struct run *run, const char *text)
{
	static const char *const names[] = {
		[MT_ON_MAX_ENOMEM] = "enomem",
		[MT_ON_MAX_KILL] = "kill",
		[MT_ON_MAX_KILL_GROUP] = "kill-group",
		[MT_ON_MAX_STOP] = "stop",
	};
	double seconds;
	char *end;

	for (uint32_t i = 0; i < MT_ARRAY_SIZE(names); i++) {
		if (names[i] && strcmp(text, names[i]) == 0) {
			run->on_max = i;
			return 0;
		}
	}
	if (strncmp(text, "wait=", 5) == 0 &&
	    strspn(text + 5, "0123456789.") == strlen(text + 5)) {
		seconds = strtod(text + 5, &end);
		if (end > text + 5 && !*end && seconds <= 1000000) {
			run->on_max = MT_ON_MAX_WAIT;
			run->wait_ms = (uint32_t)(seconds * 1000);
			return 0;
		}
	}
	return failed(text, "--on-max takes enomem, wait=SECONDS, kill, "
			    "kill-group or stop");
}

static int take_option(struct run *run, int opt)
{
	switch (opt) {
	case 'm':
		return set_limit(&run->limits, "max", optarg);
	case 'n':
		if (!mt_session_name_ok(optarg))
			return failed(optarg, "not fit for a session's name");
		run->name = optarg;
		return 0;
	case 's':
		if (!summary_ok(optarg))
			return failed(optarg, "--summary takes text, json or "
					      "none, perhaps with :FILE");
		run->summary = optarg;
		return 0;
	case OPT_BY:
		return set_by(run, optarg);
	case OPT_BATCH:
		return set_batch(run, optarg);
	case OPT_NO_FOLLOW:
		run->flags |= MT_SESSION_NO_FOLLOW;
		return 0;
	case OPT_BEST_EFFORT:
		run->best_effort = true;
		return 0;
	case 'x':
		run->exec = true;
		return 0;
	case OPT_ON_MAX:
		return set_on_max(run, optarg);
	case 'H':
		return set_limit(&run->limits, "high", optarg);
	case OPT_LOW:
		return set_limit(&run->limits, "low", optarg);
	case OPT_MIN:
		return set_limit(&run->limits, "min", optarg);
	case 'p':
		return set_by_text(&run->limits, optarg, true,
				   "--property takes MemoryMax=, MemoryHigh=, "
				   "MemoryLow= or MemoryMin=");
	case 'g':
		return add_rule(run, optarg);
	default:
		return CMD_BEFORE; /* getopt has said it */
	}
}

static int parse(struct run *run, int argc, char **argv)
{
	int opt;
	int ret;

	while ((opt = getopt_long(argc, argv, "+m:n:s:xhH:p:g:", options,
				  NULL)) != -1) {
		if (opt == 'h') {
			fputs(help, stdout);
			return flush_output() ? -1 : CMD_BEFORE;
		}
		ret = take_option(run, opt);
		if (ret)
			return ret;
	}
	if (optind >= argc)
		return failed("run", "no command given; see --help");
	run->command = argv + optind;
	return 0;
}

static int find_library(struct run *run)
{
	char dir[MT_PATH_MAX];

	snprintf(dir, sizeof(dir), "%.*s",
		 (int)(strrchr(run->path, '/') - run->path), run->path);
	return library_find(dir, run->library) ? CMD_BEFORE : 0;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

static void choose_name(struct run *run)
{
	char *c;

	if (run->name) {
		snprintf(run->session_name, sizeof(run->session_name), "%s",
			 run->name);
		return;
	}
	snprintf(run->session_name, sizeof(run->session_name), "%.40s.%d",
		 base_name(run->command[0]), (int)getpid());
	for (c = run->session_name; *c; c++) {
		if ((unsigned char)*c < 0x20 || *c == '@' || *c == 0x7f ||
		    *c == '/')
			*c = '_';
	}
	if (run->session_name[0] == '.')
		run->session_name[0] = '_';
}

/* A subgroup of the session we are in. */
static int nest(struct run *run)
{
	const char *base = getenv("MEMTALLY_GROUP");
	int ret;

	snprintf(run->group_path, sizeof(run->group_path), "%s/%s",
		 base && base[0] == '/' && base[1] ? base : "",
		 run->session_name);
	ret = mt_group_make_path(&run->session, MT_ROOT, run->group_path,
				 MT_GROUP_KEEP, &run->group);
	if (ret)
		return failed(run->group_path, strerror(-ret));
	run->nested = true;
	return 0;
}

static int make_session(struct run *run)
{
	const char *inside = getenv("MEMTALLY_SESSION");
	struct mt_segment_config config = { 0 };
	size_t len;
	int ret;

	choose_name(run);
	if (inside && inside[0] == '/' && strlen(inside) < MT_PATH_MAX &&
	    mt_segment_attach(&run->session, inside) == 0) {
		strcpy(run->path, inside);
		return nest(run);
	}
	ret = mt_place_dir(run->path, getenv("XDG_RUNTIME_DIR"), true);
	if (ret)
		return failed(run->path, segment_error(ret));
	len = strlen(run->path);
	snprintf(run->path + len, sizeof(run->path) - len, "/%s",
		 run->session_name);
	config.name = run->session_name;
	config.command = base_name(run->command[0]);
	config.batch = run->batch;
	config.flags = run->flags;
	ret = mt_segment_create(&run->session, run->path, &config);
	if (ret == -EEXIST)
		return failed(run->session_name,
			      "there is a session of that name (memtally gc)");
	if (ret)
		return failed(run->path, segment_error(ret));
	run->group = MT_ROOT;
	return 0;
}

static int64_t in_pages(const struct run *run, int64_t bytes)
{
	int64_t pages = bytes / (int64_t)run->session.header->page_size;

	return bytes == MT_RULE_UNSET ? bytes : MT_MIN(pages, MT_UNLIMITED);
}

static struct mt_rule_limits all_in_pages(const struct run *run,
					  const struct mt_rule_limits *bytes)
{
	return (struct mt_rule_limits){ in_pages(run, bytes->min),
					in_pages(run, bytes->low),
					in_pages(run, bytes->high),
					in_pages(run, bytes->max) };
}

static int set_limits(struct run *run)
{
	struct mt_rule_limits own = all_in_pages(run, &run->limits);

	mt_group_set_limits(&run->session, run->group, &own);
	if (!run->nested) {
		store_relaxed(&run->session.header->wait_ms, run->wait_ms);
		store_relaxed(&run->session.header->on_max, run->on_max);
	}
	for (unsigned i = 0; i < run->nr_rules; i++) {
		struct mt_rule_limits limits =
			all_in_pages(run, &run->rules[i].limits);
		int ret = mt_group_add_rule(&run->session,
					    run->rules[i].pattern, &limits);

		if (ret)
			return failed(run->rules[i].pattern,
				      "no room for another pattern");
	}
	return 0;
}

/* Where execvp() will find the command; "" if nowhere. */
static void find_command(const char *name, char *ret)
{
	const char *path = getenv("PATH");

	ret[0] = '\0';
	if (strchr(name, '/')) {
		snprintf(ret, MT_PATH_MAX, "%s", name);
		return;
	}
	while (path && *path) {
		int n = (int)strcspn(path, ":");

		snprintf(ret, MT_PATH_MAX, "%.*s/%s", n, path, name);
		if (n && !access(ret, X_OK))
			return;
		path += n + (path[n] == ':');
	}
	ret[0] = '\0';
}

static int check_command(struct run *run)
{
	static const char *const why[] = {
		[MT_TARGET_STATIC] = "not covered: statically linked",
		[MT_TARGET_SETUID] = "not covered: set-user-ID or privileged",
		[MT_TARGET_MACHINE] = "not covered: of another machine",
		[MT_TARGET_MUSL] = "not covered: linked with musl",
		[MT_TARGET_SANITIZER] = "not covered: built with a sanitizer",
	};
	char path[MT_PATH_MAX];
	enum mt_target target;
	struct stat st;

	find_command(run->command[0], path);
	/* exec itself will say what is wrong with it. */
	if (!path[0] || stat(path, &st) || !S_ISREG(st.st_mode))
		return 0;
	target = mt_target_look(path);
	if (target == MT_TARGET_OK)
		return 0;
	complain(run->command[0], why[target]);
	run->uncovered = mt_target_objects(target);
	return run->best_effort ? 0 : CMD_BEFORE;
}

static void prepare_environment(const struct run *run)
{
	/* A group of a session that isn't there any more. */
	if (!run->nested && getenv("MEMTALLY_SESSION"))
		unsetenv("MEMTALLY_GROUP");
	if (run->uncovered)
		return;
	library_preload(run->library);
	setenv("MEMTALLY_SESSION", run->path, 1);
	if (run->nested)
		setenv("MEMTALLY_GROUP", run->group_path, 1);
}

static int exec_status(const char *command, int error)
{
	complain(command,
		 error == ENOENT ? "command not found" : strerror(error));
	return error == ENOENT ? CMD_NOTFOUND : CMD_NOEXEC;
}

/* Start the command; a failed exec comes back through a pipe. */
static pid_t start(const struct run *run, const sigset_t *mask, int *ret_error)
{
	int pipe_fd[2];
	ssize_t n;
	pid_t pid;

	*ret_error = 0;
	if (pipe2(pipe_fd, O_CLOEXEC)) {
		*ret_error = errno;
		return -1;
	}
	pid = fork();
	if (pid == 0) {
		sigprocmask(SIG_SETMASK, mask, NULL);
		prepare_environment(run);
		execvp(run->command[0], run->command);
		n = write(pipe_fd[1], &(int){ errno }, sizeof(int));
		_exit(n > 0 ? CMD_NOEXEC : CMD_BEFORE);
	}
	close(pipe_fd[1]);
	if (pid < 0)
		*ret_error = errno;
	else if (read(pipe_fd[0], ret_error, sizeof(int)) == 0)
		*ret_error = 0;
	close(pipe_fd[0]);
	return pid;
}

/* Nobody runs any more: what deaths inside an operation left goes, too. */
static void settle(struct run *run)
{
	struct mt_audit_scratch *scratch;
	int64_t pages;

	scratch = malloc(sizeof(*scratch));
	if (scratch)
		mt_audit(&run->session, scratch, &pages);
	free(scratch);
	if (run->nested) {
		struct mt_group *group = &run->session.groups[run->group];

		fetch_and_seq_cst(&group->flags, ~MT_GROUP_KEEP);
	}
	mt_group_sweep(&run->session);
}

static void print_most(const struct model *model, FILE *to)
{
	struct mt_ended ended[64];
	bool done[64] = { false };
	uint32_t count = mt_reader_count(&model->reader, MT_ENDED);
	unsigned n = 0;
	char text[16];

	for (uint32_t i = 0; i < count && n < 64; i++)
		n += mt_reader_ended(&model->reader, i, &ended[n]);
	if (!n)
		return;
	fputs("     at most:", to);
	for (unsigned k = 0; k < 4 && k < n; k++) {
		unsigned most = n;

		for (unsigned i = 0; i < n; i++) {
			if (!done[i] &&
			    (most == n || ended[i].peak > ended[most].peak))
				most = i;
		}
		done[most] = true;
		fprintf(to, "  %s.%u %s", ended[most].comm, ended[most].pid,
			model_size(model, (int64_t)ended[most].peak, text));
	}
	fputc('\n', to);
}

static void print_text(const struct run *run, const struct model *model,
		       pid_t child, FILE *to)
{
	const struct mt_group *group = &run->session.groups[run->group];
	uint64_t total = load_relaxed(&model->reader.header.processes_total);
	int64_t max = load_relaxed(&group->max);
	int64_t peak = load_relaxed(&group->peak);
	char name[MT_NAME_MAX];
	char text[16];

	snprintf(name, sizeof(name), "%s", base_name(run->command[0]));
	mt_reader_clean(name, sizeof(name));
	fprintf(to, "memtally: %s[%d]", name, (int)child);
	if (total > 1 && !run->nested)
		fprintf(to, " and %" PRIu64 " %s", total - 1,
			total == 2 ? "child" : "children");
	fprintf(to, "   peak %s", model_size(model, peak, text));
	if (max < MT_UNLIMITED)
		fprintf(to, " of %s", model_size(model, max, text));
	if (max < MT_UNLIMITED && max > 0)
		fprintf(to, " (%.0f%%)", 100.0 * (double)peak / (double)max);
	fprintf(to, "   now %s   refused %" PRIu64,
		model_size(model, load_relaxed(&group->usage), text),
		load_relaxed(&group->events[MT_EVENT_OOM]));
	if (load_relaxed(&group->high) < MT_UNLIMITED)
		fprintf(to, "   high %" PRIu64,
			load_relaxed(&group->events[MT_EVENT_HIGH]));
	if (load_relaxed(&group->events[MT_EVENT_OOM_KILL]))
		fprintf(to, "   killed %" PRIu64,
			load_relaxed(&group->events[MT_EVENT_OOM_KILL]));
	if (model->nr_alive)
		fprintf(to, "   %u still running", model->nr_alive);
	fputc('\n', to);
	print_most(model, to);
}

/* Before the start, so that a job of hours doesn't end without one. */
static int open_summary(struct run *run)
{
	const char *file = run->summary ? strchr(run->summary, ':') : NULL;
	int fd;

	if (!file || run->exec)
		return 0;
	/* What is in it stays until there is something better. */
	fd = open(file + 1, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666);
	if (fd < 0)
		return failed(file + 1, strerror(errno));
	run->summary_to = fdopen(fd, "w");
	return run->summary_to ? 0 : failed(file + 1, strerror(errno));
}

static void print_json(const struct model *model, FILE *to)
{
	cJSON *object = model_json(model, true);
	char *text = cJSON_Print(object);

	if (text)
		fprintf(to, "%s\n", text);
	else
		complain("summary", strerror(ENOMEM));
	free(text);
	cJSON_Delete(object);
}

static void summarize(const struct run *run, pid_t child)
{
	const char *kind = run->summary;
	FILE *to = run->summary_to ? run->summary_to : stderr;
	struct model model;
	int ret;

	if (!kind)
		kind = isatty(STDERR_FILENO) ? "text" : "none";
	if (strncmp(kind, "none", 4) == 0)
		return;
	ret = model_load(&model, run->path);
	if (ret) {
		complain(run->path, segment_error(ret));
		return;
	}
	/* Pipes and terminals have no length to cut: no harm. */
	if (run->summary_to)
		(void)!ftruncate(fileno(to), 0);
	if (strncmp(kind, "json", 4) == 0)
		print_json(&model, to);
	else
		print_text(run, &model, child, to);
	model_free(&model);
	if (fflush(to) || ferror(to))
		complain(run->summary_to ? strchr(kind, ':') + 1
					 : "standard error",
			 strerror(errno));
}

static void remove_unused(const struct run *run)
{
	if (!run->nested)
		unlink(run->path);
}

static int run_and_wait(struct run *run)
{
	_Atomic uint64_t *total = &run->session.header->processes_total;
	uint64_t before = load_relaxed(total);
	sigset_t mask;
	sigset_t set;
	int status;
	int error;
	pid_t pid;

	if (!run->nested)
		store_relaxed(&run->session.header->supervisor,
			      (uint32_t)getpid());
	supervise_signals(&set);
	sigprocmask(SIG_BLOCK, &set, &mask);
	pid = start(run, &mask, &error);
	if (error) {
		if (pid > 0)
			waitpid(pid, NULL, 0);
		remove_unused(run);
		return pid > 0 ? exec_status(run->command[0], error)
			       : failed("fork", strerror(error));
	}
	status = supervise(&run->session, pid);
	if (!run->nested)
		store_relaxed(&run->session.header->supervisor, 0);
	settle(run);
	if (load_relaxed(total) == before && !run->uncovered &&
	    !run->best_effort)
		complain(run->command[0],
			 "never reported in: nothing was counted");
	summarize(run, pid);
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status)
				   : WEXITSTATUS(status);
}

int cmd_run(int argc, char **argv)
{
	struct run *run = calloc(1, sizeof(*run));
	int ret;

	if (!run)
		return failed("run", strerror(ENOMEM));
	run->limits = unset;
	ret = parse(run, argc, argv);
	if (!ret)
		ret = check_command(run);
	if (!ret)
		ret = open_summary(run);
	if (!ret)
		ret = make_session(run);
	if (!ret) {
		ret = find_library(run);
		if (ret)
			remove_unused(run);
	}
	if (ret) {
		free(run);
		return ret < 0 ? CMD_OK : ret;
	}
	ret = set_limits(run);
	if (ret) {
		remove_unused(run);
	} else if (run->exec) {
		prepare_environment(run);
		execvp(run->command[0], run->command);
		ret = exec_status(run->command[0], errno);
		remove_unused(run);
	} else {
		ret = run_and_wait(run);
	}
	free(run);
	return ret;
}
