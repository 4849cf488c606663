/* SPDX-License-Identifier: MIT */
/*
 * malloc.c - the malloc family, and jemalloc's extended calls.
 *
 * The usual way is one byte tested before and one after jemalloc's own fast
 * path; pages are charged underneath, in heap.c.  What is refused there comes
 * back as NULL with MT_REFUSED set, and is tried again here, with no lock
 * held, for as long as the limit path gets somewhere.
 *
 * A pointer belongs to whom its address says: home memory goes through
 * jemalloc's plain calls and this thread's cache; another group's and
 * jemalloc's own past the cache, which would hand it out as home memory;
 * what isn't ours to the next allocator in line.
 */
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base.h"
#include "core/sys.h"
#include "preload/account.h"
#include "preload/heap.h"
#include "preload/jemalloc.h"
#include "preload/malloc.h"

void *__libc_realloc(void *p, size_t size);
void __libc_free(void *p);

/* Declared by no header of this libc. */
void cfree(void *p);
void free_sized(void *p, size_t size);
void free_aligned_sized(void *p, size_t align, size_t size);
void *mallocx(size_t size, int flags);
void *rallocx(void *p, size_t size, int flags);
size_t xallocx(void *p, size_t size, size_t extra, int flags);
size_t sallocx(const void *p, int flags);
void dallocx(void *p, int flags);
void sdallocx(void *p, size_t size, int flags);
size_t nallocx(size_t size, int flags);
int mallctl(const char *name, void *oldp, size_t *oldlen, void *newp,
	    size_t newlen);
int mallctlnametomib(const char *name, size_t *mib, size_t *miblen);
int mallctlbymib(const size_t *mib, size_t miblen, void *oldp, size_t *oldlen,
		 void *newp, size_t newlen);
void malloc_stats_print(void (*write)(void *, const char *), void *arg,
			const char *opts);

static void (*next_free)(void *) = __libc_free;
static void *(*next_realloc)(void *, size_t) = __libc_realloc;
static size_t (*next_usable_size)(void *);

void mt_malloc_resolve(void)
{
	void *(*find)(void *, const char *) = dlsym;
	void *p;

	next_usable_size =
		(size_t(*)(void *))find(RTLD_NEXT, "malloc_usable_size");
	/*
	 * A program linked with jemalloc has that next in line, idle: blocks
	 * that are not ours are libc's then, too.
	 */
	if (find(RTLD_NEXT, "mallocx"))
		return;
	p = find(RTLD_NEXT, "free");
	if (p)
		next_free = (void (*)(void *))p;
	p = find(RTLD_NEXT, "realloc");
	if (p)
		next_realloc = (void *(*)(void *, size_t))p;
}

static void *out_of_memory(void)
{
	errno = ENOMEM;
	return NULL;
}

/*
 * Evaluates @call until it gives memory, or the limit path gives up.  errno
 * is kept on success.
 */
#define RETRY(call)                                                            \
	({                                                                     \
		int saved_ = errno;                                            \
		unsigned round_ = 0;                                           \
		void *p_;                                                      \
                                                                               \
		do {                                                           \
			mt_flags &= (uint8_t)~MT_REFUSED;                      \
			p_ = (call);                                           \
		} while (!p_ && (mt_flags & MT_REFUSED) &&                     \
			 mt_account_round(round_++));                          \
		mt_flags &= (uint8_t)~MT_REFUSED;                              \
		if (p_)                                                        \
			errno = saved_;                                        \
		p_ ? p_ : out_of_memory();                                     \
	})

static MT_COLD void *malloc_slow(size_t size)
{
	uint32_t owner = mt_heap_entered;

	if (size == 0)
		size = 1;
	if (owner)
		return RETRY(je_mallocx(size, mt_heap_flags(owner)));
	return RETRY(je_malloc(size));
}

MT_EXPORT void *malloc(size_t size)
{
	void *p;

	if (likely(!mt_heap_entered)) {
		p = je_malloc(size);
		if (likely(p && !mt_flags))
			return p;
		if (p) {
			mt_flags &= (uint8_t)~MT_REFUSED;
			return p;
		}
	}
	return size > PTRDIFF_MAX ? out_of_memory() : malloc_slow(size);
}

