/* SPDX-License-Identifier: MIT */
/*
 * slice.c - reserving and handing out address space.
 *
 * A run is a reservation of whole granules, all of one owner.  A leaf is the
 * map of one granule that isn't: an owner for each huge page in it, and a bit
 * for each page that says whether it is ours at all.  Runs are the rule;
 * leaves are for processes under a limit on address space, and for whoever
 * has no 64 MiB left in one piece.
 */
#include "preload/slice.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "core/atomic.h"
#include "core/sys.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

#define HUGE_SHIFT 21
#define HUGE_PAGE  (UINT64_C(1) << HUGE_SHIFT)

/* After the first few, reservations are larger: fewer mappings. */
#define NR_RUNS 8192
#define FEW     4
#define MORE    (UINT64_C(256) << 20)

struct run {
	uintptr_t start;
	uintptr_t end;
	_Atomic uintptr_t next; /* first byte not handed out */
	/* A bit for each page, in wipe-on-fork memory; and behind them where
	 * the part begins of which this process touched nothing yet. */
	_Atomic uint64_t *paid;
	_Atomic uintptr_t *untouched;
};

/*
 * Where the system makes huge pages by itself, the beginning of each run is
 * without: most processes are small, and would be made 2 MiB larger.
 */
#define HEAD (UINT64_C(4) << 20)

/* Enough for the addresses of a process with less than PLENTY in all. */
#define NR_LEAVES  2048
#define PLENTY     (UINT64_C(1) << 36)
#define LEAF_CHUNK (MT_GRANULE / HUGE_PAGE)
#define LEAF_WORDS (MT_GRANULE / 4096 / 64)

struct leaf {
	_Atomic uint16_t owner[LEAF_CHUNK];
	_Atomic uint64_t ours[LEAF_WORDS];
};

uint16_t mt_slice_owners[MT_GRANULES];
bool mt_slice_huge;

/*
 * A granule's run or leaf; + 1.  In pieces made when they are needed: whole
 * tables in .bss would count against a limit on data (ulimit -d).
 */
#define INDEX_SHIFT 11
#define INDEX_MASK  ((UINT64_C(1) << INDEX_SHIFT) - 1)
static _Atomic uintptr_t index_pieces[MT_GRANULES >> INDEX_SHIFT];

static struct run runs[NR_RUNS];
static _Atomic uint32_t nr_runs;
static _Atomic uint32_t current_run[MT_OWNERS]; /* + 1 */
static _Atomic uintptr_t all_leaves;            /* NR_LEAVES */
static _Atomic uint32_t nr_leaves;
static _Atomic uintptr_t leaves_paid; /* LEAF_WORDS for each leaf */

static uint32_t page_shift(void)
{
	static _Atomic uint32_t shift;
	uint32_t known = load_relaxed(&shift);

	if (unlikely(!known)) {
		known = (uint32_t)__builtin_ctzl(mt_page_size());
		store_relaxed(&shift, known);
	}
	return known;
}

static size_t round_up(size_t n, size_t unit)
{
	return (n + unit - 1) & ~(unit - 1);
}

static uint32_t owner_of_granule(uintptr_t granule)
{
	return __atomic_load_n(&mt_slice_owners[granule], __ATOMIC_ACQUIRE);
}

static void *private_memory(size_t bytes)
{
	void *p =
		mt_sys_mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return mt_sys_is_error(p) ? NULL : p;
}

/* Memory behind a pointer that is set once, by whoever comes first. */
static bool make_once(_Atomic uintptr_t *where, size_t bytes)
{
	uintptr_t none = 0;
	void *p;

	if (load_acquire(where))
		return true;
	p = private_memory(bytes);
	if (p && !cas_seq_cst(where, &none, (uintptr_t)p))
		mt_sys_munmap(p, bytes);
	return load_acquire(where);
}

static bool make_index(uintptr_t granule)
{
	return make_once(&index_pieces[granule >> INDEX_SHIFT],
			 sizeof(uint16_t) << INDEX_SHIFT);
}

/* Of granules that have, or had, an owner; others need make_index(). */
static _Atomic uint16_t *index_at(uintptr_t granule)
{
	uintptr_t piece = load_acquire(&index_pieces[granule >> INDEX_SHIFT]);

	return (_Atomic uint16_t *)piece + (granule & INDEX_MASK);
}

static uint32_t index_of(uintptr_t granule)
{
	return load_relaxed(index_at(granule)) - 1u;
}

static struct leaf *leaf_at(uint32_t index)
{
	return (struct leaf *)load_acquire(&all_leaves) + index;
}

static void set_granule(uintptr_t granule, uint32_t index, uint32_t owner)
{
	store_relaxed(index_at(granule), (uint16_t)(index + 1));
	__atomic_store_n(&mt_slice_owners[granule], (uint16_t)owner,
			 __ATOMIC_RELEASE);
}

