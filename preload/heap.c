/* SPDX-License-Identifier: MIT */
/*
 * heap.c - arenas and their extent hooks.
 *
 * jemalloc's automatic arenas are the home group's: they are born with our
 * hooks (jemalloc.mk says how), so no page of theirs goes uncounted, and
 * jemalloc's own choice of an arena for each thread stays as fast as it is.
 * Another group has an arena of its own, made when a thread first enters it
 * and kept for good; its memory is addressed with jemalloc's extended calls.
 *
 * In a hook an arena's lock is held, and fork wants it too.  So: atomics in
 * the segment, one drain, raw system calls.  No je_*, nothing that allocates,
 * no lock, no sleep.
 */
#include "preload/heap.h"

#include <string.h>
#include <sys/mman.h>

#include "core/atomic.h"
#include "core/sys.h"
#include "preload/jemalloc.h"

#define MAX_ARENAS 4096
#define NR_OTHERS  (MT_OWNERS - MT_OWNER_GROUPS)

/* Under a limit on address space, at most this is taken ahead of use. */
#define GROW_MAX (UINT64_C(8) << 20)

/* An owner beside home. */
struct other {
	_Atomic uint32_t group; /* + 1; 0: free; set last */
	uint32_t arena;
};

MT_TLS uint32_t mt_heap_entered;

static struct other others[NR_OTHERS];
static _Atomic uint32_t nr_others;
static uint16_t owner_of_arena[MAX_ARENAS]; /* 0: home */
static _Atomic uint32_t others_lock;

/* Pages that decommits of this thread gave back; see mt_heap_purge(). */
static MT_TLS size_t given_back;

static uint32_t owner_of(unsigned arena)
{
	uint32_t owner = arena < MAX_ARENAS ? owner_of_arena[arena] : 0;

	return owner ? owner : MT_OWNER_HOME;
}

/* Whom to charge: known from the arena, as any thread may purge it. */
static uint32_t group_of(uint32_t owner)
{
	if (likely(owner == MT_OWNER_HOME))
		return MT_HOME;
	return load_relaxed(&others[owner - MT_OWNER_GROUPS].group) - 1;
}

static int64_t pages_in(size_t len)
{
	return (int64_t)(len / mt_page_size());
}

/* Charge what of a range was not paid for yet, and note it. */
static bool pay(uint32_t owner, void *addr, size_t len)
{
	uint32_t group = group_of(owner);
	int64_t want = pages_in(len);
	int64_t paid;

	if (unlikely(mt_slice_huge))
		want = (int64_t)mt_slice_unpaid(addr, len);
	if (want && !mt_account_charge(group, MT_HEAP, want))
		return false;
	paid = (int64_t)mt_slice_pay(addr, len);
	/* Another thread paid for the same huge page, or gave parts back. */
	if (unlikely(paid > want))
		mt_account_charge_forced(group, MT_HEAP, paid - want);
	else if (unlikely(paid < want))
		mt_account_uncharge(group, MT_HEAP, want - paid);
	return true;
}

/*
 * A huge page is paid for as a whole: it will be resident as a whole.  Where
 * that is refused, small pages have to do.
 */
static void pay_chunk(uint32_t owner, void *chunk, size_t len)
{
	uint8_t refused = mt_flags & MT_REFUSED;

	if (!chunk || pay(owner, chunk, len))
		return;
	mt_slice_keep_small(chunk, len);
	mt_flags = (uint8_t)((mt_flags & ~MT_REFUSED) | refused);
}

static bool pay_with_chunks(uint32_t owner, char *addr, size_t len)
{
	size_t first_len;
	size_t last_len;
	void *first = mt_slice_chunk(addr, &first_len);
	void *last = mt_slice_chunk(addr + len - 1, &last_len);

	if (!pay(owner, addr, len))
		return false;
	pay_chunk(owner, first, first_len);
	if (last != first)
		pay_chunk(owner, last, last_len);
	return true;
}

static void *hook_alloc(struct je_hooks *hooks MT_UNUSED, void *addr,
			size_t size, size_t align, bool *zero, bool *commit,
			unsigned arena)
{
	uint32_t owner = owner_of(arena);
	void *p;

	/*
	 * After a refused commit jemalloc asks for new address space, twice.
	 * Were it given any, refusals would eat address space and metadata
	 * without end.
	 */
	if (addr || (mt_flags & MT_REFUSED))
		return NULL;
	/* Asked for more than is needed now: not under a limit. */
	if (mt_slice_limit() && !*commit && size > GROW_MAX)
		return NULL;
	/* Asked for it committed, it won't call commit. */
	if (*commit &&
	    !mt_account_charge(group_of(owner), MT_HEAP, pages_in(size)))
		return NULL;
	p = mt_slice_take(owner, size, align);
	if (*commit && p)
		mt_slice_pay(p, size);
	else if (*commit)
		mt_account_uncharge(group_of(owner), MT_HEAP, pages_in(size));
	if (!p)
		return NULL;
	mt_je_note_metadata(false);
	*zero = true;
	return p;
}