static MT_COLD void *calloc_slow(size_t n, size_t size)
{
	uint32_t owner = mt_heap_entered;
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes) || bytes > PTRDIFF_MAX)
		return out_of_memory();
	if (owner)
		return RETRY(je_mallocx(MT_MAX(bytes, 1),
					mt_heap_flags(owner) | JE_ZERO));
	return RETRY(je_calloc(n, size));
}

MT_EXPORT void *calloc(size_t n, size_t size)
{
	void *p;

	if (likely(!mt_heap_entered)) {
		p = je_calloc(n, size);
		if (likely(p && !mt_flags))
			return p;
		if (p) {
			mt_flags &= (uint8_t)~MT_REFUSED;
			return p;
		}
	}
	return calloc_slow(n, size);
}

static MT_COLD void free_slow(void *p, uint32_t owner)
{
	if (!p)
		return;
	if (owner == MT_OWNER_NONE) {
		int saved = errno;

		next_free(p);
		errno = saved;
		return;
	}
	je_dallocx(p, JE_TCACHE_NONE);
}

MT_EXPORT void free(void *p)
{
	uint32_t owner = mt_slice_owner(p);

	if (likely(owner == MT_OWNER_HOME))
		je_free(p);
	else
		free_slow(p, owner);
}

MT_EXPORT void cfree(void *p)
{
	free(p);
}

MT_EXPORT void free_sized(void *p, size_t size MT_UNUSED)
{
	free(p);
}

MT_EXPORT void free_aligned_sized(void *p, size_t align MT_UNUSED,
				  size_t size MT_UNUSED)
{
	free(p);
}

MT_EXPORT void *realloc(void *p, size_t size)
{
	uint32_t owner;

	if (!p)
		return malloc(size);
	if (size == 0) {
		/* As glibc: that was a free. */
		free(p);
		return NULL;
	}
	owner = mt_slice_owner(p);
	if (unlikely(owner == MT_OWNER_NONE))
		return next_realloc(p, size);
	if (unlikely(size > PTRDIFF_MAX))
		return out_of_memory();
	/* The block stays with the owner it has. */
	if (unlikely(owner != MT_OWNER_HOME))
		return RETRY(je_rallocx(p, size, mt_heap_flags(owner)));
	if (unlikely(mt_heap_entered)) {
		/* The automatic cache would do, if it chose this arena. */
		return RETRY(je_rallocx(p, size, 0));
	}
	return RETRY(je_realloc(p, size));
}

MT_EXPORT void *reallocarray(void *p, size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes))
		return out_of_memory();
	return realloc(p, bytes);
}

static void *aligned(size_t align, size_t size)
{
	uint32_t owner = mt_heap_entered;
	int flags = owner ? mt_heap_flags(owner) : 0;

	if (size > PTRDIFF_MAX - align)
		return out_of_memory();
	if (size == 0)
		size = 1;
	return RETRY(je_mallocx(size, flags | JE_ALIGN(align)));
}

static bool power_of_two(size_t n)
{
	return n && !(n & (n - 1));
}

MT_EXPORT void *memalign(size_t align, size_t size)
{
	/* As glibc: an odd alignment is rounded up. */
	if (align > SIZE_MAX / 2 + 1) {
		errno = EINVAL;
		return NULL;
	}
	if (align < 16)
		align = 16;
	if (!power_of_two(align))
		align = (size_t)1 << (64 - __builtin_clzl(align));
	return aligned(align, size);
}

MT_EXPORT void *aligned_alloc(size_t align, size_t size)
{
	return memalign(align, size);
}

MT_EXPORT int posix_memalign(void **ret, size_t align, size_t size)
{
	int saved = errno;
	void *p;

	if (!power_of_two(align) || align % sizeof(void *))
		return EINVAL;
	p = aligned(align, size);
	errno = saved;
	if (!p)
		return ENOMEM;
	*ret = p;
	return 0;
}

MT_EXPORT void *valloc(size_t size)
{
	return aligned(mt_page_size(), size);
}

MT_EXPORT void *pvalloc(size_t size)
{
	size_t page = mt_page_size();

	if (size > PTRDIFF_MAX - page)
		return out_of_memory();
	return aligned(page, MT_MAX((size + page - 1) & ~(page - 1), page));
}

MT_EXPORT size_t malloc_usable_size(void *p)
{
	if (!p)
		return 0;
	if (unlikely(mt_slice_owner(p) == MT_OWNER_NONE))
		return next_usable_size ? next_usable_size(p) : 0;
	return je_malloc_usable_size(p);
}

/* glibc's questions about its heap, answered about ours. */

