/* SPDX-License-Identifier: MIT */
/*
 * Libraries opened and closed by threads that allocate: with thread-local
 * storage, so that the loader frees its tables through us; with constructors
 * that allocate; with an allocator of their own; in a namespace of their own,
 * with a second libc.  The companion script builds them: argv[1] is the folder.
 */
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>

#include "tests/preload/count.h"

#define THREADS 4
#define ROUNDS  60

static const char *folder;

static void *open_library(const char *name, int flags)
{
	char path[4096];
	void *library;

	snprintf(path, sizeof(path), "%s/%s.so", folder, name);
	library = dlopen(path, flags);
	if (!library)
		fail("%s", dlerror());
	return library;
}

static void *find(void *library, const char *name)
{
	void *p = dlsym(library, name);

	if (!p)
		fail("no %s", name);
	return p;
}

static void *churn(void *arg)
{
	static const char *names[] = { "tls1", "tls2", "tls3" };
	size_t seed = (size_t)arg;

	for (int i = 0; i < ROUNDS; i++) {
		void *library =
			open_library(names[(seed + (size_t)i) % 3], RTLD_LAZY);
		char *(*touch)(size_t) =
			(char *(*)(size_t))find(library, "touch");
		char *kept = touch(seed);
		char *p = malloc(seed * 100);

		must(p && kept[0] == (char)seed);
		p = realloc(p, seed * 5000);
		must(p);
		free(p);
		free(malloc((size_t)i * 1000));
		dlclose(library);
	}
	return NULL;
}

/* It has a malloc inside; what crosses its border is ours. */
static void own_allocator(void)
{
	void *library = open_library("own", RTLD_NOW);
	char *(*work)(void) = (char *(*)(void))find(library, "work");
	char *text = work();

	must(strcmp(text, "made by strdup") == 0);
	free(text);
	dlclose(library);
}

static void another_libc(void)
{
	void *libc = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);
	void *(*their_malloc)(size_t);
	void *(*their_realloc)(void *, size_t);
	void (*their_free)(void *);
	void *blocks[100];
	long before = heap();

	if (!libc)
		return; /* no static thread-local storage left for it */
	their_malloc = (void *(*)(size_t))find(libc, "malloc");
	their_realloc = (void *(*)(void *, size_t))find(libc, "realloc");
	their_free = (void (*)(void *))find(libc, "free");
	for (size_t i = 0; i < 100; i++) {
		must(blocks[i] = their_malloc(i * i * 50));
		memset(blocks[i], 1, i * i * 50);
		free(malloc(i * 1000));
	}
	for (size_t i = 0; i < 100; i++)
		their_free(their_realloc(blocks[i], i * 10));
	malloc_trim(0);
	if (heap() > before + left_over())
		fail("its blocks count as ours: %ld pages", heap() - before);
	dlclose(libc);
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	long before = 0;

	if (argc < 2)
		return SKIP;
	folder = argv[1];
	for (int round = 0; round < 4; round++) {
		for (size_t i = 0; i < THREADS; i++)
			must(!pthread_create(&threads[i], NULL, churn,
					     (void *)(i + 1)));
		for (int i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
		own_allocator();
		malloc_trim(0);
		if (round == 1)
			before = heap();
	}
	if (heap() > before + left_over())
		fail("%ld pages are left", heap() - before);
	another_libc();
	return 0;
}
