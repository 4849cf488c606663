/* SPDX-License-Identifier: MIT */
/*
 * format.c - sizes, to and from text, and how much memory there is.
 */
#include "tools/format.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *format_bytes(int64_t bytes, char *buf)
{
	static const char units[] = "BKMGTPE";
	double value = (double)bytes;
	unsigned unit = 0;

	while ((value >= 999.95 || value <= -999.95) && unit < 6) {
		value /= 1024;
		unit++;
	}
	if (unit == 0)
		snprintf(buf, 16, "%" PRId64, bytes);
	else
		snprintf(buf, 16, "%.1f%c", value, units[unit]);
	return buf;
}

static int64_t first_number(const char *path, const char *key)
{
	FILE *f = fopen(path, "re");
	int64_t value = -1;
	char line[256];

	if (!f)
		return -1;
	while (value < 0 && fgets(line, sizeof(line), f)) {
		const char *at = line;

		if (key && strncmp(line, key, strlen(key)) != 0)
			continue;
		at += key ? strlen(key) : 0;
		at += strspn(at, ": \t");
		if (*at >= '0' && *at <= '9')
			value = strtoll(at, NULL, 10);
		else if (!key)
			break;
	}
	fclose(f);
	return value;
}

/* Lower @total to the limits in @file at @path below @mount and above it. */
static void lower_along(int64_t *total, const char *mount, const char *path,
			const char *file)
{
	char at[1024];
	int n = snprintf(at, sizeof(at), "%s%s", mount, path);

	if (n < 0 || (size_t)n + strlen(file) + 2 > sizeof(at))
		return;
	for (;;) {
		char *end = at + strlen(at);
		int64_t limit;

		sprintf(end, "/%s", file);
		limit = first_number(at, NULL);
		if (limit > 0 && (*total < 0 || limit < *total))
			*total = limit;
		*end = '\0';
		if (strlen(at) <= strlen(mount))
			return;
		*strrchr(at, '/') = '\0';
	}
}

/* Our own cgroup's limits, and those of all above it that we can see. */
static void lower_to_cgroup(int64_t *total)
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	char line[512];

	/* Also without /proc, and where it shows paths from outside. */
	lower_along(total, "/sys/fs/cgroup", "", "memory.max");
	lower_along(total, "/sys/fs/cgroup/memory", "",
		    "memory.limit_in_bytes");
	while (f && fgets(line, sizeof(line), f)) {
		const char *list = strchr(line, ':');
		const char *path = list ? strchr(list + 1, ':') : NULL;

		line[strcspn(line, "\n")] = '\0';
		if (!path)
			continue;
		if (strncmp(list, "::", 2) == 0)
			lower_along(total, "/sys/fs/cgroup", path + 1,
				    "memory.max");
		else if (strncmp(list, ":memory:", 8) == 0)
			lower_along(total, "/sys/fs/cgroup/memory", path + 1,
				    "memory.limit_in_bytes");
	}
	if (f)
		fclose(f);
}

/* The memory there is: the machine's, or what the container may use. */
static int64_t memory_total(void)
{
	int64_t total = first_number("/proc/meminfo", "MemTotal");

	if (total > 0)
		total *= 1024;
	lower_to_cgroup(&total);
	return total;
}

int parse_size(const char *text, int64_t *ret_bytes)
{
	static const char units[] = "KMGTP";
	const char *unit;
	double value;
	char *end;

	if (strcmp(text, "max") == 0) {
		*ret_bytes = INT64_MAX;
		return 0;
	}
	/* strtod() also takes signs, hex, "inf" and "nan". */
	if (strspn(text, "0123456789.") == 0 || text[0] == '.')
		return -EINVAL;
	value = strtod(text, &end);
	if ((size_t)(end - text) != strspn(text, "0123456789."))
		return -EINVAL;
	if (*end == '%') {
		int64_t total = memory_total();

		if (end[1] || value > 100 || total < 0)
			return -EINVAL;
		*ret_bytes = (int64_t)(value / 100 * (double)total);
		return 0;
	}
	unit = *end ? strchr(units, *end & ~0x20) : NULL;
	if (*end && (!unit || !*unit))
		return -EINVAL;
	if (*end) {
		value *= (double)(INT64_C(1024) << (10 * (unit - units)));
		end++;
		/* "512MB" and "512MiB" mean the same here. */
		if (*end == 'i')
			end++;
		if (*end == 'B')
			end++;
	}
	if (*end || value >= 9.2e18)
		return -EINVAL;
	*ret_bytes = (int64_t)value;
	return 0;
}
