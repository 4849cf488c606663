/* SPDX-License-Identifier: MIT */
/*
 * api.c - the functions behind memtally.h.
 *
 * Watches (event descriptors and thresholds) are looked at by whoever charges
 * or gives back in this process: there is no thread of ours that could wait.
 * They belong to the process that made them; a forked child has none.
 */
#include "preload/api.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

#include "core/atomic.h"
#include "core/counter.h"
#include "core/group.h"
#include "core/peak.h"
#include "core/process.h"
#include "core/record.h"
#include "core/sys.h"
#include "preload/init.h"
#include "preload/limit.h"
#include "preload/mmap.h"

static int64_t pages_up(uint64_t bytes)
{
	uint64_t page = mt_page_size();

	return (int64_t)MT_MIN(bytes / page + (bytes % page != 0),
			       (uint64_t)MT_UNLIMITED);
}

static int64_t pages_down(uint64_t bytes)
{
	return (int64_t)MT_MIN(bytes / mt_page_size(), (uint64_t)MT_UNLIMITED);
}

static uint64_t in_bytes(int64_t pages)
{
	if (pages >= MT_UNLIMITED)
		return MEMTALLY_UNLIMITED;
	return (uint64_t)MT_MAX(pages, 0) * mt_page_size();
}

/* The session, if this process is counted in it. */
static struct mt_session *joined(void)
{
	return mt_account_process() == MT_NONE ? NULL : mt_account_session();
}

static struct mt_session *joined_with(memtally_group group)
{
	struct mt_session *session = joined();

	return session && mt_group_is_live(session, group) ? session : NULL;
}

static memtally_group group_get(const char *path)
{
	struct mt_session *session = joined();
	uint32_t process = mt_account_process();
	uint32_t last = MT_NONE;
	uint32_t group = MT_ROOT;

	if (!session || !path)
		return MT_ROOT;
	/* Found again now that a line holds it, it is there to stay. */
	for (int tries = 0; tries < 16 && group != last; tries++) {
		last = group;
		mt_group_make_path(session, mt_account_resolve(MT_HOME), path,
				   0, &group);
		/* Its threads must be able to charge there, come what may. */
		while (group != MT_ROOT &&
		       !mt_task_ensure_line(session, process, group))
			group = load_relaxed(&session->groups[group].parent);
	}
	return group;
}

static memtally_group enter(memtally_group group)
{
	memtally_group previous = mt_account_current();

	if (joined_with(group))
		mt_account_enter(group);
	return previous;
}

static void leave(memtally_group previous)
{
	if (previous == MT_HOME || joined_with(previous))
		mt_account_enter(previous);
}

static int limit_set(memtally_group group, int which, uint64_t bytes)
{
	struct mt_session *session = joined_with(group);
	int64_t pages = pages_down(bytes);

	if (which < MEMTALLY_MIN || which > MEMTALLY_MAX)
		return -EINVAL;
	if (!session)
		return joined() ? -ENOENT : 0;
	switch (which) {
	case MEMTALLY_MIN:
		mt_counter_set_min(session, group, pages);
		break;
	case MEMTALLY_LOW:
		mt_counter_set_low(session, group, pages);
		break;
	case MEMTALLY_HIGH:
		mt_counter_set_high(session, group, pages);
		break;
	default:
		if (mt_counter_force_max(session, group, pages) > 0)
			mt_drain(session, mt_account_task(), group);
	}
	return 0;
}

static int64_t stocks_below(struct mt_session *session, uint32_t group)
{
	uint32_t high = mt_table_high(session, MT_LINES);
	int64_t pages = 0;

	for (uint32_t i = 0; i < high; i++) {
		uint64_t ident = load_acquire(&session->lines[i].ident);

		if (!ident ||
		    !mt_counter_is_below(session, mt_line_group(ident), group))
			continue;
		for (int k = 0; k < MT_NR_KINDS; k++)
			pages += mt_word_stock(
				load_relaxed(&session->lines[i].word[k]));
	}
	return pages;
}

static int usage(memtally_group group, struct memtally_usage *out, size_t size)
{
	struct mt_session *session = joined_with(group);
	struct memtally_usage all = { 0 };
	struct mt_group *g;
	int64_t pages;

	memset(out, 0, size);
	if (!session)
		return joined() ? -ENOENT : 0;
	g = &session->groups[group];
	pages = load_relaxed(&g->usage);
	all.current = in_bytes(pages);
	all.charged = in_bytes(pages - stocks_below(session, group));
	all.peak = in_bytes(mt_peak_read(session, mt_account_process(), group));
	all.min = in_bytes(load_relaxed(&g->min));
	all.low = in_bytes(load_relaxed(&g->low));
	all.high = in_bytes(load_relaxed(&g->high));
	all.max = in_bytes(load_relaxed(&g->max));
	for (int i = 0; i < MT_NR_EVENTS; i++)
		all.events[i] = load_relaxed(&g->events[i]);
	all.stall_us = load_relaxed(&g->stall_us);
	memcpy(out, &all, MT_MIN(size, sizeof(all)));
	return 0;
}