uint32_t mt_slice_owner_slow(uintptr_t address)
{
	uintptr_t granule = address >> MT_GRANULE_SHIFT;
	uintptr_t offset = address & (MT_GRANULE - 1);
	size_t page = offset >> page_shift();
	struct leaf *leaf;

	if (owner_of_granule(granule) != MT_OWNER_MIXED)
		return owner_of_granule(granule);
	leaf = leaf_at(index_of(granule));
	if (!(load_acquire(&leaf->ours[page / 64]) >> page % 64 & 1))
		return MT_OWNER_NONE;
	return load_relaxed(&leaf->owner[offset >> HUGE_SHIFT]);
}

uint64_t mt_slice_limit(void)
{
	static _Atomic uint64_t known; /* + 1 */
	struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };

	if (!load_relaxed(&known)) {
		mt_syscall4(SYS_prlimit64, 0, RLIMIT_AS, NULL, &limit);
		store_relaxed(&known,
			      limit.rlim_cur < PLENTY ? limit.rlim_cur + 1 : 1);
	}
	return load_relaxed(&known) - 1;
}

/*
 * Reserve @size bytes at a multiple of @align; 0 when that can't be had.
 * PROT_NONE until handed out: read-write slices are made resident as a whole
 * by mlockall().
 */
static uintptr_t reserve(size_t size, size_t align)
{
	size_t extra = align > mt_page_size() ? align - mt_page_size() : 0;
	uintptr_t start;
	uintptr_t end;
	void *p;

	if (size + extra < size)
		return 0;
	p = mt_sys_mmap(NULL, size + extra, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mt_sys_is_error(p))
		return 0;
	start = round_up((uintptr_t)p, align);
	end = (uintptr_t)p + size + extra;
	if (start > (uintptr_t)p)
		mt_sys_munmap(p, start - (uintptr_t)p);
	if (end > start + size)
		mt_sys_munmap((void *)(start + size), end - start - size);
	return start;
}

static void *notes(size_t bytes)
{
	void *p = private_memory(bytes);

	if (p)
		mt_sys_madvise(p, bytes, MADV_WIPEONFORK);
	return p;
}

/* Is the system set to make huge pages of whatever is large enough? */
static void look_for_huge(void)
{
	static _Atomic uint32_t done;
	char text[64];
	ssize_t n = 0;
	int fd;

	if (load_acquire(&done))
		return;
	fd = mt_sys_open("/sys/kernel/mm/transparent_hugepage/enabled",
			 O_RDONLY | O_CLOEXEC, 0);
	if (fd >= 0) {
		n = mt_sys_read(fd, text, sizeof(text));
		mt_sys_close(fd);
	}
	/* "[always] madvise never"; and not forbidden for this process. */
	if (n > 0 && text[0] == '[' &&
	    mt_syscall6(SYS_prctl, PR_GET_THP_DISABLE, 0, 0, 0, 0, 0) == 0)
		mt_slice_huge = true;
	store_release(&done, 1);
}

/* What was taken last from a run, and can't be used, is there for the next. */
static void put_back(uintptr_t at, size_t size)
{
	uintptr_t granule = at >> MT_GRANULE_SHIFT;
	uintptr_t next = at + size;

	if (owner_of_granule(granule) != MT_OWNER_MIXED)
		cas_seq_cst(&runs[index_of(granule)].next, &next, at);
	else
		mt_slice_drop((void *)at, size);
}

/* A new run with room for @size bytes; its index + 1, or 0. */
static uint32_t make_run(uint32_t owner, size_t size, size_t align)
{
	uint32_t index = fetch_add_relaxed(&nr_runs, 1);
	size_t room = MT_MAX(size, index < FEW ? MT_GRANULE : MORE);
	size_t pages;
	struct run *run;

	if (index >= NR_RUNS) {
		fetch_add_relaxed(&nr_runs, (uint32_t)-1);
		return 0;
	}
	run = &runs[index];
	room = round_up(room, MT_GRANULE);
	run->start = reserve(room, MT_MAX(align, MT_GRANULE));
	if (!run->start)
		return 0;
	run->end = run->start + room;
	for (uintptr_t at = run->start; at < run->end; at += MT_GRANULE) {
		if (!make_index(at >> MT_GRANULE_SHIFT)) {
			mt_sys_munmap((void *)run->start, room);
			return 0;
		}
	}
	pages = room >> page_shift();
	look_for_huge();
	if (mt_slice_huge)
		mt_sys_madvise((void *)run->start,
			       owner == MT_OWNER_INTERNAL ? room : HEAD,
			       MADV_NOHUGEPAGE);
	if (owner != MT_OWNER_INTERNAL) {
		run->paid = notes(round_up(pages / 8 + sizeof(uintptr_t),
					   mt_page_size()));
		if (!run->paid) {
			mt_sys_munmap((void *)run->start, room);
			return 0;
		}
		run->untouched = (_Atomic uintptr_t *)(run->paid + pages / 64);
		if (mt_slice_huge)
			store_relaxed(run->untouched, run->start + HEAD);
	}
	store_relaxed(&run->next, run->start);
	for (uintptr_t at = run->start; at < run->end; at += MT_GRANULE)
		set_granule(at >> MT_GRANULE_SHIFT, index, owner);
	return index + 1;
}

