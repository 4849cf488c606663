/* SPDX-License-Identifier: MIT */
/* What api_in_every_program.sh builds in every way there is: prints what
 * memtally says of 4 MiB in a group. */
#include "preload/memtally.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ask(void);

int ask(void)
{
	memtally_group group = memtally_group_get("mine");
	struct memtally_usage usage;
	char *p;

	{
		MEMTALLY_SCOPE(group);
		p = (char *)malloc(4 << 20);
		memset(p, 1, 4 << 20);
	}
	if (memtally_usage(group, &usage, sizeof(usage)))
		return 1;
	printf("%s\n", usage.charged >= 4 << 20 ? "counted" : "not counted");
	free(p);
	return 0;
}

#ifndef LIBRARY
int main(void)
{
	return ask();
}
#endif
