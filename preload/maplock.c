/* SPDX-License-Identifier: MIT */
/*
 * maplock.c - one word: the holder's thread id, and two bits.
 *
 * PENDING: the queue isn't empty; WAITERS: somebody sleeps.  Either makes the
 * compare-and-swap of a release fail, and sends it the long way.
 *
 * An owner that is this very thread was interrupted by a signal, and we run in
 * the handler; or it was left for good, by a jump out of a handler.  Stacks
 * grow down, so a handler's frames lie below those it interrupted, by no less
 * than the kernel's signal frame; a later call of the thread's comes from
 * about where the first came from, or above.  On another stack than the
 * holder's nothing can be told, and it counts as a handler.
 */
#include "preload/maplock.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "core/atomic.h"
#include "core/sys.h"
#include "preload/account.h"

#define PENDING UINT32_C(0x80000000)
#define WAITERS UINT32_C(0x40000000)
#define TID     UINT32_C(0x3fffffff)

#define RING  1024u
/* Filled so far, others than handlers add no faster than they can nap: a
 * thread that runs free would leave no room for the one that must let the
 * holder go on. */
#define EASY  (RING / 8)
#define SPINS 200u

/* No signal frame is smaller: it holds all registers. */
#define SIGNAL_FRAME 1024u
/* Two frames further apart are on different stacks. */
#define SAME_STACK   (UINT64_C(1) << 20)

#define PATIENCE_NS      UINT64_C(10000000)
#define NAP_NS           1000000
/* With the queue full, before an operation is dropped. */
#define LAST_PATIENCE_NS UINT64_C(1000000000)

static _Atomic uint32_t word;
static _Atomic uint32_t turn;  /* bumped by each holder */
static _Atomic uint32_t stuck; /* the turn that somebody waited for in vain */
static _Atomic uint64_t uncertain;

/*
 * The queue.  Anybody adds, the holder takes.  A place is reserved by raising
 * the tail and is complete when its stamp is its number + 1; numbers only
 * rise, so that what is left of a parent's queue means nothing.
 */
static struct {
	_Atomic uint32_t stamp;
	struct mt_map_op op;
} ring[RING];
static _Atomic uint32_t ring_head;
static _Atomic uint32_t ring_tail;

static MT_TLS uint32_t cached_tid;
/* The frame of this thread's hook that holds it.  Written before it is ours,
 * for a handler that comes just after, and again after, for one just before. */
static MT_TLS volatile uintptr_t my_frame;

static inline uint32_t my_tid(void)
{
	if (unlikely(!cached_tid))
		cached_tid = (uint32_t)mt_sys_gettid();
	return cached_tid;
}

static inline void took_it(uintptr_t frame)
{
	my_frame = frame;
	store_relaxed(&turn, load_relaxed(&turn) + 1);
	fence_signal();
}

/* It is ours, and we are here again: is the one who took it gone? */
static MT_COLD bool is_abandoned(uintptr_t frame, uint32_t me)
{
	stack_t on = { .ss_flags = SS_ONSTACK };

	if (frame + SIGNAL_FRAME <= my_frame ||
	    (frame > my_frame && frame - my_frame > SAME_STACK))
		return false;
	mt_syscall2(SYS_sigaltstack, NULL, &on);
	if (on.ss_flags & SS_ONSTACK)
		return false;
	/* A clone that shares our memory and thread-local storage? */
	return (uint32_t)mt_sys_gettid() == me;
}

static uint32_t queue_length(void)
{
	return load_relaxed(&ring_tail) - load_relaxed(&ring_head);
}

static bool queue_is_full(void)
{
	return queue_length() >= RING;
}

/* The holder is gone: take its place.  @seen is the word. */
static bool take_over(uint32_t seen, uint32_t me, uintptr_t frame)
{
	if (!cas_seq_cst(&word, &seen, me | (seen & ~TID)))
		return false;
	took_it(frame);
	fetch_add_relaxed(&uncertain, 1);
	mt_mmap_recover();
	return true;
}

static bool is_gone(uint32_t tid)
{
	/* Not tgkill(): a clone that shares memory is of another process. */
	return mt_syscall2(SYS_tkill, tid, 0) == -ESRCH;
}

/*
 * Does the holder sleep or stand still, in a handler?  One that is ready to
 * run, or waits for the kernel, will be out in no time.
 */
