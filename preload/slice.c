/* SPDX-License-Identifier: MIT */
/*
 * slice.c - reserving and handing out address space.
 *
 * Under a limit on address space (ulimit -v) a reservation is as small as
 * what is asked for; it then shares its granules with others' memory, and
 * such a granule is looked up in the list of runs.
 */
#include "preload/slice.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include "core/atomic.h"
#include "core/sys.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

#define MAX_RUNS  8192
#define HUGE_PAGE (UINT64_C(2) << 20)
/* Later reservations are this large at least: fewer mappings. */
#define MORE      (UINT64_C(256) << 20)
/* A limit on address space below this makes us frugal. */
#define PLENTY    (UINT64_C(1) << 36)

struct run {
	uintptr_t start;
	uintptr_t end;
	_Atomic uintptr_t next; /* first byte not handed out */
	_Atomic uint64_t *paid; /* a bit a page, in wipe-on-fork memory */
	_Atomic uint32_t owner; /* set last */
};

uint16_t mt_slice_owners[MT_GRANULES];

static uint16_t run_of_granule[MT_GRANULES]; /* + 1 */
static struct run runs[MAX_RUNS];
static _Atomic uint32_t nr_runs;
static _Atomic uint32_t current_run[MT_OWNERS]; /* + 1 */

static uint64_t page_shift(void)
{
	static _Atomic uint32_t shift;
	uint32_t known = load_relaxed(&shift);

	if (unlikely(!known)) {
		known = (uint32_t)__builtin_ctzl(mt_page_size());
		store_relaxed(&shift, known);
	}
	return known;
}

static struct run *find_run(uintptr_t address)
{
	uint32_t index = run_of_granule[address >> MT_GRANULE_SHIFT];
	uint32_t n;

	if (index && address >= runs[index - 1].start &&
	    address < runs[index - 1].end)
		return &runs[index - 1];
	n = MT_MIN(load_acquire(&nr_runs), (uint32_t)MAX_RUNS);
	for (uint32_t i = 0; i < n; i++) {
		if (load_acquire(&runs[i].owner) && address >= runs[i].start &&
		    address < runs[i].end)
			return &runs[i];
	}
	return NULL;
}

uint32_t mt_slice_owner_slow(uintptr_t address)
{
	struct run *run = find_run(address);

	return run ? load_relaxed(&run->owner) : MT_OWNER_NONE;
}

bool mt_slice_same_run(const void *a, const void *b)
{
	return find_run((uintptr_t)a) == find_run((uintptr_t)b);
}

/* Is address space limited? */
static bool frugal(void)
{
	static _Atomic uint32_t known;
	struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };

	if (!load_relaxed(&known)) {
		mt_syscall4(SYS_prlimit64, 0, RLIMIT_AS, NULL, &limit);
		store_relaxed(&known, limit.rlim_cur < PLENTY ? 2 : 1);
	}
	return load_relaxed(&known) == 2;
}

/* Reserve @size bytes at a multiple of @align. */
static uintptr_t reserve(size_t size, size_t align)
{
	size_t extra = align > mt_page_size() ? align : 0;
	uintptr_t start;
	uintptr_t at;
	void *p;

	p = mt_sys_mmap(NULL, size + extra, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mt_sys_is_error(p))
		return 0;
	at = (uintptr_t)p;
	start = (at + align - 1) & ~(align - 1);
	if (start > at)
		mt_sys_munmap(p, start - at);
	if (at + size + extra > start + size)
		mt_sys_munmap((void *)(start + size), at + extra - start);
	return start;
}

static bool make_paid(struct run *run)
{
	size_t bytes = ((run->end - run->start) >> page_shift()) / 8 + 8;
	void *p;

	bytes = (bytes + mt_page_size() - 1) & ~(mt_page_size() - 1);
	p = mt_sys_mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mt_sys_is_error(p))
		return false;
	mt_sys_madvise(p, bytes, MADV_WIPEONFORK);
	run->paid = p;
	return true;
}

