/* SPDX-License-Identifier: MIT */
/* A child that frees what it inherited is not paid for it, and one that then
 * works with memory of its own does not drift, round by round. */
#include <malloc.h>

#include "tests/preload/count.h"

#define SIZE ((size_t)1 << 20)

int main(void)
{
	char *inherited[40];
	long mine;
	pid_t pid;

	for (int i = 0; i < 40; i++) {
		must(inherited[i] = malloc(SIZE));
		memset(inherited[i], 1, SIZE);
	}
	mine = heap();
	must(mine >= 40 * (long)SIZE / page());
	pid = fork();
	must(pid >= 0);
	if (pid == 0) {
		long first = 0;

		for (int i = 0; i < 40; i++)
			free(inherited[i]);
		malloc_trim(0);
		if (heap() < 0 || heap() > 500)
			fail("%ld pages after freeing its parent's", heap());
		for (int round = 0; round < 6; round++) {
			for (int i = 0; i < 40; i++) {
				must(inherited[i] = malloc(SIZE));
				memset(inherited[i], 2, SIZE);
			}
			if (heap() < 40 * (long)SIZE / page())
				fail("%ld pages for 40 MiB", heap());
			for (int i = 0; i < 40; i++)
				free(inherited[i]);
			malloc_trim(0);
			if (round == 0)
				first = heap();
			if (heap() > first + 64 || heap() < 0)
				fail("round %d: %ld pages, first %ld", round,
				     heap(), first);
		}
		_exit(0);
	}
	expect_clean_exit(pid);
	if (labs(heap() - mine) > 64)
		fail("the parent's charge went from %ld to %ld", mine, heap());
	return 0;
}
