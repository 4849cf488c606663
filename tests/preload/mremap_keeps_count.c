/* SPDX-License-Identifier: MIT */
/* mremap: growing charges the difference, moving nothing, shrinking gives
 * back; a failed one changes nothing. */
#include "tests/preload/count.h"

#define EXPECT(pages)                                                          \
	do {                                                                   \
		long now_ = accounted() - base;                                \
		if (now_ != (pages))                                           \
			fail("line %d: %ld pages, not %ld", __LINE__, now_,    \
			     (long)(pages));                                   \
	} while (0)

int main(void)
{
	size_t pg = (size_t)page();
	long base = accounted();
	char *p;
	char *q;
	char *hole;

	p = mmap(NULL, 10 * pg, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(p != MAP_FAILED);
	EXPECT(10);
	memset(p, 7, 10 * pg);
	p = mremap(p, 10 * pg, 100 * pg, MREMAP_MAYMOVE);
	must(p != MAP_FAILED && p[10 * pg - 1] == 7);
	EXPECT(100);
	p = mremap(p, 100 * pg, 30 * pg, 0);
	must(p != MAP_FAILED);
	EXPECT(30);
	hole = mmap(NULL, 64 * pg, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(hole != MAP_FAILED);
	EXPECT(94);
	/* Over a part of the other: 30 of its 64 go. */
	q = mremap(p, 30 * pg, 30 * pg, MREMAP_MAYMOVE | MREMAP_FIXED,
		   hole + 10 * pg);
	must(q == hole + 10 * pg && q[0] == 7);
	EXPECT(64);
	errno = 0;
	must(mremap(hole, 64 * pg, 64 * pg, MREMAP_FIXED, hole) == MAP_FAILED);
	must(errno == EINVAL);
	EXPECT(64);
	must(munmap(hole, 64 * pg) == 0);
	EXPECT(0);
	return 0;
}
