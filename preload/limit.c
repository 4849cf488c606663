/* SPDX-License-Identifier: MIT */
/*
 * limit.c - the limit path; see limit.h.
 */
#include "preload/limit.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "core/atomic.h"
#include "core/audit.h"
#include "core/counter.h"
#include "core/group.h"
#include "core/process.h"
#include "core/reclaim.h"
#include "core/record.h"
#include "core/stall.h"
#include "core/sys.h"
#include "preload/heap.h"
#include "preload/mmap.h"
#include "preload/unwind.h"

#define ROUNDS      16 /* fruitless ones, before the policy */
#define PROGRESS    64 /* rounds in all, however much each brings */
#define THROTTLES   16 /* as many looks, before one sleeps */
#define RECLAIM_MIN 32 /* pages, at a later look above high */
#define ASKED       4  /* processes at once, for what they have cached */
#define ORDERED     32 /* groups of this process, in the order of reclaim */
#define MS          UINT64_C(1000000)

/* Heap groups that a process can have, see heap.c. */
#define MAX_HEAP_GROUPS 1024

/* Shorter delays are not worth a sleep. */
#define DELAY_LEAST_MS 10

/* How long a killed process may take to let go. */
#define DEATH_MS 2000

static uint64_t now_ns(void)
{
	return mt_sys_clock_ns(CLOCK_MONOTONIC);
}

/* The time passes whatever signals come; their handlers run meanwhile. */
static void sleep_ns(uint64_t ns)
{
	struct timespec left = { (time_t)(ns / (1000 * MS)),
				 (long)(ns % (1000 * MS)) };

	while (mt_syscall2(SYS_nanosleep, &left, &left) == -EINTR)
		;
}

static void count_stall(struct mt_session *session, uint32_t group,
			uint64_t since_ns)
{
	uint64_t now = now_ns();

	mt_stall_add(session, group, (now - since_ns) / 1000, now);
}

static int64_t usage_of(struct mt_session *session, uint32_t group)
{
	return load_seq_cst(&session->groups[group].usage);
}

/* The program's caches, the cheapest first. */
#define NR_CACHES 64

static struct cache {
	_Atomic uint32_t state; /* below */
	uint32_t group;
	memtally_reclaim_fn fn;
	void *arg;
	int cost;
} caches[NR_CACHES];

enum { NO_CACHE, CHANGING, READY, RUNNING };

static MT_TLS const struct cache *my_cache; /* running in this thread */

int mt_limit_reclaim_add(memtally_group group, memtally_reclaim_fn fn,
			 void *arg, int cost)
{
	if (!fn)
		return -EINVAL;
	for (unsigned i = 0; i < NR_CACHES; i++) {
		struct cache *cache = &caches[i];
		uint32_t none = NO_CACHE;

		if (!cas_seq_cst(&cache->state, &none, CHANGING))
			continue;
		cache->group = group;
		cache->fn = fn;
		cache->arg = arg;
		cache->cost = cost;
		store_seq_cst(&cache->state, READY);
		return 0;
	}
	return -ENOSPC;
}

void mt_limit_reclaim_del(memtally_group group, memtally_reclaim_fn fn,
			  void *arg)
{
	for (unsigned i = 0; i < NR_CACHES; i++) {
		struct cache *cache = &caches[i];
		uint32_t ready = READY;

		if (load_acquire(&cache->state) < READY ||
		    cache->group != group || cache->fn != fn ||
		    cache->arg != arg)
			continue;
		/* From inside itself: it goes when it returns. */
		if (cache == my_cache) {
			my_cache = NULL;
			return;
		}
		while (!cas_seq_cst(&cache->state, &ready, NO_CACHE)) {
			if (ready < READY)
				return; /* it took itself away */
			ready = READY;
			mt_sys_yield();
		}
		return;
	}
}

static struct cache *next_cache(struct mt_session *session,
				const struct mt_want *want, const bool *done,
				bool *kept)
{
	struct mt_protection protection;
	struct cache *best = NULL;

	for (unsigned i = 0; i < NR_CACHES; i++) {
		struct cache *cache = &caches[i];

		if (load_acquire(&cache->state) == READY && !done[i] &&
		    (!best || cache->cost < best->cost) &&
		    mt_want_from(session, want, cache->group, &protection,
				 kept))
			best = cache;
	}
	return best;
}

