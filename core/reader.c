/* SPDX-License-Identifier: MIT */
/*
 * reader.c - copying a segment, checking it, and handing out its records.
 */
#include "core/reader.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "core/atomic.h"
#include "core/record.h"
#include "core/sys.h"

/* No segment is larger; no record is either. */
#define SIZE_MOST     (UINT64_C(1) << 30)
#define STRIDE_MOST   4096u
#define CAPACITY_MOST (1u << 20)

/* Of each table: how far into a record this reader looks. */
static const uint32_t sizes[MT_NR_TABLES] = {
	[MT_GROUPS] = sizeof(struct mt_group),
	[MT_PROCESSES] = sizeof(struct mt_process),
	[MT_THREADS] = sizeof(struct mt_thread),
	[MT_LINES] = sizeof(struct mt_line),
	[MT_ENDED] = sizeof(struct mt_ended),
	[MT_RECORDS] = sizeof(struct mt_record),
	[MT_RULES] = sizeof(struct mt_rule),
	[MT_PEAKS] = sizeof(struct mt_peak),
};

int mt_reader_open(const char *path, int *ret_fd, size_t *ret_size)
{
	uint32_t uid = (uint32_t)mt_syscall0(SYS_geteuid);
	struct stat st;
	int ret;
	int fd;

	fd = mt_sys_open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK,
			 0);
	if (fd < 0)
		return fd;
	ret = (int)mt_syscall4(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH);
	if (!ret && !S_ISREG(st.st_mode))
		ret = -EINVAL;
	if (!ret && uid && st.st_uid != uid)
		ret = -EPERM;
	if (!ret && (st.st_size < (off_t)sizeof(struct mt_header) ||
		     (uint64_t)st.st_size > SIZE_MOST))
		ret = -EINVAL;
	if (ret) {
		mt_sys_close(fd);
		return ret;
	}
	*ret_fd = fd;
	*ret_size = (size_t)st.st_size;
	return 0;
}

