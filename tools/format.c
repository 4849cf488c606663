/* SPDX-License-Identifier: MIT */
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

/* The memory there is: the machine's, or what the container may use. */
static int64_t memory_total(void)
{
	static const char *const limits[] = {
		"/sys/fs/cgroup/memory.max",
		"/sys/fs/cgroup/memory/memory.limit_in_bytes",
	};
	int64_t total = first_number("/proc/meminfo", "MemTotal");

	if (total > 0)
		total *= 1024;
	for (unsigned i = 0; i < 2; i++) {
		int64_t limit = first_number(limits[i], NULL);

		if (limit > 0 && (total < 0 || limit < total))
			total = limit;
	}
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
