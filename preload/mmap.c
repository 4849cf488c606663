/* SPDX-License-Identifier: MIT */
/*
 * mmap.c - the mapping family: charged by the kernel's own rule.
 *
 * Order.  What will be charged is charged before the call, and given back if
 * it fails; what goes is taken out of the table before the call (another
 * thread may get the address at once), put back if it fails, and uncharged
 * after.  The table's lock is never held over a system call.  The program's
 * call goes on to libc's function, once and unaltered.
 *
 * A child of fork starts with an empty table: what it inherited is unknown
 * here, and unmapping it changes nothing.
 */
#include "preload/mmap.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "core/atomic.h"
#include "core/mapping.h"
#include "core/sys.h"
#include "preload/account.h"
#include "preload/maplock.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

void *mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t off);

static void *raw_mmap(void *addr, size_t len, int prot, int flags, int fd,
		      off_t off);
static int raw_munmap(void *addr, size_t len);
static int raw_mprotect(void *addr, size_t len, int prot);

/* Until libc's functions are found, the system's. */
static void *(*real_mmap)(void *, size_t, int, int, int, off_t) = raw_mmap;
static int (*real_munmap)(void *, size_t) = raw_munmap;
static int (*real_mprotect)(void *, size_t, int) = raw_mprotect;
static int (*real_pkey_mprotect)(void *, size_t, int, int);
static void *(*real_mremap)(void *, size_t, size_t, int, ...);
static int (*real_brk)(void *);
static void *(*real_sbrk)(intptr_t);
static void *(*real_shmat)(int, const void *, int);
static int (*real_shmdt)(const void *);

static struct mt_map table;
static uint64_t table_mark; /* whose process the table is */
static _Atomic uint64_t next_object = 1;
static int64_t brk_charged; /* pages, by this process */

/* Objects that are not files: numbers of our own, and System V's. */
#define OBJECT_ANONYMOUS (UINT64_C(1) << 63)
#define OBJECT_SYSV      (UINT64_C(1) << 62)

static int fail(long error)
{
	errno = (int)-error;
	return -1;
}

static void *raw_mmap(void *addr, size_t len, int prot, int flags, int fd,
		      off_t off)
{
	void *p = mt_sys_mmap(addr, len, prot, flags, fd, off);

	if (mt_sys_is_error(p)) {
		fail((long)p);
		return MAP_FAILED;
	}
	return p;
}

static int raw_munmap(void *addr, size_t len)
{
	int ret = mt_sys_munmap(addr, len);

	return ret ? fail(ret) : 0;
}

static int raw_mprotect(void *addr, size_t len, int prot)
{
	int ret = mt_sys_mprotect(addr, len, prot);

	return ret ? fail(ret) : 0;
}

