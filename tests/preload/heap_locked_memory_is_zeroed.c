/* SPDX-License-Identifier: MIT */
/* Locked pages can't be given back: purged while locked, they stay charged and
 * must not come out of calloc dirty. */
#include <malloc.h>

#include "tests/preload/count.h"

#define SIZE (1 << 20)

int main(void)
{
	for (int round = 0; round < 20; round++) {
		char *p = malloc(SIZE);
		char *q;

		must(p);
		if (mlock(p, SIZE)) {
			puts("can't lock memory");
			return SKIP;
		}
		memset(p, 0x5a, SIZE);
		errno = 0;
		free(p);
		malloc_trim(0);
		must(errno == 0);
		q = calloc(1, SIZE);
		must(q);
		for (int i = 0; i < SIZE; i++) {
			if (q[i])
				fail("byte %d of a calloc is %x", i, q[i]);
		}
		free(q);
		munlockall();
	}
	return 0;
}
