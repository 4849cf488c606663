/* SPDX-License-Identifier: MIT */
/*
 * Every form of C++'s new and delete meets the same heap as malloc, with or
 * without a C++ library in the process: here there is none.
 */
#include <dlfcn.h>
#include <malloc.h>
#include <stdint.h>

#include "tests/preload/count.h"

#define N 200

static void *find(const char *name)
{
	void *p = dlsym(RTLD_DEFAULT, name);

	if (!p)
		fail("no %s", name);
	return p;
}

typedef void *new_fn(size_t);
typedef void *new_nothrow_fn(size_t, const void *);
typedef void *new_aligned_fn(size_t, size_t);
typedef void *new_aligned_nothrow_fn(size_t, size_t, const void *);
typedef void delete_fn(void *);
typedef void delete_sized_fn(void *, size_t);

/* The letter: w, a for one and for arrays; l, a to delete. */
static void *make(int form, int array, size_t size)
{
	static const char token;

	switch (form) {
	case 0:
		return ((new_fn *)find(array ? "_Znam" : "_Znwm"))(size);
	case 1:
		return ((new_nothrow_fn *)find(array ? "_ZnamRKSt9nothrow_t"
						     : "_ZnwmRKSt9nothrow_t"))(
			size, &token);
	case 2:
		return ((new_aligned_fn *)find(array ? "_ZnamSt11align_val_t"
						     : "_ZnwmSt11align_val_t"))(
			size, 256);
	default:
		return ((new_aligned_nothrow_fn *)find(
			array ? "_ZnamSt11align_val_tRKSt9nothrow_t"
			      : "_ZnwmSt11align_val_tRKSt9nothrow_t"))(
			size, 256, &token);
	}
}

static void unmake(int form, int array, void *p, size_t size)
{
	if (form % 2)
		((delete_sized_fn *)find(array ? "_ZdaPvm" : "_ZdlPvm"))(p,
									 size);
	else
		((delete_fn *)find(array ? "_ZdaPv" : "_ZdlPv"))(p);
}

int main(void)
{
	static char *blocks[N];
	volatile size_t huge = SIZE_MAX - 100;
	long before = heap();

	for (int kind = 0; kind < 8; kind++) {
		int form = kind / 2;
		int array = kind % 2;
		long want = N * 20000 / page();
		long now;

		for (int i = 0; i < N; i++) {
			must(blocks[i] = make(form, array, 20000));
			memset(blocks[i], 1, 20000);
			if (form >= 2)
				must((uintptr_t)blocks[i] % 256 == 0);
			must(malloc_usable_size(blocks[i]) >= 20000);
		}
		now = heap() - before;
		if (now < want || now > want * 5 / 4 + left_over())
			fail("kind %d: %ld pages, not %ld", kind, now, want);
		for (int i = 0; i < N; i++) {
			if (i % 3)
				unmake(form, array, blocks[i], 20000);
			else
				free(blocks[i]);
		}
		unmake(form, array, malloc(20000), 20000);
		unmake(form, array, NULL, 20000);
		malloc_trim(0);
		if (heap() > before + left_over())
			fail("kind %d left %ld pages", kind, heap() - before);
	}
	must(!make(1, 0, huge) && !make(1, 1, huge));
	must(!make(3, 0, huge) && !make(3, 1, huge));
	return 0;
}
