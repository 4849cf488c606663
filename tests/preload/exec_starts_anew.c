/* SPDX-License-Identifier: MIT */
/* After exec the pid is the same and what the old image held is gone; an
 * environment that dropped everything gets it back. */
#include "tests/preload/count.h"

int main(int argc, char **argv)
{
	char *empty[] = { NULL, NULL, NULL, NULL, NULL, NULL };
	char reader[4096];
	char *p;
	int n = 0;

	if (argc > 1) {
		long held;

		/* The environment was emptied: we are counted all the same. */
		must(getenv("MEMTALLY_SESSION") && getenv("LD_PRELOAD"));
		held = charged();
		if (held <= 0 || held > 2000)
			fail("a new image holds %ld pages", held);
		return 0;
	}
	p = mmap(NULL, 50 << 20, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(p != MAP_FAILED);
	must(charged() >= 12800);
	/* A failed exec loses nothing. */
	execl("/nonexistent/program", "x", (char *)NULL);
	must(charged() >= 12800);
	must(getenv("ACCT_READ"));
	snprintf(reader, sizeof(reader), "ACCT_READ=%s", getenv("ACCT_READ"));
	empty[n++] = reader;
	execle("/proc/self/exe", argv[0], "again", (char *)NULL, empty);
	fail("exec: %s", strerror(errno));
}