static size_t statistic(const char *name)
{
	uint64_t epoch = 1;
	size_t size = sizeof(epoch);
	size_t value = 0;

	if (je_mallctl("epoch", &epoch, &size, &epoch, size))
		return 0;
	size = sizeof(value);
	if (je_mallctl(name, &value, &size, NULL, 0))
		return 0;
	return value;
}

MT_EXPORT struct mallinfo2 mallinfo2(void)
{
	struct mallinfo2 info = { 0 };
	size_t active = statistic("stats.active");

	info.arena = active;
	info.uordblks = statistic("stats.allocated");
	info.fordblks = active - MT_MIN(info.uordblks, active);
	return info;
}

static int clamp(size_t n)
{
	return n > INT32_MAX ? INT32_MAX : (int)n;
}

MT_EXPORT struct mallinfo mallinfo(void)
{
	struct mallinfo2 wide = mallinfo2();
	struct mallinfo info = { 0 };

	info.arena = clamp(wide.arena);
	info.uordblks = clamp(wide.uordblks);
	info.fordblks = clamp(wide.fordblks);
	return info;
}

MT_EXPORT int mallopt(int param MT_UNUSED, int value MT_UNUSED)
{
	return 1;
}

MT_EXPORT int malloc_trim(size_t pad MT_UNUSED)
{
	int saved = errno;

	mt_heap_purge(MT_NONE);
	errno = saved;
	return 1;
}

MT_EXPORT void malloc_stats(void)
{
	je_malloc_stats_print(NULL, NULL, "gmdablxeh");
}

MT_EXPORT int malloc_info(int options, FILE *stream)
{
	if (options) {
		errno = EINVAL;
		return -1;
	}
	fprintf(stream,
		"<malloc version=\"1\">\n"
		"<system type=\"current\" size=\"%zu\"/>\n"
		"<total type=\"rest\" size=\"%zu\"/>\n</malloc>\n",
		statistic("stats.active"), statistic("stats.allocated"));
	return 0;
}

/*
 * jemalloc's extended calls, for programs that are linked with it: they must
 * see one allocator.  Explicit arenas and caches of theirs are honoured; those
 * arenas are made with our hooks too.
 */

MT_EXPORT void *mallocx(size_t size, int flags)
{
	uint32_t owner = mt_heap_entered;

	if (owner && !(flags & ~0xff))
		flags |= mt_heap_flags(owner);
	return RETRY(je_mallocx(size, flags));
}

MT_EXPORT void *rallocx(void *p, size_t size, int flags)
{
	uint32_t owner = mt_slice_owner(p);

	if (owner != MT_OWNER_HOME)
		flags |= mt_heap_flags(owner);
	return RETRY(je_rallocx(p, size, flags));
}

MT_EXPORT size_t xallocx(void *p, size_t size, size_t extra, int flags)
{
	size_t now = je_xallocx(p, size, extra, flags);

	mt_flags &= (uint8_t)~MT_REFUSED;
	return now;
}

MT_EXPORT size_t sallocx(const void *p, int flags)
{
	return je_sallocx(p, flags);
}

MT_EXPORT void dallocx(void *p, int flags)
{
	uint32_t owner = mt_slice_owner(p);

	if (owner == MT_OWNER_HOME)
		je_dallocx(p, flags);
	else
		free_slow(p, owner);
}

MT_EXPORT void sdallocx(void *p, size_t size MT_UNUSED, int flags)
{
	dallocx(p, flags);
}

MT_EXPORT size_t nallocx(size_t size, int flags)
{
	return je_nallocx(size, flags);
}

MT_EXPORT int mallctl(const char *name, void *oldp, size_t *oldlen, void *newp,
		      size_t newlen)
{
	return je_mallctl(name, oldp, oldlen, newp, newlen);
}

MT_EXPORT int mallctlnametomib(const char *name, size_t *mib, size_t *miblen)
{
	return je_mallctlnametomib(name, mib, miblen);
}

MT_EXPORT int mallctlbymib(const size_t *mib, size_t miblen, void *oldp,
			   size_t *oldlen, void *newp, size_t newlen)
{
	return je_mallctlbymib(mib, miblen, oldp, oldlen, newp, newlen);
}

MT_EXPORT void malloc_stats_print(void (*write)(void *, const char *),
				  void *arg, const char *opts)
{
	je_malloc_stats_print(write, arg, opts);
}
