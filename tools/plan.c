/* SPDX-License-Identifier: MIT */
/*
 * plan.c - trees on paper.
 */
#include "tools/plan.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROOT 0

static bool wrong(struct plan *plan, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(plan->why, sizeof(plan->why), format, args);
	va_end(args);
	return false;
}

static bool no_memory(struct plan *plan)
{
	return wrong(plan, "%s", strerror(ENOMEM));
}

/* A new node, zeroed; NULL: no memory. */
static struct plan_node *add_node(struct plan *plan, const char *name,
				  const char *parent)
{
	struct plan_node *node;

	if (plan->nr == plan->room) {
		uint32_t room = plan->room ? 2 * plan->room : 64;
		struct plan_node *nodes =
			realloc(plan->nodes, room * sizeof(*nodes));

		if (!nodes) {
			no_memory(plan);
			return NULL;
		}
		plan->nodes = nodes;
		plan->room = room;
	}
	node = &plan->nodes[plan->nr];
	memset(node, 0, sizeof(*node));
	node->parent = MT_NONE;
	node->name = strdup(name);
	node->parent_name = parent ? strdup(parent) : NULL;
	plan->nr++;
	if (!node->name || (parent && !node->parent_name)) {
		no_memory(plan);
		return NULL;
	}
	return node;
}

static bool add_root(struct plan *plan)
{
	memset(plan, 0, sizeof(*plan));
	plan->recursive = true;
	return add_node(plan, "root", NULL) != NULL;
}

/* ---- JSON ---- */

static bool take_pages(struct plan *plan, const struct plan_node *node,
		       const cJSON *object, const char *key, int64_t *ret)
{
	const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
	bool claim = strcmp(key, "usage") != 0;

	*ret = 0;
	if (!value)
		return claim ||
		       wrong(plan, "node \"%.60s\": no usage", node->name);
	if (claim &&
	    (cJSON_IsNull(value) ||
	     (cJSON_IsString(value) && !strcmp(value->valuestring, "max")))) {
		*ret = MT_UNLIMITED;
		return true;
	}
	if (!cJSON_IsNumber(value) || !(value->valuedouble >= 0) ||
	    (value->valuedouble < (double)MT_UNLIMITED &&
	     value->valuedouble != (double)(int64_t)value->valuedouble))
		return wrong(plan, "node \"%.60s\": %s is no number of pages",
			     node->name, key);
	if (value->valuedouble >= (double)MT_UNLIMITED) {
		if (!claim)
			return wrong(plan, "node \"%.60s\": usage is too large",
				     node->name);
		*ret = MT_UNLIMITED;
	} else {
		*ret = (int64_t)value->valuedouble;
	}
	return true;
}

static bool take_node(struct plan *plan, const cJSON *object)
{
	const cJSON *name = cJSON_GetObjectItemCaseSensitive(object, "name");
	const cJSON *parent =
		cJSON_GetObjectItemCaseSensitive(object, "parent");
	struct plan_node *node;

	if (!cJSON_IsString(name) || !name->valuestring[0])
		return wrong(plan, "node %u has no name", plan->nr);
	if (parent && !cJSON_IsNull(parent) && !cJSON_IsString(parent))
		return wrong(plan, "node \"%.60s\": its parent is no name",
			     name->valuestring);
	node = add_node(plan, name->valuestring,
			parent && cJSON_IsString(parent) ? parent->valuestring
							 : "root");
	return node &&
	       take_pages(plan, node, object, "usage", &node->p.usage) &&
	       take_pages(plan, node, object, "min", &node->p.min) &&
	       take_pages(plan, node, object, "low", &node->p.low);
}

static int by_name(const void *a, const void *b, void *arg)
{
	const struct plan_node *nodes = arg;

	return strcmp(nodes[*(const uint32_t *)a].name,
		      nodes[*(const uint32_t *)b].name);
}

static uint32_t find_name(const struct plan *plan, const uint32_t *sorted,
			  const char *name)
{
	uint32_t from = 0;
	uint32_t to = plan->nr;

	while (from < to) {
		uint32_t middle = from + (to - from) / 2;
		int order = strcmp(name, plan->nodes[sorted[middle]].name);

		if (!order)
			return sorted[middle];
		if (order < 0)
			to = middle;
		else
			from = middle + 1;
	}
	return MT_NONE;
}