static uint64_t headroom(memtally_group group)
{
	struct mt_session *session = joined_with(group);
	int64_t least = MT_UNLIMITED;

	for (int i = 0; session && i < MT_DEPTH_MAX; i++) {
		struct mt_group *g;
		int64_t limit;

		if (group >= session->header->tables[MT_GROUPS].capacity)
			break;
		g = &session->groups[group];
		limit = MT_MIN(load_relaxed(&g->high), load_relaxed(&g->max));
		if (limit < MT_UNLIMITED)
			least = MT_MIN(
				least,
				MT_MAX(limit - load_relaxed(&g->usage), 0));
		group = load_relaxed(&g->parent);
	}
	return in_bytes(least);
}

static int charge(memtally_group group, uint64_t bytes)
{
	struct mt_limit_rounds rounds = { 0 };
	int64_t pages = pages_up(bytes);

	if (!joined_with(group) || !pages)
		return 0;
	if (pages > MT_CHARGE_MAX)
		return -ENOMEM;
	while (!mt_account_charge(group, MT_EXTERNAL, pages)) {
		if (!mt_limit_round(&rounds))
			return -ENOMEM;
	}
	if (mt_flags & MT_LATER)
		mt_limit_later(true);
	return 0;
}

static void uncharge(memtally_group group, uint64_t bytes)
{
	int64_t pages = pages_up(bytes);

	if (joined_with(group) && pages && pages <= MT_CHARGE_MAX)
		mt_account_uncharge(group, MT_EXTERNAL, pages);
}

static int peak_reset(memtally_group group)
{
	struct mt_session *session = joined_with(group);

	if (!session)
		return joined() ? -ENOENT : 0;
	return mt_peak_reset(session, mt_account_process(), group);
}

static int move(void *addr, size_t len, memtally_group to)
{
	struct mt_session *session = joined_with(to);

	if ((uintptr_t)addr % mt_page_size() || !len ||
	    (uintptr_t)addr + len < (uintptr_t)addr)
		return -EINVAL;
	if (!session)
		return joined() ? -ENOENT : 0;
	return mt_mmap_regroup(addr, len, to);
}

/* ---- watches ---- */

#define NR_WATCHES 64

enum { FREE, MAKING, EVENTS, THRESHOLD };

struct watch {
	_Atomic uint32_t kind;
	uint32_t group;
	uint64_t life; /* the group's ident, its state aside */
	uint64_t mark; /* of the process that made it */
	uint32_t mask; /* EVENTS: which; and where to say so */
	int fd;
	uint64_t fd_id;
	_Atomic uint64_t seen; /* EVENTS: the sum of the counts */
	int64_t pages;         /* THRESHOLD: where */
	_Atomic uint32_t above;
	char name[32];
};

_Atomic uint32_t mt_api_watches;
static struct watch watches[NR_WATCHES];
static _Atomic uint64_t thresholds_fired;

static uint64_t life_of(struct mt_session *session, uint32_t group)
{
	return load_acquire(&session->groups[group].ident) & ~UINT64_C(0xf);
}

static uint64_t count_events(struct mt_session *session,
			     const struct watch *watch)
{
	uint64_t sum = 0;

	for (int i = 0; i < MT_NR_EVENTS; i++)
		if (watch->mask >> i & 1)
			sum += load_relaxed(
				&session->groups[watch->group].events[i]);
	if (watch->mask & MEMTALLY_EVENT_THRESHOLD)
		sum += load_relaxed(&thresholds_fired);
	return sum;
}

/* The number the kernel gave this eventfd; 0: it is none, or can't be told. */
static uint64_t eventfd_id(int fd)
{
	static const char key[] = "eventfd-id:";
	char path[48] = "/proc/self/fdinfo/";
	char text[256];
	const char *at;
	uint64_t id = 0;
	ssize_t n;
	int info;

	mt_print_number(path + strlen(path), (uint32_t)fd);
	info = mt_sys_open(path, O_RDONLY | O_CLOEXEC, 0);
	if (info < 0)
		return 0;
	n = mt_sys_read(info, text, sizeof(text) - 1);
	mt_sys_close(info);
	text[n > 0 ? n : 0] = '\0';
	at = strstr(text, key);
	if (!at)
		return 0;
	for (at += sizeof(key) - 1; *at == ' ' || *at == '\t'; at++)
		;
	for (; *at >= '0' && *at <= '9'; at++)
		id = id * 10 + (uint64_t)(*at - '0');
	return id + 1;
}

/* The program closes it when it likes, and its number may be a file's now. */
static void tell(struct watch *watch)
{
	uint64_t one = 1;

	if (eventfd_id(watch->fd) == watch->fd_id)
		mt_sys_write(watch->fd, &one, sizeof(one));
	else
		store_release(&watch->kind, FREE);
}

