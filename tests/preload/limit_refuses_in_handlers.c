/* SPDX-License-Identifier: MIT */
/* A mapping that is refused in a signal handler, while the handler's own thread
 * is inside the allocator: nothing that the allocator has locked is waited for.
 * limit_refuses_in_handlers.sh gives it a limit. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

#include "tests/preload/count.h"

#define MIB (1 << 20)

static volatile sig_atomic_t refused;
static volatile sig_atomic_t mapped;

static void on_alarm(int sig)
{
	void *p = mmap(NULL, 64 * MIB, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)sig;
	if (p == MAP_FAILED) {
		refused++;
	} else {
		munmap(p, 64 * MIB);
		mapped++;
	}
}

static char stack[65536];

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = on_alarm };
	struct itimerval often = { { 0, 150 }, { 0, 150 } };
	struct timespec start, now;
	stack_t alternate = { .ss_sp = stack, .ss_size = sizeof(stack) };
	void *blocks[64] = { NULL };
	unsigned n = 0;

	(void)argv;
	if (argc > 1) {
		must(sigaltstack(&alternate, NULL) == 0);
		action.sa_flags = SA_ONSTACK;
	}
	must(sigaction(SIGALRM, &action, NULL) == 0);
	must(setitimer(ITIMER_REAL, &often, NULL) == 0);
	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		void **p = &blocks[n++ * 7 % 64];

		free(*p);
		*p = malloc(16384 + (size_t)(rand() % 64) * 4096);
		if (*p)
			memset(*p, 1, 8192);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - start.tv_sec < 3 || refused < 100);
	must(mapped == 0);
	return 0;
}