/* Have the program let go of what is wanted.  Return: pages that it says it
 * did. */
static int64_t call_caches(struct mt_session *session,
			   const struct mt_want *want, bool *kept)
{
	bool done[NR_CACHES] = { false };
	struct cache *cache;
	int64_t got = 0;

	while (got < want->pages &&
	       (cache = next_cache(session, want, done, kept))) {
		uint32_t ready = READY;
		uint64_t bytes;

		done[cache - caches] = true;
		if (!cas_seq_cst(&cache->state, &ready, RUNNING))
			continue;
		my_cache = cache;
		bytes = cache->fn((uint64_t)(want->pages - got) *
					  mt_page_size(),
				  cache->arg);
		store_release(&cache->state, my_cache ? READY : NO_CACHE);
		my_cache = NULL;
		got += (int64_t)MT_MIN(bytes / mt_page_size(),
				       (uint64_t)want->pages);
	}
	return got;
}

/*
 * The heap's free pages below the target, back to the system: in the order of
 * reclaim, until there is enough.  A group's go all together.  Return: pages.
 */
static int64_t purge(struct mt_session *session, const struct mt_want *want,
		     bool *kept)
{
	uint64_t done[MAX_HEAP_GROUPS / 64] = { 0 };
	uint32_t n = MT_MIN(mt_heap_nr_groups(), MAX_HEAP_GROUPS);
	int64_t pages = 0;

	/* Of very many groups the last are taken as they come. */
	for (uint32_t turns = 0; turns < n && pages < want->pages; turns++) {
		struct mt_protection best;
		uint32_t first = MT_NONE;

		for (uint32_t i = 0; i < n; i++) {
			uint32_t group = mt_account_resolve(mt_heap_group(i));
			struct mt_protection one;

			if ((done[i / 64] >> i % 64 & 1) ||
			    !mt_want_from(session, want, group, &one, kept) ||
			    (first != MT_NONE && !mt_want_first(&one, &best)))
				continue;
			first = i;
			best = one;
			if (turns >= ORDERED)
				break;
		}
		if (first == MT_NONE)
			break;
		done[first / 64] |= UINT64_C(1) << first % 64;
		mt_want_note(session, mt_account_resolve(mt_heap_group(first)),
			     &best);
		pages += (int64_t)mt_heap_purge(mt_heap_group(first));
	}
	return pages;
}

/*
 * What this process has cached, if the allocator can be called: the heap's free
 * pages; and then, where the
 * program keeps caches of its own, as many of those as are wanting, which come
 * back through the heap.  Return: pages.  @kept: there was something that only
 * `low` kept.
 */
static int64_t give_back(struct mt_session *session, const struct mt_want *want,
			 bool heap_is_free, bool *kept)
{
	int64_t pages;
	int64_t more = 0;

	*kept = false;
	if (!heap_is_free)
		return 0;
	pages = purge(session, want, kept);
	if (pages < want->pages) {
		struct mt_want rest = *want;

		rest.pages -= pages;
		more = call_caches(session, &rest, kept);
		if (more)
			purge(session, &rest, kept);
	}
	return pages + more;
}

/* Up to a millisecond, for others to give something back. */
static void wait_for_others(struct mt_session *session, uint32_t group,
			    int64_t usage)
{
	uint64_t begin = now_ns();

	while (usage_of(session, group) >= usage && now_ns() - begin < MS)
		sleep_ns(MS / 20);
	count_stall(session, group, begin);
}

static void answer(struct mt_session *session, bool heap_is_free)
{
	struct mt_process *process = &session->processes[mt_account_process()];
	uint64_t asked = load_acquire(&process->asked);
	struct mt_want want = mt_want_asked(asked);
	bool kept;

	if (asked == load_relaxed(&process->answered) ||
	    (!heap_is_free && !want.write_back))
		return;
	store_release(&process->answered, asked);
	if (want.target >= session->header->tables[MT_GROUPS].capacity)
		return;
	if (want.write_back) {
		mt_mmap_write_back(want.target);
		return;
	}
	give_back(session, &want, true, &kept);
	mt_drain(session, mt_account_task(), want.target);
}

