/* SPDX-License-Identifier: MIT */
/*
 * interleave.h - runs a few actors over shared memory in every order, within
 * bounds, and lets them die at every point.
 *
 * To be included first: it takes the place of core/atomic.h, with macros that
 * step into the scheduler before each access, so that core's own sources,
 * included after it, need not know.  An actor is a coroutine.  A schedule is a
 * list of choices, and the next one is found depth first: the same choices
 * again up to the last that has an alternative, and that one.
 *
 * Left out is what nobody can tell from another schedule: a switch, or a death,
 * in front of an access that conflicts with no one else's (which do is learnt,
 * in passes, until a pass learns nothing), and a death in front of a load.
 * Every order here is sequentially consistent: what a weaker memory model
 * allows besides is not looked for.
 */
#ifndef MT_TESTS_INTERLEAVE_H
#define MT_TESTS_INTERLEAVE_H
#define MT_CORE_ATOMIC_H

#include <check.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

static bool il_watching;

static void il_step(const volatile void *p, bool write, const char *where,
		    int line);

#define IL_STEP(p, write)                                                      \
	do {                                                                   \
		if (il_watching)                                               \
			il_step((p), (write), __func__, __LINE__);             \
	} while (0)

/* Bytes are not told apart from the words they are in: no step. */
#define load_byte_relaxed(p)     __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define store_byte_relaxed(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)

/* The values first and the step after, right in front of the access; each
 * with a name of its own, since a value may hold another access. */
#define IL_PASTE_(a, b) a##b
#define IL_PASTE(a, b)  IL_PASTE_(a, b)
#define IL_NAME         IL_PASTE(il_value_, __COUNTER__)

#define IL_LOAD(p)                                                             \
	({                                                                     \
		IL_STEP(p, false);                                             \
		atomic_load(p);                                                \
	})
#define IL_WRITE_(op, p, v, name)                                              \
	({                                                                     \
		__auto_type name = (v);                                        \
		IL_STEP(p, true);                                              \
		op((p), name);                                                 \
	})
#define IL_WRITE(op, p, v) IL_WRITE_(op, p, v, IL_NAME)
#define IL_CAS_(p, expected, v, name)                                          \
	({                                                                     \
		__auto_type name = (v);                                        \
		IL_STEP(p, true);                                              \
		atomic_compare_exchange_strong((p), (expected), name);         \
	})
#define IL_CAS(p, expected, v) IL_CAS_(p, expected, v, IL_NAME)

#define load_relaxed(p)           IL_LOAD(p)
#define load_acquire(p)           IL_LOAD(p)
#define load_seq_cst(p)           IL_LOAD(p)
#define store_relaxed(p, v)       IL_WRITE(atomic_store, p, v)
#define store_release(p, v)       IL_WRITE(atomic_store, p, v)
#define store_seq_cst(p, v)       IL_WRITE(atomic_store, p, v)
#define fetch_add_relaxed(p, v)   IL_WRITE(atomic_fetch_add, p, v)
#define fetch_add_seq_cst(p, v)   IL_WRITE(atomic_fetch_add, p, v)
#define fetch_or_seq_cst(p, v)    IL_WRITE(atomic_fetch_or, p, v)
#define fetch_and_seq_cst(p, v)   IL_WRITE(atomic_fetch_and, p, v)
#define exchange_acq_rel(p, v)    IL_WRITE(atomic_exchange, p, v)
#define exchange_seq_cst(p, v)    IL_WRITE(atomic_exchange, p, v)
#define cas_seq_cst(p, e, v)      IL_CAS(p, e, v)
#define cas_weak_seq_cst(p, e, v) IL_CAS(p, e, v)
#define cas_weak_relaxed(p, e, v) IL_CAS(p, e, v)

#define fence_seq_cst() atomic_thread_fence(memory_order_seq_cst)
#define fence_acquire() atomic_thread_fence(memory_order_acquire)
#define fence_release() atomic_thread_fence(memory_order_release)
#define fence_signal()  atomic_signal_fence(memory_order_seq_cst)

static inline void cpu_relax(void)
{
}

