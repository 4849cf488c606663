/* SPDX-License-Identifier: MIT */
/*
 * malloc.c - the malloc family, and jemalloc's extended calls.
 *
 * The usual way is one byte tested before jemalloc's own fast path and the
 * result after; pages are charged underneath, in heap.c.  What is refused
 * there comes back as NULL with MT_REFUSED set, and is tried again here, with
 * no lock held, for as long as the limit path gets somewhere.
 *
 * A pointer belongs to whom its address says: home memory goes through
 * jemalloc's plain calls and this thread's cache; another group's past that
 * cache, which would hand it out as home memory; what isn't ours to the next
 * allocator in line.
 *
 * Where jemalloc and glibc differ, programs get what glibc does: realloc(p, 0)
 * is a free, odd alignments are rounded up.  One difference stays: blocks of
 * up to 8 bytes are aligned to 8 bytes, not 16.
 *
 * jemalloc can't reach errno (jemalloc_sys.c), so it is kept by itself unless
 * it is set here.
 */
#include "preload/malloc.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/atomic.h"
#include "core/base.h"
#include "core/sys.h"
#include "preload/account.h"
#include "preload/heap.h"
#include "preload/jemalloc.h"
#include "preload/limit.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

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

/* The next allocator in line, for what isn't ours. */
static void (*next_free)(void *);
static void *(*next_realloc)(void *, size_t);
static size_t (*next_usable_size)(void *);

void mt_malloc_resolve(void)
{
	static _Atomic uint32_t begun;
	void *from = RTLD_NEXT;
	Dl_info info;
	void *p;

	if (exchange_seq_cst(&begun, 1))
		return;
	p = dlsym(from, "free");
	/*
	 * A program linked with jemalloc has that next in line, idle, for all
	 * its calls end here: what isn't ours is libc's then, too.  Nothing is
	 * looked up that might not be there: dlsym() would allocate a message
	 * and free it in the next call, perhaps through a library that wraps
	 * free() and calls dlsym() in it.
	 */
	if (p && dladdr(p, &info) && info.dli_fname &&
	    strstr(info.dli_fname, "libjemalloc")) {
		from = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
		if (!from)
			return;
		p = dlsym(from, "free");
	}
	next_free = (void (*)(void *))p;
	next_realloc = (void *(*)(void *, size_t))dlsym(from, "realloc");
	next_usable_size = (size_t(*)(void *))dlsym(from, "malloc_usable_size");
}

static void *out_of_memory(void)
{
	errno = ENOMEM;
	return NULL;
}

static inline void forget_refusal(void)
{
	mt_flags &= (uint8_t)~MT_REFUSED;
}

/* Before a call, with a flag set. */
static MT_COLD void look_at_flags(void)
{
	/* A refusal that did no harm, because a cache only got less than it
	 * wanted: it would bar the way to new address space. */
	forget_refusal();
	if (mt_flags & MT_LATER)
		mt_limit_later(true);
}

/* A call gave NULL.  Is it to be made again? */
static MT_COLD bool again(struct mt_limit_rounds *rounds)
{
	bool better = (mt_flags & MT_REFUSED) && mt_limit_round(rounds);

	forget_refusal();
	return better;
}

/* Makes a call until it gives memory or the limit path gives up. */
#define RETRY(call)                                                            \
	({                                                                     \
		void *p_;                                                      \
                                                                               \
		if (unlikely(mt_flags))                                        \
			look_at_flags();                                       \
		p_ = (call);                                                   \
		if (unlikely(!p_)) {                                           \
			struct mt_limit_rounds rounds_ = { 0 };                \
                                                                               \
			while (!p_ && again(&rounds_))                         \
				p_ = (call);                                   \
		}                                                              \
		likely(p_) ? p_ : out_of_memory();                             \
	})

/* The usual way found a flag set, or no memory. */
static MT_COLD void *malloc_slow(size_t size)
{
	int flags;

	if (!(mt_flags & MT_ELSEWHERE))
		return RETRY(je_malloc(size));
	if (size > PTRDIFF_MAX)
		return out_of_memory();
	flags = mt_heap_flags(mt_heap_entered);
	return RETRY(je_mallocx(size ? size : 1, flags));
}

static MT_COLD void *malloc_failed(size_t size)
{
	struct mt_limit_rounds rounds = { 0 };
	void *p = NULL;

	while (!p && again(&rounds))
		p = je_malloc(size);
	return p ? p : out_of_memory();
}

/*
 * These two are most of what accounting costs, so they are kept to a dozen
 * instructions: no frame (jemalloc has none either), and the size, wanted
 * only after a failure, goes to the stack, not to a register to be saved.
 */
