/* SPDX-License-Identifier: MIT */
/*
 * segment.c - the segment's file: where it goes, how it is made and joined.
 *
 * The path handling trusts nobody: the directory is the user's own (0700),
 * the file is made with O_EXCL and opened with O_NOFOLLOW, and owner and mode
 * are read from the open descriptor, never from the path.  The descriptor is
 * closed as soon as the file is mapped, so that no program finds it in its
 * way.
 */
#include "core/segment.h"

#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include "core/atomic.h"
#include "core/sys.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Table memory is populated this much at a time. */
#define CHUNK 16384u

/* Tables start at multiples of this: the largest page size in use. */
#define TABLE_ALIGN UINT64_C(65536)

/* No segment is larger. */
#define SEGMENT_MAX (UINT64_C(1) << 30)

static const struct {
	uint32_t stride;
	uint32_t capacity;
} table_shapes[MT_NR_TABLES] = {
	[MT_GROUPS] = { sizeof(struct mt_group), 2048 },
	[MT_PROCESSES] = { sizeof(struct mt_process), 2048 },
	[MT_THREADS] = { sizeof(struct mt_thread), 8192 },
	[MT_LINES] = { sizeof(struct mt_line), 16384 },
	[MT_ENDED] = { sizeof(struct mt_ended), 64 },
	[MT_RECORDS] = { sizeof(struct mt_record), 256 },
	[MT_RULES] = { sizeof(struct mt_rule), 64 },
	[MT_PEAKS] = { sizeof(struct mt_peak), 256 },
};

static char *append(char *at, const char *end, const char *text)
{
	while (*text && at < end - 1)
		*at++ = *text++;
	*at = '\0';
	return at;
}

static char *append_number(char *at, const char *end, uint64_t n)
{
	char digits[24];
	char *d = digits + sizeof(digits) - 1;

	*d = '\0';
	do {
		*--d = (char)('0' + n % 10);
		n /= 10;
	} while (n);
	return append(at, end, d);
}

static uint32_t effective_uid(void)
{
	return (uint32_t)mt_syscall0(SYS_geteuid);
}

static int file_status(int fd, struct stat *st)
{
	/* fstat() proper is missing on newer architectures. */
	return (int)mt_syscall4(SYS_newfstatat, fd, "", st, AT_EMPTY_PATH);
}

bool mt_session_name_ok(const char *name)
{
	size_t len = 0;

	for (; name[len]; len++) {
		unsigned char c = (unsigned char)name[len];

		/* '@' separates a session from its mapping files. */
		if (c < 0x20 || c == 0x7f || c == '/' || c == '@')
			return false;
	}
	return len > 0 && len < MT_NAME_MAX && name[0] != '.';
}

/* Is the directory ours alone, and in memory? */
static int check_dir(const char *path)
{
	struct statfs fs;
	struct stat st;
	int ret;
	int fd;

	fd = mt_sys_open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
			 0);
	if (fd < 0)
		return fd;
	ret = file_status(fd, &st);
	if (!ret && (st.st_uid != effective_uid() || (st.st_mode & 077)))
		ret = -EPERM;
	if (!ret)
		ret = (int)mt_syscall2(SYS_fstatfs, fd, &fs);
	if (!ret && fs.f_type != TMPFS_MAGIC && fs.f_type != RAMFS_MAGIC)
		ret = -EMEDIUMTYPE;
	mt_sys_close(fd);
	return ret;
}

static int use_dir(const char *path, bool create)
{
	int ret = check_dir(path);

	if (ret != -ENOENT || !create)
		return ret;
	ret = (int)mt_syscall3(SYS_mkdirat, AT_FDCWD, path, 0700);
	if (ret && ret != -EEXIST)
		return ret;
	return check_dir(path);
}

