/* SPDX-License-Identifier: MIT */
/*
 * A program with an allocator of its own, which then serves libc and all
 * libraries, too: it works, and what it maps is counted.
 */
#include <malloc.h>

#include "tests/preload/count.h"

#define ARENA ((size_t)64 << 20)
#define HEAD  16

static char *arena;
static size_t used;
static int served;

/* Never frees; that is all right for a test. */
static void *take(size_t align, size_t size)
{
	size_t at;
	char *p;

	if (!arena) {
		arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (arena == MAP_FAILED)
			_exit(99);
	}
	if (align < HEAD)
		align = HEAD;
	at = (used + HEAD + align - 1) & ~(align - 1);
	if (size > ARENA || at + size > ARENA) {
		errno = ENOMEM;
		return NULL;
	}
	p = arena + at;
	memcpy(p - HEAD, &size, sizeof(size));
	used = at + size;
	served++;
	return p;
}

/* For everybody: the tests are built with hidden symbols. */
#pragma GCC visibility push(default)

void *malloc(size_t size)
{
	return take(HEAD, size);
}

void *calloc(size_t n, size_t size)
{
	return take(HEAD, n * size);
}

size_t malloc_usable_size(void *p)
{
	size_t size = 0;

	if (p)
		memcpy(&size, (char *)p - HEAD, sizeof(size));
	return size;
}

void free(void *p)
{
	/* A block that isn't from here would be found out. */
	if (p && ((char *)p < arena || (char *)p >= arena + ARENA))
		_exit(98);
}

void *realloc(void *p, size_t size)
{
	char *q = take(HEAD, size);
	size_t old = malloc_usable_size(p);

	if (p && q)
		memcpy(q, p, old < size ? old : size);
	return q;
}

void *memalign(size_t align, size_t size)
{
	return take(align, size);
}

void *aligned_alloc(size_t align, size_t size)
{
	return take(align, size);
}

int posix_memalign(void **p, size_t align, size_t size)
{
	*p = take(align, size);
	return *p ? 0 : ENOMEM;
}

#pragma GCC visibility pop

int main(void)
{
	char *text = strdup("first");
	long before = accounted();
	long inside = heap();
	size_t len = 0;
	FILE *f;
	char *p;

	free(text);
	if (before < (long)ARENA / page())
		fail("%ld pages, its arena not among them", before);
	/* libc's own blocks are ours, and go back to us. */
	must(asprintf(&text, "%d", 12345) == 5);
	free(text);
	f = open_memstream(&text, &len);
	must(f && fputs("abc", f) >= 0 && fclose(f) == 0 && len == 3);
	free(text);
	free(strdup("abc"));
	must(served > 3);
	p = mmap(NULL, 100 * (size_t)page(), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(p != MAP_FAILED);
	if (accounted() != before + 100)
		fail("mapped 100 pages, counted %ld", accounted() - before);
	if (heap() > inside)
		fail("a heap that nobody uses grew by %ld", heap() - inside);
	return 0;
}
