/* SPDX-License-Identifier: MIT */
/*
 * peak.c - one mark in the group, raised by every charge and lowered by
 * resets; before that, who had reset before takes the old mark over.
 */
#include "core/peak.h"

#include <errno.h>

#include "core/atomic.h"

/* A group's record may be another group's some day: its generation counts. */
static uint64_t ident_of(const struct mt_session *session, uint32_t process,
			 uint32_t group)
{
	uint64_t life = load_acquire(&session->groups[group].ident) >> 4;

	return UINT64_C(1) << 63 | (life & 0xfffff) << 40 |
	       (uint64_t)(process & 0xfffff) << 20 | (group & 0xfffff);
}

static uint32_t process_of(uint64_t ident)
{
	return (ident >> 20) & 0xfffff;
}

static struct mt_peak *find(const struct mt_session *session, uint64_t ident)
{
	uint32_t high = mt_table_high(session, MT_PEAKS);

	for (uint32_t i = 0; i < high; i++) {
		if (load_acquire(&session->peaks[i].ident) == ident)
			return &session->peaks[i];
	}
	return NULL;
}

static struct mt_peak *find_or_make(struct mt_session *session, uint64_t ident)
{
	struct mt_peak *peak = find(session, ident);

	for (uint32_t n = 0;
	     !peak && n < session->header->tables[MT_PEAKS].capacity;) {
		uint32_t i = mt_segment_turn(session, MT_PEAKS, 0, &n);
		uint64_t none = 0;

		if (i == MT_NONE || load_relaxed(&session->peaks[i].ident) ||
		    !cas_seq_cst(&session->peaks[i].ident, &none, ident))
			continue;
		mt_segment_raise_high(session, MT_PEAKS, i);
		/* Two threads of a process at once: the first counts. */
		peak = find(session, ident);
		if (peak != &session->peaks[i])
			store_release(&session->peaks[i].ident, 0);
	}
	return peak;
}

static void raise_to(_Atomic int64_t *pages, int64_t to)
{
	int64_t seen = load_relaxed(pages);

	while (seen < to && !cas_weak_seq_cst(pages, &seen, to))
		;
}

static void hand_on(struct mt_session *session, uint32_t group,
		    const struct mt_peak *own, int64_t mark)
{
	uint32_t high = mt_table_high(session, MT_PEAKS);

	for (uint32_t i = 0; i < high; i++) {
		struct mt_peak *peak = &session->peaks[i];
		uint64_t ident = load_acquire(&peak->ident);

		if (peak != own && ident &&
		    ident == ident_of(session, process_of(ident), group))
			raise_to(&peak->pages, mark);
	}
}

int mt_peak_reset(struct mt_session *session, uint32_t process, uint32_t group)
{
	struct mt_group *at = &session->groups[group];
	struct mt_peak *own =
		find_or_make(session, ident_of(session, process, group));
	int64_t mark = load_seq_cst(&at->peak_local);
	int64_t usage;

	if (!own)
		return -ENOSPC;
	do {
		hand_on(session, group, own, mark);
		usage = load_seq_cst(&at->usage);
		store_seq_cst(&own->pages, usage);
	} while (!cas_seq_cst(&at->peak_local, &mark, usage));
	/* A charge that came in between compared with the old mark. */
	raise_to(&at->peak_local, load_seq_cst(&at->usage));
	return 0;
}

int64_t mt_peak_read(const struct mt_session *session, uint32_t process,
		     uint32_t group)
{
	const struct mt_group *at = &session->groups[group];
	const struct mt_peak *own =
		find(session, ident_of(session, process, group));
	int64_t pages;

	if (!own)
		return load_relaxed(&at->peak);
	/* In this order: what a reset lowers it has handed on before. */
	pages = load_seq_cst(&at->peak_local);
	pages = MT_MAX(pages, load_seq_cst(&own->pages));
	/* A reset may have met a charge that was then refused. */
	return MT_MIN(pages, load_seq_cst(&at->peak));
}

void mt_peak_forget(struct mt_session *session, uint32_t process)
{
	uint32_t high = mt_table_high(session, MT_PEAKS);

	for (uint32_t i = 0; i < high; i++) {
		uint64_t ident = load_acquire(&session->peaks[i].ident);

		if (ident && process_of(ident) == process)
			cas_seq_cst(&session->peaks[i].ident, &ident, 0);
	}
}
