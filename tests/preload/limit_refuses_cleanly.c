/* SPDX-License-Identifier: MIT */
/* At its limit the family fails with ENOMEM, what was there is intact, and
 * after giving back it goes on; 20,000 refusals cost no memory. */
#include "tests/preload/count.h"

static long status_kb(const char *key)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[256];
	long kb = -1;

	must(f);
	while (kb < 0 && fgets(line, sizeof(line), f)) {
		if (strncmp(line, key, strlen(key)) == 0)
			kb = strtol(line + strlen(key) + 1, NULL, 10);
	}
	fclose(f);
	return kb;
}

int main(void)
{
	static char *blocks[4096];
	int n = 0;
	long size;
	long after;
	char *p;

	/* 64 MiB in all (see the companion script). */
	while (n < 4096 && (blocks[n] = malloc(100000)))
		memset(blocks[n++], 3, 100000);
	must(n > 300 && n < 700 && errno == ENOMEM);
	p = realloc(blocks[0], 10 << 20);
	must(!p && errno == ENOMEM && blocks[0][99999] == 3);
	must(!calloc(1000, 10000) && errno == ENOMEM);
	must(mmap(NULL, 32 << 20, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
	must(errno == ENOMEM);
	p = NULL;
	must(posix_memalign((void **)&p, 64, 16 << 20) == ENOMEM && !p);
	size = status_kb("VmSize:");
	for (int i = 0; i < 20000; i++)
		must(!malloc(8 << 20));
	after = status_kb("VmSize:");
	if (after > size + 20000)
		fail("refusals took address space: %ld to %ld kB", size, after);
	/* Room for the reader's start, which has the limit too. */
	free(blocks[--n]);
	if (charged() > 16384)
		fail("%ld pages above a limit of 16384", charged());
	for (int i = 0; i < n; i++)
		free(blocks[i]);
	p = malloc(32 << 20);
	must(p);
	memset(p, 1, 32 << 20);
	free(p);
	return 0;
}