static bool hook_commit(struct je_hooks *hooks MT_UNUSED, void *addr,
			size_t size MT_UNUSED, size_t offset, size_t len,
			unsigned arena)
{
	uint32_t owner = owner_of(arena);
	char *at = (char *)addr + offset;

	if (unlikely(mt_slice_huge))
		return !pay_with_chunks(owner, at, len);
	return !pay(owner, at, len);
}

static bool hook_decommit(struct je_hooks *hooks MT_UNUSED, void *addr,
			  size_t size MT_UNUSED, size_t offset, size_t len,
			  unsigned arena)
{
	char *at = (char *)addr + offset;
	size_t paid;

	/*
	 * First the memory, then the charge.  Locked memory can't be given
	 * back: it stays charged, and jemalloc must not take it for zeroed.
	 */
	if (mt_sys_madvise(at, len, MADV_DONTNEED))
		return true;
	given_back += (size_t)pages_in(len);
	paid = mt_slice_unpay(at, len);
	if (likely(paid))
		mt_account_uncharge(group_of(owner_of(arena)), MT_HEAP,
				    (int64_t)paid);
	return false;
}

/*
 * Under a limit on address space only.  jemalloc keeps what it has once
 * decommitted, so this is its one chance to be without.
 */
static bool hook_dalloc(struct je_hooks *hooks MT_UNUSED, void *addr,
			size_t size, bool committed MT_UNUSED, unsigned arena)
{
	size_t paid = mt_slice_unpay(addr, size);

	bool dropped = mt_slice_drop(addr, size);

	if (dropped)
		given_back += (size_t)pages_in(size);
	/* If not, decommit is asked next, and finds it done. */
	if (paid)
		mt_account_uncharge(group_of(owner_of(arena)), MT_HEAP,
				    (int64_t)paid);
	return !dropped;
}

/* Extents are cut and joined at will: pages are what is charged.  jemalloc
 * never joins two that it got from two calls of alloc.  A program that lives on
 * what it has cached comes by here and at no other hook. */
static bool hook_split(struct je_hooks *hooks MT_UNUSED, void *addr MT_UNUSED,
		       size_t size MT_UNUSED, size_t a MT_UNUSED,
		       size_t b MT_UNUSED, bool committed MT_UNUSED,
		       unsigned arena MT_UNUSED)
{
	mt_account_look();
	return false;
}

static bool hook_merge(struct je_hooks *hooks MT_UNUSED, void *a MT_UNUSED,
		       size_t size_a MT_UNUSED, void *b MT_UNUSED,
		       size_t size_b MT_UNUSED, bool committed MT_UNUSED,
		       unsigned arena MT_UNUSED)
{
	mt_account_look();
	return false;
}

/* A dalloc or purge that only refuses would cost more than none, so there is
 * none; see mt_heap_options(). */
struct je_hooks mt_je_hooks = {
	.alloc = hook_alloc,
	.commit = hook_commit,
	.decommit = hook_decommit,
	.split = hook_split,
	.merge = hook_merge,
};

/* With this every automatic arena is made. */
const struct je_arena_config je_arena_config_default = { &mt_je_hooks, false };

/*
 * At a thread's end jemalloc purges the arena at once if no other thread is
 * bound to it.  A program that starts one short thread after the other would
 * fault all its pages in again each time; time decides here as well, so an
 * arena is never without threads.
 */
unsigned mt_je_nthreads_get(const void *arena MT_UNUSED,
			    bool internal MT_UNUSED)
{
	return 1;
}

/*
 * jemalloc gives cached pages back by time, when one in a thousand calls into
 * an arena finds it ripe: a program that frees much and then rests would keep
 * all of it.  So at every megabyte freed all arenas, those that no thread uses
 * any more too, are asked for what is ripe; and for everything once they cache
 * more than there is in use.  What is left to a resting program is KEEP_MAX.
 *
 * Called, after a free, with no lock held.
 */
#define KEEP_MAX   (INT64_C(32) << 20)
#define LOOK_AFTER (UINT64_C(1) << 20)

