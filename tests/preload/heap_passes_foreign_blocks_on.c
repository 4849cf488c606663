/* SPDX-License-Identifier: MIT */
/* Blocks that libc's own malloc made go back to it, through any of ours; and
 * ours are ours under all the names glibc has for them. */
#include <dlfcn.h>
#include <malloc.h>

#include "tests/preload/count.h"

static void *libc;

static void *find(const char *name)
{
	void *p = dlsym(libc, name);

	must(p);
	return p;
}

int main(void)
{
	void *(*theirs)(size_t);
	void *(*theirs_aligned)(size_t, size_t);
	void *(*side_malloc)(size_t);
	void (*side_free)(void *);

	libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
	must(libc);
	theirs = (void *(*)(size_t))find("malloc");
	theirs_aligned = (void *(*)(size_t, size_t))find("memalign");
	side_malloc = (void *(*)(size_t))dlsym(RTLD_DEFAULT, "__libc_malloc");
	side_free = (void (*)(void *))dlsym(RTLD_DEFAULT, "__libc_free");
	must(side_malloc && side_free);
	for (size_t size = 1; size < 2000000; size = size * 3 + 1) {
		char *p = theirs(size);

		must(p && malloc_usable_size(p) >= size);
		memset(p, 5, size);
		p = realloc(p, size * 2 + 100);
		must(p && p[size - 1] == 5);
		errno = EBADF;
		free(p);
		p = theirs_aligned(4096, size);
		must(p);
		free(p);
		must(errno == EBADF);

		p = side_malloc(size);
		must(p);
		free(p);
		side_free(malloc(size));
	}
	return 0;
}
