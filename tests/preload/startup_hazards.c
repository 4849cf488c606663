/* SPDX-License-Identifier: MIT */
/*
 * What programs do before main() and after it: look symbols up that are there
 * or not, which allocates; register more exit handlers than libc has room for;
 * map memory in an IFUNC's resolver, before any constructor.  Nobody may hang,
 * recurse or be lost.
 */
#include <dlfcn.h>
#include <pthread.h>

#include "tests/preload/count.h"

/* libc has room for 32; then it allocates, with its lock held. */
#define HANDLERS 100

static int ran;
static char *of_resolver;

static int chosen(void)
{
	return 42;
}

__attribute__((used)) static int (*choose(void))(void)
{
	/* Not the heap: thread-local variables have no values yet. */
	of_resolver = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return chosen;
}

int indirect(void) __attribute__((ifunc("choose")));

static void look_up(void)
{
	/* A hit, an old version, a miss with its message, and a miss whose
	 * message is thrown away by the next. */
	if (!dlsym(RTLD_NEXT, "malloc") || !dlsym(RTLD_DEFAULT, "mmap"))
		fail("malloc and mmap are not found");
	dlvsym(RTLD_DEFAULT, "pthread_create", "GLIBC_2.2.5");
	if (dlsym(RTLD_DEFAULT, "there_is_no_such_symbol"))
		fail("found what isn't there");
	if (!dlerror())
		fail("a miss without a message");
	for (int i = 0; i < 3; i++)
		dlsym(RTLD_NEXT, "nor_is_there_this");
}

static void handler(void)
{
	free(malloc(1000));
	ran++;
}

static void last_handler(void)
{
	if (ran != HANDLERS)
		fail("%d of %d exit handlers ran", ran, HANDLERS);
	look_up();
}

static void *look_up_often(void *arg)
{
	for (int i = 0; i < 300; i++)
		look_up();
	return arg;
}

__attribute__((constructor(101))) static void first(void)
{
	look_up();
	must(atexit(last_handler) == 0);
	for (int i = 0; i < HANDLERS; i++)
		must(atexit(handler) == 0);
	look_up();
}

__attribute__((destructor(101))) static void last(void)
{
	look_up();
}

int main(void)
{
	pthread_t threads[3];
	void *shim = NULL;
	Dl_info info;

	must(indirect() == 42 && of_resolver != MAP_FAILED);
	must(munmap(of_resolver, 4096) == 0);
	for (int i = 0; i < 3; i++)
		must(!pthread_create(&threads[i], NULL, look_up_often, NULL));
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	/* Opened and closed, it stays: threads end in it. */
	if (dladdr(dlsym(RTLD_DEFAULT, "mallctl"), &info))
		shim = dlopen(info.dli_fname, RTLD_NOW);
	if (shim) {
		dlclose(shim);
		dlclose(shim);
	}
	free(malloc(100));
	return 0;
}
