/* SPDX-License-Identifier: MIT */
/*
 * glibc's own questions about its heap get answers about ours; and what is
 * said to be usable is.
 */
#include <malloc.h>

#include "tests/preload/count.h"

#define SIZE ((size_t)30 << 20)

/* Every byte that a block is said to have may be written, and is kept. */
static void usable(void)
{
	for (size_t size = 1; size < SIZE; size = size * 3 + 1) {
		char *p = memalign(256, size);
		char *q = malloc(size);
		size_t all;

		must(p && q);
		all = malloc_usable_size(p);
		must(all >= size);
		memset(p, 1, all);
		memset(q, 2, malloc_usable_size(q));
		must(p[0] == 1 && p[all - 1] == 1);
		p = realloc(p, all + 1);
		must(p && p[all - 1] == 1 && q[0] == 2);
		free(p);
		free(q);
	}
	must(malloc_usable_size(NULL) == 0);
}

int main(void)
{
	struct mallinfo2 before = mallinfo2();
	struct mallinfo2 after;
	char *text = NULL;
	size_t len = 0;
	char *p = malloc(SIZE);
	int quiet = open("/dev/null", O_WRONLY);
	int kept = dup(2);
	FILE *f;

	must(p && quiet >= 0 && kept >= 0);
	after = mallinfo2();
	if (after.uordblks < before.uordblks + SIZE)
		fail("a block of %zu is not there: %zu", SIZE,
		     after.uordblks - before.uordblks);
	free(p);
	must(mallinfo2().uordblks < before.uordblks + SIZE);

	must(mallopt(M_MMAP_THRESHOLD, 100000) == 1);
	must(mallopt(M_ARENA_MAX, 1) == 1);
	f = open_memstream(&text, &len);
	must(f && malloc_info(0, f) == 0);
	must(fclose(f) == 0 && strstr(text, "<malloc"));
	free(text);
	must(malloc_info(1, stdout) != 0);
	dup2(quiet, 2);
	malloc_stats();
	dup2(kept, 2);
	malloc_trim(0);
	usable();
	return 0;
}