static int read_all(int fd, char *to, size_t len, uint64_t offset)
{
	while (len) {
		ssize_t n = mt_syscall4(SYS_pread64, fd, to, len, offset);

		if (n < 0)
			return (int)n;
		if (n == 0)
			return -EINVAL; /* cut short meanwhile */
		to += n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

static int check_header(const struct mt_header *header, size_t size)
{
	uint64_t magic = load_relaxed(&header->magic);

	if (magic == 0)
		return -EAGAIN;
	if (magic != MT_SEGMENT_MAGIC)
		return -EINVAL;
	if (header->major != MT_SEGMENT_MAJOR)
		return -EPROTO;
	/* Fields are only ever appended: an earlier minor version. */
	if (header->header_size < sizeof(*header))
		return -EPROTO;
	if (header->segment_size != size || header->header_size > size ||
	    header->page_size < 512 ||
	    (header->page_size & (header->page_size - 1)))
		return -EINVAL;
	for (int t = 0; t < MT_NR_TABLES; t++) {
		const struct mt_table *table = &header->tables[t];

		if (table->stride < 64 || table->stride > STRIDE_MOST ||
		    table->stride % 8 || table->offset % 8 ||
		    table->capacity == 0 || table->capacity > CAPACITY_MOST ||
		    table->offset > size ||
		    (size - table->offset) / table->stride < table->capacity)
			return -EINVAL;
	}
	return 0;
}

static uint32_t used(const struct mt_header *header, enum mt_table_id id)
{
	const struct mt_table *table = &header->tables[id];

	return MT_MIN(load_relaxed(&table->high), table->capacity);
}

/*
 * Bytes of the character at @text, or 0 if it is none to show: a control
 * character, the eight-bit ones of terminals included, or no proper UTF-8 (the
 * kernel cuts a process's name anywhere).  Stops at the NUL by itself, which is
 * no continuation byte.
 */
static size_t character(const unsigned char *text)
{
	static const uint32_t least[5] = { 0, 0, 0x80, 0x800, 0x10000 };
	uint32_t code = text[0];
	size_t len = code < 0x80             ? 1
		     : (code & 0xe0) == 0xc0 ? 2
		     : (code & 0xf0) == 0xe0 ? 3
		     : (code & 0xf8) == 0xf0 ? 4
					     : 0;

	if (len > 1)
		code &= 0x7fu >> len;
	for (size_t i = 1; i < len; i++) {
		if ((text[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (text[i] & 0x3f);
	}
	if (code < 0x20 || (code >= 0x7f && code < 0xa0) || code < least[len] ||
	    code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
		return 0;
	return len;
}

void mt_reader_clean(char *text, size_t size)
{
	if (!size)
		return;
	text[size - 1] = '\0';
	while (*text) {
		size_t len = character((unsigned char *)text);

		if (!len)
			*text = '?';
		text += len ? len : 1;
	}
}

int mt_reader_check(struct mt_reader *reader, const void *buf, size_t size)
{
	int ret;

	if (size < sizeof(reader->header))
		return -EINVAL;
	memcpy(&reader->header, buf, sizeof(reader->header));
	ret = check_header(&reader->header, size);
	if (ret)
		return ret;
	mt_reader_clean(reader->header.name, MT_NAME_MAX);
	mt_reader_clean(reader->header.command, MT_NAME_MAX);
	reader->base = buf;
	reader->size = size;
	return 0;
}

int mt_reader_load(struct mt_reader *reader, int fd, void *buf, size_t size)
{
	char *to = buf;
	int ret;

	if (size < sizeof(reader->header))
		return -EINVAL;
	ret = read_all(fd, to, sizeof(reader->header), 0);
	if (ret)
		return ret;
	ret = mt_reader_check(reader, buf, size);
	/* Only what is in use: the rest of the file is holes. */
	for (int t = 0; !ret && t < MT_NR_TABLES; t++) {
		const struct mt_table *table = &reader->header.tables[t];
		uint32_t n = used(&reader->header, (enum mt_table_id)t);

		ret = read_all(fd, to + table->offset,
			       (size_t)n * table->stride, table->offset);
	}
	return ret;
}

uint32_t mt_reader_count(const struct mt_reader *reader, enum mt_table_id id)
{
	return used(&reader->header, id);
}

/* Copy as much of a record as both versions know. */
static bool copy(const struct mt_reader *reader, enum mt_table_id id,
		 uint32_t index, void *to)
{
	const struct mt_table *table = &reader->header.tables[id];

	memset(to, 0, sizes[id]);
	if (index >= used(&reader->header, id))
		return false;
	memcpy(to, reader->base + table->offset + (size_t)index * table->stride,
	       MT_MIN(sizes[id], table->stride));
	return true;
}

bool mt_reader_group(const struct mt_reader *reader, uint32_t index,
		     struct mt_group *group)
{
	uint64_t state;

	if (!copy(reader, MT_GROUPS, index, group))
		return false;
	mt_reader_clean(group->name, sizeof(group->name));
	state = load_relaxed(&group->ident) & 0xf;
	return state == MT_GROUP_LIVE || state == MT_GROUP_RETIRING;
}

bool mt_reader_process(const struct mt_reader *reader, uint32_t index,
		       struct mt_process *process)
{
	if (!copy(reader, MT_PROCESSES, index, process))
		return false;
	mt_reader_clean(process->comm, sizeof(process->comm));
	return mt_process_state_of(process) == MT_PROC_LIVE;
}

bool mt_reader_line(const struct mt_reader *reader, uint32_t index,
		    struct mt_line *line)
{
	return copy(reader, MT_LINES, index, line) &&
	       load_relaxed(&line->ident) != 0;
}

bool mt_reader_thread(const struct mt_reader *reader, uint32_t index,
		      struct mt_thread *thread)
{
	return copy(reader, MT_THREADS, index, thread) &&
	       load_relaxed(&thread->ident) != 0;
}

bool mt_reader_ended(const struct mt_reader *reader, uint32_t index,
		     struct mt_ended *ended)
{
	uint64_t seq;

	if (!copy(reader, MT_ENDED, index, ended))
		return false;
	mt_reader_clean(ended->comm, sizeof(ended->comm));
	mt_reader_clean(ended->group, sizeof(ended->group));
	seq = load_relaxed(&ended->seq);
	return seq && !(seq & 1);
}

/* Fuzzers would never come past a sum. */
static bool sum_is_right(const struct mt_record *record)
{
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
	(void)record;
	return true;
#else
	return record->sum == mt_record_sum(record);
#endif
}

bool mt_reader_record(const struct mt_reader *reader, uint32_t index,
		      struct mt_record *record)
{
	uint64_t seq;

	if (!copy(reader, MT_RECORDS, index, record))
		return false;
	seq = load_relaxed(&record->seq);
	if (!seq || (seq & 1) || !sum_is_right(record))
		return false;
	mt_reader_clean(record->comm, sizeof(record->comm));
	mt_reader_clean(record->path, sizeof(record->path));
	mt_reader_clean(record->name, sizeof(record->name));
	mt_reader_clean(record->victim_comm, sizeof(record->victim_comm));
	for (int i = 0; i < MT_RECORD_LARGEST; i++)
		mt_reader_clean(record->largest[i].path,
				sizeof(record->largest[i].path));
	for (int i = 0; i < MT_RECORD_MODULES; i++)
		mt_reader_clean(record->modules[i].path,
				sizeof(record->modules[i].path));
	record->nr_frames = MT_MIN(record->nr_frames, MT_RECORD_FRAMES);
	return true;
}

void mt_reader_path(const struct mt_reader *reader, uint32_t group, char *buf,
		    size_t size)
{
	char names[MT_DEPTH_MAX][MT_NAME_MAX];
	size_t len = 0;
	int depth = 0;

	if (!size)
		return;
	while (group != MT_ROOT && depth < MT_DEPTH_MAX) {
		struct mt_group copy_of;

		if (!mt_reader_group(reader, group, &copy_of)) {
			memcpy(names[depth++], "?", 2);
			break;
		}
		memcpy(names[depth++], copy_of.name, MT_NAME_MAX);
		group = load_relaxed(&copy_of.parent);
	}
	if (depth == 0 && size > 1)
		buf[len++] = '/';
	while (depth-- > 0) {
		size_t n = strlen(names[depth]);

		if (len + n + 2 > size)
			break;
		buf[len++] = '/';
		memcpy(buf + len, names[depth], n);
		len += n;
	}
	buf[len] = '\0';
}

bool mt_reader_is_below(const struct mt_reader *reader, uint32_t group,
			uint32_t ancestor)
{
	for (int i = 0; i < MT_DEPTH_MAX; i++) {
		struct mt_group copy_of;

		if (group == ancestor)
			return true;
		if (!copy(reader, MT_GROUPS, group, &copy_of))
			return false;
		group = load_relaxed(&copy_of.parent);
	}
	return false;
}