/* ---- the log ---- */

static int64_t max_of(struct mt_session *session, uint32_t group)
{
	return load_relaxed(&session->groups[group].max);
}

static void log_it(struct mt_session *session, struct mt_record *record,
		   bool heap_is_free)
{
	mt_record_who(session, record, mt_account_process(),
		      (uint32_t)mt_sys_gettid());
	mt_unwind(record, heap_is_free);
	mt_record_write(session, record);
}

/* About this thread: refused, or it stopped everybody. */
static void log_max(struct mt_session *session, enum mt_record_what what,
		    uint32_t limited, int64_t pages, bool heap_is_free)
{
	struct mt_record record;

	mt_record_begin(session, &record, what, limited,
			max_of(session, limited));
	record.pages = pages;
	log_it(session, &record, heap_is_free);
}

static void log_kill(struct mt_session *session, uint32_t limited,
		     uint32_t victim, bool heap_is_free)
{
	const struct mt_process *process = &session->processes[victim];
	struct mt_record record;

	mt_record_begin(session, &record, MT_RECORD_KILLED, limited,
			max_of(session, limited));
	record.pages = mt_refused;
	record.victim = (uint32_t)(load_relaxed(&process->state) >> 32);
	record.victim_pages =
		mt_process_charged_below(session, victim, limited);
	memcpy(record.victim_comm, process->comm,
	       sizeof(record.victim_comm) - 1);
	log_it(session, &record, heap_is_free);
}

/* One in each second: of a thread that is slowed down there are many. */
static void log_high(struct mt_session *session, uint32_t group, int64_t pages,
		     bool heap_is_free)
{
	static _Atomic uint32_t last;
	uint32_t now = (uint32_t)(now_ns() / (1000 * MS)) + 1;
	uint32_t seen = load_relaxed(&last);
	struct mt_record record;

	if (seen == now || !cas_seq_cst(&last, &seen, now))
		return;
	mt_record_begin(session, &record, MT_RECORD_HIGH, group,
			load_relaxed(&session->groups[group].high));
	record.pages = pages;
	log_it(session, &record, heap_is_free);
}

/* ---- above high ---- */

/* Both passes at once: nobody is refused here. */
static int64_t reclaim_high(struct mt_session *session, uint32_t group,
			    int64_t pages, bool heap_is_free)
{
	struct mt_want want = { .target = group, .pages = pages };
	int64_t got = 0;
	bool kept = false;

	got = give_back(session, &want, heap_is_free, &kept);
	if (got < pages)
		mt_want_ask(session, &want, mt_account_process(), &kept);
	if (got == 0 && kept) {
		want.despite_low = true;
		got = give_back(session, &want, heap_is_free, &kept);
		if (got < pages)
			mt_want_ask(session, &want, mt_account_process(),
				    &kept);
	}
	return got;
}

/* One look at every level over its `high`.  Return: pages given back; the
 * highest of the overages goes to @ret_overage. */
static int64_t look_at_high(struct mt_session *session, uint32_t group,
			    int64_t want, bool heap_is_free,
			    uint64_t *ret_overage)
{
	int64_t pages = 0;

	*ret_overage = 0;
	for (int i = 0; i < MT_DEPTH_MAX; i++) {
		struct mt_group *at;
		uint64_t overage;

		if (group >= session->header->tables[MT_GROUPS].capacity)
			break;
		at = &session->groups[group];
		overage = mt_counter_overage(load_seq_cst(&at->usage),
					     load_relaxed(&at->high));
		if (overage) {
			mt_group_event(session, group, MT_EVENT_HIGH);
			log_high(session, group, want, heap_is_free);
			mt_drain(session, mt_account_task(), group);
			pages += reclaim_high(session, group, want,
					      heap_is_free);
			overage = mt_counter_overage(load_seq_cst(&at->usage),
						     load_relaxed(&at->high));
		}
		*ret_overage = MT_MAX(*ret_overage, overage);
		group = load_relaxed(&at->parent);
	}
	return pages;
}