static bool link_nodes(struct plan *plan, const uint32_t *sorted,
		       const char *target)
{
	for (uint32_t i = 1; i < plan->nr; i++) {
		const char *name = plan->nodes[sorted[i]].name;

		if (!strcmp(name, plan->nodes[sorted[i - 1]].name))
			return wrong(plan, "two nodes are called \"%.60s\"",
				     name);
	}
	for (uint32_t i = 1; i < plan->nr; i++) {
		struct plan_node *node = &plan->nodes[i];

		node->parent = find_name(plan, sorted, node->parent_name);
		if (node->parent == MT_NONE)
			return wrong(plan,
				     "node \"%.60s\": no parent \"%.60s\"",
				     node->name, node->parent_name);
	}
	plan->target = find_name(plan, sorted, target);
	if (plan->target == MT_NONE)
		return wrong(plan, "reclaim_root: no node \"%.60s\"", target);
	return true;
}

static bool resolve(struct plan *plan, const char *target)
{
	uint32_t *sorted = calloc(plan->nr, sizeof(*sorted));
	bool ok;

	if (!sorted)
		return no_memory(plan);
	for (uint32_t i = 0; i < plan->nr; i++)
		sorted[i] = i;
	qsort_r(sorted, plan->nr, sizeof(*sorted), by_name, plan->nodes);
	ok = link_nodes(plan, sorted, target);
	free(sorted);
	return ok;
}

static bool take_json(struct plan *plan, const cJSON *json)
{
	const cJSON *nodes = cJSON_GetObjectItemCaseSensitive(json, "nodes");
	const cJSON *recursive =
		cJSON_GetObjectItemCaseSensitive(json, "recursive");
	const cJSON *target =
		cJSON_GetObjectItemCaseSensitive(json, "reclaim_root");
	const cJSON *node;

	if (!cJSON_IsObject(json) || !cJSON_IsArray(nodes))
		return wrong(plan, "no \"nodes\": not the description of a "
				   "tree");
	if (recursive && !cJSON_IsBool(recursive))
		return wrong(plan, "recursive is neither true nor false");
	if (target && !cJSON_IsString(target))
		return wrong(plan, "reclaim_root is no name");
	plan->recursive = !cJSON_IsFalse(recursive);
	cJSON_ArrayForEach(node, nodes)
	{
		if (!take_node(plan, node))
			return false;
	}
	return resolve(plan, target ? target->valuestring : "root");
}

bool plan_read_json(struct plan *plan, const char *text, size_t length)
{
	const char *end = NULL;
	cJSON *json;
	bool ok;

	if (!add_root(plan))
		return false;
	json = cJSON_ParseWithLengthOpts(text, length, &end, false);
	if (!json)
		return wrong(plan,
			     length ? "no JSON: wrong at byte %zu" : "empty",
			     end ? (size_t)(end - text) : 0);
	for (; end < text + length && strchr(" \t\r\n", *end); end++)
		;
	ok = end < text + length && *end
		     ? wrong(plan, "no JSON: more at byte %zu",
			     (size_t)(end - text))
		     : take_json(plan, json);
	cJSON_Delete(json);
	return ok;
}

/* ---- cgroup v2 ---- */

/* A file's first number, in pages; "max" is unlimited.  -errno if it can't be
 * had. */