int mt_place_dir(char *buf, const char *runtime_dir, bool create)
{
	/* cppcheck-suppress ctuPointerArith; one past the end is allowed */
	const char *end = buf + MT_PATH_MAX;
	char *at;

	if (runtime_dir && runtime_dir[0] == '/' &&
	    strlen(runtime_dir) < PATH_MAX / 2) {
		at = append(buf, end, runtime_dir);
		append(at, end, "/memtally");
		if (use_dir(buf, create) == 0)
			return 0;
	}
	at = append(buf, end, "/dev/shm/memtally-");
	append_number(at, end, effective_uid());
	return use_dir(buf, create);
}

static void copy_text(char *to, size_t size, const char *from)
{
	append(to, to + size, from ? from : "");
}

static void set_pointers(struct mt_session *session, void *base, size_t size)
{
	struct mt_header *header = base;
	char *at = base;

	session->header = header;
	session->size = size;
	session->groups = (void *)(at + header->tables[MT_GROUPS].offset);
	session->processes = (void *)(at + header->tables[MT_PROCESSES].offset);
	session->threads = (void *)(at + header->tables[MT_THREADS].offset);
	session->lines = (void *)(at + header->tables[MT_LINES].offset);
	session->ended = (void *)(at + header->tables[MT_ENDED].offset);
	session->records = (void *)(at + header->tables[MT_RECORDS].offset);
	session->rules = (void *)(at + header->tables[MT_RULES].offset);
	session->peaks = (void *)(at + header->tables[MT_PEAKS].offset);
}

static void read_boot_id(uint8_t *id)
{
	int fd = mt_sys_open("/proc/sys/kernel/random/boot_id",
			     O_RDONLY | O_CLOEXEC, 0);
	char text[40];
	ssize_t n;
	int nibbles = 0;

	if (fd < 0)
		return;
	n = mt_sys_read(fd, text, sizeof(text));
	mt_sys_close(fd);
	for (ssize_t i = 0; i < n && nibbles < 32; i++) {
		int c = (unsigned char)text[i];
		int value = c >= '0' && c <= '9'   ? c - '0'
			    : c >= 'a' && c <= 'f' ? c - 'a' + 10
						   : -1;

		if (value < 0)
			continue;
		id[nibbles / 2] |= (uint8_t)(nibbles % 2 ? value : value << 4);
		nibbles++;
	}
}

static size_t lay_out(struct mt_header *header,
		      const struct mt_segment_config *config)
{
	uint64_t at = TABLE_ALIGN;

	for (int t = 0; t < MT_NR_TABLES; t++) {
		struct mt_table *table = &header->tables[t];
		uint32_t capacity = config->capacity[t];

		table->offset = at;
		table->stride = table_shapes[t].stride;
		table->capacity =
			capacity ? capacity : table_shapes[t].capacity;
		at += (uint64_t)table->stride * table->capacity;
		at = (at + TABLE_ALIGN - 1) & ~(TABLE_ALIGN - 1);
	}
	return at;
}

static void fill_header(struct mt_header *header,
			const struct mt_segment_config *config, size_t size)
{
	struct stat st;

	header->major = MT_SEGMENT_MAJOR;
	header->minor = MT_SEGMENT_MINOR;
	header->header_size = sizeof(*header);
	header->segment_size = size;
	header->page_size = (uint32_t)mt_page_size();
	header->batch = config->batch ? config->batch : MT_BATCH_DEFAULT;
	header->uid = effective_uid();
	header->flags |= config->flags;
	header->created_ns = mt_sys_clock_ns(CLOCK_REALTIME);
	header->boot_ns = mt_sys_clock_ns(CLOCK_BOOTTIME);
	copy_text(header->name, sizeof(header->name), config->name);
	copy_text(header->command, sizeof(header->command), config->command);
	if (mt_syscall4(SYS_newfstatat, AT_FDCWD, "/proc/self/ns/pid", &st,
			0) == 0)
		header->pid_ns = st.st_ino;
	read_boot_id(header->boot_id);
}

static void make_root(struct mt_session *session)
{
	struct mt_group *root = &session->groups[MT_ROOT];

	store_relaxed(&root->high, MT_UNLIMITED);
	store_relaxed(&root->max, MT_UNLIMITED);
	store_relaxed(&root->dirty_max, MT_UNLIMITED);
	store_relaxed(&root->parent, MT_NONE);
	store_relaxed(&root->flags, MT_GROUP_KEEP);
	root->name[0] = '/';
	store_release(&root->ident, (uint64_t)MT_GROUP_LIVE);
	mt_segment_raise_high(session, MT_GROUPS, MT_ROOT);
}