static void enter_tables(struct run *run, uint32_t index, uint32_t owner)
{
	uintptr_t first = run->start >> MT_GRANULE_SHIFT;
	uintptr_t last = (run->end - 1) >> MT_GRANULE_SHIFT;

	for (uintptr_t g = first; g <= last && g < MT_GRANULES; g++) {
		bool whole = run->start <= g << MT_GRANULE_SHIFT &&
			     run->end >= (g + 1) << MT_GRANULE_SHIFT;

		run_of_granule[g] = (uint16_t)(index + 1);
		__atomic_store_n(&mt_slice_owners[g],
				 (uint16_t)(whole ? owner : MT_OWNER_MIXED),
				 __ATOMIC_RELEASE);
	}
}

/* A new run with room for @size bytes; its index + 1, or 0. */
static uint32_t make_run(uint32_t owner, size_t size, size_t align)
{
	uint32_t index = fetch_add_relaxed(&nr_runs, 1);
	struct run *run = &runs[index];

	if (index >= MAX_RUNS) {
		fetch_add_relaxed(&nr_runs, (uint32_t)-1);
		return 0;
	}
	if (frugal()) {
		size = (size + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
		align = MT_MAX(align, mt_page_size());
	} else {
		size += align > MT_GRANULE ? align : 0;
		if (index > 1)
			size = MT_MAX(size, MORE);
		size = (size + MT_GRANULE - 1) & ~(MT_GRANULE - 1);
		align = MT_MAX(align, MT_GRANULE);
	}
	run->start = reserve(size, align);
	run->end = run->start + size;
	if (!run->start)
		return 0;
	if (owner != MT_OWNER_INTERNAL && !make_paid(run)) {
		mt_sys_munmap((void *)run->start, size);
		run->start = run->end = 0;
		return 0;
	}
	store_relaxed(&run->next, run->start);
	store_release(&run->owner, owner);
	enter_tables(run, index, owner);
	return index + 1;
}

static uintptr_t take_from(struct run *run, size_t size, size_t align)
{
	uintptr_t next = load_relaxed(&run->next);
	uintptr_t at;

	do {
		at = (next + align - 1) & ~(align - 1);
		if (at < next || at > run->end || run->end - at < size)
			return 0;
	} while (!cas_weak_seq_cst(&run->next, &next, at + size));
	return at;
}

void *mt_slice_take(uint32_t owner, size_t size, size_t align)
{
	for (;;) {
		uint32_t current = load_acquire(&current_run[owner]);
		uintptr_t at = 0;
		uint32_t more;

		if (current)
			at = take_from(&runs[current - 1], size, align);
		if (at) {
			if (mt_sys_mprotect((void *)at, size,
					    PROT_READ | PROT_WRITE))
				return NULL;
			return (void *)at;
		}
		more = make_run(owner, size, align);
		if (!more)
			return NULL;
		/* If another thread was faster its run goes first; ours is
		 * small change: it is left for the one after. */
		cas_seq_cst(&current_run[owner], &current, more);
	}
}

/* Visit the bits of a range a word at a time. */
struct bits {
	_Atomic uint64_t *word;
	uint64_t mask;
};

static struct bits next_bits(struct run *run, size_t *page, size_t end)
{
	size_t shift = *page % 64;
	size_t n = MT_MIN(end - *page, 64 - shift);
	struct bits bits = { run->paid + *page / 64, 0 };

	bits.mask = (n == 64 ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1) << shift;
	*page += n;
	return bits;
}

void mt_slice_pay(void *addr, size_t len)
{
	struct run *run = find_run((uintptr_t)addr);
	size_t page;
	size_t end;

	if (!run)
		return;
	page = ((uintptr_t)addr - run->start) >> page_shift();
	end = page + (len >> page_shift());
	while (page < end) {
		struct bits bits = next_bits(run, &page, end);

		fetch_or_seq_cst(bits.word, bits.mask);
	}
}

size_t mt_slice_unpay(void *addr, size_t len)
{
	struct run *run = find_run((uintptr_t)addr);
	size_t count = 0;
	size_t page;
	size_t end;

	if (!run)
		return 0;
	page = ((uintptr_t)addr - run->start) >> page_shift();
	end = page + (len >> page_shift());
	while (page < end) {
		struct bits bits = next_bits(run, &page, end);
		uint64_t old = fetch_and_seq_cst(bits.word, ~bits.mask);

		count += (size_t)__builtin_popcountl(old & bits.mask);
	}
	return count;
}