static void throttle(struct mt_session *session, bool heap_is_free)
{
	struct mt_task *task = mt_account_task();
	uint32_t group = task->over_group;
	int64_t pages = task->over_pages;

	task->over_pages = 0;
	if (!pages || group == MT_NONE)
		return;
	for (int tries = 0; tries < THROTTLES; tries++) {
		uint64_t overage;
		int64_t got = look_at_high(session, group,
					   tries ? RECLAIM_MIN : pages,
					   heap_is_free, &overage);
		uint64_t ms = mt_counter_delay_ms(overage, pages);
		uint64_t begin = now_ns();

		if (ms <= DELAY_LEAST_MS)
			return;
		if (got && tries + 1 < THROTTLES)
			continue;
		sleep_ns(ms * MS);
		count_stall(session, group, begin);
		return;
	}
}

void mt_limit_later(bool heap_is_free)
{
	struct mt_session *session = mt_account_session();
	int saved = errno;

	mt_flags &= (uint8_t)~MT_LATER;
	if (!session || (mt_flags & MT_INSIDE) ||
	    mt_account_process() == MT_NONE)
		return;
	mt_flags |= MT_INSIDE;
	answer(session, heap_is_free);
	throttle(session, heap_is_free);
	mt_flags &= (uint8_t)~MT_INSIDE;
	errno = saved;
}

/* ---- policies ---- */

/* Is somebody being taken back just now?  Then there will be room. */
static bool reaping(struct mt_session *session)
{
	uint32_t high = mt_table_high(session, MT_PROCESSES);

	for (uint32_t i = 0; i < high; i++) {
		if ((load_acquire(&session->processes[i].state) & 0xff) ==
		    MT_PROC_REAPING)
			return true;
	}
	return false;
}

static uint64_t own_ns(struct mt_session *session)
{
	return load_relaxed(&session->processes[mt_account_process()].pid_ns);
}

/* Kill one process.  Ourselves come last: then this does not return. */
static bool kill_one(struct mt_session *session, uint32_t limited,
		     uint32_t victim, bool heap_is_free, uint64_t *ret_state)
{
	struct mt_process *process = &session->processes[victim];
	uint64_t state = load_acquire(&process->state);
	uint32_t home = load_relaxed(&process->home);
	int ret;

	*ret_state = state;
	if ((state & 0xff) != MT_PROC_LIVE ||
	    (load_relaxed(&process->pid_ns) != own_ns(session) &&
	     !load_seq_cst(&session->header->supervisor)))
		return false;
	/* Before it is done: its group may go with it, and so may we. */
	mt_group_event(session, home, MT_EVENT_OOM_KILL);
	log_kill(session, limited, victim, heap_is_free);
	ret = mt_process_signal(session, victim, state, own_ns(session),
				SIGKILL);
	return ret == 0 || ret == -ESRCH || ret == -EINPROGRESS;
}

/* Wait for a killed process to let go, and take back what it held. */
static void bury(struct mt_session *session, uint32_t victim, uint64_t state)
{
	uint64_t begin = now_ns();

	while (now_ns() - begin < DEATH_MS * MS) {
		uint64_t seen;
		enum mt_life life = mt_process_life(session, victim,
						    own_ns(session), &seen);

		if (seen != state) {
			/* Somebody else does it, and may not be through. */
			if ((seen & 0xff) != MT_PROC_REAPING)
				return;
		} else if (life == MT_DEAD) {
			mt_process_reap(session, victim, state,
					MT_ENDED_KILLED);
			return;
		}
		sleep_ns(MS);
	}
}

