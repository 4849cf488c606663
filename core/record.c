/* SPDX-License-Identifier: MIT */
/*
 * record.c - writing the log.
 *
 * A writer takes a number, and with it a place.  Where another still writes
 * there, a whole round behind, it is dead or stopped, and is written over; when
 * it goes on nevertheless, the sum tells.
 */
#include "core/record.h"

#include <string.h>
#include <time.h>

#include "core/atomic.h"
#include "core/counter.h"
#include "core/group.h"
#include "core/sys.h"

#define WORDS (sizeof(struct mt_record) / sizeof(uint64_t))

/* The end of a text that is too long, as its end says more. */
static void copy_tail(char *to, size_t size, const char *text)
{
	size_t len = strlen(text);

	if (len >= size)
		text += len - (size - 1);
	memcpy(to, text, strlen(text) + 1);
}

static void copy_path(struct mt_session *session, uint32_t group, char *to,
		      size_t size)
{
	char path[MT_DEPTH_MAX * MT_NAME_MAX];

	mt_group_path(session, group, path, sizeof(path));
	copy_tail(to, size, path);
}

/* Of the groups below one: ones inside others count again. */
static void find_largest(struct mt_session *session, struct mt_record *record)
{
	uint32_t high = mt_table_high(session, MT_GROUPS);
	uint32_t found[MT_RECORD_LARGEST];
	int64_t pages[MT_RECORD_LARGEST];
	int n = 0;

	for (uint32_t i = 0; i < high; i++) {
		int64_t usage = load_relaxed(&session->groups[i].usage);
		int at;

		if (i == record->group || usage <= 0 ||
		    (n == MT_RECORD_LARGEST && usage <= pages[n - 1]) ||
		    !mt_group_is_live(session, i) ||
		    !mt_counter_is_below(session, i, record->group))
			continue;
		n = MT_MIN(n + 1, MT_RECORD_LARGEST);
		for (at = n - 1; at > 0 && pages[at - 1] < usage; at--) {
			pages[at] = pages[at - 1];
			found[at] = found[at - 1];
		}
		pages[at] = usage;
		found[at] = i;
	}
	for (int i = 0; i < n; i++) {
		record->largest[i].pages = pages[i];
		copy_path(session, found[i], record->largest[i].path,
			  sizeof(record->largest[i].path));
	}
}

void mt_record_begin(struct mt_session *session, struct mt_record *record,
		     enum mt_record_what what, uint32_t group, int64_t limit)
{
	memset(record, 0, sizeof(*record));
	record->what = what;
	record->time_ns = mt_sys_clock_ns(CLOCK_REALTIME);
	record->group = group;
	record->usage = load_relaxed(&session->groups[group].usage);
	record->limit = limit;
	copy_path(session, group, record->path, sizeof(record->path));
	find_largest(session, record);
}

void mt_record_who(struct mt_session *session, struct mt_record *record,
		   uint32_t process, uint32_t tid)
{
	const struct mt_process *p = &session->processes[process];

	record->pid = (uint32_t)(load_relaxed(&p->state) >> 32);
	record->tid = tid;
	memcpy(record->comm, p->comm, sizeof(record->comm) - 1);
}

static void copy_words(struct mt_record *to, const struct mt_record *from)
{
	_Atomic uint64_t *at = (_Atomic uint64_t *)(void *)to;
	const unsigned char *source = (const unsigned char *)from;

	/* Another may write here as well: words, not bytes. */
	for (size_t i = 1; i < WORDS; i++) {
		uint64_t word;

		memcpy(&word, source + i * sizeof(word), sizeof(word));
		store_relaxed(&at[i], word);
	}
}

bool mt_record_write(struct mt_session *session, struct mt_record *record)
{
	uint64_t n = fetch_add_seq_cst(&session->header->record_seq, 1);
	uint32_t capacity = session->header->tables[MT_RECORDS].capacity;
	uint32_t index = (uint32_t)(n % capacity);
	struct mt_record *place = &session->records[index];
	uint64_t writing = 2 * n + 1;
	uint64_t seen;

	if (!mt_segment_back(session, MT_RECORDS, index))
		return false;
	record->sum = mt_record_sum(record);
	seen = load_acquire(&place->seq);
	do {
		/* A whole round ahead of us: we have slept, it is old news. */
		if (seen >= writing)
			return true;
	} while (!cas_seq_cst(&place->seq, &seen, writing));
	copy_words(place, record);
	if (cas_seq_cst(&place->seq, &writing, writing + 1)) {
		mt_segment_raise_high(session, MT_RECORDS, index);
		fetch_add_seq_cst(&session->header->events, 1);
		mt_syscall3(SYS_futex, &session->header->events, FUTEX_WAKE,
			    INT32_MAX);
	}
	return true;
}
