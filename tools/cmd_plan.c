/* SPDX-License-Identifier: MIT */
/*
 * cmd_plan.c - memtally plan: what is this protection worth?
 */
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/reader.h"
#include "tools/cmd.h"
#include "tools/format.h"
#include "tools/model.h"
#include "tools/plan.h"

static const char help[] =
	"Examples:\n"
	"  memtally plan --cgroup /sys/fs/cgroup    the real one, now\n"
	"  memtally plan tree.json                  one that isn't there yet\n"
	"\n"
	"Usage: memtally plan [--json] FILE|-\n"
	"       memtally plan [--json] --cgroup DIR\n"
	"\n"
	"Effective memory.min and memory.low of every group, as the kernel "
	"computes\n"
	"them when memory is short, and who is reclaimed first.  FILE is JSON, "
	"sizes in\n"
	"pages:\n"
	"  {\"nodes\": [{\"name\": \"db\", \"parent\": \"root\", \"usage\": "
	"1000,\n"
	"              \"min\": 0, \"low\": 500}],\n"
	"   \"recursive\": true, \"reclaim_root\": \"root\"}\n";

/* No description of a tree is larger. */
#define TEXT_MOST ((size_t)256 << 20)

static char *read_all(int fd, size_t *ret_length)
{
	size_t room = 65536;
	size_t length = 0;
	char *text = malloc(room);

	while (text) {
		ssize_t n = read(fd, text + length, room - length);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			if (n == 0) {
				*ret_length = length;
				return text;
			}
			break;
		}
		length += (size_t)n;
		if (length > TEXT_MOST) {
			errno = EFBIG;
			break;
		}
		if (length == room) {
			char *more = realloc(text, room *= 2);

			if (!more)
				break;
			text = more;
		}
	}
	free(text);
	return NULL;
}

static bool read_file(struct plan *plan, const char *path)
{
	bool standard = !strcmp(path, "-");
	int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	size_t length;
	char *text;
	bool ok;

	memset(plan, 0, sizeof(*plan));
	text = fd < 0 ? NULL : read_all(fd, &length);
	if (!text) {
		snprintf(plan->why, sizeof(plan->why), "%s", strerror(errno));
		ok = false;
	} else {
		ok = plan_read_json(plan, text, length);
	}
	free(text);
	if (fd >= 0 && !standard)
		close(fd);
	return ok;
}

static void print_json(const struct plan *plan)
{
	cJSON *object = cJSON_CreateObject();
	cJSON *list = cJSON_AddArrayToObject(object, "nodes");
	char *text;

	for (uint32_t i = 0; i < plan->nr; i++) {
		const struct plan_node *node = &plan->nodes[i];
		const struct mt_protection *p = &node->p;
		cJSON *row = cJSON_CreateObject();

		cJSON_AddStringToObject(row, "name", node->name);
		model_put(row, "emin", p->emin);
		model_put(row, "elow", p->elow);
		model_put(row, "min_usage", MT_MIN(p->usage, p->min));
		model_put(row, "low_usage", MT_MIN(p->usage, p->low));
		model_put(row, "children_min_usage", p->children_min_usage);
		model_put(row, "children_low_usage", p->children_low_usage);
		cJSON_AddItemToArray(list, row);
	}
	list = cJSON_AddArrayToObject(object, "order");
	for (uint32_t i = 0; i < plan->nr_reclaim; i++)
		cJSON_AddItemToArray(
			list,
			cJSON_CreateString(plan->nodes[plan->reclaim[i]].name));
	text = cJSON_Print(object);
	if (text)
		puts(text);
	free(text);
	cJSON_Delete(object);
}

static const char *size(int64_t pages, char *buf)
{
	if (pages >= MT_UNLIMITED)
		return "max";
	return format_bytes(pages * sysconf(_SC_PAGESIZE), buf);
}

/* Of a path only its end: the tree shows the rest. */
static const char *short_name(const struct plan_node *node)
{
	const char *slash = strrchr(node->name, '/');

	return slash && slash[1] ? slash + 1 : node->name;
}

static void print_tree(const struct plan *plan)
{
	int width = 24;
	char name[1024];

	for (uint32_t i = 0; i < plan->nr; i++) {
		const struct plan_node *node = &plan->nodes[i];
		size_t n = strlen(short_name(node)) + 2 * node->depth;

		width = MT_MAX(width, (int)MT_MIN(n, (size_t)60));
	}
	printf("%-*s %9s %9s %9s %9s %9s\n", width, "GROUP", "USAGE", "MIN",
	       "LOW", "EMIN", "ELOW");
	for (uint32_t i = 0; i < plan->nr; i++) {
		const struct plan_node *node = &plan->nodes[plan->in_order[i]];
		const struct mt_protection *p = &node->p;
		bool counts =
			node->in_reach && plan->in_order[i] != plan->target;
		int indent = (int)MT_MIN(2 * node->depth, 400u);
		char text[5][16];

		snprintf(name, sizeof(name), "%*s%s", indent, "",
			 short_name(node));
		mt_reader_clean(name, sizeof(name));
		printf("%-*s %9s %9s %9s %9s %9s\n", width, name,
		       size(p->usage, text[0]), size(p->min, text[1]),
		       size(p->low, text[2]),
		       counts ? size(p->emin, text[3]) : "-",
		       counts ? size(p->elow, text[4]) : "-");
	}
}

static void print_turns(const struct plan *plan)
{
	static const char *const titles[] = {
		"\nReclaimed first:",
		"\nIf that isn't enough, in spite of low:",
	};
	char name[512];
	int tier = -1;

	for (uint32_t i = 0; i < plan->nr_reclaim; i++) {
		const struct plan_node *node = &plan->nodes[plan->reclaim[i]];
		int now = (int)mt_protection_tier(&node->p);
		char text[16];

		if (now != tier)
			puts(titles[now]);
		tier = now;
		snprintf(name, sizeof(name), "%s", node->name);
		mt_reader_clean(name, sizeof(name));
		printf("  %4u  %-30s %9s\n", i + 1, name,
		       size(plan_excess(node), text));
	}
	if (!plan->nr_reclaim)
		puts("\nNothing can be reclaimed.");
}

int cmd_plan(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "cgroup", required_argument, NULL, 'c' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	const char *cgroup = NULL;
	bool json = false;
	struct plan plan;
	const char *what;
	bool ok;
	int c;

	while ((c = getopt_long(argc, argv, "h", options, NULL)) >= 0) {
		switch (c) {
		case 'j':
			json = true;
			break;
		case 'c':
			cgroup = optarg;
			break;
		case 'h':
			fputs(help, stdout);
			return flush_output() ? CMD_OK : CMD_FAILED;
		default:
			return CMD_USAGE;
		}
	}
	if (argc - optind != (cgroup ? 0 : 1)) {
		complain("plan", cgroup ? "a file or a cgroup, not both"
				 : argc > optind
					 ? "one file at a time"
					 : "which file? (see plan --help)");
		return CMD_USAGE;
	}
	what = cgroup ? cgroup : argv[optind];
	ok = (cgroup ? plan_read_cgroup(&plan, what)
		     : read_file(&plan, what)) &&
	     plan_compute(&plan);
	if (!ok) {
		complain(strcmp(what, "-") ? what : "standard input", plan.why);
	} else if (json) {
		print_json(&plan);
	} else {
		print_tree(&plan);
		print_turns(&plan);
	}
	plan_free(&plan);
	return ok && flush_output() ? CMD_OK : CMD_FAILED;
}
