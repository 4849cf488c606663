/* SPDX-License-Identifier: MIT */
/*
 * reader.h - looking at a segment without touching it.
 *
 * Copies the file with pread() into memory of the caller's and checks every
 * offset before it is followed: whatever the file holds, whoever writes to it
 * or cuts it short meanwhile, a reader gets numbers or an error, never a fault.
 *
 * 64-bit counters are read one by one: each exact, together approximate while
 * the session runs.  At rest they add up.
 */
#ifndef MT_CORE_READER_H
#define MT_CORE_READER_H

#include "core/layout.h"

/* A copy of a segment, in memory given by the caller. */
struct mt_reader {
	const unsigned char *base; /* the copy */
	size_t size;               /* its bytes */
	struct mt_header header;   /* checked */
};

/**
 * mt_reader_open - open a segment file and say how large a copy will be
 * @path: absolute
 * @ret_fd: an open descriptor, for mt_reader_load(); the caller closes it
 * @ret_size: bytes
 *
 * Return: 0; -ENOENT; -EPERM not the effective user's own file (root may read
 * anybody's); -ELOOP; -EINVAL not a regular file of a plausible size; -errno.
 */
int mt_reader_open(const char *path, int *ret_fd, size_t *ret_size);

/**
 * mt_reader_load - copy the segment and check it
 * @buf: of @size bytes, aligned to 64; stays the caller's
 *
 * Only what is in use is copied (holes read as zero).
 *
 * Return: 0; -EINVAL not a segment, cut short, or inconsistent; -EPROTO of
 * another major version; -EAGAIN not ready yet; -errno.
 */
int mt_reader_load(struct mt_reader *reader, int fd, void *buf, size_t size);

/* Check a copy that is already in memory: what mt_reader_load() does last. */
int mt_reader_check(struct mt_reader *reader, const void *buf, size_t size);

/* Records of a table that may be in use: 0 to this, exclusive. */
uint32_t mt_reader_count(const struct mt_reader *reader,
			 enum mt_table_id table);

/* Copies of records; false when @index is not one in use.  Fields that the
 * writer's version does not reach are zero.  Names are NUL-terminated and
 * clean, see mt_reader_clean(). */
bool mt_reader_group(const struct mt_reader *reader, uint32_t index,
		     struct mt_group *ret_group);
bool mt_reader_process(const struct mt_reader *reader, uint32_t index,
		       struct mt_process *ret_process);
bool mt_reader_line(const struct mt_reader *reader, uint32_t index,
		    struct mt_line *ret_line);
bool mt_reader_thread(const struct mt_reader *reader, uint32_t index,
		      struct mt_thread *ret_thread);
bool mt_reader_ended(const struct mt_reader *reader, uint32_t index,
		     struct mt_ended *ret_ended);
/* Whole ones only. */
bool mt_reader_record(const struct mt_reader *reader, uint32_t index,
		      struct mt_record *ret_record);

/* Make @text, of at most @size bytes, fit for a terminal and for JSON: it is
 * NUL-terminated, and what is no printable UTF-8 becomes '?'. */
void mt_reader_clean(char *text, size_t size);

/* The absolute path of a group, NUL-terminated and cut to whole names that
 * fit. */
void mt_reader_path(const struct mt_reader *reader, uint32_t group, char *buf,
		    size_t size);

/* Is @group @ancestor, or below it?  Ends on cycles. */
bool mt_reader_is_below(const struct mt_reader *reader, uint32_t group,
			uint32_t ancestor);

static inline uint32_t mt_process_state_of(const struct mt_process *process)
{
	return atomic_load_explicit(&process->state, memory_order_relaxed) &
	       0xff;
}

static inline uint32_t mt_process_pid_of(const struct mt_process *process)
{
	return (uint32_t)(atomic_load_explicit(&process->state,
					       memory_order_relaxed) >>
			  32);
}

#endif
