/* SPDX-License-Identifier: MIT */
/* What a thread holds when it ends is its process's, its stock goes back, and
 * its slot is used again. */
#include <pthread.h>

#include "tests/preload/count.h"

#define PAGES 300

static void *map_some(void *arg)
{
	char **where = arg;

	*where = mmap(NULL, PAGES * (size_t)page(), PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(*where != MAP_FAILED);
	return NULL;
}

int main(void)
{
	long base = accounted();
	char *where[40];

	for (int i = 0; i < 40; i++) {
		pthread_t thread;

		must(pthread_create(&thread, NULL, map_some, &where[i]) == 0);
		must(pthread_join(thread, NULL) == 0);
	}
	if (accounted() - base != 40 * PAGES)
		fail("40 threads mapped %d pages, counted %ld", 40 * PAGES,
		     accounted() - base);
	/* Given back by another thread than took them. */
	for (int i = 0; i < 40; i++)
		must(munmap(where[i], PAGES * (size_t)page()) == 0);
	if (accounted() != base)
		fail("%ld pages are left", accounted() - base);
	return 0;
}
