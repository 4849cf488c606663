/* SPDX-License-Identifier: MIT */
/* What was allocated inside a group is the group's, whoever reallocates or
 * frees it, and wherever: the caller's cache never hands it out. */
#include <dlfcn.h>
#include <malloc.h>

#include "preload/api.h"
#include "tests/preload/count.h"

#define BLOCKS 2000

static long in_group(void)
{
	return count_of("READ_CACHE", getpid()) / page();
}

int main(void)
{
	static char *theirs[BLOCKS];
	static char *mine[BLOCKS];
	const struct memtally_api *api = dlsym(RTLD_DEFAULT, "memtally_api_v1");
	uint32_t previous;
	uint32_t group;
	char *map;

	must(api && api->size >= sizeof(*api));
	group = api->group_get("cache");
	must(group);
	previous = api->enter(group);
	for (int i = 0; i < BLOCKS; i++) {
		theirs[i] = malloc(4000);
		must(theirs[i]);
		memset(theirs[i], 1, 4000);
	}
	map = mmap(NULL, 100 * (size_t)page(), PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(map != MAP_FAILED);
	api->leave(previous);
	if (in_group() < BLOCKS * 4000 / page() + 100)
		fail("the group has %ld pages", in_group());

	/* Outside: it grows where it is. */
	for (int i = 0; i < BLOCKS; i++) {
		theirs[i] = realloc(theirs[i], 8000);
		must(theirs[i] && theirs[i][3999] == 1);
	}
	if (in_group() < BLOCKS * 8000 / page() + 100)
		fail("after realloc the group has %ld pages", in_group());
	for (int i = 0; i < BLOCKS; i++)
		free(theirs[i]);
	munmap(map, 100 * (size_t)page());
	malloc_trim(0);
	if (in_group() > left_over())
		fail("all freed, the group has %ld pages", in_group());
	for (int i = 0; i < BLOCKS; i++) {
		mine[i] = malloc(8000);
		must(mine[i]);
		memset(mine[i], 1, 8000);
	}
	if (in_group() > left_over())
		fail("our blocks went to the group: %ld pages", in_group());
	return 0;
}
