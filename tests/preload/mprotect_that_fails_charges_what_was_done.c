/* SPDX-License-Identifier: MIT */
/* An mprotect over a hole fails after it changed what lies before: that part
 * is charged if it became writable, and nothing is ever given back. */
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

	p = mmap(NULL, 30 * pg, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(p != MAP_FAILED);
	EXPECT(0);
	must(munmap(p + 10 * pg, pg) == 0);
	must(mprotect(p, 15 * pg, PROT_READ | PROT_EXEC) == -1);
	must(errno == ENOMEM);
	EXPECT(0);
	must(mprotect(p + 10 * pg, 5 * pg, PROT_NONE) == -1);
	EXPECT(0);
	/* The ten pages before the hole become writable. */
	must(mprotect(p, 15 * pg, PROT_READ | PROT_WRITE) == -1);
	must(errno == ENOMEM);
	memset(p, 1, 10 * pg);
	EXPECT(10);
	must(mprotect(p, 15 * pg, PROT_READ | PROT_WRITE) == -1);
	EXPECT(10);
	must(munmap(p, 30 * pg) == 0);
	EXPECT(0);
	return 0;
}
