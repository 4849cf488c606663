/* SPDX-License-Identifier: MIT */
/* After random mapping calls the charged pages of private mappings equal what
 * the kernel accounts: the "ac" ranges of smaps that lie in our window. */
#include "tests/preload/count.h"

#define WINDOW_PAGES 512
#define ROUNDS       400

static char *window;
static unsigned seed = 1;

static unsigned pick(unsigned n)
{
	seed = seed * 1103515245u + 12345u;
	return (seed >> 16) % n;
}

/* Pages of ranges inside the window that have "ac" among their flags. */
static long kernel_accounts(void)
{
	unsigned long lo = (unsigned long)window;
	unsigned long hi = lo + WINDOW_PAGES * (unsigned long)page();
	unsigned long start = 0;
	unsigned long end = 0;
	FILE *f = fopen("/proc/self/smaps", "r");
	char line[512];
	long pages = 0;

	must(f);
	while (fgets(line, sizeof(line), f)) {
		unsigned long a;
		unsigned long b;

		if (sscanf(line, "%lx-%lx ", &a, &b) == 2) {
			start = a < lo ? lo : a;
			end = b > hi ? hi : b;
		} else if (strncmp(line, "VmFlags:", 8) == 0 &&
			   strstr(line, " ac") && start < end) {
			pages += (long)((end - start) / (unsigned long)page());
		}
	}
	fclose(f);
	return pages;
}

static void touch(char *p, size_t len)
{
	for (size_t i = 0; i < len; i += (size_t)page())
		p[i] = 1;
}

static void one_call(void)
{
	unsigned first = pick(WINDOW_PAGES - 40);
	size_t len = (1 + pick(40)) * (size_t)page();
	char *at = window + first * (size_t)page();
	char *p;

	switch (pick(6)) {
	case 0:
	case 1:
		p = mmap(at, len, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		must(p == at);
		touch(p, len);
		break;
	case 2:
		/* A read-only or reserved one isn't accounted... */
		p = mmap(at, len, pick(2) ? PROT_READ : PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		must(p == at);
		break;
	case 3:
		must(munmap(at, len) == 0);
		break;
	case 4:
		p = mmap(at, len, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED |
				 MAP_NORESERVE,
			 -1, 0);
		must(p == at);
		break;
	case 5:
		/* ...until it is made writable, and then for ever. */
		p = mmap(at, len, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		must(p == at);
		must(mprotect(at, len, PROT_READ | PROT_WRITE) == 0);
		touch(p, len);
		must(mprotect(at, len, PROT_READ) == 0);
		break;
	}
}

int main(void)
{
	long base;

	window = mmap(NULL, WINDOW_PAGES * (size_t)page(), PROT_NONE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	must(window != MAP_FAILED);
	base = accounted();
	for (int i = 0; i < ROUNDS; i++) {
		one_call();
		if (i % 20 == 19) {
			long ours = accounted() - base;
			long theirs = kernel_accounts();

			if (ours != theirs)
				fail("call %d: charged %ld, accounted %ld", i,
				     ours, theirs);
		}
	}
	must(munmap(window, WINDOW_PAGES * (size_t)page()) == 0);
	if (accounted() != base)
		fail("%ld pages left over", accounted() - base);
	return 0;
}
