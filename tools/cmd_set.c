/* SPDX-License-Identifier: MIT */
/*
 * cmd_set.c - memtally set: limits of a tree that runs.
 *
 * As with cgroup v2 the write succeeds; then what is above the limit is
 * reclaimed, as far as processes give back, and then the session's policy holds.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/atomic.h"
#include "core/counter.h"
#include "core/group.h"
#include "core/process.h"
#include "core/reclaim.h"
#include "core/record.h"
#include "tools/cmd.h"
#include "tools/find.h"
#include "tools/format.h"
#include "tools/model.h"

static const char help[] =
	"Examples:\n"
	"  memtally set / max=2G               the whole tree, from now on\n"
	"  memtally set build:/cc1 high=75% max=max\n"
	"\n"
	"Usage: memtally set [SESSION:]/PATH KEY=VALUE...\n"
	"\n"
	"KEY: min, low, high, max or dirty_max, with a size (512M, 75%, max);\n"
	"oom.group, with 0 or 1.  All of them are changed, or none.\n";

/* Rounds of asking for what is above a new limit, of a millisecond each. */
#define ROUNDS   16
#define DEATH_MS 2000

enum key { MIN, LOW, HIGH, MAX, DIRTY_MAX, OOM_GROUP, NR_KEYS };

struct change {
	bool given[NR_KEYS];
	int64_t value[NR_KEYS]; /* bytes; of oom.group, 0 or 1 */
};

static int take(struct change *change, const char *text)
{
	static const char *const names[NR_KEYS] = { "min",       "low",
						    "high",      "max",
						    "dirty_max", "oom.group" };
	size_t len = strcspn(text, "=");
	int64_t bytes = 0;
	int key;

	for (key = 0; key < NR_KEYS; key++) {
		if (strlen(names[key]) == len &&
		    strncmp(text, names[key], len) == 0)
			break;
	}
	if (!text[len] || key == NR_KEYS) {
		complain(text, "not KEY=VALUE with min, low, high, max, "
			       "dirty_max or oom.group");
		return CMD_USAGE;
	}
	text += len + 1;
	if (key == OOM_GROUP) {
		if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0) {
			complain(text, "oom.group is 0 or 1");
			return CMD_USAGE;
		}
		bytes = text[0] - '0';
	} else if (parse_size(text, &bytes)) {
		complain(text, "not a size (512M, 75%, max)");
		return CMD_USAGE;
	}
	change->given[key] = true;
	change->value[key] = bytes;
	return CMD_OK;
}

static int64_t pages_of(const struct mt_session *session, int64_t bytes)
{
	int64_t pages = bytes / session->header->page_size;

	return bytes == INT64_MAX ? MT_UNLIMITED : MT_MIN(pages, MT_UNLIMITED);
}

static void nap(long us)
{
	struct timespec time = { 0, us * 1000 };

	nanosleep(&time, NULL);
}

static int64_t above(const struct mt_session *session, uint32_t group,
		     int64_t limit)
{
	return load_seq_cst(&session->groups[group].usage) - limit;
}

/* Have what is above @limit given back. */
static void reclaim(struct mt_session *session, uint32_t group, int64_t limit)
{
	struct mt_want want = { .target = group };
	struct mt_process_facts facts;

	mt_process_facts(&facts);
	for (int round = 0; round < ROUNDS; round++) {
		bool kept = false;

		mt_process_reap_dead(session, facts.pid_ns, UINT32_MAX);
		want.pages = above(session, group, limit);
		if (want.pages <= 0)
			return;
		if (!mt_want_ask(session, &want, MT_NONE, &kept)) {
			if (!kept || want.despite_low)
				return;
			want.despite_low = true;
		}
		nap(1000);
	}
}

static void log_kill(struct mt_session *session, uint32_t group,
		     uint32_t victim)
{
	const struct mt_process *process = &session->processes[victim];
	struct mt_record record;

	mt_record_begin(session, &record, MT_RECORD_KILLED, group,
			load_relaxed(&session->groups[group].max));
	record.victim = (uint32_t)(load_relaxed(&process->state) >> 32);
	record.victim_pages = mt_process_charged_below(session, victim, group);
	memcpy(record.victim_comm, process->comm,
	       sizeof(record.victim_comm) - 1);
	memcpy(record.comm, "memtally set", sizeof("memtally set"));
	record.pid = (uint32_t)getpid();
	mt_record_write(session, &record);
}

static bool kill_one(struct mt_session *session, uint32_t group,
		     uint32_t victim)
{
	struct mt_process_facts facts;
	uint64_t state = load_acquire(&session->processes[victim].state);
	uint32_t home = load_relaxed(&session->processes[victim].home);
	int ret;

	mt_process_facts(&facts);
	log_kill(session, group, victim);
	ret = mt_process_signal(session, victim, state, facts.pid_ns, SIGKILL);
	if (ret && ret != -EINPROGRESS && ret != -ESRCH)
		return false;
	mt_group_event(session, home, MT_EVENT_OOM_KILL);
	for (int ms = 0; ms < DEATH_MS; ms++) {
		mt_process_reap_dead(session, facts.pid_ns, UINT32_MAX);
		if (load_acquire(&session->processes[victim].state) != state)
			return true;
		nap(1000);
	}
	return true;
}