static bool kill_all_below(struct mt_session *session, uint32_t limited,
			   uint32_t group, bool heap_is_free)
{
	uint32_t high = mt_table_high(session, MT_PROCESSES);
	uint32_t own = mt_account_process();
	bool any = false;
	uint64_t state;

	mt_group_event(session, group, MT_EVENT_OOM_GROUP_KILL);
	for (uint32_t i = 0; i < high; i++) {
		if (i != own &&
		    mt_counter_is_below(
			    session, load_relaxed(&session->processes[i].home),
			    group) &&
		    kill_one(session, limited, i, heap_is_free, &state))
			any = true;
	}
	if (mt_counter_is_below(session,
				load_relaxed(&session->processes[own].home),
				group))
		kill_one(session, limited, own, heap_is_free, &state);
	for (uint32_t i = 0; i < high; i++) {
		state = load_acquire(&session->processes[i].state);
		if (i != own && (state & 0xff) == MT_PROC_LIVE &&
		    mt_counter_is_below(
			    session, load_relaxed(&session->processes[i].home),
			    group))
			bury(session, i, state);
	}
	return any;
}

/*
 * One at a time, or each of several refused at once would kill one.  Whoever
 * died meanwhile, or is stopped, has had its time.
 */
static bool take_killer(struct mt_session *session, uint64_t *ret_word)
{
	_Atomic uint64_t *killer = &session->header->killer;
	uint32_t ms = (uint32_t)(now_ns() / MS);
	uint64_t held = 0;

	*ret_word = (uint64_t)mt_sys_getpid() << 32 | ms;
	return cas_seq_cst(killer, &held, *ret_word) ||
	       (ms - (uint32_t)held > 2 * DEATH_MS &&
		cas_seq_cst(killer, &held, *ret_word));
}

static bool has_room(struct mt_session *session, uint32_t limited,
		     int64_t pages)
{
	return usage_of(session, limited) + pages <=
	       load_seq_cst(&session->groups[limited].max);
}

static bool kill_one_or_all(struct mt_session *session, uint32_t limited,
			    bool heap_is_free)
{
	uint32_t victim = mt_victim(session, limited);
	uint32_t together;
	uint64_t state;

	mt_group_event(session, limited, MT_EVENT_OOM);
	if (victim == MT_NONE)
		return false;
	together = mt_victim_group(session, victim, limited);
	if (together != MT_NONE)
		return kill_all_below(session, limited, together, heap_is_free);
	if (!kill_one(session, limited, victim, heap_is_free, &state))
		return false;
	bury(session, victim, state);
	return true;
}

static bool kill_something(struct mt_session *session, uint32_t limited,
			   int64_t pages, bool heap_is_free)
{
	uint64_t word;
	bool done = true;

	if (!take_killer(session, &word)) {
		/* Somebody is at it: its victim's pages may be for us. */
		sleep_ns(MS);
		return true;
	}
	if (reaping(session))
		sleep_ns(MS);
	else if (!has_room(session, limited, pages))
		done = kill_one_or_all(session, limited, heap_is_free);
	cas_seq_cst(&session->header->killer, &word, 0);
	return done;
}

/* Until the limit is raised or others give back: a stopped process looks at
 * nothing.  Everybody below the limited group stops, ourselves last. */
static void stop_all_below(struct mt_session *session, uint32_t limited)
{
	uint32_t high = mt_table_high(session, MT_PROCESSES);
	uint32_t own = mt_account_process();
	uint64_t begin = now_ns();

	fetch_or_seq_cst(&session->groups[limited].flags, MT_GROUP_STOPPED);
	for (uint32_t i = 0; i < high; i++) {
		uint64_t state = load_acquire(&session->processes[i].state);

		if (i != own &&
		    mt_process_charged_below(session, i, limited) > 0)
			mt_process_signal(session, i, state, own_ns(session),
					  SIGSTOP);
	}
	mt_sys_kill(mt_sys_getpid(), SIGSTOP);
	/* Continued. */
	count_stall(session, limited, begin);
}

static bool wait_a_little(struct mt_session *session, uint32_t limited,
			  struct mt_limit_rounds *rounds)
{
	uint64_t most = load_relaxed(&session->header->wait_ms) * MS;
	uint64_t begin = now_ns();

	if (!rounds->waiting_ns) {
		mt_group_event(session, limited, MT_EVENT_OOM);
		rounds->waiting_ns = begin;
	}
	if (begin - rounds->waiting_ns >= most)
		return false;
	sleep_ns(MT_MIN(10 * MS, most - (begin - rounds->waiting_ns)));
	count_stall(session, limited, begin);
	return true;
}