#define IL_ACTORS 4
#define IL_STACK  65536
#define IL_PATH   8192
#define IL_WORDS  (1u << 18) /* of four bytes, that can be told apart */
#define IL_PID    1000       /* of process 0; one less: of nobody */

/* What an actor does, and where it belongs. */
struct il_actor {
	void (*run)(void);
	unsigned process;
	bool dies;         /* may be killed, and its process with it */
	bool exits;        /* its process ends when all in it have */
	unsigned after;    /* + 1: starts when that actor's process is dead */
	unsigned handler;  /* + 1: a signal handler on that actor's thread */
	unsigned patience; /* steps after which it lets all others run, so
			      that what it waits for comes; 0: never */
};

struct il_plan {
	const char *name;
	struct il_actor actors[IL_ACTORS];
	int preemptions; /* at most, in one schedule */
	int deaths;
	const void *base;     /* the shared memory */
	void (*reset)(void);  /* the state in which all begins */
	void (*check)(void);  /* after each store */
	void (*verify)(void); /* when all have ended or died */
};

enum il_state { IL_NEW, IL_BEGUN, IL_GONE };

static struct {
	const struct il_plan *plan;
	unsigned nr;
	bool on; /* an actor runs, not the test */
	bool dirty;
	unsigned me;
	int next; /* who runs next, or -1: choose */
	int preemptions;
	int deaths;
	unsigned dead; /* processes */
	unsigned last; /* actors that run when no other can */
	enum il_state state[IL_ACTORS];
	unsigned beside[IL_ACTORS];
	unsigned steps[IL_ACTORS];
	jmp_buf main;
	jmp_buf context[IL_ACTORS];
	jmp_buf entry[IL_ACTORS]; /* to begin anew on the same stack */

	/* The schedule: what was taken, of how many. */
	struct {
		uint8_t taken;
		uint8_t of;
	} path[IL_PATH];
	unsigned length;
	unsigned at;

	unsigned long schedules;
	unsigned long steps_total;
	char failure[256];
	char story[4096];
	size_t story_length;
} il;

static char il_stacks[IL_ACTORS][IL_STACK] __attribute__((aligned(64)));

/* Who reads and who writes each word: as learnt, and as in use. */
static uint8_t il_readers[2][IL_WORDS];
static uint8_t il_writers[2][IL_WORDS];

static void il_fail(const char *format, ...)
	__attribute__((format(printf, 1, 2)));

static void il_fail(const char *format, ...)
{
	va_list args;

	if (il.failure[0])
		return;
	va_start(args, format);
	vsnprintf(il.failure, sizeof(il.failure), format, args);
	va_end(args);
}