#if defined(__GNUC__) && !defined(__clang__)
#define LEAN __attribute__((optimize("omit-frame-pointer"), aligned(64)))
#else
#define LEAN __attribute__((aligned(64)))
#endif

MT_EXPORT LEAN void *malloc(size_t size)
{
	volatile size_t kept;
	void *p;

	if (unlikely(mt_flags))
		return malloc_slow(size);
	kept = size;
	p = je_malloc(size);
	return likely(p) ? p : malloc_failed(kept);
}

static MT_COLD void *calloc_elsewhere(size_t n, size_t size)
{
	int flags = mt_heap_flags(mt_heap_entered) | JE_ZERO;
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes) || bytes > PTRDIFF_MAX)
		return out_of_memory();
	return RETRY(je_mallocx(bytes ? bytes : 1, flags));
}

MT_EXPORT void *calloc(size_t n, size_t size)
{
	if (unlikely(mt_flags & MT_ELSEWHERE))
		return calloc_elsewhere(n, size);
	return RETRY(je_calloc(n, size));
}

static void free_foreign(void *p)
{
	int saved = errno;

	if (unlikely(!next_free))
		mt_malloc_resolve();
	/* Found nothing, or still looking: then the block is lost. */
	if (next_free)
		next_free(p);
	errno = saved;
}

static MT_COLD void free_slow(void *p)
{
	uint32_t owner = mt_slice_owner(p);

	if (!p)
		return;
	if (owner == MT_OWNER_HOME)
		je_free(p);
	else if (owner == MT_OWNER_NONE)
		free_foreign(p);
	else
		je_dallocx(p, mt_heap_flags(owner));
}

MT_EXPORT LEAN void free(void *p)
{
	if (likely(mt_slice_is_home(p)))
		je_free(p);
	else
		free_slow(p);
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

/*
 * A large block grows: in place if it can; else its pages are moved, not
 * copied, as glibc does.  The old range stays mapped and committed, without
 * pages, until jemalloc uses it again or gives it back.  (A buffer that grows
 * to 150 MiB in steps: 0.09 s, with copying 0.52, glibc 0.08.)
 *
 * Smaller blocks would leave too many small mappings behind.
 */
#define MOVE_MIN (UINT64_C(1) << 20)

/* The pages of @p become the first of @q, which loses its own.  Return:
 * done? */
static bool move_pages(void *q, size_t q_len, void *p, size_t len)
{
	void *r;

	/*
	 * By way of a free address: with @q for a target a refusal might come
	 * after @q was unmapped.  This one leaves everything as it was: @p is
	 * not one mapping, no address space, before Linux 5.7.
	 */
	r = (void *)mt_syscall6(SYS_mremap, (long)p, (long)len, (long)len,
				MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0, 0);
	if (mt_sys_is_error(r))
		return false;
	/* All of @q becomes one mapping, for the next time. */
	if (likely(mt_syscall6(SYS_mremap, (long)r, (long)len, (long)q_len,
			       MREMAP_MAYMOVE | MREMAP_FIXED, (long)q,
			       0) == (long)q))
		return true;
	/* Locked memory beyond its limit, or no kernel memory. */
	mt_sys_mmap(q, q_len, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
		    0);
	memcpy(q, r, len);
	mt_sys_munmap(r, len);
	return true;
}

static void *grow(void *p, size_t size)
{
	size_t usable = je_sallocx(p, 0);
	void *q;

	if (size <= usable || usable < MOVE_MIN)
		return RETRY(je_realloc(p, size));
	if (je_xallocx(p, size, 0, 0) >= size)
		return p;
	q = RETRY(je_malloc(size));
	if (!q)
		return NULL;
	if (!move_pages(q, je_sallocx(q, 0), p, usable))
		memcpy(q, p, usable);
	je_free(p);
	return q;
}

static MT_COLD void *realloc_elsewhere(void *p, size_t size)
{
	uint32_t owner = mt_slice_owner(p);
	int flags;

	if (owner == MT_OWNER_HOME)
		return RETRY(je_realloc(p, size));
	if (owner == MT_OWNER_NONE) {
		if (unlikely(!next_realloc))
			mt_malloc_resolve();
		return next_realloc ? next_realloc(p, size) : out_of_memory();
	}
	if (size > PTRDIFF_MAX)
		return out_of_memory();
	/* The block stays with the owner it has. */
	flags = mt_heap_flags(owner);
	return RETRY(je_rallocx(p, size, flags));
}

MT_EXPORT void *realloc(void *p, size_t size)
{
	if (!p)
		return malloc(size);
	if (unlikely(size == 0)) {
		/* As glibc: that was a free. */
		free(p);
		return NULL;
	}
	if (unlikely(!mt_slice_is_home(p)))
		return realloc_elsewhere(p, size);
	if (unlikely(size > MOVE_MIN))
		return grow(p, size);
	return RETRY(je_realloc(p, size));
}

static void *aligned(size_t align, size_t size)
{
	uint32_t owner = mt_heap_entered;
	int flags = owner ? mt_heap_flags(owner) : 0;

	if (unlikely(size > PTRDIFF_MAX - align))
		return NULL;
	flags |= JE_ALIGN(align);
	return RETRY(je_mallocx(size ? size : 1, flags));
}

static bool power_of_two(size_t n)
{
	return n && !(n & (n - 1));
}

MT_EXPORT void *memalign(size_t align, size_t size)
{
	void *p;

	/* As glibc: an odd alignment is rounded up. */
	if (align > SIZE_MAX / 2 + 1) {
		errno = EINVAL;
		return NULL;
	}
	if (align < _Alignof(max_align_t))
		align = _Alignof(max_align_t);
	if (!power_of_two(align))
		align = (size_t)1 << (64 - __builtin_clzl(align));
	p = aligned(align, size);
	return p ? p : out_of_memory();
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
	if (!p) {
		errno = saved;
		return ENOMEM;
	}
	*ret = p;
	return 0;
}

MT_EXPORT void *reallocarray(void *p, size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes))
		return out_of_memory();
	return realloc(p, bytes);
}

