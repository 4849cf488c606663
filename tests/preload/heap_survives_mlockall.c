/* SPDX-License-Identifier: MIT */
/* mlockall() makes what is mapped resident: reserved slices must not be. */
#include "tests/preload/count.h"

int main(void)
{
	long before = charged();
	FILE *f;
	long rss = 0;
	char line[256];

	if (mlockall(MCL_CURRENT | MCL_FUTURE)) {
		puts("can't lock memory");
		return SKIP;
	}
	free(malloc(10 << 20));
	f = fopen("/proc/self/status", "r");
	must(f);
	while (fgets(line, sizeof(line), f)) {
		if (strncmp(line, "VmRSS:", 6) == 0)
			rss = strtol(line + 6, NULL, 10);
	}
	fclose(f);
	if (rss == 0 || rss > 64 << 10)
		fail("%ld kB are resident", rss);
	munlockall();
	must(charged() < before + 6000);
	return 0;
}
