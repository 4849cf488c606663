/* SPDX-License-Identifier: MIT */
/*
 * smaps.c - reading /proc/PID/smaps.
 */
#include "tools/smaps.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "5581f0000-5581f2000 r--p 00000000 fe:00 1234    /usr/bin/x" */
static bool take_head(const char *line, struct smaps_range *range)
{
	const char *at;
	char *end;

	memset(range, 0, sizeof(*range));
	range->start = strtoull(line, &end, 16);
	if (end == line || *end != '-')
		return false;
	at = end + 1;
	range->end = strtoull(at, &end, 16);
	if (end == at || *end != ' ' || strlen(end) < 6)
		return false;
	memcpy(range->mode, end + 1, 4);
	/* The offset and the device. */
	at = end + 6;
	for (int field = 0; field < 2; field++) {
		at += strcspn(at, " ");
		at += strspn(at, " ");
	}
	range->file = strtoull(at, &end, 10) != 0;
	end += strspn(end, " ");
	snprintf(range->name, sizeof(range->name), "%.*s",
		 (int)strcspn(end, "\n"), end);
	return true;
}

/* "Rss:        12 kB" */
static void take_value(const char *line, struct smaps_range *range)
{
	const char *colon = strchr(line, ':');
	size_t len = colon ? (size_t)(colon - line) : 0;
	int64_t bytes;

	if (!len)
		return;
	if (len == 7 && !strncmp(line, "VmFlags", 7))
		range->noreserve = strstr(colon, " nr ") != NULL;
	bytes = strtoll(colon + 1, NULL, 10) * 1024;
	if (len == 3 && !strncmp(line, "Rss", 3))
		range->resident = bytes;
	else if ((len == 12 && !strncmp(line, "Shared_Dirty", 12)) ||
		 (len == 13 && !strncmp(line, "Private_Dirty", 13)))
		range->dirty += bytes;
	else if (len == 9 && !strncmp(line, "Anonymous", 9))
		range->anonymous = bytes;
	else if ((len == 14 && !strncmp(line, "Shared_Hugetlb", 14)) ||
		 (len == 15 && !strncmp(line, "Private_Hugetlb", 15)))
		range->huge += bytes;
}

int smaps_read(uint32_t pid,
	       void (*each)(void *arg, const struct smaps_range *range),
	       void *arg)
{
	struct smaps_range range;
	struct smaps_range next;
	bool any = false;
	char path[64];
	char *line = NULL;
	size_t size = 0;
	FILE *file;
	int ret = 0;

	snprintf(path, sizeof(path), "/proc/%u/smaps", pid);
	file = fopen(path, "re");
	if (!file)
		return -errno;
	errno = 0;
	while (getline(&line, &size, file) > 0) {
		if (take_head(line, &next)) {
			if (any)
				each(arg, &range);
			range = next;
			any = true;
		} else if (any) {
			take_value(line, &range);
		}
	}
	/* Gone, or forbidden, while we read. */
	if (ferror(file))
		ret = errno ? -errno : -EIO;
	if (any)
		each(arg, &range);
	free(line);
	fclose(file);
	return ret;
}
