/* SPDX-License-Identifier: MIT */
/*
 * heap.c - arenas and their extent hooks.
 *
 * jemalloc's automatic arenas are the home group's: they are born with our
 * hooks (see jemalloc.mk), so none is ever without, and jemalloc's own choice
 * of arena stays as fast as it is.  Another group has an arena of its own,
 * made when a thread first enters it.
 *
 * In a hook an arena's lock is held, and fork wants it too.  So: atomics in
 * the segment, one drain, raw system calls.  No je_*, nothing that allocates,
 * no lock, no sleep.
 */
#include "preload/heap.h"

#include <errno.h>
#include <sys/mman.h>

#include "core/atomic.h"
#include "core/sys.h"
#include "preload/jemalloc.h"

#define MAX_ARENAS 4096

/* An owner beside home. */
struct other {
	_Atomic uint32_t group; /* + 1; 0: free, set last */
	uint32_t arena;
};

MT_TLS uint32_t mt_heap_entered;

static struct other others[MT_OWNERS - MT_OWNER_GROUPS];
static uint16_t owner_of_arena[MAX_ARENAS]; /* 0: home */
static _Atomic uint32_t others_lock;

static uint32_t owner_of(unsigned arena)
{
	uint32_t owner = arena < MAX_ARENAS ? owner_of_arena[arena] : 0;

	return owner ? owner : MT_OWNER_HOME;
}

static uint32_t group_of(uint32_t owner)
{
	return owner >= MT_OWNER_GROUPS
		       ? load_relaxed(&others[owner - MT_OWNER_GROUPS].group) -
				 1
		       : MT_HOME;
}

static int64_t pages_in(size_t len)
{
	return (int64_t)(len / mt_page_size());
}

static bool charge(unsigned arena, void *addr, size_t len)
{
	if (!mt_account_charge(group_of(owner_of(arena)), MT_HEAP,
			       pages_in(len)))
		return false;
	mt_slice_pay(addr, len);
	return true;
}

static void *hook_alloc(struct je_hooks *hooks MT_UNUSED, void *addr,
			size_t size, size_t align, bool *zero, bool *commit,
			unsigned arena)
{
	void *p;

	/*
	 * After a refused commit jemalloc asks for new address space, twice:
	 * with nothing said here, refusals would eat address space and
	 * metadata without end.
	 */
	if (addr || (mt_flags & MT_REFUSED))
		return NULL;
	p = mt_slice_take(owner_of(arena), size, align);
	if (!p)
		return NULL;
	/* Asked for it committed, no commit call will follow. */
	if (*commit && !charge(arena, p, size))
		return NULL;
	*zero = true;
	return p;
}

static bool hook_commit(struct je_hooks *hooks MT_UNUSED, void *addr,
			size_t size MT_UNUSED, size_t offset, size_t len,
			unsigned arena)
{
	return !charge(arena, (char *)addr + offset, len);
}

static bool hook_decommit(struct je_hooks *hooks MT_UNUSED, void *addr,
			  size_t size MT_UNUSED, size_t offset, size_t len,
			  unsigned arena)
{
	char *at = (char *)addr + offset;
	size_t paid;

	/*
	 * First the memory, then the charge.  Locked memory stays: then the
	 * pages are still there, dirty, and jemalloc must not take them for
	 * zeroed.
	 */
	if (mt_sys_madvise(at, len, MADV_DONTNEED))
		return true;
	paid = mt_slice_unpay(at, len);
	if (paid)
		mt_account_uncharge(group_of(owner_of(arena)), MT_HEAP,
				    (int64_t)paid);
	return false;
}

static bool hook_split(struct je_hooks *hooks MT_UNUSED, void *addr MT_UNUSED,
		       size_t size MT_UNUSED, size_t a MT_UNUSED,
		       size_t b MT_UNUSED, bool committed MT_UNUSED,
		       unsigned arena MT_UNUSED)
{
	return false;
}

/* Across reservations the notes of who paid lie in different places. */
static bool hook_merge(struct je_hooks *hooks MT_UNUSED, void *a,
		       size_t size_a MT_UNUSED, void *b,
		       size_t size_b MT_UNUSED, bool committed MT_UNUSED,
		       unsigned arena MT_UNUSED)
{
	return !mt_slice_same_run(a, b);
}