#define il_expect(a, op, b, what)                                              \
	do {                                                                   \
		long long a_ = (a);                                            \
		long long b_ = (b);                                            \
		if (!(a_ op b_))                                               \
			il_fail("%s: %lld " #op " %lld", (what), a_, b_);      \
	} while (0)

/* For whoever has to read a schedule that failed. */
static void il_tell(const char *what, const char *where, int line)
{
	size_t left = sizeof(il.story) - il.story_length;
	int n = snprintf(il.story + il.story_length, left,
			 "\n  actor %u, step %u, in %s:%d: %s", il.me,
			 il.steps[il.me], where, line, what);

	if (n > 0 && (size_t)n < left)
		il.story_length += (size_t)n;
}

static unsigned il_choose(unsigned of)
{
	if (of < 2)
		return 0;
	if (il.at == il.length) {
		if (il.length == IL_PATH)
			ck_abort_msg("schedule too long");
		il.path[il.length].taken = 0;
		il.path[il.length++].of = (uint8_t)of;
	}
	if (il.path[il.at].of != of)
		ck_abort_msg("not deterministic");
	return il.path[il.at++].taken;
}

/* The next schedule, or false. */
static bool il_advance(void)
{
	while (il.length &&
	       il.path[il.length - 1].taken + 1 == il.path[il.length - 1].of)
		il.length--;
	if (!il.length)
		return false;
	il.path[il.length - 1].taken++;
	return true;
}

static bool il_is_dead(unsigned process)
{
	return il.dead >> process & 1;
}

static bool il_can_run(unsigned i)
{
	const struct il_actor *actor = &il.plan->actors[i];

	if (il.state[i] == IL_GONE)
		return false;
	if (actor->after &&
	    !il_is_dead(il.plan->actors[actor->after - 1].process))
		return false;
	/* A thread waits for its handler; after its end there is none. */
	if (actor->handler && il.state[i] == IL_NEW &&
	    il.state[actor->handler - 1] == IL_GONE)
		return false;
	for (unsigned k = 0; k < il.nr; k++) {
		if (il.plan->actors[k].handler == i + 1 &&
		    il.state[k] == IL_BEGUN)
			return false;
	}
	return true;
}

static void il_kill(unsigned process)
{
	il.dead |= 1u << process;
	for (unsigned i = 0; i < il.nr; i++) {
		if (il.plan->actors[i].process == process)
			il.state[i] = IL_GONE;
	}
}

static void il_look(void)
{
	if (il.dirty)
		il.plan->check();
	il.dirty = false;
}

/* Whose accesses does this one conflict with?  The test's at the end count as
 * one actor's more. */
static unsigned il_conflicts(const volatile void *p, bool write)
{
	size_t at = (size_t)((const char *)p - (const char *)il.plan->base) / 4;
	unsigned me = 1u << il.me;

	if (at >= IL_WORDS)
		return 0;
	if (!write) {
		il_readers[0][at] |= (uint8_t)me;
		return il_writers[1][at] & ~me;
	}
	il_writers[0][at] |= (uint8_t)me;
	return (il_writers[1][at] | il_readers[1][at]) & ~me;
}

/* Who may run beside whom? */
static void il_relate(void)
{
	for (unsigned i = 0; i < il.nr; i++) {
		for (unsigned k = 0; k < il.nr; k++) {
			if (k != i && il.plan->actors[i].after != k + 1 &&
			    il.plan->actors[k].after != i + 1)
				il.beside[i] |= 1u << k;
		}
	}
}

/* Take what was learnt into use; was it anything? */
static bool il_learn(void)
{
	bool grew =
		memcmp(il_readers[0], il_readers[1], sizeof(il_readers[0])) ||
		memcmp(il_writers[0], il_writers[1], sizeof(il_writers[0]));

	memcpy(il_readers[1], il_readers[0], sizeof(il_readers[0]));
	memcpy(il_writers[1], il_writers[0], sizeof(il_writers[0]));
	return grew;
}

/* Not swapcontext(), which makes a system call. */
static void il_leave(void)
{
	il.on = false;
	if (!_setjmp(il.context[il.me]))
		_longjmp(il.main, 1);
	il.on = true;
}

/* Last in turn from now on, unless there is nobody else. */
static void il_yield(const char *where, int line)
{
	il.last |= 1u << il.me;
	il_tell("lets the others run before this", where, line);
	il_leave();
}

static void il_step(const volatile void *p, bool write, const char *where,
		    int line)
{
	const struct il_actor *actor;
	unsigned options[IL_ACTORS];
	unsigned conflicts;
	unsigned nr = 1;
	unsigned choice = 0;

	conflicts = il_conflicts(p, write);
	il_look();
	if (!il.on) {
		il.dirty = write;
		return;
	}
	il.steps_total++;
	actor = &il.plan->actors[il.me];
	if ((conflicts & il.beside[il.me]) && il.preemptions > 0 &&
	    il.steps[il.me] &&
	    (!actor->patience || il.steps[il.me] < actor->patience)) {
		for (unsigned i = 0; i < il.nr; i++) {
			if (i != il.me && il_can_run(i))
				options[nr++] = i;
		}
	}
	if (conflicts)
		choice =
			il_choose(nr + (write && actor->dies && il.deaths > 0));
	if (choice == nr) {
		il_tell("dies before this", where, line);
		il.deaths--;
		il_kill(actor->process);
		il_leave();
	} else if (choice) {
		il_tell("waits before this", where, line);
		il.preemptions--;
		il.next = (int)options[choice];
		il_leave();
	}
	if (++il.steps[il.me] == actor->patience)
		il_yield(where, line);
	il.dirty = write;
}

static void il_act(void)
{
	const struct il_actor *actor = &il.plan->actors[il.me];
	unsigned process = actor->process;
	bool last = true;

	il.on = true;
	actor->run();
	il_look();
	il.state[il.me] = IL_GONE;
	for (unsigned i = 0; i < il.nr; i++) {
		if (il.plan->actors[i].process == process &&
		    il.state[i] != IL_GONE)
			last = false;
	}
	il_tell("ends", "run", 0);
	if (actor->exits && last) {
		il_kill(process);
	} else if (actor->dies && il.deaths > 0 && il_choose(2)) {
		il_tell("and is killed", "run", 0);
		il.deaths--;
		il_kill(process);
	}
	il.on = false;
}

/* The bottom of each stack. */
static void il_run(void)
{
	if (_setjmp(il.entry[il.me]))
		il_act();
	_longjmp(il.main, 1);
}

/* Make the stack, once; what runs on it begins at entry[]. */
static void il_prepare(unsigned i)
{
	ucontext_t here;
	ucontext_t context;

	getcontext(&context);
	context.uc_stack.ss_sp = il_stacks[i];
	context.uc_stack.ss_size = IL_STACK;
	context.uc_link = NULL;
	makecontext(&context, il_run, 0);
	il.me = i;
	if (!_setjmp(il.main))
		swapcontext(&here, &context);
}

/* Let @i run until it leaves. */
static void il_enter(unsigned i)
{
	bool begun = il.state[i] == IL_BEGUN;

	il.me = i;
	il.next = -1;
	il.state[i] = IL_BEGUN;
	if (!_setjmp(il.main))
		_longjmp(begun ? il.context[i] : il.entry[i], 1);
}

static void il_execute(int preemptions)
{
	il.at = 0;
	il.next = -1;
	il.dead = 0;
	il.last = 0;
	il.dirty = false;
	il.preemptions = preemptions;
	il.deaths = il.plan->deaths;
	il.story_length = 0;
	memset(il.state, 0, sizeof(il.state));
	memset(il.steps, 0, sizeof(il.steps));
	il.plan->reset();
	il_watching = true;
	for (;;) {
		unsigned options[IL_ACTORS];
		unsigned nr = 0;

		for (unsigned i = 0; i < il.nr; i++) {
			if (il_can_run(i) && !(il.last >> i & 1))
				options[nr++] = i;
		}
		for (unsigned i = 0; !nr && i < il.nr; i++) {
			if (il_can_run(i))
				options[nr++] = i;
		}
		if (!nr)
			break;
		il_enter(il.next >= 0 ? (unsigned)il.next
				      : options[il_choose(nr)]);
	}
	il.me = il.nr;
	il.plan->verify();
	il_watching = false;
	/* Not ck_assert_msg(), which writes to a file each time. */
	if (il.failure[0])
		ck_abort_msg("%s: schedule %lu: %s:%s", il.plan->name,
			     il.schedules, il.failure, il.story);
}

/* Every schedule with so many preemptions. */
static void il_pass(int preemptions)
{
	il.length = 0;
	il.schedules = 0;
	il.steps_total = 0;
	do {
		il.schedules++;
		il_execute(preemptions);
	} while (il_advance());
}

/* Returns how many schedules there were. */
static unsigned long il_explore(const struct il_plan *plan)
{
	memset(&il, 0, sizeof(il));
	memset(il_readers, 0, sizeof(il_readers));
	memset(il_writers, 0, sizeof(il_writers));
	il.plan = plan;
	while (il.nr < IL_ACTORS && plan->actors[il.nr].run)
		il_prepare(il.nr++);
	il_relate();
	for (int n = 0; n < plan->preemptions; n++) {
		il_pass(n);
		il_learn();
	}
	do
		il_pass(plan->preemptions);
	while (il_learn());
	printf("%s: %lu schedules, %lu steps\n", plan->name, il.schedules,
	       il.steps_total);
	fflush(stdout);
	return il.schedules;
}

/* The system calls by which core knows itself and the dead. */
static int il_getpid(void)
{
	return il.on ? (int)(IL_PID + il.plan->actors[il.me].process)
		     : IL_PID - 1;
}

static int il_kill_0(int pid)
{
	return pid >= IL_PID && il_is_dead((unsigned)(pid - IL_PID)) ? -ESRCH
								     : 0;
}

#endif
