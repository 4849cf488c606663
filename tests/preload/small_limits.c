/* SPDX-License-Identifier: MIT */
/*
 * Started by the companion script under small limits on the stack and on
 * data: the library's own needs must leave room for a modest program.
 */
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>

#include "tests/preload/count.h"

static void *allocate(void *arg)
{
	free(malloc(10000));
	return arg;
}

static long address_space(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long pages;

	must(f && fscanf(f, "%ld", &pages) == 1);
	fclose(f);
	return pages;
}

/* Refused by the system, not by us: that takes nothing either. */
static void refused_data(void)
{
	struct rlimit limit;
	long before;

	must(getrlimit(RLIMIT_DATA, &limit) == 0);
	limit.rlim_cur = 40 << 20;
	if (limit.rlim_cur > limit.rlim_max)
		limit.rlim_cur = limit.rlim_max;
	must(setrlimit(RLIMIT_DATA, &limit) == 0);
	before = address_space();
	for (int i = 0; i < 5000; i++)
		must(!malloc((size_t)50 << 20) && errno == ENOMEM);
	if (address_space() > before + 5000)
		fail("refusals took %ld pages of address space",
		     address_space() - before);
}

int main(void)
{
	pthread_attr_t attr;
	pthread_t thread;
	char *p;
	pid_t pid;

	for (size_t n = 1; n < 600000; n *= 5) {
		must(p = malloc(n));
		must(p = realloc(p, n * 2));
		free(p);
		must(p = memalign(4096, n));
		free(p);
	}
	p = mmap(NULL, 65536, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(p != MAP_FAILED);
	must(mprotect(p, 65536, PROT_READ) == 0);
	must(munmap(p, 65536) == 0);
	must(pthread_attr_init(&attr) == 0);
	must(pthread_attr_setstacksize(&attr, 65536) == 0);
	must(pthread_create(&thread, &attr, allocate, NULL) == 0);
	must(pthread_join(thread, NULL) == 0);
	pid = fork();
	must(pid >= 0);
	if (pid == 0) {
		free(malloc(50000));
		execl("/bin/true", "true", (char *)NULL);
		_exit(1);
	}
	expect_clean_exit(pid);
	refused_data();
	return 0;
}