MT_EXPORT void *valloc(size_t size)
{
	return memalign(mt_page_size(), size);
}

MT_EXPORT void *pvalloc(size_t size)
{
	size_t page = mt_page_size();

	if (size > PTRDIFF_MAX - page)
		return out_of_memory();
	return memalign(page, MT_MAX((size + page - 1) & ~(page - 1), page));
}

MT_EXPORT size_t malloc_usable_size(void *p)
{
	if (unlikely(!p))
		return 0;
	if (unlikely(mt_slice_owner(p) == MT_OWNER_NONE)) {
		if (unlikely(!next_usable_size))
			mt_malloc_resolve();
		return next_usable_size ? next_usable_size(p) : 0;
	}
	return je_malloc_usable_size(p);
}

/*
 * The side doors: glibc offers its functions under these names too, and some
 * programs' own wrappers call them.  Blocks go in and out through any of them.
 */
#define ALIAS(of)                                                              \
	MT_EXPORT __typeof__(of) __libc_##of __attribute__((alias(#of)))
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wunknown-warning-option"
#pragma GCC diagnostic ignored "-Wmissing-attributes"
ALIAS(malloc);
ALIAS(calloc);
ALIAS(realloc);
ALIAS(free);
ALIAS(memalign);
ALIAS(valloc);
ALIAS(pvalloc);
#pragma GCC diagnostic pop

/* glibc's questions about its heap, answered about ours. */

static void renew_statistics(void)
{
	uint64_t epoch = 1;
	size_t size = sizeof(epoch);

	je_mallctl("epoch", &epoch, &size, &epoch, size);
}

static size_t statistic(const char *name)
{
	size_t value = 0;
	size_t size = sizeof(value);

	if (je_mallctl(name, &value, &size, NULL, 0))
		return 0;
	return value;
}

MT_EXPORT struct mallinfo2 mallinfo2(void)
{
	struct mallinfo2 info = { 0 };
	size_t active;

	renew_statistics();
	active = statistic("stats.active");
	info.arena = active;
	info.uordblks = statistic("stats.allocated");
	info.fordblks = active - MT_MIN(info.uordblks, active);
	return info;
}

/* glibc's own lets large numbers wrap. */
MT_EXPORT struct mallinfo mallinfo(void)
{
	struct mallinfo2 wide = mallinfo2();
	struct mallinfo info = { 0 };

	info.arena = (int)wide.arena;
	info.uordblks = (int)wide.uordblks;
	info.fordblks = (int)wide.fordblks;
	return info;
}

MT_EXPORT int mallopt(int param MT_UNUSED, int value MT_UNUSED)
{
	return 1;
}

MT_EXPORT int malloc_trim(size_t pad MT_UNUSED)
{
	return mt_heap_purge(MT_NONE) > 0;
}

MT_EXPORT void malloc_stats(void)
{
	struct mallinfo2 info = mallinfo2();

	fprintf(stderr,
		"memtally heap:\nsystem bytes     = %10zu\n"
		"in use bytes     = %10zu\n",
		info.arena, info.uordblks);
}

