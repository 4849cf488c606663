/* SPDX-License-Identifier: MIT */
/* A handler that maps and unmaps while its own thread is doing so: nothing
 * hangs, nothing is lost; nor when it jumps out. */
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

#include "tests/preload/count.h"

static sigjmp_buf back;
static volatile int jump;
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
	if (jump)
		siglongjmp(back, 1);
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
	volatile int jumps;
	long before = accounted();
	long after;
	char *p;

	memset(&sa, 0, sizeof(sa));
	sa.sa_handler = handler;
	must(sigaction(SIGALRM, &sa, NULL) == 0);
	must(setitimer(ITIMER_REAL, &timer, NULL) == 0);
	storm(3000);
	must(setitimer(ITIMER_REAL, &off, NULL) == 0);
	after = accounted();
	if (after != before)
		fail("%ld pages before, %ld after", before, after);

	jump = 1;
	for (jumps = 0; jumps < 300; jumps++) {
		if (sigsetjmp(back, 1))
			continue;
		must(setitimer(ITIMER_REAL, &timer, NULL) == 0);
		storm(1000000);
	}
	must(setitimer(ITIMER_REAL, &off, NULL) == 0);
	jump = 0;
	/* What a jump cut short may be lost; what comes after is right. */
	p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(p != MAP_FAILED && munmap(p, 4096) == 0);
	before = accounted();
	must(before >= 0);
	p = mmap(NULL, 16384, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(p != MAP_FAILED);
	if (accounted() != before + 4)
		fail("mapped 4 pages, counted %ld", accounted() - before);
	must(munmap(p, 16384) == 0);
	if (accounted() != before)
		fail("unmapped 4 pages, %ld are left", accounted() - before);
	return 0;
}