static void look_at_arenas(void *tsd, unsigned n)
{
	size_t keep = (size_t)pages_in(KEEP_MAX);
	size_t active = 0;
	size_t dirty = 0;

	for (unsigned i = 0; i < n; i++) {
		void *arena = load_acquire(&je_arenas[i]);
		const char *unused;
		unsigned threads = 0;
		size_t muzzy = 0;
		ssize_t ms[2];

		if (arena)
			je_arena_basic_stats_merge(tsd, arena, &threads,
						   &unused, &ms[0], &ms[1],
						   &active, &dirty, &muzzy);
	}
	for (unsigned i = 0; i < n; i++) {
		void *arena = load_acquire(&je_arenas[i]);

		if (arena)
			je_arena_decay(tsd, arena, false,
				       dirty > MT_MAX(active, keep));
	}
}

void mt_je_freed_much(void *tsd, uint64_t elapsed)
{
	/* Where in its thread state jemalloc counts the bytes it freed. */
	static _Atomic uint64_t offset;
	static MT_TLS uint64_t last;
	uint64_t where = load_relaxed(&offset);
	unsigned n = je_narenas_total_get();
	uint64_t freed;

	je_tcache_gc_dalloc_event_handler(tsd, elapsed);
	if (unlikely(!where)) {
		uint64_t *counter;
		size_t size = sizeof(counter);

		if (je_mallctl("thread.deallocatedp", &counter, &size, NULL, 0))
			return;
		where = (uint64_t)((char *)counter - (char *)tsd);
		store_relaxed(&offset, where);
	}
	freed = *(uint64_t *)((char *)tsd + where);
	if (freed - last < LOOK_AFTER * (1 + n / 16))
		return;
	last = freed;
	look_at_arenas(tsd, n);
}

/*
 * oversize_threshold:64 MiB  blocks of that size have an arena apart and go
 *			  back at once when they are freed, as glibc's do from
 *			  32 MiB on.  With the default of 8 MiB it takes three
 *			  times as long
 * muzzy_decay_ms:0	  decommit is all the purging there is
 * retain:true		  address space is kept: it is what we hand out
 * trust_madvise:true	  no trial of MADV_DONTNEED at each start
 * dirty_decay_ms:10000	  what is freed goes back within ten seconds of calls.
 *			  20 buffers of 5-25 MiB, replaced at random, take 0.87
 *			  of glibc's time with it and no less without purging;
 *			  a refault costs 10 us, so much shorter would show
 * tcache_nslots_small_max:32  not 200: all a thread's cache holds is flushed
 *			  when it ends, an object at a time.  A thread of 50
 *			  mallocs costs 28 us instead of 32; a loop of random
 *			  frees and mallocs 1-2 % more
 *
 * Huge pages are left as the system has them.  Where they are forced on every
 * mapping ("always"), up to 2 MiB for each span in use may be resident without
 * being charged.
 */
const char *je_malloc_conf =
	"oversize_threshold:67108864,percpu_arena:disabled,"
	"background_thread:false,"
	"muzzy_decay_ms:0,retain:true,trust_madvise:true,abort_conf:false,"
	"dirty_decay_ms:10000,tcache_nslots_small_max:32";

static char *append(char *at, const char *text)
{
	size_t len = strlen(text);

	memcpy(at, text, len + 1);
	return at + len;
}

static char *append_number(char *at, uint64_t n)
{
	char digits[24];
	size_t i = sizeof(digits) - 1;

	digits[i] = '\0';
	do
		digits[--i] = (char)('0' + n % 10);
	while (n /= 10);
	return append(at, digits + i);
}

static uint64_t oversize(uint64_t limit)
{
	return MT_MAX(limit / 512, UINT64_C(1) << 20);
}

/*
 * Called while jemalloc reads its options, before it makes arena 0: which
 * would get the default of 8 MiB for what is given back at once, whatever the
 * option says, and fault every larger buffer in anew each time it is used.
 * Blocks of 64 MiB have their own arena; free spans that have become as large
 * by joining may stay.
 *
 * Under a limit on address space what is freed must be had again by whoever
 * wants it, the program's own mmap among them: one arena; and free spans from
 * a five hundredth of the limit on are unmapped at once.
 */
char *mt_heap_options(void)
{
	static char options[128];
	uint64_t limit = mt_slice_limit();
	char *at = options;

	/* Large blocks start at a page, so that malloc.c can move theirs. */
	je_opt_cache_oblivious = false;
	je_oversize_threshold = limit ? oversize(limit) : SIZE_MAX / 2;
	if (!limit)
		return NULL;
	mt_je_hooks.dalloc = hook_dalloc;
	at = append(at, "narenas:1,oversize_threshold:");
	append_number(at, oversize(limit));
	return options;
}