/* Give the file memory for the header and the start of each table. */
static int back_first(struct mt_session *session, int fd)
{
	void *base = session->header;
	int ret = mt_sys_madvise(base, mt_page_size(), MADV_POPULATE_WRITE);

	if (ret == -EINVAL) {
		/* Before Linux 5.14: the whole file at once. */
		ret = (int)mt_syscall4(SYS_fallocate, fd, 0, 0, session->size);
		if (!ret)
			session->header->flags |= MT_SESSION_BACKED;
	}
	return ret ? -ENOSPC : 0;
}

static bool config_ok(const struct mt_segment_config *config)
{
	if (!config->name || !mt_session_name_ok(config->name))
		return false;
	if (config->batch > MT_BATCH_MAX)
		return false;
	for (int t = 0; t < MT_NR_TABLES; t++) {
		if (config->capacity[t] > 0xffff0)
			return false;
	}
	return true;
}

static int fill_file(struct mt_session *session, int fd,
		     const struct mt_segment_config *config)
{
	struct mt_header shape = { 0 };
	size_t size = lay_out(&shape, config);
	void *base;
	int ret;

	if (size > SEGMENT_MAX)
		return -EINVAL;
	/* Growing past the limit would raise SIGXFSZ. */
	if (!mt_sys_file_size_ok(size))
		return -EFBIG;
	ret = (int)mt_syscall2(SYS_ftruncate, fd, size);
	if (ret)
		return ret;
	base = mt_sys_mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			   0);
	if (mt_sys_is_error(base))
		return (int)(long)base;
	session->header = base;
	session->size = size;
	ret = back_first(session, fd);
	if (ret)
		goto unmap;
	lay_out(session->header, config);
	set_pointers(session, base, size);
	/* Few sessions have rules: theirs gets its memory with the first. */
	for (int t = 0; t < MT_RULES; t++) {
		if (!mt_segment_back(session, (enum mt_table_id)t, 0)) {
			ret = -ENOSPC;
			goto unmap;
		}
	}
	fill_header(session->header, config, size);
	make_root(session);
	store_release(&session->header->magic, MT_SEGMENT_MAGIC);
	return 0;

unmap:
	mt_sys_munmap(base, size);
	memset(session, 0, sizeof(*session));
	return ret;
}

int mt_segment_create(struct mt_session *session, const char *path,
		      const struct mt_segment_config *config)
{
	int ret;
	int fd;

	if (!config_ok(config))
		return -EINVAL;
	fd = mt_sys_open(
		path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return fd;
	ret = fill_file(session, fd, config);
	if (ret)
		mt_syscall3(SYS_unlinkat, AT_FDCWD, path, 0);
	else
		copy_text(session->path, sizeof(session->path), path);
	mt_sys_close(fd);
	return ret;
}

/* A writer must know every field: it takes its own version's shape only. */
static int check_shape(const struct mt_header *header, uint64_t size)
{
	if (header->major != MT_SEGMENT_MAJOR ||
	    header->minor != MT_SEGMENT_MINOR ||
	    header->header_size != sizeof(*header))
		return -EPROTO;
	if (header->segment_size != size || header->page_size == 0 ||
	    header->batch == 0 || header->batch > MT_BATCH_MAX)
		return -EINVAL;
	for (int t = 0; t < MT_NR_TABLES; t++) {
		const struct mt_table *table = &header->tables[t];

		if (table->stride != table_shapes[t].stride)
			return -EPROTO;
		if (table->offset % MT_CACHELINE ||
		    table->offset < sizeof(*header) || table->offset > size ||
		    table->capacity == 0 ||
		    (size - table->offset) / table->stride < table->capacity)
			return -EINVAL;
	}
	return 0;
}

static int check_file(int fd, struct stat *st)
{
	int ret = file_status(fd, st);

	if (ret)
		return ret;
	if (!S_ISREG(st->st_mode))
		return -EINVAL;
	if (st->st_uid != effective_uid() || (st->st_mode & 077))
		return -EPERM;
	if (st->st_size < (off_t)TABLE_ALIGN ||
	    st->st_size > (off_t)SEGMENT_MAX)
		return -EINVAL;
	return 0;
}

int mt_segment_attach(struct mt_session *session, const char *path)
{
	struct stat st;
	void *base;
	int ret;
	int fd;

	if (path[0] != '/')
		return -EINVAL;
	fd = mt_sys_open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0);
	if (fd < 0)
		return fd;
	ret = check_file(fd, &st);
	if (ret)
		goto close;
	base = mt_sys_mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE,
			   MAP_SHARED, fd, 0);
	if (mt_sys_is_error(base)) {
		ret = (int)(long)base;
		goto close;
	}
	ret = load_acquire(&((struct mt_header *)base)->magic) ==
			      MT_SEGMENT_MAGIC
		      ? check_shape(base, (uint64_t)st.st_size)
		      : -EINVAL;
	if (ret) {
		mt_sys_munmap(base, (size_t)st.st_size);
	} else {
		set_pointers(session, base, (size_t)st.st_size);
		copy_text(session->path, sizeof(session->path), path);
	}
