/* SPDX-License-Identifier: MIT */
/* Heap charged is never below what is resident in the slices, and little
 * above; after everything was freed and purged it is back where it was. */
#include <fcntl.h>
#include <malloc.h>
#include <stdint.h>

#include "tests/preload/count.h"

#define LIVE          20000
#define GRANULE_SHIFT 26

static char *live[LIVE];
static unsigned seed = 3;

static unsigned pick(unsigned n)
{
	seed = seed * 1103515245u + 12345u;
	return (seed >> 8) % n;
}

static size_t size_of_block(void)
{
	switch (pick(10)) {
	case 0:
		return 1 + pick(200000);
	case 1:
	case 2:
		return 1 + pick(20000);
	default:
		return 1 + pick(600);
	}
}

/* Pages present in [from, to), by pagemap. */
static long present(int fd, unsigned long from, unsigned long to)
{
	static uint64_t entries[4096];
	unsigned long pg = (unsigned long)page();
	long pages = 0;

	while (from < to) {
		size_t n = (to - from) / pg < 4096 ? (to - from) / pg : 4096;

		must(pread(fd, entries, n * 8, (off_t)(from / pg * 8)) ==
		     (ssize_t)(n * 8));
		for (size_t i = 0; i < n; i++)
			pages += (long)(entries[i] >> 63);
		from += n * pg;
	}
	return pages;
}

/* Resident pages of the granules in which our blocks lie. */
static long resident(void)
{
	static unsigned long granules[64];
	int fd = open("/proc/self/pagemap", O_RDONLY);
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	long pages = 0;
	int n = 0;

	must(fd >= 0 && maps);
	for (int i = 0; i < LIVE; i++) {
		unsigned long g = (unsigned long)live[i] >> GRANULE_SHIFT;
		int k = 0;

		while (k < n && granules[k] != g)
			k++;
		if (live[i] && k == n && n < 64)
			granules[n++] = g;
	}
	while (fgets(line, sizeof(line), maps)) {
		unsigned long a;
		unsigned long b;

		if (sscanf(line, "%lx-%lx rw-p", &a, &b) != 2)
			continue;
		for (int k = 0; k < n; k++) {
			unsigned long lo = granules[k] << GRANULE_SHIFT;
			unsigned long hi = (granules[k] + 1) << GRANULE_SHIFT;

			lo = lo > a ? lo : a;
			hi = hi < b ? hi : b;
			if (lo < hi)
				pages += present(fd, lo, hi);
		}
	}
	fclose(maps);
	close(fd);
	return pages;
}

int main(void)
{
	long base;
	long ours;
	long theirs;

	malloc_trim(0);
	base = heap();
	for (int round = 0; round < 6; round++) {
		for (int i = 0; i < LIVE * 2; i++) {
			unsigned k = pick(LIVE);
			size_t size = size_of_block();

			free(live[k]);
			live[k] = malloc(size);
			must(live[k]);
			memset(live[k], 1, size);
		}
		theirs = resident();
		ours = heap();
		if (ours < theirs)
			fail("charged %ld, resident %ld", ours, theirs);
		if (ours > theirs * 112 / 100 + left_over())
			fail("charged %ld, resident only %ld", ours, theirs);
	}
	for (int i = 0; i < LIVE; i++) {
		free(live[i]);
		live[i] = NULL;
	}
	malloc_trim(0);
	ours = heap();
	if (ours > base + left_over())
		fail("%ld pages at first, %ld after all was freed", base, ours);
	return 0;
}