static void limit_growth(unsigned arena)
{
	size_t size = GROW_MAX;
	char name[64];

	if (!mt_slice_limit())
		return;
	append(append_number(append(name, "arena."), arena),
	       ".retain_grow_limit");
	je_mallctl(name, NULL, NULL, &size, sizeof(size));
}

void mt_heap_init(void)
{
	static _Atomic uint32_t done;

	if (likely(load_relaxed(&done)))
		return;
	store_relaxed(&done, 1);
	je_free(je_malloc(1));
	limit_growth(0);
}

__attribute__((constructor(101))) static void load(void)
{
	mt_heap_init();
}

/* Held while an arena is made, which allocates; never in a hook. */
static void lock_others(void)
{
	uint32_t none = 0;

	while (!cas_weak_seq_cst(&others_lock, &none, 1)) {
		none = 0;
		mt_sys_yield();
	}
}

static void unlock_others(void)
{
	store_release(&others_lock, 0);
}

static uint32_t look_up(uint32_t group)
{
	/* Where a group was found last; a guess. */
	static _Atomic uint64_t guesses[256];
	_Atomic uint64_t *guess = &guesses[group % 256];
	uint64_t known = load_relaxed(guess);
	uint32_t n;

	if (likely(known >> 32 == group + 1))
		return (uint32_t)known;
	n = load_acquire(&nr_others);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t owner = i + MT_OWNER_GROUPS;

		if (load_acquire(&others[i].group) != group + 1)
			continue;
		store_relaxed(guess, (uint64_t)(group + 1) << 32 | owner);
		return owner;
	}
	return 0;
}

uint32_t mt_heap_nr_groups(void)
{
	return 1 + load_acquire(&nr_others);
}

uint32_t mt_heap_group(uint32_t n)
{
	return n ? load_acquire(&others[n - 1].group) - 1 : MT_HOME;
}

/* With our hooks, but its metadata without. */
static uint32_t make_owner(uint32_t group)
{
	uint32_t i = load_relaxed(&nr_others);
	unsigned arena;
	size_t size = sizeof(arena);

	if (i == NR_OTHERS ||
	    je_mallctl("arenas.create", &arena, &size, NULL, 0) ||
	    arena >= MAX_ARENAS)
		return 0;
	limit_growth(arena);
	others[i].arena = arena;
	owner_of_arena[arena] = (uint16_t)(i + MT_OWNER_GROUPS);
	store_release(&others[i].group, group + 1);
	store_release(&nr_others, i + 1);
	return i + MT_OWNER_GROUPS;
}

/* When no arena is left, the nearest ancestor that has one will do. */
static uint32_t nearest(uint32_t group)
{
	struct mt_session *session = mt_account_session();
	uint32_t owner = 0;

	if (!session)
		return 0;
	fetch_add_relaxed(&session->header->fallbacks, 1);
	for (int level = 0; level < MT_DEPTH_MAX && group != MT_NONE && !owner;
	     level++) {
		group = load_relaxed(&session->groups[group].parent);
		owner = group == MT_NONE ? 0 : look_up(group);
	}
	return owner;
}

void mt_heap_enter(uint32_t group)
{
	uint32_t owner;

	if (group == MT_HOME) {
		mt_flags &= (uint8_t)~MT_ELSEWHERE;
		mt_heap_entered = 0;
		return;
	}
	owner = look_up(group);
	if (unlikely(!owner)) {
		lock_others();
		owner = look_up(group);
		if (!owner)
			owner = make_owner(group);
		unlock_others();
		if (!owner && group != MT_NOBODY)
			owner = nearest(group);
	}
	mt_heap_entered = owner;
	if (owner)
		mt_flags |= MT_ELSEWHERE;
	else
		mt_flags &= (uint8_t)~MT_ELSEWHERE;
}

/*
 * Explicit caches: one for each (thread, group) that is busy.  Making one
 * costs as much as some hundred operations without, so it waits for the first
 * CACHE_AFTER of them.  Ended threads leave theirs, flushed, to others:
 * jemalloc has 4,094 in all.
 */
#define NR_CACHES   16
#define CACHE_AFTER 64
#define NR_POOLED   256

struct caches {
	struct {
		uint32_t owner;
		uint32_t uses;
		uint32_t cache; /* + 1; 0: none */
	} of[NR_CACHES];
};

static MT_TLS struct caches *my_caches;
static MT_TLS bool my_end;                 /* no caches any more */
static _Atomic uint32_t pooled[NR_POOLED]; /* + 1 */

