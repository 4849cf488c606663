/* SPDX-License-Identifier: MIT */
/* Under a limit on address space what is freed is there for others. */
#include <sys/resource.h>

#include "tests/preload/count.h"

#define LARGE ((size_t)220 << 20)

int main(int argc, char **argv)
{
	static char *blocks[3000];
	struct rlimit limit = { 512 << 20, 512 << 20 };

	if (argc == 1) {
		must(setrlimit(RLIMIT_AS, &limit) == 0);
		execl("/proc/self/exe", argv[0], "limited", (char *)NULL);
		fail("exec: %s", strerror(errno));
	}
	for (int round = 0; round < 10; round++) {
		char *p;

		for (int i = 0; i < 3000; i++) {
			must(blocks[i] = malloc(60000));
			blocks[i][59999] = 1;
		}
		for (int i = 0; i < 3000; i++)
			free(blocks[i]);
		p = malloc(LARGE);
		must(p);
		p[0] = p[LARGE - 1] = 1;
		free(p);
		p = mmap(NULL, LARGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		must(p != MAP_FAILED);
		must(munmap(p, LARGE) == 0);
	}
	return 0;
}