close:
	mt_sys_close(fd);
	return ret;
}

void mt_segment_map_path(const struct mt_session *session, uint32_t process,
			 uint32_t generation, char *buf)
{
	const char *end = buf + MT_PATH_MAX + MT_MAP_SUFFIX;
	char *at = append(buf, end, session->path);

	at = append(at, end, "@");
	at = append_number(at, end, process);
	at = append(at, end, ".");
	append_number(at, end, generation);
}

void mt_segment_detach(struct mt_session *session)
{
	if (session->header)
		mt_sys_munmap(session->header, session->size);
	memset(session, 0, sizeof(*session));
}

static void raise_to(_Atomic uint32_t *value, uint32_t to)
{
	uint32_t seen = load_relaxed(value);

	while (seen < to && !cas_weak_seq_cst(value, &seen, to))
		;
}

bool mt_segment_back(struct mt_session *session, enum mt_table_id id,
		     uint32_t index)
{
	struct mt_table *table = &session->header->tables[id];
	uint64_t chunk = MT_MAX((size_t)CHUNK, mt_page_size());
	uint64_t mask = ~(mt_page_size() - 1);
	uint32_t backed = load_acquire(&table->backed);
	uint64_t first;
	uint64_t last;

	if (index < backed)
		return true;
	if (index >= table->capacity)
		return false;
	/* All from the last record backed, so that there are no holes. */
	first = table->offset + (uint64_t)backed * table->stride;
	last = table->offset + (uint64_t)(index + 1) * table->stride;
	first &= mask;
	last = MT_MIN((last + chunk - 1) & mask, session->size);
	if (!(session->header->flags & MT_SESSION_BACKED) &&
	    mt_sys_madvise((char *)session->header + first, last - first,
			   MADV_POPULATE_WRITE))
		return false;
	raise_to(&table->backed,
		 (uint32_t)MT_MIN((last - table->offset) / table->stride,
				  table->capacity));
	return true;
}

uint32_t mt_segment_turn(struct mt_session *session, enum mt_table_id id,
			 uint32_t start, uint32_t *n)
{
	uint32_t capacity = session->header->tables[id].capacity;
	uint32_t index = (uint32_t)(((uint64_t)start + *n) % capacity);

	if (mt_segment_back(session, id, index)) {
		++*n;
		return index;
	}
	/* No memory for this one, so none for those above either: on with the
	 * first.  (To ask for each would cost a system call each.) */
	*n += capacity - index;
	return MT_NONE;
}

void mt_segment_raise_high(struct mt_session *session, enum mt_table_id id,
			   uint32_t index)
{
	raise_to(&session->header->tables[id].high, index + 1);
}
