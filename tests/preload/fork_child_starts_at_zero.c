/* SPDX-License-Identifier: MIT */
/* A forked child has its own pages only, and what it inherited and frees is
 * never taken off its parent. */
#include "tests/preload/count.h"

#define BLOCKS 4000

static char *blocks[BLOCKS];

int main(void)
{
	long before;
	long after;
	pid_t child;

	for (int i = 0; i < BLOCKS; i++) {
		blocks[i] = malloc(10000);
		must(blocks[i]);
		memset(blocks[i], 1, 10000);
	}
	before = charged();
	must(before > BLOCKS * 2);
	child = fork();
	must(child >= 0);
	if (child == 0) {
		long own;

		/* The parent's 40 MB are not the child's. */
		free(malloc(1));
		for (int i = 0; i < BLOCKS; i++)
			free(blocks[i]);
		own = charged();
		if (own < 0 || own > 1000)
			fail("a child without pages has %ld", own);
		for (int i = 0; i < 50; i++) {
			char *p = malloc(8 << 20);

			must(p);
			memset(p, 1, 8 << 20);
			free(p);
		}
		/* 400 MB were cycled: no more than the cached part is left. */
		own = charged();
		if (own < 0 || own > 20000)
			fail("after cycling 8 MiB 50 times a child has %ld",
			     own);
		_exit(0);
	}
	expect_clean_exit(child);
	after = charged();
	if (after != before)
		fail("the parent had %ld pages, and has %ld", before, after);
	return 0;
}