static bool kill_below(struct mt_session *session, uint32_t limited,
		       uint32_t group)
{
	uint32_t high = mt_table_high(session, MT_PROCESSES);
	bool any = false;

	mt_group_event(session, group, MT_EVENT_OOM_GROUP_KILL);
	for (uint32_t i = 0; i < high; i++) {
		const struct mt_process *process = &session->processes[i];

		if ((load_acquire(&process->state) & 0xff) == MT_PROC_LIVE &&
		    mt_counter_is_below(session, load_relaxed(&process->home),
					group) &&
		    kill_one(session, limited, i))
			any = true;
	}
	return any;
}

/* What the policy says when a limit is below what can't be given back. */
static void apply_policy(struct mt_session *session, uint32_t group,
			 int64_t max)
{
	uint32_t on_max = load_relaxed(&session->header->on_max);
	bool counted = false;

	while (above(session, group, max) > 0) {
		uint32_t victim = mt_victim(session, group);
		uint32_t together;

		if ((on_max != MT_ON_MAX_KILL &&
		     on_max != MT_ON_MAX_KILL_GROUP) ||
		    victim == MT_NONE)
			return;
		if (!counted)
			mt_group_event(session, group, MT_EVENT_OOM);
		counted = true;
		together = mt_victim_group(session, victim, group);
		if (!(together == MT_NONE
			      ? kill_one(session, group, victim)
			      : kill_below(session, group, together)))
			return;
	}
}

/* There may be room again for those who were stopped for want of it. */
static void wake_stopped(struct mt_session *session, uint32_t group)
{
	uint32_t high = mt_table_high(session, MT_PROCESSES);
	uint32_t supervisor = load_relaxed(&session->header->supervisor);
	struct mt_process_facts facts;

	if (!(fetch_and_seq_cst(&session->groups[group].flags,
				~MT_GROUP_STOPPED) &
	      MT_GROUP_STOPPED))
		return;
	mt_process_facts(&facts);
	/* It stopped with its child, and passes signals on. */
	if (supervisor && session->header->pid_ns == facts.pid_ns)
		kill((pid_t)supervisor, SIGCONT);
	for (uint32_t i = 0; i < high; i++) {
		const struct mt_process *process = &session->processes[i];
		uint64_t state = load_acquire(&process->state);

		if (mt_counter_is_below(session, load_relaxed(&process->home),
					group) ||
		    mt_process_charged_below(session, i, group) > 0)
			mt_process_signal(session, i, state, facts.pid_ns,
					  SIGCONT);
	}
}

static void apply(struct mt_session *session, uint32_t group,
		  const struct change *change)
{
	struct mt_group *g = &session->groups[group];
	int64_t pages[NR_KEYS];

	for (int key = 0; key < OOM_GROUP; key++)
		pages[key] = pages_of(session, change->value[key]);
	if (change->given[OOM_GROUP] && change->value[OOM_GROUP])
		fetch_or_seq_cst(&g->flags, MT_GROUP_OOM_GROUP);
	else if (change->given[OOM_GROUP])
		fetch_and_seq_cst(&g->flags, ~MT_GROUP_OOM_GROUP);
	if (change->given[DIRTY_MAX])
		store_relaxed(&g->dirty_max, pages[DIRTY_MAX]);
	if (change->given[MIN])
		mt_counter_set_min(session, group, pages[MIN]);
	if (change->given[LOW])
		mt_counter_set_low(session, group, pages[LOW]);
	if (change->given[HIGH]) {
		mt_counter_set_high(session, group, pages[HIGH]);
		reclaim(session, group, pages[HIGH]);
	}
	if (change->given[MAX]) {
		if (mt_counter_force_max(session, group, pages[MAX]) > 0) {
			reclaim(session, group, pages[MAX]);
			apply_policy(session, group, pages[MAX]);
		}
		wake_stopped(session, group);
	}
}

static int set(const char *text, const struct change *change)
{
	struct mt_session session;
	char group_path[4096];
	char path[4096];
	uint32_t group;
	int status;
	int ret;

	status = find_group(text, path, group_path);
	if (status)
		return status;
	ret = mt_segment_attach(&session, path);
	if (ret) {
		complain(path, segment_error(ret));
		return segment_status(ret);
	}
	group = mt_group_find(&session, group_path);
	if (group == MT_NONE) {
		complain(group_path, "no such group");
		status = CMD_FAILED;
	} else if (!load_relaxed(&session.header->nr_live) &&
		   !load_relaxed(&session.header->supervisor)) {
		complain(path, "has ended");
		status = CMD_FAILED;
	} else {
		apply(&session, group, change);
	}
	mt_segment_detach(&session);
	return status;
}

int cmd_set(int argc, char **argv)
{
	static const struct option options[] = { { "help", 0, NULL, 'h' },
						 { NULL, 0, NULL, 0 } };
	struct change change = { 0 };
	int opt;

	while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (opt != 'h')
			return CMD_USAGE;
		fputs(help, stdout);
		return flush_output() ? CMD_OK : CMD_FAILED;
	}
	if (argc - optind < 2) {
		complain("set", "which group, and what? (see set --help)");
		return CMD_USAGE;
	}
	for (int i = optind + 1; i < argc; i++) {
		int status = take(&change, argv[i]);

		if (status)
			return status;
	}
	return set(argv[optind], &change);
}
