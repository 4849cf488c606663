/* SPDX-License-Identifier: MIT */
/* Refusals in odd places: each leaves a record, most with a stack, and none does
 * harm.  limit_leaves_a_stack.sh gives a limit and reads the records. */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "tests/preload/count.h"

#define MIB (1 << 20)

__attribute__((noinline)) static void refuse_here(void)
{
	void *volatile p = malloc(512 * MIB);

	must(!p && errno == ENOMEM);
}

static int compare(const void *a, const void *b)
{
	static bool once;

	if (!once) {
		once = true;
		refuse_here();
	}
	return *(const int *)a - *(const int *)b;
}

static void in_a_callback(void)
{
	int numbers[] = { 3, 1, 2 };

	qsort(numbers, 3, sizeof(numbers[0]), compare);
	must(numbers[0] == 1 && numbers[2] == 3);
}

__attribute__((noinline)) static void deep_down(int n)
{
	volatile char some[64];

	some[0] = (char)n;
	if (n)
		deep_down(n - 1);
	else
		refuse_here();
	some[1] = some[0];
}

static void *thread(void *arg)
{
	(void)arg;
	refuse_here();
	return NULL;
}

static void in_threads(void)
{
	/* The least there is, too little for a stack; and enough for one. */
	size_t sizes[] = { PTHREAD_STACK_MIN, 65536, 1 << 20 };

	for (int i = 0; i < 3; i++) {
		pthread_attr_t attr;
		pthread_t id;

		must(pthread_attr_init(&attr) == 0);
		must(pthread_attr_setstacksize(&attr, sizes[i]) == 0);
		must(pthread_create(&id, &attr, thread, NULL) == 0);
		must(pthread_join(id, NULL) == 0);
	}
}

static volatile sig_atomic_t handled;

static void on_signal(int sig)
{
	(void)sig;
	must(mmap(NULL, 512 * MIB, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
	handled++;
}

static char alternate[16384];

static void in_handlers(void)
{
	struct sigaction action = { .sa_handler = on_signal };
	stack_t stack = { .ss_sp = alternate, .ss_size = sizeof(alternate) };

	must(sigaction(SIGUSR1, &action, NULL) == 0);
	must(raise(SIGUSR1) == 0);
	must(sigaltstack(&stack, NULL) == 0);
	action.sa_flags = SA_ONSTACK;
	must(sigaction(SIGUSR1, &action, NULL) == 0);
	must(raise(SIGUSR1) == 0);
	must(handled == 2);
}

/* Its errors are its own: dlerror() says nothing of ours. */
static void beside_the_loader(void)
{
	must(!dlopen("/no/such/library.so", RTLD_NOW));
	refuse_here();
	must(strstr(dlerror(), "/no/such/library.so"));
	must(!dlerror());
}

int main(int argc, char **argv)
{
	struct timespec pause = { 1, 100000000 };
	int fd = dup(0);

	must(fd >= 0 && close(fd) == 0);
	if (argc > 1 && !strcmp(argv[1], "often")) {
		for (int i = 0; i < 20000; i++)
			refuse_here();
		return 0;
	}
	in_a_callback();
	deep_down(100);
	in_threads();
	in_handlers();
	beside_the_loader();
	/* Of ten in a second some may have been too many. */
	nanosleep(&pause, NULL);
	must(mmap(NULL, 512 * MIB, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
	/* What was loaded keeps no descriptor. */
	must(dup(0) == fd);
	return 0;
}