static uintptr_t take_from(struct run *run, size_t size, size_t align)
{
	uintptr_t next = load_relaxed(&run->next);
	uintptr_t at;

	do {
		at = round_up(next, align);
		if (at < next || at > run->end || run->end - at < size)
			return 0;
	} while (!cas_weak_seq_cst(&run->next, &next, at + size));
	/* In a forked child: from here on it is the first. */
	if (unlikely(mt_slice_huge) && run->untouched &&
	    !load_relaxed(run->untouched))
		store_relaxed(run->untouched, round_up(at, HUGE_PAGE));
	return at;
}

static uintptr_t take_of_run(uint32_t owner, size_t size, size_t align)
{
	for (;;) {
		uint32_t current = load_acquire(&current_run[owner]);
		uintptr_t at = 0;
		uint32_t more;

		if (current)
			at = take_from(&runs[current - 1], size, align);
		if (at)
			return at;
		more = make_run(owner, size, align);
		if (!more)
			return 0;
		/* If another thread was faster, its run goes first and ours
		 * stays unused: address space only. */
		cas_seq_cst(&current_run[owner], &current, more);
	}
}

/* The leaf of a granule, made if need be; NULL when there are no more. */
static struct leaf *make_leaf(uintptr_t granule)
{
	uint16_t none = 0;
	uint32_t index;

	if (!make_index(granule))
		return NULL;
	if (!load_relaxed(index_at(granule))) {
		index = fetch_add_relaxed(&nr_leaves, 1);
		if (index >= NR_LEAVES) {
			fetch_add_relaxed(&nr_leaves, (uint32_t)-1);
			return NULL;
		}
		/* Two threads at once: one leaf is lost. */
		cas_seq_cst(index_at(granule), &none, (uint16_t)(index + 1));
	}
	set_granule(granule, index_of(granule), MT_OWNER_MIXED);
	return leaf_at(index_of(granule));
}

/* One word's share of a range of pages. */
struct bits {
	_Atomic uint64_t *word;
	uint64_t mask;
};

/* The next word of a note array that holds a bit for each page from @start to
 * @limit; @at is moved past what it covers. */
static struct bits next_bits(_Atomic uint64_t *words, uintptr_t start,
			     uintptr_t limit, uintptr_t *at)
{
	size_t page = (*at - start) >> page_shift();
	size_t shift = page % 64;
	size_t n = MT_MIN((limit - *at) >> page_shift(), 64 - shift);
	struct bits bits = { words + page / 64, 0 };

	bits.mask = (n == 64 ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1) << shift;
	*at += n << page_shift();
	return bits;
}

/* Note in the leaves whose the pages are: @owner's, or nobody's. */
static bool mark_leaves(uintptr_t at, uintptr_t end, uint32_t owner)
{
	while (at < end) {
		uintptr_t granule = at >> MT_GRANULE_SHIFT;
		uintptr_t start = granule << MT_GRANULE_SHIFT;
		uintptr_t limit = MT_MIN(end, start + MT_GRANULE);
		struct leaf *leaf = make_leaf(granule);

		if (!leaf)
			return false;
		for (uintptr_t a = at & ~(HUGE_PAGE - 1); owner && a < limit;
		     a += HUGE_PAGE)
			store_relaxed(&leaf->owner[(a - start) >> HUGE_SHIFT],
				      (uint16_t)owner);
		while (at < limit) {
			struct bits bits =
				next_bits(leaf->ours, start, limit, &at);

			if (owner)
				fetch_or_seq_cst(bits.word, bits.mask);
			else
				fetch_and_seq_cst(bits.word, ~bits.mask);
		}
	}
	return true;
}

static bool make_leaves(void)
{
	size_t bytes = NR_LEAVES * LEAF_WORDS * sizeof(uint64_t);
	uintptr_t none = 0;
	void *p;

	if (!make_once(&all_leaves, NR_LEAVES * sizeof(struct leaf)))
		return false;
	if (load_acquire(&leaves_paid))
		return true;
	p = notes(bytes);
	if (p && !cas_seq_cst(&leaves_paid, &none, (uintptr_t)p))
		mt_sys_munmap(p, bytes);
	return load_acquire(&leaves_paid);
}

