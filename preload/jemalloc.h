/* SPDX-License-Identifier: MIT */
/*
 * jemalloc.h - what we call of the jemalloc that is linked in, under the
 * names that preload/jemalloc.syms gives it.  Semantics: jemalloc(3).
 */
#ifndef MT_PRELOAD_JEMALLOC_H
#define MT_PRELOAD_JEMALLOC_H

#include <stdbool.h>
#include <stddef.h>

void *je_malloc(size_t size);
void *je_calloc(size_t n, size_t size);
void *je_realloc(void *p, size_t size);
void je_free(void *p);
void *je_memalign(size_t align, size_t size);
void *je_aligned_alloc(size_t align, size_t size);
int je_posix_memalign(void **p, size_t align, size_t size);
size_t je_malloc_usable_size(void *p);
void *je_mallocx(size_t size, int flags);
void *je_rallocx(void *p, size_t size, int flags);
size_t je_xallocx(void *p, size_t size, size_t extra, int flags);
size_t je_sallocx(const void *p, int flags);
void je_dallocx(void *p, int flags);
void je_sdallocx(void *p, size_t size, int flags);
size_t je_nallocx(size_t size, int flags);
int je_mallctl(const char *name, void *oldp, size_t *oldlen, void *newp,
	       size_t newlen);
int je_mallctlnametomib(const char *name, size_t *mib, size_t *miblen);
int je_mallctlbymib(const size_t *mib, size_t miblen, void *oldp,
		    size_t *oldlen, void *newp, size_t newlen);
void je_malloc_stats_print(void (*write)(void *, const char *), void *arg,
			   const char *opts);
void je_jemalloc_prefork(void);
void je_jemalloc_postfork_parent(void);
void je_jemalloc_postfork_child(void);

extern const char *je_malloc_conf;

#define JE_TCACHE_NONE 0x100
#define JE_ZERO        0x40
#define JE_ARENA(a)    ((((int)(a)) + 1) << 20)
#define JE_ALIGN(a)    ((int)__builtin_ctzl(a))

/* The table of extent hooks, in jemalloc's order. */
struct je_hooks {
	void *(*alloc)(struct je_hooks *hooks, void *addr, size_t size,
		       size_t align, bool *zero, bool *commit, unsigned arena);
	bool (*dalloc)(struct je_hooks *hooks, void *addr, size_t size,
		       bool committed, unsigned arena);
	void (*destroy)(struct je_hooks *hooks, void *addr, size_t size,
			bool committed, unsigned arena);
	bool (*commit)(struct je_hooks *hooks, void *addr, size_t size,
		       size_t offset, size_t len, unsigned arena);
	bool (*decommit)(struct je_hooks *hooks, void *addr, size_t size,
			 size_t offset, size_t len, unsigned arena);
	bool (*purge_lazy)(struct je_hooks *hooks, void *addr, size_t size,
			   size_t offset, size_t len, unsigned arena);
	bool (*purge_forced)(struct je_hooks *hooks, void *addr, size_t size,
			     size_t offset, size_t len, unsigned arena);
	bool (*split)(struct je_hooks *hooks, void *addr, size_t size, size_t a,
		      size_t b, bool committed, unsigned arena);
	bool (*merge)(struct je_hooks *hooks, void *a, size_t size_a, void *b,
		      size_t size_b, bool committed, unsigned arena);
};

/* How an arena is made. */
struct je_arena_config {
	struct je_hooks *hooks;
	bool metadata_use_hooks;
};

#endif