static void log_threshold(struct mt_session *session, const struct watch *watch,
			  bool above)
{
	struct mt_record record;

	mt_record_begin(session, &record,
			above ? MT_RECORD_RISE : MT_RECORD_FALL, watch->group,
			watch->pages);
	mt_record_who(session, &record, mt_account_process(),
		      (uint32_t)mt_sys_gettid());
	memcpy(record.name, watch->name, sizeof(record.name) - 1);
	mt_record_write(session, &record);
}

static void look_at_threshold(struct mt_session *session, struct watch *watch)
{
	int64_t pages = load_relaxed(&session->groups[watch->group].usage);
	uint32_t now = pages >= watch->pages;
	uint32_t before = !now;

	if (load_relaxed(&watch->above) == now ||
	    !cas_seq_cst(&watch->above, &before, now))
		return;
	fetch_add_relaxed(&thresholds_fired, 1);
	log_threshold(session, watch, now);
}

static bool is_mine(struct mt_session *session, const struct watch *watch)
{
	return watch->mark == mt_account_mark() &&
	       watch->life == life_of(session, watch->group);
}

void mt_api_look(void)
{
	struct mt_session *session = mt_account_session();

	for (int pass = 0; session && pass < 2; pass++) {
		/* Thresholds first, for they are events. */
		uint32_t kind = pass ? EVENTS : THRESHOLD;

		for (uint32_t i = 0; i < NR_WATCHES; i++) {
			struct watch *watch = &watches[i];
			uint64_t seen;
			uint64_t now;

			if (load_acquire(&watch->kind) != kind ||
			    !is_mine(session, watch))
				continue;
			if (kind == THRESHOLD) {
				look_at_threshold(session, watch);
				continue;
			}
			now = count_events(session, watch);
			seen = load_relaxed(&watch->seen);
			if (now != seen &&
			    cas_seq_cst(&watch->seen, &seen, now))
				tell(watch);
		}
	}
}

static struct watch *make_watch(struct mt_session *session, uint32_t group)
{
	for (uint32_t i = 0; i < NR_WATCHES; i++) {
		struct watch *watch = &watches[i];
		uint32_t kind = load_acquire(&watch->kind);

		/* Free, or left by the process we were forked from. */
		if (kind == MAKING ||
		    (kind != FREE && watch->mark == mt_account_mark()) ||
		    !cas_seq_cst(&watch->kind, &kind, MAKING))
			continue;
		watch->group = group;
		watch->life = life_of(session, group);
		watch->mark = mt_account_mark();
		watch->mask = 0;
		watch->fd = -1;
		return watch;
	}
	return NULL;
}

static void start_watch(struct watch *watch, uint32_t kind)
{
	store_release(&watch->kind, kind);
	store_release(&mt_api_watches, 1);
}

static int event_fd(memtally_group group, unsigned mask)
{
	struct mt_session *session = joined_with(group);
	struct watch *watch;

	if (!mask || mask >= 2 * MEMTALLY_EVENT_THRESHOLD)
		return -EINVAL;
	if (!session)
		return joined() ? -ENOENT : -ENOSYS;
	watch = make_watch(session, group);
	if (!watch)
		return -ENOSPC;
	watch->mask = mask;
	watch->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (watch->fd < 0) {
		store_release(&watch->kind, FREE);
		return -errno;
	}
	watch->fd_id = eventfd_id(watch->fd);
	store_relaxed(&watch->seen, count_events(session, watch));
	start_watch(watch, EVENTS);
	return watch->fd;
}

static int threshold_add(memtally_group group, uint64_t bytes, const char *name)
{
	struct mt_session *session = joined_with(group);
	int64_t pages = pages_up(bytes);
	struct watch *watch;

	if (!name || !*name || !pages || strlen(name) >= sizeof(watch->name))
		return -EINVAL;
	if (!session)
		return joined() ? -ENOENT : 0;
	watch = make_watch(session, group);
	if (!watch)
		return -ENOSPC;
	watch->pages = pages;
	memcpy(watch->name, name, strlen(name) + 1);
	/* A mark that is passed already does not fire. */
	store_relaxed(&watch->above,
		      load_relaxed(&session->groups[group].usage) >= pages);
	start_watch(watch, THRESHOLD);
	return 0;
}

MT_EXPORT const struct memtally_api memtally_api_v1 = {
	.size = sizeof(struct memtally_api),
	.group_get = group_get,
	.enter = enter,
	.leave = leave,
	.limit_set = limit_set,
	.usage = usage,
	.headroom = headroom,
	.charge = charge,
	.uncharge = uncharge,
	.reclaim_add = mt_limit_reclaim_add,
	.reclaim_del = mt_limit_reclaim_del,
	.event_fd = event_fd,
	.threshold_add = threshold_add,
	.peak_reset = peak_reset,
	.move = move,
};