static int64_t read_pages(int dir, const char *file)
{
	int64_t pages;
	char text[64];
	char *end;
	uint64_t bytes;
	ssize_t n;
	int fd = openat(dir, file, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	n = read(fd, text, sizeof(text) - 1);
	pages = -errno;
	close(fd);
	if (n < 0)
		return pages;
	text[n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	if (!strcmp(text, "max"))
		return MT_UNLIMITED;
	errno = 0;
	bytes = strtoull(text, &end, 10);
	if (errno || end == text || *end)
		return -EINVAL;
	bytes /= (uint64_t)sysconf(_SC_PAGESIZE);
	return (int64_t)MT_MIN(bytes, (uint64_t)MT_UNLIMITED);
}

static bool read_claim(struct plan *plan, int dir, const char *file,
		       const char *path, int64_t *ret)
{
	int64_t pages = read_pages(dir, file);

	if (pages < 0 && pages != -ENOENT)
		return wrong(plan, "%.150s/%s: %s", path, file,
			     pages == -EINVAL ? "no number"
					      : strerror((int)-pages));
	*ret = MT_MAX(pages, 0);
	return true;
}

static bool read_dir(struct plan *plan, int dir, const char *path,
		     uint32_t parent);

/* One directory below; the memory of one without the controller is its
 * parent's. */
static bool read_child(struct plan *plan, int dir, const char *name,
		       const char *path, uint32_t parent)
{
	struct plan_node *node;
	char below[PATH_MAX];
	uint32_t index = parent;
	int64_t usage;
	bool ok;
	int fd = openat(dir, name,
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	/* No directory; or gone, as groups go. */
	if (fd < 0)
		return errno == ENOTDIR || errno == ELOOP || errno == ENOENT ||
		       wrong(plan, "%.150s/%.60s: %s", path, name,
			     strerror(errno));
	if (snprintf(below, sizeof(below), "%s%s%s", path, *path ? "/" : "",
		     name) >= (int)sizeof(below)) {
		close(fd);
		return wrong(plan, "%.60s...: too deep", path);
	}
	usage = read_pages(fd, "memory.current");
	if (usage >= 0) {
		node = add_node(plan, below, NULL);
		if (!node) {
			close(fd);
			return false;
		}
		index = plan->nr - 1;
		node->parent = parent;
		node->p.usage = usage;
		ok = read_claim(plan, fd, "memory.min", below, &node->p.min) &&
		     read_claim(plan, fd, "memory.low", below, &node->p.low);
	} else {
		ok = usage == -ENOENT || usage == -ENODEV ||
		     wrong(plan, "%.150s/memory.current: %s", below,
			   usage == -EINVAL ? "no number"
					    : strerror((int)-usage));
	}
	return (ok && read_dir(plan, fd, below, index)) || (close(fd), false);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Takes over @dir. */
static bool read_dir(struct plan *plan, int dir, const char *path,
		     uint32_t parent)
{
	DIR *stream = fdopendir(dir);
	struct dirent *entry;
	char **names = NULL;
	size_t room = 0;
	size_t n = 0;
	bool ok = true;

	if (!stream)
		return wrong(plan, "%.200s: %s", path, strerror(errno));
	while (ok && (entry = readdir(stream))) {
		if (entry->d_name[0] == '.' ||
		    (entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN))
			continue;
		if (n == room) {
			char **more = realloc(names, (room = 2 * room + 16) *
							     sizeof(*names));

			if (!more) {
				ok = no_memory(plan);
				break;
			}
			names = more;
		}
		names[n] = strdup(entry->d_name);
		ok = names[n++] != NULL || no_memory(plan);
	}
	if (ok && n)
		qsort(names, n, sizeof(*names), by_text);
	for (size_t i = 0; i < n; i++) {
		ok = ok &&
		     read_child(plan, dirfd(stream), names[i], path, parent);
		free(names[i]);
	}
	free(names);
	closedir(stream);
	return ok;
}

/* Is what has the directory mounted recursive?  So it is where it's no mount of
 * cgroups, as with systemd. */
static bool is_recursive(const char *dir)
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	char real[PATH_MAX];
	char *line = NULL;
	size_t size = 0;
	bool recursive = true;

	if (!file || !realpath(dir, real)) {
		if (file)
			fclose(file);
		return true;
	}
	while (getline(&line, &size, file) > 0) {
		char at[PATH_MAX];
		const char *type = strstr(line, " - cgroup2 ");
		size_t length;

		if (!type || sscanf(line, "%*s %*s %*s %*s %4095s", at) != 1)
			continue;
		length = strlen(at);
		if (!strncmp(real, at, length) &&
		    (real[length] == '/' || !real[length]))
			recursive = strstr(type, "memory_recursiveprot");
	}
	free(line);
	fclose(file);
	return recursive;
}

bool plan_read_cgroup(struct plan *plan, const char *dir)
{
	int64_t usage;
	int fd;

	if (!add_root(plan))
		return false;
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return wrong(plan, "%s", strerror(errno));
	usage = read_pages(fd, "memory.current");
	if (usage < 0 && usage != -ENOENT) {
		close(fd);
		return wrong(plan, "memory.current: %s",
			     usage == -EINVAL ? "no number"
					      : strerror((int)-usage));
	}
	plan->nodes[ROOT].p.usage = MT_MAX(usage, 0);
	plan->recursive = is_recursive(dir);
	if (!read_dir(plan, fd, "", ROOT))
		return false;
	if (usage < 0 && plan->nr == 1)
		return wrong(plan, "no memory.current here or below");
	return true;
}

/* ---- computing ---- */

/* Children after their parents, as they were given: with lists of children
 * that cost a word each, however deep it is. */
static bool put_in_order(struct plan *plan)
{
	uint32_t *first = malloc(plan->nr * sizeof(*first));
	uint32_t *next = malloc(plan->nr * sizeof(*next));
	uint32_t n = 0;
	uint32_t at = ROOT;
	bool ok = first && next;

	plan->in_order = calloc(plan->nr, sizeof(*plan->in_order));
	if (!ok || !plan->in_order) {
		ok = no_memory(plan);
		goto out;
	}
	memset(first, 0xff, plan->nr * sizeof(*first));
	memset(next, 0xff, plan->nr * sizeof(*next));
	for (uint32_t i = plan->nr - 1; i > 0; i--) {
		next[i] = first[plan->nodes[i].parent];
		first[plan->nodes[i].parent] = i;
	}
	for (;;) {
		plan->in_order[n++] = at;
		if (first[at] != MT_NONE) {
			plan->nodes[first[at]].depth =
				plan->nodes[at].depth + 1;
			at = first[at];
			continue;
		}
		while (at != ROOT && next[at] == MT_NONE)
			at = plan->nodes[at].parent;
		if (at == ROOT)
			break;
		plan->nodes[next[at]].depth = plan->nodes[at].depth;
		at = next[at];
	}
	/* The others are nowhere below the root: so they go round. */
	for (uint32_t i = 1; n < plan->nr; i++) {
		if (!plan->nodes[i].depth) {
			ok = wrong(plan, "node \"%.60s\": below itself",
				   plan->nodes[i].name);
			break;
		}
	}
out:
	free(first);
	free(next);
	return ok;
}

static int64_t added(int64_t a, int64_t b)
{
	return MT_MIN(a + b, MT_UNLIMITED);
}

/* What children say to their parents. */
static void add_up(struct plan *plan)
{
	for (uint32_t i = 1; i < plan->nr; i++) {
		const struct plan_node *node = &plan->nodes[i];
		struct plan_node *parent = &plan->nodes[node->parent];
		struct mt_protection *p = &parent->p;

		parent->children = added(parent->children, node->p.usage);
		p->children_min_usage =
			added(p->children_min_usage,
			      MT_MIN(node->p.usage, node->p.min));
		p->children_low_usage =
			added(p->children_low_usage,
			      MT_MIN(node->p.usage, node->p.low));
	}
	if (!plan->nodes[ROOT].p.usage)
		plan->nodes[ROOT].p.usage = plan->nodes[ROOT].children;
}

static void protect(struct plan *plan)
{
	for (uint32_t n = 0; n < plan->nr; n++) {
		uint32_t i = plan->in_order[n];
		struct plan_node *node = &plan->nodes[i];
		const struct plan_node *parent =
			i == ROOT ? NULL : &plan->nodes[node->parent];

		node->in_reach =
			i == plan->target || (parent && parent->in_reach);
		if (node->in_reach && i != plan->target)
			mt_protection_step(&node->p,
					   node->parent == plan->target
						   ? NULL
						   : &parent->p,
					   plan->recursive);
	}
}

int64_t plan_own(const struct plan_node *node)
{
	return MT_MAX(node->p.usage - node->children, 0);
}

int64_t plan_excess(const struct plan_node *node)
{
	return MT_MIN(plan_own(node), mt_protection_excess(&node->p));
}

static int by_turn(const void *a, const void *b, void *arg)
{
	const struct plan_node *nodes = arg;
	uint32_t i = *(const uint32_t *)a;
	uint32_t j = *(const uint32_t *)b;
	enum mt_protection_tier s = mt_protection_tier(&nodes[i].p);
	enum mt_protection_tier t = mt_protection_tier(&nodes[j].p);
	int64_t x = plan_excess(&nodes[i]);
	int64_t y = plan_excess(&nodes[j]);

	if (s != t)
		return s < t ? -1 : 1;
	if (x != y)
		return x > y ? -1 : 1;
	return i < j ? -1 : i > j;
}

bool plan_compute(struct plan *plan)
{
	if (!put_in_order(plan))
		return false;
	add_up(plan);
	protect(plan);
	plan->reclaim = calloc(plan->nr, sizeof(*plan->reclaim));
	if (!plan->reclaim)
		return no_memory(plan);
	for (uint32_t i = 0; i < plan->nr; i++) {
		const struct plan_node *node = &plan->nodes[i];

		if (node->in_reach && plan_own(node) &&
		    mt_protection_tier(&node->p) != MT_PROTECT_MIN)
			plan->reclaim[plan->nr_reclaim++] = i;
	}
	qsort_r(plan->reclaim, plan->nr_reclaim, sizeof(*plan->reclaim),
		by_turn, plan->nodes);
	return true;
}

void plan_free(struct plan *plan)
{
	for (uint32_t i = 0; i < plan->nr; i++) {
		free(plan->nodes[i].name);
		free(plan->nodes[i].parent_name);
	}
	free(plan->nodes);
	free(plan->in_order);
	free(plan->reclaim);
}