/* A dalloc or purge that only refuses would cost more than none. */
extern __attribute__((visibility("hidden"))) struct je_hooks mt_je_hooks;
struct je_hooks mt_je_hooks = {
	.alloc = hook_alloc,
	.commit = hook_commit,
	.decommit = hook_decommit,
	.split = hook_split,
	.merge = hook_merge,
};

/* How automatic arenas are made: takes the place of jemalloc's own. */
#define HIDDEN __attribute__((visibility("hidden")))
extern HIDDEN const struct je_arena_config je_arena_config_default;
const struct je_arena_config je_arena_config_default = { &mt_je_hooks, false };

/*
 * oversize_threshold:0	   no arena of its own for 8 MiB and more, which
 *			   would be purged at every free
 * muzzy_decay_ms:0	   decommit is all the purging there is
 * retain:true		   address space is kept, which is what we hand out
 */
const char *je_malloc_conf =
	"oversize_threshold:0,percpu_arena:disabled,background_thread:false,"
	"muzzy_decay_ms:0,retain:true,narenas:4,dirty_decay_ms:10000,"
	"metadata_thp:disabled,thp:default,abort_conf:false";

void mt_heap_init(void)
{
	static _Atomic uint32_t done;

	if (likely(load_relaxed(&done)))
		return;
	store_relaxed(&done, 1);
	je_free(je_malloc(1));
}

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

/* The arena is made with our hooks, its metadata without them. */
static bool make_arena(uint32_t owner)
{
	struct je_arena_config config = je_arena_config_default;
	unsigned arena;
	size_t size = sizeof(arena);

	if (je_mallctl("experimental.arenas_create_ext", &arena, &size, &config,
		       sizeof(config)) ||
	    arena >= MAX_ARENAS)
		return false;
	others[owner - MT_OWNER_GROUPS].arena = arena;
	owner_of_arena[arena] = (uint16_t)owner;
	return true;
}

/* The owner class of a group, with its arena; 0 when it can't be had. */
static uint32_t find_owner(uint32_t group)
{
	uint32_t n = MT_ARRAY_SIZE(others);
	uint32_t owner = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t of = load_acquire(&others[i].group);

		if (of == group + 1)
			return i + MT_OWNER_GROUPS;
		if (!of)
			break;
	}
	lock_others();
	for (uint32_t i = 0; i < n && !owner; i++) {
		uint32_t of = load_acquire(&others[i].group);

		if (of == group + 1)
			owner = i + MT_OWNER_GROUPS;
		if (of)
			continue;
		if (make_arena(i + MT_OWNER_GROUPS)) {
			owner = i + MT_OWNER_GROUPS;
			store_release(&others[i].group, group + 1);
		}
		break;
	}
	unlock_others();
	return owner;
}

void mt_heap_enter(uint32_t group)
{
	mt_heap_entered = group == MT_HOME ? 0 : find_owner(group);
}

int mt_heap_flags(uint32_t owner)
{
	if (owner >= MT_OWNER_GROUPS)
		return JE_ARENA(others[owner - MT_OWNER_GROUPS].arena) |
		       JE_TCACHE_NONE;
	return JE_TCACHE_NONE;
}

static void purge_arena(unsigned arena)
{
	static _Atomic size_t mib_len;
	static size_t purge_mib[3];
	size_t mib[3];

	if (!load_acquire(&mib_len)) {
		size_t len = 3;

		if (je_mallctlnametomib("arena.0.purge", purge_mib, &len))
			return;
		store_release(&mib_len, len);
	}
	mib[0] = purge_mib[0];
	mib[1] = arena;
	mib[2] = purge_mib[2];
	je_mallctlbymib(mib, 3, NULL, NULL, NULL, 0);
}

size_t mt_heap_purge(uint32_t group)
{
	unsigned n = 0;
	size_t size = sizeof(n);

	/* This thread's own cache first: what is in it is not yet dirty. */
	je_mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
	if (je_mallctl("arenas.narenas", &n, &size, NULL, 0))
		return 0;
	for (unsigned i = 0; i < MT_MIN(n, (unsigned)MAX_ARENAS); i++) {
		if (group == MT_NONE || group_of(owner_of(i)) == group)
			purge_arena(i);
	}
	return 0;
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

void mt_heap_thread_start(void)
{
	je_free(je_malloc(1));
}

void mt_heap_thread_exit(void)
{
}