static uint32_t make_cache(void)
{
	unsigned cache;
	size_t size = sizeof(cache);

	for (uint32_t i = 0; i < NR_POOLED; i++) {
		uint32_t old = load_relaxed(&pooled[i]);

		if (old && cas_seq_cst(&pooled[i], &old, 0))
			return old;
	}
	if (je_mallctl("tcache.create", &cache, &size, NULL, 0))
		return 0;
	return cache + 1;
}

static void drop_cache(uint32_t cache)
{
	unsigned id = cache - 1;

	je_mallctl("tcache.flush", NULL, NULL, &id, sizeof(id));
	for (uint32_t i = 0; i < NR_POOLED; i++) {
		uint32_t none = 0;

		if (cas_seq_cst(&pooled[i], &none, cache))
			return;
	}
	je_mallctl("tcache.destroy", NULL, NULL, &id, sizeof(id));
}

static uint32_t cache_for(uint32_t owner)
{
	struct caches *mine = my_caches;

	if (unlikely(!mine)) {
		if (my_end)
			return 0;
		mine = je_mallocx(sizeof(*mine), JE_ZERO | JE_TCACHE_NONE);
		mt_flags &= (uint8_t)~MT_REFUSED;
		if (!mine)
			return 0;
		my_caches = mine;
	}
	for (uint32_t i = 0; i < NR_CACHES; i++) {
		if (mine->of[i].owner && mine->of[i].owner != owner)
			continue;
		mine->of[i].owner = owner;
		if (likely(mine->of[i].cache))
			return mine->of[i].cache;
		if (++mine->of[i].uses % CACHE_AFTER == 0) {
			mine->of[i].cache = make_cache();
			mt_flags &= (uint8_t)~MT_REFUSED;
		}
		return mine->of[i].cache;
	}
	return 0;
}

int mt_heap_flags(uint32_t owner)
{
	uint32_t cache;

	if (unlikely(owner < MT_OWNER_GROUPS))
		return JE_TCACHE_NONE;
	cache = cache_for(owner);
	return JE_ARENA(others[owner - MT_OWNER_GROUPS].arena) |
	       (cache ? JE_TCACHE(cache - 1) : JE_TCACHE_NONE);
}

void mt_heap_thread_start(void)
{
	je_tsd_fetch_slow(je_tsd_tls, true);
}

void mt_heap_thread_exit(void)
{
	struct caches *mine = my_caches;

	my_caches = NULL;
	my_end = true;
	if (!mine)
		return;
	for (uint32_t i = 0; i < NR_CACHES; i++)
		if (mine->of[i].cache)
			drop_cache(mine->of[i].cache);
	je_dallocx(mine, JE_TCACHE_NONE);
}

static void purge_arena(unsigned arena)
{
	static _Atomic uint32_t known;
	static size_t purge_mib[3];
	size_t mib[3];

	if (!load_acquire(&known)) {
		size_t len = 3;

		/* Threads that race here write the same numbers. */
		if (je_mallctlnametomib("arena.0.purge", purge_mib, &len))
			return;
		store_release(&known, 1);
	}
	memcpy(mib, purge_mib, sizeof(mib));
	mib[1] = arena;
	/* Fails for arenas that don't exist yet. */
	je_mallctlbymib(mib, 3, NULL, NULL, NULL, 0);
}

static void flush_my_caches(void)
{
	je_mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
	for (uint32_t i = 0; my_caches && i < NR_CACHES; i++) {
		unsigned id = my_caches->of[i].cache - 1;

		if (my_caches->of[i].cache)
			je_mallctl("tcache.flush", NULL, NULL, &id, sizeof(id));
	}
}

size_t mt_heap_purge(uint32_t group)
{
	size_t before = given_back;
	unsigned n = 0;
	size_t size = sizeof(n);

	flush_my_caches();
	if (je_mallctl("arenas.narenas", &n, &size, NULL, 0))
		return 0;
	for (unsigned i = 0; i < MT_MIN(n, MAX_ARENAS); i++) {
		if (group == MT_NONE || group_of(owner_of(i)) == group)
			purge_arena(i);
	}
	mt_je_note_metadata(true);
	return given_back - before;
}

void mt_heap_prefork(void)
{
	lock_others();
	je_jemalloc_prefork();
}

void mt_heap_postfork_parent(void)
{
	je_jemalloc_postfork_parent();
	unlock_others();
}

void mt_heap_postfork_child(void)
{
	je_jemalloc_postfork_child();
	unlock_others();
}