/*
 * As little as possible: a reservation of its own, at whole huge pages, so
 * that no two owners meet in one, and without what is left of the last.
 *
 * At least a page is left, which nobody has: jemalloc takes what lies next to
 * each other for one arena's, unless the second is the start of what it got
 * from a call of alloc; and here that start may be gone.
 */
static uintptr_t take_of_leaves(uint32_t owner, size_t size, size_t align)
{
	size_t room = round_up(size + 1, HUGE_PAGE);
	uintptr_t at;

	if (room < size || !make_leaves())
		return 0;
	at = reserve(room, MT_MAX(align, HUGE_PAGE));
	if (!at)
		return 0;
	mt_sys_munmap((void *)(at + size), room - size);
	if (at + size > MT_GRANULES << MT_GRANULE_SHIFT ||
	    !mark_leaves(at, at + size, owner)) {
		mt_slice_drop((void *)at, size);
		return 0;
	}
	return at;
}

void *mt_slice_take(uint32_t owner, size_t size, size_t align)
{
	uintptr_t at = 0;

	if (!mt_slice_limit())
		at = take_of_run(owner, size, align);
	if (!at)
		at = take_of_leaves(owner, size, align);
	if (!at)
		return NULL;
	/* Refused under a limit on data. */
	if (mt_sys_mprotect((void *)at, size, PROT_READ | PROT_WRITE)) {
		put_back(at, size);
		return NULL;
	}
	return (void *)at;
}

bool mt_slice_drop(void *addr, size_t len)
{
	uintptr_t at = (uintptr_t)addr;
	uint32_t owner = mt_slice_owner(addr);

	if (mt_slice_owners[at >> MT_GRANULE_SHIFT] != MT_OWNER_MIXED)
		return false;
	/* Nobody's first: another thread may get the address at once. */
	mark_leaves(at, at + len, MT_OWNER_NONE);
	if (mt_sys_munmap(addr, len) == 0)
		return true;
	/* Too many mappings: it stays. */
	mark_leaves(at, at + len, owner);
	return false;
}

/* The next word of the notes of who paid for *@at and what follows. */
static struct bits next_paid(uintptr_t *at, uintptr_t end)
{
	uintptr_t granule = *at >> MT_GRANULE_SHIFT;
	uint32_t index = index_of(granule);
	uintptr_t start = granule << MT_GRANULE_SHIFT;
	_Atomic uint64_t *words;

	if (likely(owner_of_granule(granule) != MT_OWNER_MIXED)) {
		struct run *run = &runs[index];

		return next_bits(run->paid, run->start, MT_MIN(end, run->end),
				 at);
	}
	words = (_Atomic uint64_t *)load_acquire(&leaves_paid) +
		index * LEAF_WORDS;
	return next_bits(words, start, MT_MIN(end, start + MT_GRANULE), at);
}

size_t mt_slice_pay(void *addr, size_t len)
{
	uintptr_t at = (uintptr_t)addr;
	uintptr_t end = at + len;
	size_t count = 0;

	while (at < end) {
		struct bits bits = next_paid(&at, end);
		uint64_t old = fetch_or_seq_cst(bits.word, bits.mask);

		count += (size_t)__builtin_popcountl(~old & bits.mask);
	}
	return count;
}

size_t mt_slice_unpaid(void *addr, size_t len)
{
	uintptr_t at = (uintptr_t)addr;
	uintptr_t end = at + len;
	size_t count = 0;

	while (at < end) {
		struct bits bits = next_paid(&at, end);

		count += (size_t)__builtin_popcountl(~load_relaxed(bits.word) &
						     bits.mask);
	}
	return count;
}

void *mt_slice_chunk(void *addr, size_t *len)
{
	uintptr_t at = (uintptr_t)addr & ~(HUGE_PAGE - 1);
	uintptr_t granule = at >> MT_GRANULE_SHIFT;
	struct run *run = &runs[index_of(granule)];

	if (owner_of_granule(granule) == MT_OWNER_MIXED ||
	    !load_relaxed(run->untouched) || at < load_relaxed(run->untouched))
		return NULL;
	*len = HUGE_PAGE;
	return mt_slice_unpaid((void *)at, HUGE_PAGE) << page_shift() ==
			       HUGE_PAGE
		       ? (void *)at
		       : NULL;
}

void mt_slice_keep_small(void *addr, size_t len)
{
	mt_sys_madvise(addr, len, MADV_NOHUGEPAGE);
}

size_t mt_slice_unpay(void *addr, size_t len)
{
	uintptr_t at = (uintptr_t)addr;
	uintptr_t end = at + len;
	size_t count = 0;

	while (at < end) {
		struct bits bits = next_paid(&at, end);
		uint64_t old = fetch_and_seq_cst(bits.word, ~bits.mask);

		count += (size_t)__builtin_popcountl(old & bits.mask);
	}
	return count;
}