static void *find(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

#define RESOLVE(name)                                                          \
	do {                                                                   \
		void *p_ = find(#name);                                        \
		if (p_)                                                        \
			memcpy(&real_##name, &p_, sizeof(p_));                 \
	} while (0)

void mt_mmap_resolve(void)
{
	RESOLVE(mmap);
	RESOLVE(munmap);
	RESOLVE(mprotect);
	RESOLVE(pkey_mprotect);
	RESOLVE(mremap);
	RESOLVE(brk);
	RESOLVE(sbrk);
	RESOLVE(shmat);
	RESOLVE(shmdt);
}

/* Pages to charge (> 0) and uncharge (< 0) around one call. */
struct bill {
	unsigned n;
	struct {
		uint32_t group;
		enum mt_kind kind;
		int64_t pages;
	} e[16];
};

static void bill_add(void *arg, uint32_t group, enum mt_kind kind,
		     int64_t pages)
{
	struct bill *bill = arg;
	unsigned i;

	for (i = 0; i < bill->n; i++) {
		if (bill->e[i].group == group && bill->e[i].kind == kind) {
			bill->e[i].pages += pages;
			return;
		}
	}
	if (i < MT_ARRAY_SIZE(bill->e)) {
		bill->e[i].group = group;
		bill->e[i].kind = kind;
		bill->e[bill->n++].pages = pages;
	} else if (pages > 0) {
		mt_account_charge_forced(group, kind, pages);
	} else {
		/* More owners in one call than there is room for: at once. */
		mt_account_uncharge(group, kind, -pages);
	}
}

static void bill_refund(struct bill *bill, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (bill->e[i].pages > 0)
			mt_account_uncharge(bill->e[i].group, bill->e[i].kind,
					    bill->e[i].pages);
	}
}

/* Charge what is to be charged: all, or nothing and false. */
static bool bill_pay(struct bill *bill)
{
	for (unsigned i = 0; i < bill->n; i++) {
		unsigned round = 0;

		if (bill->e[i].pages <= 0)
			continue;
		while (!mt_account_charge(bill->e[i].group, bill->e[i].kind,
					  bill->e[i].pages)) {
			if (mt_account_round(round++))
				continue;
			bill_refund(bill, i);
			return false;
		}
	}
	return true;
}

/* The call succeeded: what went is uncharged. */
static void bill_settle(struct bill *bill)
{
	for (unsigned i = 0; i < bill->n; i++) {
		if (bill->e[i].pages < 0)
			mt_account_uncharge(bill->e[i].group, bill->e[i].kind,
					    -bill->e[i].pages);
	}
}

static uint64_t page_up(uint64_t n)
{
	uint64_t mask = mt_page_size() - 1;

	return (n + mask) & ~mask;
}

static int64_t pages_in(uint64_t len)
{
	return (int64_t)(page_up(len) / mt_page_size());
}

static void rebuild_table(void)
{
	mt_map_rebuild(&table);
}

/* A table for this process; the lock is held. */
static bool table_ready(void)
{
	uint64_t mark = mt_account_mark();
	char path[MT_PATH_MAX + MT_MAP_SUFFIX];
	struct mt_session *session = mt_account_session();
	uint32_t process;

	if (likely(table_mark == mark && table.header))
		return true;
	if (table_mark && table_mark != mark) {
		/* A forked child: the table is its parent's. */
		mt_map_finish(&table);
		brk_charged = 0;
	}
	process = mt_account_process();
	if (!session || process == MT_NONE)
		return false;
	mt_segment_map_path(
		session, process,
		(uint32_t)(load_relaxed(&session->processes[process].state) >>
			   8) &
			0xffffff,
		path);
	if (mt_map_init(&table, path, (uint32_t)mt_sys_getpid()))
		return false;
	store_relaxed(&session->processes[process].map_file,
		      table.shared ? 1 : 0);
	table_mark = mark;
	return true;
}

static void do_op(const struct mt_map_op *op)
{
	struct bill bill = { 0 };
	uint64_t len = op->range.end - op->range.start;
	uint32_t list;

	switch (op->what) {
	case MT_OP_INSERT:
		list = mt_map_detach(&table, op->range.start, op->range.end);
		mt_map_weigh(&table, list, bill_add, &bill);
		mt_map_free(&table, list, bill_add, &bill);
		mt_map_insert(&table, &op->range, bill_add, &bill);
		break;
	case MT_OP_PUNCH:
		list = mt_map_detach(&table, op->range.start, op->range.end);
		mt_map_weigh(&table, list, bill_add, &bill);
		mt_map_free(&table, list, bill_add, &bill);
		break;
	case MT_OP_SHIFT:
		list = mt_map_detach(&table, op->to, op->to + len);
		mt_map_weigh(&table, list, bill_add, &bill);
		mt_map_free(&table, list, bill_add, &bill);
		list = mt_map_detach(&table, op->range.start, op->range.end);
		mt_map_shift(&table, list, op->range.start, op->to);
		break;
	case MT_OP_PROTECT:
		mt_map_protect(&table, op->range.start, op->range.end,
			       op->range.state & MT_MAP_WRITE,
			       op->range.state & MT_MAP_NONE);
		break;
	case MT_OP_NONE:
		break;
	}
	for (unsigned i = 0; i < bill.n; i++) {
		if (bill.e[i].pages > 0)
			mt_account_charge_forced(bill.e[i].group,
						 bill.e[i].kind,
						 bill.e[i].pages);
	}
	bill_settle(&bill);
}

enum held { HELD, IN_HANDLER, NOT_COUNTED };

/* Is there a table, and is it ours to change now? */
static enum held enter(void)
{
	if (!mt_account_start())
		return NOT_COUNTED;
	if (!mt_maplock_take(rebuild_table))
		return IN_HANDLER;
	if (table_ready())
		return HELD;
	mt_maplock_release(do_op);
	return NOT_COUNTED;
}

static void leave(void)
{
	mt_maplock_release(do_op);
}

static void defer(const struct mt_map_op *op)
{
	if (!mt_maplock_defer(op))
		fetch_add_relaxed(&table.header->uncertain, 1);
}

/* Do it to the table now, or leave it to the one we interrupted. */
static void apply(const struct mt_map_op *op)
{
	enum held held = enter();

	if (held == IN_HANDLER)
		defer(op);
	if (held != HELD)
		return;
	do_op(op);
	leave();
}

static bool overcommit_never(void)
{
	static _Atomic uint32_t known;
	char c = '0';
	int fd;

	if (!load_relaxed(&known)) {
		fd = mt_sys_open("/proc/sys/vm/overcommit_memory",
				 O_RDONLY | O_CLOEXEC, 0);
		if (fd >= 0) {
			mt_sys_read(fd, &c, 1);
			mt_sys_close(fd);
		}
		store_relaxed(&known, c == '2' ? 2 : 1);
	}
	return load_relaxed(&known) == 2;
}

static uint64_t fresh_object(void)
{
	return OBJECT_ANONYMOUS | fetch_add_relaxed(&next_object, 1);
}

/* What kind of thing is behind a descriptor? */
static void classify_file(int fd, bool private, struct mt_range *range)
{
	struct statfs fs = { 0 };
	struct stat st = { 0 };

	range->type = private ? MT_MAP_FILE : MT_MAP_SHARED_FILE;
	if (mt_syscall4(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH))
		return;
	if (S_ISCHR(st.st_mode)) {
		bool zero = st.st_rdev == makedev(1, 5);

		range->type = private ? MT_MAP_ANON
			      : zero  ? MT_MAP_SHMEM
				      : MT_MAP_DEVICE;
		range->object = private || !zero ? 0 : fresh_object();
		if (private && !zero)
			range->type = MT_MAP_FILE;
		return;
	}
	if (private || mt_syscall2(SYS_fstatfs, fd, &fs))
		return;
	if (fs.f_type == TMPFS_MAGIC || fs.f_type == HUGETLBFS_MAGIC) {
		range->type = MT_MAP_SHMEM;
		range->object = ((uint64_t)st.st_dev * UINT64_C(1000003) ^
				 (uint64_t)st.st_ino) &
				~(OBJECT_ANONYMOUS | OBJECT_SYSV);
	}
}

static void classify(struct mt_range *range, int prot, int flags, int fd,
		     off_t off)
{
	bool private = (flags & MAP_TYPE) == MAP_PRIVATE;

	range->group = mt_account_current();
	range->offset = (uint64_t)off;
	if (flags & MAP_ANONYMOUS) {
		range->type = private ? MT_MAP_ANON : MT_MAP_SHMEM;
		range->object = private ? 0 : fresh_object();
		range->offset = 0;
	} else {
		classify_file(fd, private, range);
	}
	if (prot & PROT_WRITE)
		range->state |= MT_MAP_WRITE;
	if (prot == PROT_NONE)
		range->state |= MT_MAP_NONE;
	if ((flags & MAP_NORESERVE) && !overcommit_never())
		range->state |= MT_MAP_NORESERVE;
	if (flags & MAP_HUGETLB)
		range->state |= MT_MAP_HUGETLB;
	if (flags & MAP_GROWSDOWN)
		range->state |= MT_MAP_GROWSDOWN;
	if (range->type == MT_MAP_SHMEM ||
	    ((range->type == MT_MAP_ANON || range->type == MT_MAP_FILE) &&
	     (range->state & (MT_MAP_WRITE | MT_MAP_NORESERVE |
			      MT_MAP_HUGETLB)) == MT_MAP_WRITE))
		range->state |= MT_MAP_ACCOUNT;
}

/* The length the kernel will map. */
static uint64_t mapped_length(size_t len, int flags, int fd)
{
	uint64_t huge = UINT64_C(2) << 20;
	struct stat st = { 0 };

	if (flags & MAP_HUGETLB) {
		int shift = flags >> MAP_HUGE_SHIFT & MAP_HUGE_MASK;

		huge = shift ? UINT64_C(1) << shift : huge;
	} else if (!(flags & MAP_ANONYMOUS) && fd >= 0) {
		struct statfs fs = { 0 };

		if (mt_syscall2(SYS_fstatfs, fd, &fs) ||
		    fs.f_type != HUGETLBFS_MAGIC ||
		    mt_syscall4(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH))
			return page_up(len);
		huge = (uint64_t)st.st_blksize;
	} else {
		return page_up(len);
	}
	return (len + huge - 1) & ~(huge - 1);
}

MT_EXPORT void *mmap(void *addr, size_t len, int prot, int flags, int fd,
		     off_t off)
{
	struct mt_map_op op = { .what = MT_OP_INSERT };
	bool fixed = (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) == MAP_FIXED;
	struct bill bill = { 0 };
	uint32_t list = 0;
	enum held held;
	enum mt_kind kind;
	int saved = errno;
	uint64_t size;
	void *p;

	size = mapped_length(len, flags, fd);
	/* What the kernel will refuse needs no thought. */
	if (!size || size < len || !mt_account_start())
		return real_mmap(addr, len, prot, flags, fd, off);
	classify(&op.range, prot, flags, fd, off);
	if (mt_map_kind(&op.range, &kind))
		bill_add(&bill, op.range.group, kind, pages_in(size));
	held = fixed ? enter() : NOT_COUNTED;
	if (held == HELD) {
		/* What is there goes: it pays for what comes. */
		list = mt_map_detach(&table, (uint64_t)(uintptr_t)addr,
				     (uint64_t)(uintptr_t)addr + size);
		mt_map_weigh(&table, list, bill_add, &bill);
		leave();
	}
	if (bill_pay(&bill)) {
		errno = saved;
		p = real_mmap(addr, len, prot, flags, fd, off);
		saved = errno;
	} else {
		p = MAP_FAILED;
		saved = ENOMEM;
		bill.n = 0;
	}
	if (p == MAP_FAILED) {
		bill_refund(&bill, bill.n);
		if (list && enter() == HELD) {
			mt_map_attach(&table, list);
			leave();
		}
		errno = saved;
		return p;
	}
	op.range.start = (uint64_t)(uintptr_t)p;
	op.range.end = op.range.start + size;
	if (list && enter() == HELD) {
		struct bill views = { 0 };

		mt_map_free(&table, list, bill_add, &views);
		bill_pay(&views);
		leave();
	}
	apply(&op);
	bill_settle(&bill);
	errno = saved;
	return p;
}

MT_EXPORT void *mmap64(void *addr, size_t len, int prot, int flags, int fd,
		       off_t off)
{
	return mmap(addr, len, prot, flags, fd, off);
}

MT_EXPORT int munmap(void *addr, size_t len)
{
	struct mt_map_op op = { .what = MT_OP_PUNCH };
	struct bill bill = { 0 };
	struct bill views = { 0 };
	uint64_t size = page_up(len);
	int saved = errno;
	uint32_t list = 0;
	enum held held;
	int ret;

	op.range.start = (uint64_t)(uintptr_t)addr;
	op.range.end = op.range.start + size;
	if (!size || op.range.start % mt_page_size() ||
	    op.range.end < op.range.start)
		return real_munmap(addr, len);
	held = enter();
	if (held == HELD) {
		list = mt_map_detach(&table, op.range.start, op.range.end);
		mt_map_weigh(&table, list, bill_add, &bill);
		leave();
	}
	errno = saved;
	ret = real_munmap(addr, len);
	saved = errno;
	if (held == IN_HANDLER && !ret)
		defer(&op);
	if (list && enter() == HELD) {
		if (ret)
			mt_map_attach(&table, list);
		else
			mt_map_free(&table, list, bill_add, &views);
		leave();
		if (!ret) {
			bill_pay(&views);
			bill_settle(&bill);
		}
	}
	errno = saved;
	return ret;
}

/* The states of the kernel's ranges between @start and @end, into the table:
 * after an mprotect that changed some and then failed. */
static void resync(uint64_t start, uint64_t end)
{
	char text[4096] = "";
	size_t have = 0;
	ssize_t n;
	int fd = mt_sys_open("/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);

	if (fd < 0)
		return;
	while ((n = mt_sys_read(fd, text + have, sizeof(text) - have)) > 0) {
		char *line = text;
		char *eol;

		have += (size_t)n;
		while ((eol = memchr(line, '\n',
				     have - (size_t)(line - text)))) {
			struct mt_map_op op = { .what = MT_OP_PROTECT };
			uint64_t at[2] = { 0, 0 };
			int i = 0;
			char *c;

			for (c = line; c < eol && *c != ' '; c++) {
				if (*c == '-')
					i = 1;
				else
					at[i] = at[i] << 4 |
						(uint64_t)(*c <= '9'
								   ? *c - '0'
								   : *c - 'a' +
									     10);
			}
			op.range.start = MT_MAX(at[0], start);
			op.range.end = MT_MIN(at[1], end);
			op.range.state =
				(c[2] == 'w' ? MT_MAP_WRITE : 0) |
				(memcmp(c + 1, "---", 3) ? 0 : MT_MAP_NONE);
			if (op.range.start < op.range.end)
				apply(&op);
			line = eol + 1;
		}
		have -= (size_t)(line - text);
		memmove(text, line, have);
	}
	mt_sys_close(fd);
}

static int protect(void *addr, size_t len, int prot, int pkey)
{
	struct mt_map_op op = { .what = MT_OP_PROTECT };
	struct bill bill = { 0 };
	int saved = errno;
	enum held held;
	int ret;

	op.range.start = (uint64_t)(uintptr_t)addr;
	op.range.end = op.range.start + page_up(len);
	op.range.state = (prot & PROT_WRITE ? MT_MAP_WRITE : 0) |
			 (prot == PROT_NONE ? MT_MAP_NONE : 0);
	if (prot & PROT_WRITE) {
		held = enter();
		if (held == HELD) {
			mt_map_would_account(&table, op.range.start,
					     op.range.end, bill_add, &bill);
			leave();
		}
		if (!bill_pay(&bill)) {
			errno = ENOMEM;
			return -1;
		}
	}
	errno = saved;
	if (pkey >= 0 || pkey == -2)
		ret = real_pkey_mprotect(addr, len, prot,
					 pkey == -2 ? -1 : pkey);
	else
		ret = real_mprotect(addr, len, prot);
	saved = errno;
	if (!ret) {
		apply(&op);
	} else if (saved == ENOMEM || saved == EACCES) {
		struct bill left = { 0 };
		bool again = false;

		/* Part of it may be done: what the kernel says holds. */
		resync(op.range.start, op.range.end);
		if ((prot & PROT_WRITE) && enter() == HELD) {
			mt_map_would_account(&table, op.range.start,
					     op.range.end, bill_add, &left);
			leave();
			again = true;
		}
		/* Of what was charged, this did not become writable. */
		bill_refund(again ? &left : &bill, again ? left.n : bill.n);
	} else {
		bill_refund(&bill, bill.n);
	}
	errno = saved;
	return ret;
}

MT_EXPORT int mprotect(void *addr, size_t len, int prot)
{
	return protect(addr, len, prot, -1);
}

MT_EXPORT int pkey_mprotect(void *addr, size_t len, int prot, int pkey)
{
	if (!real_pkey_mprotect) {
		errno = ENOSYS;
		return -1;
	}
	return protect(addr, len, prot, pkey == -1 ? -2 : pkey);
}

/* What an mremap of a known range will need charged. */
static void weigh_growth(uint64_t old, uint64_t old_size, uint64_t new_size,
			 int flags, struct bill *bill)
{
	struct mt_range range;
	enum mt_kind kind;
	uint64_t more = 0;

	if (!mt_map_find(&table, old, &range) || !mt_map_kind(&range, &kind))
		return;
	if (new_size > old_size)
		more = new_size - old_size;
	if (flags & MREMAP_DONTUNMAP)
		more += old_size;
	if (more)
		bill_add(bill, range.group, kind, pages_in(more));
}

/* A piece of the same, at a new place: growth, a second view, or what
 * MREMAP_DONTUNMAP leaves behind. */
static void insert_like(const struct mt_range *like, uint64_t at, uint64_t size,
			uint64_t offset)
{
	struct mt_map_op op = { .what = MT_OP_INSERT, .range = *like };

	op.range.start = at;
	op.range.end = at + size;
	op.range.offset = offset;
	apply(&op);
}

MT_EXPORT void *mremap(void *old, size_t old_len, size_t new_len, int flags,
		       ...)
{
	uint64_t from = (uint64_t)(uintptr_t)old;
	uint64_t old_size = page_up(old_len);
	uint64_t new_size = page_up(new_len);
	struct mt_range like = { 0 };
	struct bill bill = { 0 };
	struct bill gone = { 0 };
	int saved = errno;
	uint32_t moved = 0;
	uint32_t over = 0;
	uint64_t keep = MT_MIN(old_size, new_size);
	enum held held;
	bool known = false;
	void *target;
	uint64_t to;
	va_list ap;
	void *p;

	va_start(ap, flags);
	target = va_arg(ap, void *);
	va_end(ap);
	if (!real_mremap)
		RESOLVE(mremap);
	if (!real_mremap) {
		errno = ENOSYS;
		return MAP_FAILED;
	}
	held = from % mt_page_size() || !new_size ? NOT_COUNTED : enter();
	if (held == HELD) {
		known = mt_map_find(
			&table, old_size ? from + old_size - 1 : from, &like);
		weigh_growth(from, old_size, new_size, flags, &bill);
		leave();
		if (!bill_pay(&bill)) {
			errno = ENOMEM;
			return MAP_FAILED;
		}
		if (enter() == HELD) {
			if (old_size && !(flags & MREMAP_DONTUNMAP))
				moved = mt_map_detach(&table, from,
						      from + old_size);
			if (flags & MREMAP_FIXED)
				over = mt_map_detach(
					&table, (uint64_t)(uintptr_t)target,
					(uint64_t)(uintptr_t)target + new_size);
			leave();
		}
	}
	errno = saved;
	p = flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)
		    ? real_mremap(old, old_len, new_len, flags, target)
		    : real_mremap(old, old_len, new_len, flags);
	saved = errno;
	to = (uint64_t)(uintptr_t)p;
	if (p == MAP_FAILED) {
		bill_refund(&bill, bill.n);
		if ((moved || over) && enter() == HELD) {
			mt_map_attach(&table, over);
			mt_map_attach(&table, moved);
			leave();
		}
		errno = saved;
		return p;
	}
	if (held == IN_HANDLER) {
		struct mt_map_op op = { .what = MT_OP_SHIFT };

		op.range.start = from;
		op.range.end = from + keep;
		op.to = to;
		defer(&op);
		errno = saved;
		return p;
	}
	if ((moved || over) && enter() == HELD) {
		mt_map_weigh(&table, over, bill_add, &gone);
		mt_map_free(&table, over, bill_add, &gone);
		/* Put back where it was, cut what shrank, move the rest. */
		mt_map_attach(&table, moved);
		if (old_size > keep) {
			over = mt_map_detach(&table, from + keep,
					     from + old_size);
			mt_map_weigh(&table, over, bill_add, &gone);
			mt_map_free(&table, over, bill_add, &gone);
		}
		moved = mt_map_detach(&table, from, from + keep);
		mt_map_shift(&table, moved, from, to);
		leave();
		bill_pay(&gone);
		bill_settle(&gone);
	}
	if (known && !old_size)
		insert_like(&like, to, new_size,
			    like.offset + (from - like.start));
	else if (known && (flags & MREMAP_DONTUNMAP))
		insert_like(&like, to, new_size,
			    like.offset + (from - like.start));
	else if (known && new_size > old_size)
		insert_like(&like, to + old_size, new_size - old_size,
			    like.offset + (from + old_size - like.start));
	errno = saved;
	return p;
}

/* The break moves by @delta pages: charge before, give back after. */
static bool brk_grows(int64_t pages)
{
	struct bill bill = { 0 };

	bill_add(&bill, mt_account_current(), MT_BRK, pages);
	return bill_pay(&bill);
}

static void brk_moved(int64_t asked, int64_t pages)
{
	/* Charged @asked, got @pages; pages an ancestor paid aren't ours. */
	if (asked > pages && asked > 0)
		mt_account_uncharge(mt_account_current(), MT_BRK,
				    asked - MT_MAX(pages, 0));
	if (pages < 0) {
		int64_t ours = MT_MIN(-pages, brk_charged);

		if (ours > 0)
			mt_account_uncharge(mt_account_current(), MT_BRK, ours);
		brk_charged -= ours;
	} else {
		brk_charged += pages;
	}
}

static uint64_t brk_now(void)
{
	return page_up((uint64_t)mt_syscall1(SYS_brk, 0));
}

static int64_t brk_ask(uint64_t before, uint64_t wanted)
{
	if (mt_account_start() && enter() == HELD)
		leave();
	return ((int64_t)page_up(wanted) - (int64_t)before) /
	       (int64_t)mt_page_size();
}

MT_EXPORT int brk(void *addr)
{
	uint64_t before = brk_now();
	int64_t asked = brk_ask(before, (uint64_t)(uintptr_t)addr);
	int saved = errno;
	int ret;

	if (!real_brk || !mt_account_start())
		return real_brk ? real_brk(addr) : fail(-ENOMEM);
	if (asked > 0 && !brk_grows(asked)) {
		errno = ENOMEM;
		return -1;
	}
	errno = saved;
	ret = real_brk(addr);
	saved = errno;
	brk_moved(MT_MAX(asked, 0), ((int64_t)brk_now() - (int64_t)before) /
					    (int64_t)mt_page_size());
	errno = saved;
	return ret;
}

MT_EXPORT void *sbrk(intptr_t increment)
{
	uint64_t before;
	int64_t asked;
	int saved = errno;
	void *p;

	if (!real_sbrk)
		RESOLVE(sbrk);
	if (!real_sbrk) {
		errno = ENOMEM;
		return (void *)-1;
	}
	if (!increment || !mt_account_start())
		return real_sbrk(increment);
	before = brk_now();
	asked = brk_ask(before, (uint64_t)mt_syscall1(SYS_brk, 0) +
					(uint64_t)increment);
	if (asked > 0 && !brk_grows(asked)) {
		errno = ENOMEM;
		return (void *)-1;
	}
	errno = saved;
	p = real_sbrk(increment);
	saved = errno;
	brk_moved(MT_MAX(asked, 0), ((int64_t)brk_now() - (int64_t)before) /
					    (int64_t)mt_page_size());
	errno = saved;
	return p;
}

MT_EXPORT void *shmat(int id, const void *addr, int flags)
{
	struct mt_map_op op = { .what = MT_OP_INSERT };
	struct bill bill = { 0 };
	int saved = errno;
	struct shmid_ds ds = { 0 };
	uint64_t size;
	void *p;

	if (!real_shmat)
		RESOLVE(shmat);
	if (!real_shmat) {
		errno = ENOSYS;
		return (void *)-1;
	}
	if (mt_syscall3(SYS_shmctl, id, IPC_STAT, &ds) || !mt_account_start())
		return real_shmat(id, addr, flags);
	size = page_up(ds.shm_segsz);
	op.range.type = MT_MAP_SHMEM;
	op.range.group = mt_account_current();
	op.range.state =
		MT_MAP_ACCOUNT | (flags & SHM_RDONLY ? 0 : MT_MAP_WRITE);
	op.range.object = OBJECT_SYSV | (uint32_t)id;
	bill_add(&bill, op.range.group, MT_SHMEM, pages_in(size));
	if (!bill_pay(&bill)) {
		errno = ENOMEM;
		return (void *)-1;
	}
	errno = saved;
	p = real_shmat(id, addr, flags);
	saved = errno;
	if (p == (void *)-1) {
		bill_refund(&bill, bill.n);
	} else {
		op.range.start = (uint64_t)(uintptr_t)p;
		op.range.end = op.range.start + size;
		apply(&op);
	}
	errno = saved;
	return p;
}

/* Pieces of an attachment: what was unmapped in its middle is not there. */
#define PIECES 64

/*
 * Take what is left of the attachment at @start out of the table, as shmdt()
 * will unmap it: all of the same segment whose offset fits its address.
 */
static unsigned detach_attachment(uint64_t start, uint32_t *lists)
{
	struct shmid_ds ds = { 0 };
	struct mt_range range;
	uint64_t object = 0;
	uint64_t at = start;
	unsigned n = 0;

	if (enter() != HELD)
		return 0;
	if (mt_map_next(&table, start, &range) &&
	    (range.object & OBJECT_SYSV) && range.start - start == range.offset)
		object = range.object;
	leave();
	/* How far it may reach; it is there as long as it is attached. */
	if (!object ||
	    mt_syscall3(SYS_shmctl, (int)(uint32_t)object, IPC_STAT, &ds) ||
	    enter() != HELD)
		return 0;
	while (n < PIECES && mt_map_next(&table, at, &range) &&
	       range.start < start + page_up(ds.shm_segsz)) {
		at = range.end;
		if (range.object == object &&
		    range.start - start == range.offset)
			lists[n++] =
				mt_map_detach(&table, range.start, range.end);
	}
	leave();
	return n;
}

MT_EXPORT int shmdt(const void *addr)
{
	uint32_t lists[PIECES];
	struct bill bill = { 0 };
	struct bill views = { 0 };
	int saved = errno;
	unsigned n = 0;
	int ret;

	if (!real_shmdt)
		RESOLVE(shmdt);
	if (!real_shmdt)
		return fail(-ENOSYS);
	if (mt_account_start())
		n = detach_attachment((uint64_t)(uintptr_t)addr, lists);
	errno = saved;
	ret = real_shmdt(addr);
	saved = errno;
	if (n && enter() == HELD) {
		for (unsigned i = 0; i < n; i++) {
			if (ret) {
				mt_map_attach(&table, lists[i]);
				continue;
			}
			mt_map_weigh(&table, lists[i], bill_add, &bill);
			mt_map_free(&table, lists[i], bill_add, &views);
		}
		leave();
		bill_pay(&views);
		bill_settle(&bill);
	}
	errno = saved;
	return ret;
}

/* Did this fork take the lock?  Not when a handler forks inside the holder. */
static bool fork_holds;

void mt_mmap_prefork(void)
{
	fork_holds = mt_account_session() && mt_maplock_take(rebuild_table);
}

void mt_mmap_postfork_parent(void)
{
	if (fork_holds)
		mt_maplock_release(do_op);
}

void mt_mmap_postfork_child(void)
{
	mt_maplock_reset();
}