/* Nothing could be reclaimed.  Return: try again? */
static bool apply_policy(struct mt_session *session, uint32_t limited,
			 int64_t pages, struct mt_limit_rounds *rounds)
{
	switch (load_relaxed(&session->header->on_max)) {
	case MT_ON_MAX_KILL:
	case MT_ON_MAX_KILL_GROUP:
		rounds->fruitless = 0;
		return kill_something(session, limited, pages,
				      !rounds->heap_is_busy);
	case MT_ON_MAX_STOP:
		mt_group_event(session, limited, MT_EVENT_OOM);
		log_max(session, MT_RECORD_STOPPED, limited, pages,
			!rounds->heap_is_busy);
		stop_all_below(session, limited);
		return true;
	case MT_ON_MAX_WAIT:
		return wait_a_little(session, limited, rounds);
	default:
		mt_group_event(session, limited, MT_EVENT_OOM);
		return false;
	}
}

/* One pass of a reclaim.  Return: is there less than before? */
static bool reclaim_pass(struct mt_session *session, const struct mt_want *want,
			 int64_t before, bool heap_is_free, bool *kept,
			 unsigned *asked)
{
	unsigned n;

	give_back(session, want, heap_is_free, kept);
	mt_drain(session, mt_account_task(), want->target);
	if (usage_of(session, want->target) < before)
		return true;
	n = mt_want_ask(session, want, mt_account_process(), kept);
	*asked += n;
	if (n)
		wait_for_others(session, want->target, before);
	mt_drain(session, mt_account_task(), want->target);
	return usage_of(session, want->target) < before;
}

static bool reclaim(struct mt_session *session, uint32_t limited, int64_t pages,
		    bool heap_is_free, unsigned *ret_asked)
{
	static struct mt_audit_scratch scratch;
	struct mt_want want = { .target = limited, .pages = pages };
	int64_t before = usage_of(session, limited);
	int64_t repaired;
	bool kept;

	*ret_asked = 0;
	mt_process_reap_dead(session, own_ns(session), UINT32_MAX);
	/* What the dead left of an operation must not keep the living out. */
	if (mt_audit_is_due(session))
		mt_audit(session, &scratch, &repaired);
	if (reclaim_pass(session, &want, before, heap_is_free, &kept,
			 ret_asked))
		return true;
	/* Only when nothing else is left to take. */
	if (!kept || *ret_asked)
		return false;
	want.despite_low = true;
	return reclaim_pass(session, &want, before, heap_is_free, &kept,
			    ret_asked);
}

bool mt_limit_round(struct mt_limit_rounds *rounds)
{
	struct mt_session *session = mt_account_session();
	uint32_t limited = mt_refuser;
	int64_t pages = mt_refused;
	int saved = errno;
	bool more = false;

	mt_flags &= (uint8_t)~MT_REFUSED;
	if (!session || (mt_flags & MT_INSIDE) ||
	    mt_account_process() == MT_NONE ||
	    limited >= session->header->tables[MT_GROUPS].capacity)
		return false;
	mt_flags |= MT_INSIDE;
	/* Waiting is one long round. */
	if (!rounds->waiting_ns)
		mt_group_event(session, limited, MT_EVENT_MAX);
	if (reclaim(session, limited, pages, !rounds->heap_is_busy,
		    &rounds->asked)) {
		rounds->fruitless = 0;
		more = rounds->nr < PROGRESS;
	} else if (rounds->nr == 0 ||
		   (rounds->asked && ++rounds->fruitless < ROUNDS)) {
		/* Others may have given back meanwhile, or will. */
		more = true;
	} else {
		more = apply_policy(session, limited, pages, rounds);
	}
	if (!more)
		log_max(session, MT_RECORD_REFUSED, limited, pages,
			!rounds->heap_is_busy);
	rounds->nr++;
	mt_flags &= (uint8_t)~MT_INSIDE;
	errno = saved;
	return more;
}