static MT_COLD bool is_blocked(uint32_t tid)
{
	char path[40] = "/proc/self/task/";
	char text[64];
	char *at = path + strlen(path);
	char digits[12];
	int nr = 0;
	ssize_t n;
	int fd;

	do {
		digits[nr++] = (char)('0' + tid % 10);
		tid /= 10;
	} while (tid);
	while (nr)
		*at++ = digits[--nr];
	memcpy(at, "/stat", 6);
	fd = mt_sys_open(path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return true;
	n = mt_sys_read(fd, text, sizeof(text));
	mt_sys_close(fd);
	/* "TID (NAME) STATE": the name is short, but may hold anything. */
	while (n > 2 && text[n - 1] != ')')
		n--;
	return n <= 2 || text[n + 1] == 'S' || text[n + 1] == 'T' ||
	       text[n + 1] == 't';
}

static void nap(uint32_t seen)
{
	const struct timespec time = { 0, NAP_NS };

	if (!(seen & WAITERS) && !cas_seq_cst(&word, &seen, seen | WAITERS))
		return;
	mt_syscall4(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen | WAITERS,
		    &time);
}

static MT_COLD bool take_slow(uintptr_t frame, uint32_t me)
{
	uint64_t since = 0;
	uint64_t waited;
	uint32_t of_turn = 0;
	bool napped = false;
	uint32_t seen;

	for (unsigned tries = 0;; tries++) {
		seen = load_relaxed(&word);
		if (!(seen & TID)) {
			my_frame = frame;
			fence_signal();
			if (cas_seq_cst(&word, &seen, me | (seen & ~TID))) {
				took_it(frame);
				return true;
			}
			continue;
		}
		if ((seen & TID) == me) {
			/* No handler ever leaves so much behind. */
			if (!is_abandoned(frame, me) && !queue_is_full())
				return false;
			if (take_over(seen, me, frame))
				return true;
			continue;
		}
		if (tries < SPINS) {
			cpu_relax();
			continue;
		}
		if (!since || load_relaxed(&turn) != of_turn) {
			since = mt_sys_clock_ns(CLOCK_MONOTONIC);
			of_turn = load_relaxed(&turn);
		}
		waited = mt_sys_clock_ns(CLOCK_MONOTONIC) - since;
		if (waited < PATIENCE_NS && of_turn != load_relaxed(&stuck)) {
			nap(seen);
			continue;
		}
		if (is_gone(seen & TID)) {
			if (take_over(seen, me, frame))
				return true;
			continue;
		}
		/* While nobody else has been in, the answer holds. */
		if (is_blocked(seen & TID) && load_relaxed(&turn) == of_turn &&
		    (!queue_is_full() || waited > LAST_PATIENCE_NS)) {
			store_relaxed(&stuck, of_turn);
			if (napped || queue_length() < EASY)
				return false;
		}
		nap(seen);
		napped = true;
	}
}

bool mt_maplock_take(void *frame_address)
{
	uintptr_t frame = (uintptr_t)frame_address;
	uint32_t me = my_tid();
	uint32_t seen = load_relaxed(&word);

	if (likely(!seen)) {
		my_frame = frame;
		fence_signal();
		if (likely(cas_seq_cst(&word, &seen, me))) {
			took_it(frame);
			return true;
		}
	}
	return take_slow(frame, me);
}

/* An operation is being put in the queue: by a thread that was stopped in
 * the middle, or by the code that we interrupted. */
static MT_COLD bool wait_for(uint32_t number)
{
	uint64_t since = mt_sys_clock_ns(CLOCK_MONOTONIC);

	do {
		if (load_acquire(&ring[number % RING].stamp) == number + 1)
			return true;
		mt_sys_yield();
	} while (mt_sys_clock_ns(CLOCK_MONOTONIC) - since < PATIENCE_NS);
	return false;
}

static void do_deferred(void)
{
	for (;;) {
		uint32_t head = load_relaxed(&ring_head);
		struct mt_map_op op;

		if (head == load_acquire(&ring_tail))
			return;
		if (load_acquire(&ring[head % RING].stamp) != head + 1 &&
		    !wait_for(head)) {
			/*
			 * It will be done by whoever puts it there.  If the
			 * queue is full nobody will.
			 */
			if (!queue_is_full())
				return;
			fetch_add_relaxed(&uncertain, 1);
			store_release(&ring_head, head + 1);
			continue;
		}
		op = ring[head % RING].op;
		store_release(&ring_head, head + 1);
		mt_mmap_do(&op);
	}
}

static MT_COLD void release_slow(uint32_t me)
{
	for (;;) {
		uint32_t seen = load_relaxed(&word);

		/* Taken from us (we seemed gone), or a new process. */
		if ((seen & TID) != me)
			return;
		if (seen & PENDING) {
			fetch_and_seq_cst(&word, ~PENDING);
			do_deferred();
			continue;
		}
		if (!cas_seq_cst(&word, &seen, 0))
			continue;
		if (seen & WAITERS)
			mt_syscall3(SYS_futex, &word, FUTEX_WAKE_PRIVATE,
				    INT32_MAX);
		return;
	}
}

void mt_maplock_release(void)
{
	uint32_t me = cached_tid;
	uint32_t seen = me;

	if (likely(cas_seq_cst(&word, &seen, 0)))
		return;
	release_slow(me);
}

void mt_maplock_defer(const struct mt_map_op *op)
{
	uint32_t tail = load_relaxed(&ring_tail);
	uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
	uint32_t me = my_tid();
	uint32_t seen;

	do {
		if (tail - load_acquire(&ring_head) >= RING) {
			fetch_add_relaxed(&uncertain, 1);
			return;
		}
	} while (!cas_seq_cst(&ring_tail, &tail, tail + 1));
	ring[tail % RING].op = *op;
	store_release(&ring[tail % RING].stamp, tail + 1);
	/* Pairs with the release: it sees the bit, or we see it free. */
	seen = load_seq_cst(&word);
	for (;;) {
		if (seen & TID) {
			if (cas_seq_cst(&word, &seen, seen | PENDING))
				return;
			continue;
		}
		/* Given back meanwhile: do it ourselves. */
		my_frame = frame;
		fence_signal();
		if (cas_seq_cst(&word, &seen, me | PENDING)) {
			took_it(frame);
			mt_maplock_release();
			return;
		}
	}
}

bool mt_maplock_idle(void)
{
	return !load_acquire(&word);
}

bool mt_maplock_is_mine(void)
{
	return cached_tid && (load_relaxed(&word) & TID) == cached_tid;
}

void mt_maplock_reset(void)
{
	cached_tid = 0;
	store_relaxed(&ring_head, load_relaxed(&ring_tail));
	store_seq_cst(&word, 0);
}

uint64_t mt_maplock_uncertain(void)
{
	return load_relaxed(&uncertain);
}
