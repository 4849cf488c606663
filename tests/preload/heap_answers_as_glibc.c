/* SPDX-License-Identifier: MIT */
/* Zero, odd, huge: where allocators differ, programs get what glibc does; and
 * errno is only set by what fails. */
#include <malloc.h>
#include <stdint.h>

#include "tests/preload/count.h"

static void expect_enomem(void *p)
{
	must(!p && errno == ENOMEM);
	errno = EBADF;
}

int main(void)
{
	void *(*volatile again)(void *, size_t, size_t) = reallocarray;
	volatile size_t huge = SIZE_MAX - 100;
	volatile size_t half = (size_t)PTRDIFF_MAX + 1;
	char *a = malloc(0);
	char *b = malloc(0);
	char *p;
	void *q = a;

	errno = EBADF;
	must(a && b && a != b);
	free(a);
	free(b);
	free(NULL);
	must(realloc(malloc(10), 0) == NULL && errno == EBADF);
	p = realloc(NULL, 0);
	must(p);
	free(p);
	p = calloc(0, 5);
	must(p);
	free(p);

	expect_enomem(malloc(huge));
	expect_enomem(malloc(half));
	expect_enomem(calloc(half, 2));
	expect_enomem(calloc(huge, huge));
	p = malloc(100);
	p[99] = 9;
	expect_enomem(realloc(p, huge));
	expect_enomem(again(p, half, 2));
	must(p[99] == 9);
	free(p);
	expect_enomem(memalign(4096, huge));
	expect_enomem(aligned_alloc(64, half));
	expect_enomem(valloc(huge));
	expect_enomem(pvalloc(huge));

	must(posix_memalign(&q, 3, 10) == EINVAL && q == a);
	must(posix_memalign(&q, 4, 10) == EINVAL && q == a);
	must(posix_memalign(&q, 16, half) == ENOMEM && q == a);
	must(errno == EBADF);
	for (size_t align = 1; align <= (size_t)1 << 22;
	     align = align * 3 / 2 + 1) {
		size_t power = 16;

		while (power < align)
			power *= 2;
		for (size_t size = 0; size < 300000; size = size * 5 + 1) {
			p = memalign(align, size);
			must(p && (uintptr_t)p % power == 0);
			must(malloc_usable_size(p) >= size);
			memset(p, 1, size);
			free(p);
			p = aligned_alloc(align, size);
			must(p && (uintptr_t)p % power == 0);
			p = realloc(p, size + 1000);
			must(p);
			free(p);
		}
	}
	p = pvalloc(1);
	must((uintptr_t)p % (size_t)page() == 0);
	must(malloc_usable_size(p) >= (size_t)page());
	free(p);
	must(malloc_usable_size(NULL) == 0);
	must(errno == EBADF);
	return 0;
}
