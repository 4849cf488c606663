/* SPDX-License-Identifier: MIT */
/*
 * record.h - the log of what happened at limits, kept in the segment.
 */
#ifndef MT_CORE_RECORD_H
#define MT_CORE_RECORD_H

#include "core/segment.h"

/* What the sum of a whole record is: of all but its first two fields. */
static inline uint64_t mt_record_sum(const struct mt_record *record)
{
	const unsigned char *at = (const unsigned char *)record;
	uint64_t sum = UINT64_C(0x9e3779b97f4a7c15);

	for (size_t i = 16; i < sizeof(*record); i += 8) {
		uint64_t word;

		__builtin_memcpy(&word, at + i, sizeof(word));
		sum = (sum ^ word) * UINT64_C(0xff51afd7ed558ccd);
		sum ^= sum >> 32;
	}
	return sum;
}

/**
 * mt_record_begin - fill in what can be told of a group now
 * @record: cleared; then what, when, the group, its usage and the largest
 *	below it are set
 * @limit: which of the group's limits it is about: its value
 */
void mt_record_begin(struct mt_session *session, struct mt_record *record,
		     enum mt_record_what what, uint32_t group, int64_t limit);

/* Fill in who met it: a process of this session, and one of its threads. */
void mt_record_who(struct mt_session *session, struct mt_record *record,
		   uint32_t process, uint32_t tid);

/**
 * mt_record_write - put a record into the log
 * @record: its seq and sum are set here
 *
 * Lock-free, from any process and thread; some microseconds.  Who sleeps on
 * header.events is woken.  Return: false when the log has no memory.
 */
bool mt_record_write(struct mt_session *session, struct mt_record *record);

#endif