MT_EXPORT int malloc_info(int options, FILE *stream)
{
	struct mallinfo2 info;

	if (options) {
		errno = EINVAL;
		return -1;
	}
	info = mallinfo2();
	fprintf(stream,
		"<malloc version=\"1\">\n"
		"<total type=\"rest\" count=\"0\" size=\"%zu\"/>\n"
		"<system type=\"current\" size=\"%zu\"/>\n</malloc>\n",
		info.fordblks, info.arena);
	return 0;
}

/*
 * jemalloc's extended calls, for programs that are linked with it: they must
 * see one allocator.  Explicit arenas and caches of theirs are honoured;
 * such arenas have our hooks and are the home group's.
 */

static int where(uint32_t owner, int flags)
{
	if (owner >= MT_OWNER_GROUPS && !(flags & JE_WHERE))
		flags |= mt_heap_flags(owner);
	return flags;
}

MT_EXPORT void *mallocx(size_t size, int flags)
{
	flags = where(mt_heap_entered, flags);
	return RETRY(je_mallocx(size, flags));
}

MT_EXPORT void *rallocx(void *p, size_t size, int flags)
{
	flags = where(mt_slice_owner(p), flags);
	return RETRY(je_rallocx(p, size, flags));
}

MT_EXPORT size_t xallocx(void *p, size_t size, size_t extra, int flags)
{
	size_t now = je_xallocx(p, size, extra, flags);

	/* No more is promised than a try. */
	forget_refusal();
	return now;
}

MT_EXPORT size_t sallocx(const void *p, int flags)
{
	return je_sallocx(p, flags);
}

MT_EXPORT void dallocx(void *p, int flags)
{
	uint32_t owner = mt_slice_owner(p);

	if (unlikely(owner == MT_OWNER_NONE))
		free_foreign(p);
	else
		je_dallocx(p, where(owner, flags));
}

MT_EXPORT void sdallocx(void *p, size_t size, int flags)
{
	uint32_t owner = mt_slice_owner(p);

	if (unlikely(owner == MT_OWNER_NONE))
		free_foreign(p);
	else
		je_sdallocx(p, size, where(owner, flags));
}

MT_EXPORT size_t nallocx(size_t size, int flags)
{
	return je_nallocx(size, flags);
}

/* Hooks other than ours would take memory that nobody counts. */
static bool sets_hooks(const char *name)
{
	size_t len = strlen(name);

	return strcmp(name, "arenas.create") == 0 ||
	       strcmp(name, "experimental.arenas_create_ext") == 0 ||
	       (len > 13 && strncmp(name, "arena.", 6) == 0 &&
		strcmp(name + len - 13, ".extent_hooks") == 0);
}

MT_EXPORT int mallctl(const char *name, void *oldp, size_t *oldlen, void *newp,
		      size_t newlen)
{
	if (newp && sets_hooks(name))
		return EPERM;
	/* We start no threads; cached pages go back with later calls. */
	if (newp && strcmp(name, "background_thread") == 0) {
		newp = NULL;
		newlen = 0;
	}
	return je_mallctl(name, oldp, oldlen, newp, newlen);
}

MT_EXPORT int mallctlnametomib(const char *name, size_t *mib, size_t *miblen)
{
	return je_mallctlnametomib(name, mib, miblen);
}

static bool same_mib(const size_t *mib, size_t miblen, const char *name)
{
	size_t other[4];
	size_t len = MT_ARRAY_SIZE(other);

	if (je_mallctlnametomib(name, other, &len) || len != miblen)
		return false;
	/* The arena's number is free. */
	return mib[0] == other[0] &&
	       (len < 2 || len == 3 || mib[1] == other[1]) &&
	       (len < 3 || mib[2] == other[2]);
}

MT_EXPORT int mallctlbymib(const size_t *mib, size_t miblen, void *oldp,
			   size_t *oldlen, void *newp, size_t newlen)
{
	if (newp && (same_mib(mib, miblen, "arenas.create") ||
		     same_mib(mib, miblen, "experimental.arenas_create_ext") ||
		     same_mib(mib, miblen, "arena.0.extent_hooks")))
		return EPERM;
	if (newp && same_mib(mib, miblen, "background_thread")) {
		newp = NULL;
		newlen = 0;
	}
	return je_mallctlbymib(mib, miblen, oldp, oldlen, newp, newlen);
}

MT_EXPORT void malloc_stats_print(void (*write)(void *, const char *),
				  void *arg, const char *opts)
{
	je_malloc_stats_print(write, arg, opts);
}
