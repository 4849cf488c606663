/* SPDX-License-Identifier: MIT */
/*
 * jemalloc.h - what we call of the jemalloc that is linked in, under the
 * names that preload/jemalloc.syms gives it.  Semantics: jemalloc(3).
 */
#ifndef MT_PRELOAD_JEMALLOC_H
#define MT_PRELOAD_JEMALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "preload/account.h"

void *je_malloc(size_t size);
void *je_calloc(size_t n, size_t size);
void *je_realloc(void *p, size_t size);
void je_free(void *p);
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

/* Its options; weak in jemalloc, defined in heap.c. */
extern const char *je_malloc_conf;

/* Not public: arenas, by index; what they hold, in pages; and purging what
 * is ripe, or all. */
extern void *_Atomic je_arenas[];
unsigned je_narenas_total_get(void);
void je_arena_basic_stats_merge(void *tsd, void *arena, unsigned *threads,
				const char **dss, ssize_t *dirty_ms,
				ssize_t *muzzy_ms, size_t *active,
				size_t *dirty, size_t *muzzy);
void je_arena_decay(void *tsd, void *arena, bool background, bool all);

/* Not public: a thread has freed 64 KiB, at least. */
void je_tcache_gc_dalloc_event_handler(void *tsd, uint64_t elapsed);

/* Not public: the size from which arenas give free spans back at once, as long
 * as the option was not looked at. */
extern size_t je_oversize_threshold;
/* An option without a name: large blocks start anywhere in a page. */
extern bool je_opt_cache_oblivious;

/* Not public: the steps of a fork, and a thread's state. */
void je_jemalloc_prefork(void);
void je_jemalloc_postfork_parent(void);
void je_jemalloc_postfork_child(void);
extern MT_TLS char je_tsd_tls[];
void *je_tsd_fetch_slow(void *tsd, bool minimal);

/* Flags of the extended calls. */
#define JE_ALIGN(a)     __builtin_ctzl(a)
#define JE_ZERO         0x40
#define JE_TCACHE_NONE  0x100
#define JE_TCACHE(id)   (((int)(id) + 2) << 8)
#define JE_ARENA(index) (((int)(index) + 1) << 20)
#define JE_WHERE        (~0xff) /* arena and cache */

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

/* With what an arena is made. */
struct je_arena_config {
	struct je_hooks *hooks;
	bool metadata_use_hooks;
};

/* What we put in the place of its own; see jemalloc.mk.  Reached without a
 * detour, so they must not be seen outside. */
#pragma GCC visibility push(hidden)
extern const struct je_arena_config je_arena_config_default;
extern struct je_hooks mt_je_hooks;
unsigned mt_je_nthreads_get(const void *arena, bool internal);
void mt_je_freed_much(void *tsd, uint64_t elapsed);
#pragma GCC visibility pop

/* Tell the accounts how much memory of its own jemalloc uses: all of it, or
 * where it grows. */
void mt_je_note_metadata(bool all);

#endif
