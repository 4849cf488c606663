/* SPDX-License-Identifier: MIT */
/* Large blocks keep their contents as they grow and shrink, in the process
 * and in a child, and give back what they took. */
#include <malloc.h>
#include <stdint.h>

#include "tests/preload/count.h"

#define N 8

static uint32_t *blocks[N];
static size_t lengths[N];

static void expect_contents(int k, size_t length)
{
	for (size_t i = 0; i < length; i += 101)
		if (blocks[k][i] != (i ^ (size_t)k))
			fail("block %d of %zu: %x at %zu", k, length,
			     blocks[k][i], i);
}

static void resize(int k, size_t length)
{
	blocks[k] = realloc(blocks[k], length * 4);
	must(blocks[k]);
	expect_contents(k, lengths[k] < length ? lengths[k] : length);
	for (size_t i = 0; i < length; i += 101)
		blocks[k][i] = (uint32_t)(i ^ (size_t)k);
	lengths[k] = length;
}

int main(void)
{
	uint32_t random = 3;
	long base = heap();

	for (int i = 0; i < 600; i++) {
		int k = (int)(random >> 24) % N;

		random = random * 1664525 + 1013904223;
		resize(k, (random >> 12) % 1500000 + 101);
		if (i % 100 == 50) {
			pid_t pid = fork();

			must(pid >= 0);
			for (k = 0; pid == 0 && k < N; k++)
				if (blocks[k])
					resize(k, lengths[k] + 700000);
			if (pid == 0)
				_exit(0);
			expect_clean_exit(pid);
			for (k = 0; k < N; k++)
				if (blocks[k])
					expect_contents(k, lengths[k]);
		}
	}
	for (int k = 0; k < N; k++)
		free(blocks[k]);
	malloc_trim(0);
	if (heap() - base > 64 + left_over())
		fail("%ld pages are left", heap() - base);
	return 0;
}
