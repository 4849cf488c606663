/* SPDX-License-Identifier: MIT */
/* A handler that maps and unmaps while its own thread is doing so: nothing
 * hangs, nothing is lost. */
#include <signal.h>
#include <sys/time.h>

#include "tests/preload/count.h"

static volatile unsigned long handled;

static void handler(int signo)
{
	size_t len = 3 * 4096;
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)signo;
	if (p != MAP_FAILED) {
		p[0] = 1;
		munmap(p, len);
	}
	handled++;
}

static void storm(unsigned long signals)
{
	unsigned long until = handled + signals;

	while (handled < until) {
		char *p = mmap(NULL, 16384, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		must(p != MAP_FAILED);
		must(munmap(p, 16384) == 0);
	}
}

int main(void)
{
	struct itimerval timer = { { 0, 200 }, { 0, 200 } };
	struct itimerval off = { { 0, 0 }, { 0, 0 } };
	struct sigaction sa;
	long before = accounted();
	long after;

	memset(&sa, 0, sizeof(sa));
	sa.sa_handler = handler;
	must(sigaction(SIGALRM, &sa, NULL) == 0);
	must(setitimer(ITIMER_REAL, &timer, NULL) == 0);
	storm(3000);
	must(setitimer(ITIMER_REAL, &off, NULL) == 0);
	after = accounted();
	if (after != before)
		fail("%ld pages before, %ld after", before, after);

	return 0;
}
