/* SPDX-License-Identifier: MIT */
/*
 * segment.h - making, joining and growing a session's segment: the writers'
 * side.  Tools that only look use reader.h.
 *
 * Uses raw system calls only, allocates nothing, keeps no descriptor: safe
 * before any constructor ran, in a forked child and in an extent hook.
 */
#ifndef MT_CORE_SEGMENT_H
#define MT_CORE_SEGMENT_H

#include "core/layout.h"

#define MT_PATH_MAX 4096

/* A mapped segment.  Filled in by mt_segment_create() or _attach(). */
struct mt_session {
	struct mt_header *header;
	size_t size; /* bytes mapped */
	struct mt_group *groups;
	struct mt_process *processes;
	struct mt_thread *threads;
	struct mt_line *lines;
	struct mt_ended *ended;
	struct mt_record *records;
	struct mt_rule *rules;
	struct mt_peak *peaks;
	char path[MT_PATH_MAX]; /* of the file, as it was opened */
};

/* What mt_segment_create() is asked for; 0 takes the default. */
struct mt_segment_config {
	const char *name;    /* of the session: 1 to 63 bytes, no '/', no
				control character, not "." or ".." */
	const char *command; /* for people; cut when longer */
	uint32_t batch;      /* 1 to MT_BATCH_MAX pages */
	uint32_t flags;      /* MT_SESSION_* */
	uint32_t capacity[MT_NR_TABLES]; /* records */
};

/* Is @name fit to be a session's, and so a file's? */
bool mt_session_name_ok(const char *name);

/**
 * mt_place_dir - find, or make, this user's directory of sessions
 * @buf: at least MT_PATH_MAX bytes, for the path without a final '/'
 * @runtime_dir: value of $XDG_RUNTIME_DIR, or NULL
 * @create: make it when it isn't there
 *
 * "$XDG_RUNTIME_DIR/memtally" if that is on tmpfs, else
 * "/dev/shm/memtally-UID".  The directory must be the effective user's own,
 * mode 0700, no symbolic link and on tmpfs.
 *
 * Return: 0; -ENOENT it isn't there (without @create); -EPERM owned by
 * somebody else or open to others; -ENOTDIR, -ELOOP not a directory;
 * -EMEDIUMTYPE not on tmpfs; other -errno of the failed call.
 */
int mt_place_dir(char *buf, const char *runtime_dir, bool create);

/**
 * mt_segment_create - make a new session
 * @session: filled in on success
 * @path: of the file; must not exist
 * @config: what it should be like
 *
 * The file is 0600, made with O_EXCL | O_NOFOLLOW.  On failure nothing is
 * left behind.
 *
 * Return: 0; -EEXIST; -EINVAL a bad name or capacity; -ENOSPC no memory on
 * the tmpfs; other -errno.
 */
int mt_segment_create(struct mt_session *session, const char *path,
		      const struct mt_segment_config *config);

/**
 * mt_segment_attach - map an existing session, to write
 * @session: filled in on success
 * @path: absolute
 *
 * Return: 0; -ENOENT; -EPERM owned by another user, or writable or readable
 * by others; -ELOOP a symbolic link; -EINVAL not a segment, or cut short;
 * -EPROTO a segment of another version; other -errno.
 */
int mt_segment_attach(struct mt_session *session, const char *path);

/* Bytes that a mapping file's path needs at most, beyond its segment's. */
#define MT_MAP_SUFFIX 24

/**
 * mt_segment_map_path - where a process's mapping table is
 * @buf: MT_PATH_MAX + MT_MAP_SUFFIX bytes
 *
 * "SEGMENT@SLOT.GENERATION".
 */
void mt_segment_map_path(const struct mt_session *session, uint32_t process,
			 uint32_t generation, char *buf);

/* Unmap.  Nobody of this process may use @session any more. */
void mt_segment_detach(struct mt_session *session);

/**
 * mt_segment_back - make sure that a record has memory behind it
 *
 * Call before the first store to record @index of @table.  One load when it
 * has; else one madvise(MADV_POPULATE_WRITE) for the next chunk.
 *
 * Return: false when @index is past the capacity, or the tmpfs is full.
 */
bool mt_segment_back(struct mt_session *session, enum mt_table_id table,
		     uint32_t index);

/**
 * mt_segment_turn - the next record to try, of all of a table in turn
 * @start: a guess at where a free one is
 * @n: how far the turn has come; 0 at first, the capacity or more at its end
 *
 * Return: its index, backed; MT_NONE when there is none here: go on.
 */
uint32_t mt_segment_turn(struct mt_session *session, enum mt_table_id table,
			 uint32_t start, uint32_t *n);

/* Raise table.high to cover @index. */
void mt_segment_raise_high(struct mt_session *session, enum mt_table_id table,
			   uint32_t index);

/* Sequentially consistent: "publish a record, then look for others" and "say
 * that it goes, then look for users" rely on not missing a raised mark. */
static inline uint32_t mt_table_high(const struct mt_session *session,
				     enum mt_table_id table)
{
	return atomic_load_explicit(&session->header->tables[table].high,
				    memory_order_seq_cst);
}

#endif
