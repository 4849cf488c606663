/* SPDX-License-Identifier: MIT */
/* What was charged for blocks is back when all are freed and trimmed; while
 * they live, it is what they need, and a little more. */
#include <malloc.h>

#include "tests/preload/count.h"

#define N 20000

static char *blocks[N];

static void expect_about(long pages, long want)
{
	if (pages < want || pages > want + want / 8 + left_over())
		fail("%ld pages for blocks of %ld in all", pages, want);
}

int main(void)
{
	long base;
	size_t sum = 0;

	for (int i = 0; i < 1000; i++)
		blocks[i] = malloc((size_t)i);
	for (int i = 0; i < 1000; i++)
		free(blocks[i]);
	malloc_trim(0);
	base = heap();
	for (int i = 0; i < N; i++) {
		must(blocks[i] = malloc(1024));
		sum += 1024;
		blocks[i][0] = 1;
	}
	expect_about(heap() - base, (long)sum / page());
	for (int i = 0; i < N; i++)
		free(blocks[i]);
	must(malloc_trim(0) == 1);
	if (heap() - base > left_over())
		fail("%ld pages left of 1 KiB blocks", heap() - base);

	for (int i = 0; i < 20; i++)
		must(blocks[i] = calloc(1, (size_t)2 << 20));
	expect_about(heap() - base, ((long)40 << 20) / page());
	for (int i = 0; i < 20; i++)
		free(blocks[i]);
	malloc_trim(0);
	if (heap() - base > left_over())
		fail("%ld pages left of 2 MiB blocks", heap() - base);
	/* Nothing left to give. */
	must(malloc_trim(0) == 0);
	return 0;
}
