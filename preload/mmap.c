/* SPDX-License-Identifier: MIT */
/*
 * mmap.c - the mapping family: charged by the kernel's own rule.
 *
 * Around each call of the program's, which goes on to libc's function once and
 * unaltered:
 *
 *	what it will cost is charged ahead, or refused with ENOMEM
 *	what it takes away goes out of the table: another thread may get the
 *		address as soon as the kernel is done
 *	the call
 *	the table learns what came of it, and the bill is settled: what was
 *		charged ahead, what went and what came cancel
 *
 * The lock is held for the table's sake only, never over the program's call.
 * Where it can't be had the table's part is deferred (maplock.h), nothing is
 * charged ahead that the table would have to be asked for, and a limit may be
 * passed by that much.
 *
 * Ranges that the table doesn't know (from before the start, inherited over a
 * fork, or made inside libc) cost nothing and give nothing back.
 *
 * Not here: madvise and its kin, which change no charge.
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
#include <sys/sysinfo.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "core/atomic.h"
#include "core/counter.h"
#include "core/sys.h"
#include "preload/account.h"
#include "preload/context.h"
#include "preload/limit.h"
#include "preload/maplock.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 8
#endif
#ifndef SECRETMEM_MAGIC
#define SECRETMEM_MAGIC 0x5345434d
#endif

#define HERE __builtin_frame_address(0)

/* Objects that are no files: numbers of our own, and System V's. */
#define OBJECT_ANON (UINT64_C(1) << 63)
#define OBJECT_SYSV (UINT64_C(1) << 62)

/* From here on the kernel is asked whether it will, before we charge. */
#define LARGE_PAGES (INT64_C(1) << 18)

static struct mt_mapping table;

/* Whose the table is: mt_account_mark(); 0: nobody's, 1: being made. */
static _Atomic uint64_t table_mark;
#define BEING_MADE UINT64_C(1)

enum { NO_FILE_YET, MAKING_FILE, FILE_SETTLED };
static _Atomic uint32_t file_state;

/* Of the machine. */
static uint32_t page_shift = 12;
static _Atomic uint64_t next_object;

/* ---- libc's functions ---- */

static long returned(long ret)
{
	if ((unsigned long)ret < (unsigned long)-4095L)
		return ret;
	errno = (int)-ret;
	return -1;
}

static void *raw_mmap(void *addr, size_t len, int prot, int flags, int fd,
		      off_t offset)
{
	return (void *)returned(
		(long)mt_sys_mmap(addr, len, prot, flags, fd, offset));
}

static int raw_munmap(void *addr, size_t len)
{
	return (int)returned(mt_sys_munmap(addr, len));
}

static void *raw_mremap(void *addr, size_t old_len, size_t len, int flags, ...)
{
	void *to;
	va_list ap;

	va_start(ap, flags);
	to = va_arg(ap, void *);
	va_end(ap);
	return (void *)returned(mt_syscall6(SYS_mremap, (long)addr,
					    (long)old_len, (long)len, flags,
					    (long)to, 0));
}

static int raw_mprotect(void *addr, size_t len, int prot)
{
	return (int)returned(mt_sys_mprotect(addr, len, prot));
}

static int raw_pkey_mprotect(void *addr, size_t len, int prot, int key)
{
	if (key == -1)
		return raw_mprotect(addr, len, prot);
	return (int)returned(
		mt_syscall4(SYS_pkey_mprotect, addr, len, prot, key));
}

static void *raw_shmat(int id, const void *addr, int flags)
{
	return (void *)returned(mt_syscall3(SYS_shmat, id, addr, flags));
}

static int raw_shmdt(const void *addr)
{
	return (int)returned(mt_syscall1(SYS_shmdt, addr));
}

static struct {
	void *(*mmap)(void *, size_t, int, int, int, off_t);
	int (*munmap)(void *, size_t);
	void *(*mremap)(void *, size_t, size_t, int, ...);
	int (*mprotect)(void *, size_t, int);
	int (*pkey_mprotect)(void *, size_t, int, int);
	void *(*shmat)(int, const void *, int);
	int (*shmdt)(const void *);
	/* These keep libc's own idea of the break, and have no stand-in. */
	int (*brk)(void *);
	void *(*sbrk)(intptr_t);
} real = {
	.mmap = raw_mmap,
	.munmap = raw_munmap,
	.mremap = raw_mremap,
	.mprotect = raw_mprotect,
	.pkey_mprotect = raw_pkey_mprotect,
	.shmat = raw_shmat,
	.shmdt = raw_shmdt,
};

static void resolve(const char *name, void *where)
{
	void *p = dlsym(RTLD_NEXT, name);

	if (p)
		memcpy(where, &p, sizeof(p));
}

void mt_mmap_resolve(void)
{
	resolve("mmap", &real.mmap);
	resolve("munmap", &real.munmap);
	resolve("mremap", &real.mremap);
	resolve("mprotect", &real.mprotect);
	resolve("pkey_mprotect", &real.pkey_mprotect);
	resolve("shmat", &real.shmat);
	resolve("shmdt", &real.shmdt);
	resolve("brk", &real.brk);
	resolve("sbrk", &real.sbrk);
	resolve("syscall", &mt_syscall_next);
}

/* ---- the table's life ---- */

void mt_mmap_recover(void)
{
	mt_mapping_rebuild(&table);
}

/*
 * This process has no table yet: it starts, or is the child of a fork.
 * Return: has it one now?
 */
static MT_COLD bool make_table(uint64_t mark)
{
	uint64_t old = load_relaxed(&table_mark);
	int saved = errno;

	if (old == BEING_MADE)
		return false;
	if (old && mt_maplock_is_mine()) {
		/*
		 * The fork came from a signal handler that had interrupted us
		 * in the middle of the table, and we shall go on there: let
		 * it be until then, but don't write to the parent's file.
		 */
		table.file = NULL;
		return false;
	}
	if (!cas_seq_cst(&table_mark, &old, BEING_MADE))
		return false;
	mt_maplock_reset();
	if (old)
		mt_mapping_finish(&table);
	mt_mapping_init(&table, mt_page_size());
	page_shift = (uint32_t)__builtin_ctzll(mt_page_size());
	store_relaxed(&file_state, NO_FILE_YET);
	store_release(&table_mark, mark);
	errno = saved;
	return true;
}

/* Its file, once, when the process has its place in the session. */
static MT_COLD void make_file(void)
{
	static char path[MT_PATH_MAX + MT_MAP_SUFFIX];
	struct mt_session *session = mt_account_session();
	uint32_t index = mt_account_process();
	struct mt_process *process;
	struct mt_map_header *file;
	uint32_t state = NO_FILE_YET;
	uint32_t mapped = 0;

	if (!session || index == MT_NONE ||
	    !cas_seq_cst(&file_state, &state, MAKING_FILE))
		return;
	process = &session->processes[index];
	mt_segment_map_path(session, index,
			    (uint32_t)(load_relaxed(&process->state) >> 8) &
				    0xffffff,
			    path);
	/* First, so that whoever reaps us looks for it. */
	store_relaxed(&process->map_file, 1);
	file = mt_mapping_create_file(path, mt_page_size(), &mapped);
	if (!file) {
		store_relaxed(&process->map_file, 0);
		store_relaxed(&file_state, FILE_SETTLED);
		return;
	}
	if (mt_maplock_take(HERE)) {
		mt_mapping_publish(&table, file, mapped);
		mt_maplock_release();
	}
	store_relaxed(&file_state, FILE_SETTLED);
}

/* Is this call to be followed?  @ret_mark: whose process it is. */
static inline bool begin(uint64_t *ret_mark)
{
	if (unlikely(!mt_account_start()))
		return false;
	*ret_mark = mt_account_mark();
	if (unlikely(load_acquire(&table_mark) != *ret_mark) &&
	    !make_table(*ret_mark))
		return false;
	if (unlikely(load_relaxed(&file_state) == NO_FILE_YET))
		make_file();
	return true;
}

/*
 * A call that can only touch what we know, and we know nothing.  A child that
 * tidies up before it execs need not join the session for that.
 */
static inline bool knows_nothing(void)
{
	/* In this order: what this thread deferred is done once it is idle. */
	return load_acquire(&table_mark) != mt_account_mark() ||
	       (mt_maplock_idle() && !load_relaxed(&table.nr));
}

/*
 * A handler forked during the call: this is the child, which has charged
 * nothing, and its table knows nothing of it.
 */
static inline bool is_another(uint64_t mark)
{
	return unlikely(mt_account_mark() != mark);
}

/* ---- bills ---- */

static void charge_now(uint32_t group, enum mt_kind kind, int64_t pages)
{
	if (pages > 0)
		mt_account_charge_forced(group, kind, pages);
	else if (pages < 0)
		mt_account_uncharge(group, kind, -pages);
}

static MT_COLD void settle_many(struct mt_mapping_bill *bill)
{
	/* What goes here and comes there changes hands: no gap in between. */
	for (uint32_t i = 0; i < bill->nr; i++) {
		for (uint32_t j = 0; j < bill->nr; j++) {
			int64_t n = MT_MIN(-bill->entry[i].pages,
					   bill->entry[j].pages);

			if (n <= 0)
				continue;
			mt_account_move(bill->entry[i].group,
					(enum mt_kind)bill->entry[i].kind,
					bill->entry[j].group,
					(enum mt_kind)bill->entry[j].kind, n);
			bill->entry[i].pages += n;
			bill->entry[j].pages -= n;
		}
	}
	for (uint32_t i = 0; i < bill->nr; i++)
		charge_now(bill->entry[i].group,
			   (enum mt_kind)bill->entry[i].kind,
			   bill->entry[i].pages);
}

static inline void settle(struct mt_mapping_bill *bill)
{
	if (bill->nr > 1)
		settle_many(bill);
	else if (bill->nr)
		charge_now(bill->entry[0].group,
			   (enum mt_kind)bill->entry[0].kind,
			   bill->entry[0].pages);
	bill->nr = 0;
}

static MT_COLD bool pay_by_rounds(uint32_t group, enum mt_kind kind,
				  int64_t pages)
{
	struct mt_limit_rounds rounds = { .heap_is_busy = mt_in_handler() };

	while (mt_limit_round(&rounds)) {
		if (mt_account_charge(group, kind, pages))
			return true;
	}
	return false;
}

/* Charge ahead.  No lock may be held.  Return: false when refused. */
static inline bool pay(struct mt_mapping_bill *bill, uint32_t group,
		       enum mt_kind kind, int64_t pages)
{
	if (pages <= 0)
		return true;
	if (unlikely(!mt_account_charge(group, kind, pages)) &&
	    !pay_by_rounds(group, kind, pages))
		return false;
	if (unlikely(mt_flags & MT_LATER))
		mt_limit_later(false);
	mt_mapping_bill_add(bill, group, kind, -pages);
	return true;
}

/* Charge all that is on @cost ahead, or nothing. */
static bool pay_all(struct mt_mapping_bill *bill,
		    const struct mt_mapping_bill *cost)
{
	for (uint32_t i = 0; i < cost->nr; i++) {
		if (!pay(bill, cost->entry[i].group,
			 (enum mt_kind)cost->entry[i].kind,
			 cost->entry[i].pages)) {
			settle(bill);
			return false;
		}
	}
	return true;
}

/* More groups than a cost has room for: they are charged after the call. */
static void forget_cost(uint32_t group MT_UNUSED, enum mt_kind kind MT_UNUSED,
			int64_t pages MT_UNUSED)
{
}

#define NEW_BILL                                                               \
	{                                                                      \
		.nr = 0, .spill = charge_now                                   \
	}
#define NEW_COST                                                               \
	{                                                                      \
		.nr = 0, .spill = forget_cost                                  \
	}

/* ---- the table's part of each call ---- */

void mt_mmap_do(const struct mt_map_op *op)
{
	const struct mt_map_range *range = &op->range;
	struct mt_mapping_bill bill = NEW_BILL;
	struct mt_mapping_taken taken;

	switch (op->kind) {
	case MT_OP_INSERT:
		mt_mapping_bill_add(&bill, range->group,
				    mt_mapping_kind(range->type), -op->paid);
		mt_mapping_insert(&table, range, &bill);
		break;
	case MT_OP_PUNCH:
		mt_mapping_punch(&table, range->start, range->end, &bill);
		break;
	case MT_OP_PROTECT:
		mt_mapping_protect(&table, range->start, range->end,
				   range->state, &bill);
		break;
	case MT_OP_MOVE:
		mt_mapping_take(&table, range->start, range->end, &bill,
				&taken);
		mt_mapping_land(&table, &taken, range->start,
				range->end - range->start, op->to, op->len,
				op->sparse, &bill);
		break;
	case MT_OP_COPY:
		mt_mapping_copy(&table, range->start, range->end - range->start,
				op->to, op->len, op->sparse, &bill);
		break;
	}
	settle(&bill);
}

static void defer_range(enum mt_map_op_kind kind, uint64_t start, uint64_t end,
			uint32_t state)
{
	const struct mt_map_op op = {
		.kind = kind,
		.range = { .start = start, .end = end, .state = state },
	};

	mt_maplock_defer(&op);
}

static void put_back(struct mt_mapping_taken *taken,
		     struct mt_mapping_bill *bill, void *frame)
{
	if (mt_maplock_take(frame)) {
		mt_mapping_put_back(&table, taken, bill);
		mt_maplock_release();
		return;
	}
	/* What isn't put back at once is given back, and charged again. */
	for (uint32_t n = 0; n < taken->nr_parts; n++) {
		const struct mt_map_op op = {
			.kind = MT_OP_INSERT,
			.range = taken->part[n],
		};

		mt_maplock_defer(&op);
	}
}

static void forget(struct mt_mapping_taken *taken, void *frame)
{
	/* Without the lock the nodes wait for a rebuild. */
	if (!taken->chain || !mt_maplock_take(frame))
		return;
	mt_mapping_forget(&table, taken);
	mt_maplock_release();
}

/* ---- what the kernel says ---- */

struct maps_reader {
	int fd;
	uint32_t at;
	uint32_t have;
	char text[1024];
};

static int next_char(struct maps_reader *reader)
{
	if (reader->at == reader->have) {
		ssize_t n = mt_sys_read(reader->fd, reader->text,
					sizeof(reader->text));

		if (n <= 0)
			return -1;
		reader->have = (uint32_t)n;
		reader->at = 0;
	}
	return (unsigned char)reader->text[reader->at++];
}

static int next_hex(struct maps_reader *reader, uint64_t *ret)
{
	uint64_t n = 0;

	for (;;) {
		int c = next_char(reader);

		if (c >= '0' && c <= '9')
			n = n << 4 | (uint64_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			n = n << 4 | (uint64_t)(c - 'a' + 10);
		else {
			*ret = n;
			return c;
		}
	}
}

/* One line of /proc/self/maps; @ret_state as for mt_mapping_protect(). */
static bool next_map(struct maps_reader *reader, uint64_t *ret_start,
		     uint64_t *ret_end, uint32_t *ret_state)
{
	int c;
	int r;
	int w;
	int x;

	if (next_hex(reader, ret_start) != '-' ||
	    next_hex(reader, ret_end) != ' ')
		return false;
	r = next_char(reader);
	w = next_char(reader);
	x = next_char(reader);
	*ret_state = (w == 'w' ? MT_MAP_WRITE : 0) |
		     (r == '-' && w == '-' && x == '-' ? MT_MAP_NONE : 0);
	do
		c = next_char(reader);
	while (c >= 0 && c != '\n');
	return true;
}

static void learn(enum mt_map_op_kind kind, uint64_t start, uint64_t end,
		  uint32_t state, struct mt_mapping_bill *bill, void *frame)
{
	if (start >= end || !mt_maplock_take(frame))
		return;
	if (kind == MT_OP_PUNCH)
		mt_mapping_punch(&table, start, end, bill);
	else
		mt_mapping_protect(&table, start, end, state, bill);
	mt_maplock_release();
}

/*
 * A call on this range failed, but may have done part of its work: mprotect
 * stops at a hole, a fixed mapping may have removed what it was to replace.
 */
static MT_COLD void reconcile(uint64_t start, uint64_t end,
			      struct mt_mapping_bill *bill, void *frame)
{
	struct maps_reader reader;
	uint64_t from = 0;
	uint64_t to = 0;
	uint32_t state = 0;

	reader.at = 0;
	reader.have = 0;
	reader.fd = mt_sys_open("/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
	if (reader.fd < 0)
		return;
	while (start < end && next_map(&reader, &from, &to, &state)) {
		if (to <= start)
			continue;
		learn(MT_OP_PUNCH, start, MT_MIN(from, end), 0, bill, frame);
		learn(MT_OP_PROTECT, MT_MAX(from, start), MT_MIN(to, end),
		      state, bill, frame);
		start = MT_MAX(start, to);
	}
	/* The last line is never the program's: a range ends before it. */
	mt_sys_close(reader.fd);
}

/* ---- what a new mapping is ---- */

static inline uint64_t page_up(uint64_t bytes)
{
	uint64_t mask = (UINT64_C(1) << page_shift) - 1;

	return (bytes + mask) & ~mask;
}

static inline bool is_aligned(uint64_t address)
{
	return !(address & ((UINT64_C(1) << page_shift) - 1));
}

static MT_COLD bool overcommit_is_never(void)
{
	static _Atomic uint32_t known;
	char mode = '0';
	int fd;

	if (load_relaxed(&known))
		return load_relaxed(&known) == 2;
	fd = mt_sys_open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC,
			 0);
	if (fd >= 0) {
		mt_sys_read(fd, &mode, 1);
		mt_sys_close(fd);
	}
	store_relaxed(&known, mode == '2' ? 2 : 1);
	return mode == '2';
}

/*
 * Will the kernel refuse so much anyway?  Charging it ahead would leave a
 * peak that never was.  When in doubt, no.
 */
static MT_COLD bool is_hopeless(int64_t pages)
{
	struct sysinfo info = { .mem_unit = 0 };

	if (pages > MT_CHARGE_MAX)
		return true;
	mt_syscall1(SYS_sysinfo, &info);
	return info.mem_unit && (uint64_t)pages >> (63 - page_shift) == 0 &&
	       ((uint64_t)pages << page_shift) / info.mem_unit >
		       info.totalram + info.totalswap;
}

/* log2 of the default huge page's size. */
static MT_COLD uint32_t default_huge_shift(void)
{
	static const char key[] = "Hugepagesize:";
	static _Atomic uint32_t known;
	struct maps_reader reader;
	uint64_t kib = 0;
	uint32_t matched = 0;
	int c;

	if (load_relaxed(&known))
		return load_relaxed(&known);
	reader.at = 0;
	reader.have = 0;
	reader.fd = mt_sys_open("/proc/meminfo", O_RDONLY | O_CLOEXEC, 0);
	if (reader.fd >= 0) {
		while (key[matched] && (c = next_char(&reader)) >= 0)
			matched = c == key[matched] ? matched + 1 : c == key[0];
		while (key[matched] == '\0' &&
		       ((c = next_char(&reader)) == ' ' ||
			(c >= '0' && c <= '9')))
			kib = c == ' ' ? kib : kib * 10 + (uint64_t)(c - '0');
		mt_sys_close(reader.fd);
	}
	kib = kib ? kib : 2048;
	store_relaxed(&known, 10 + (uint32_t)__builtin_ctzll(kib));
	return load_relaxed(&known);
}

static uint64_t object_of(const struct stat *st)
{
	uint64_t x = (uint64_t)st->st_ino * UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 29 ^ (uint64_t)st->st_dev) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 32) & ~(OBJECT_ANON | OBJECT_SYSV);
	return x ? x : 1;
}

static uint64_t fresh_object(void)
{
	return OBJECT_ANON | (fetch_add_relaxed(&next_object, 1) + 1);
}

/* Return: false when there is nothing behind @fd. */
static bool describe_file(struct mt_map_range *range, bool shared, int fd,
			  uint32_t *ret_huge)
{
	struct statfs fs;
	struct stat st;

	if (mt_syscall4(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH))
		return false;
	range->type = shared ? MT_MAP_SHARED_FILE : MT_MAP_FILE;
	range->object = object_of(&st);
	if (S_ISCHR(st.st_mode)) {
		bool zero = st.st_rdev == makedev(1, 5);

		if (shared)
			range->type = zero ? MT_MAP_SHMEM : MT_MAP_DEVICE;
		else if (zero)
			range->type = MT_MAP_ANON;
		if (zero) {
			range->object = shared ? fresh_object() : 0;
			range->offset = 0;
		}
		return true;
	}
	if (!S_ISREG(st.st_mode)) {
		if (shared)
			range->type = MT_MAP_DEVICE;
		return true;
	}
	/* Block devices have a major number; huge pages show in the size. */
	if (shared ? major(st.st_dev) != 0 : st.st_blksize < 1 << 20)
		return true;
	if (mt_syscall2(SYS_fstatfs, fd, &fs))
		return true;
	if (fs.f_type == HUGETLBFS_MAGIC && fs.f_bsize > 0)
		*ret_huge = (uint32_t)__builtin_ctzll((uint64_t)fs.f_bsize);
	if (shared &&
	    (fs.f_type == TMPFS_MAGIC || fs.f_type == HUGETLBFS_MAGIC ||
	     fs.f_type == SECRETMEM_MAGIC))
		range->type = MT_MAP_SHMEM;
	return true;
}

/*
 * What the kernel will make of these arguments; @ret_len: how long.
 * Return: false when it will refuse them.
 */
static bool describe(struct mt_map_range *range, uint64_t *ret_len, size_t len,
		     int prot, int flags, int fd, off_t offset)
{
	int type = flags & MAP_TYPE;
	bool shared = type == MAP_SHARED || type == MAP_SHARED_VALIDATE;
	uint32_t huge = 0;

	if (!len || len > UINT64_C(1) << 57 ||
	    (!shared && type != MAP_PRIVATE && type != MAP_DROPPABLE))
		return false;
	range->group = mt_account_current();
	range->object = 0;
	range->offset = 0;
	range->state = (prot & PROT_WRITE ? MT_MAP_WRITE : 0) |
		       (prot == PROT_NONE ? MT_MAP_NONE : 0);
	if (flags & MAP_ANONYMOUS) {
		range->type = shared ? MT_MAP_SHMEM : MT_MAP_ANON;
		if (shared)
			range->object = fresh_object();
		if (flags & MAP_HUGETLB) {
			huge = (uint32_t)flags >> MAP_HUGE_SHIFT &
			       MAP_HUGE_MASK;
			huge = huge ? huge : default_huge_shift();
		}
	} else {
		range->offset = (uint64_t)offset;
		if (!describe_file(range, shared, fd, &huge))
			return false;
	}
	if (type == MAP_DROPPABLE ||
	    ((flags & MAP_NORESERVE) && !overcommit_is_never()))
		range->state |= MT_MAP_NORESERVE;
	if (flags & MAP_GROWSDOWN)
		range->state |= MT_MAP_GROWSDOWN;
	*ret_len = page_up(len);
	if (huge) {
		uint64_t mask = (UINT64_C(1) << huge) - 1;

		range->state |= MT_MAP_HUGETLB | huge << MT_MAP_HUGE_SHIFT;
		*ret_len = (len + mask) & ~mask;
	}
	return true;
}

/* How much @range, of @len bytes, would add to its group's charge. */
static int64_t cost_of(const struct mt_map_range *range, uint64_t len,
		       uint64_t fixed_at, void *frame)
{
	bool is_new =
		range->type != MT_MAP_SHMEM || (range->object & OBJECT_ANON);
	struct mt_mapping_bill cost = NEW_COST;
	int64_t pages = (int64_t)(len >> page_shift);

	if (!mt_mapping_accountable(range->type, range->state))
		return 0;
	if (unlikely(pages >= LARGE_PAGES) && is_hopeless(pages))
		return 0;
	if (likely(is_new && !fixed_at))
		return pages;
	if (!mt_maplock_take(frame))
		return fixed_at ? 0 : pages;
	if (!is_new)
		pages = mt_mapping_object_cost(&table, range->object,
					       range->offset, len);
	/* What it replaces goes: replacing one's own is never refused. */
	if (fixed_at)
		mt_mapping_punch_cost(&table, fixed_at, fixed_at + len, &cost);
	mt_maplock_release();
	for (uint32_t i = 0; i < cost.nr; i++) {
		if (cost.entry[i].group == range->group)
			pages += cost.entry[i].pages;
	}
	return pages;
}

/* A mapping was made at @p: note it and settle. */
static void note_mapping(struct mt_map_range *range, void *p, uint64_t len,
			 struct mt_mapping_bill *bill, void *frame)
{
	range->start = (uint64_t)(uintptr_t)p;
	range->end = range->start + len;
	if (likely(mt_maplock_take(frame))) {
		mt_mapping_insert(&table, range, bill);
		mt_maplock_release();
		settle(bill);
	} else {
		const struct mt_map_op op = {
			.kind = MT_OP_INSERT,
			.range = *range,
			.paid = bill->nr ? -bill->entry[0].pages : 0,
		};

		mt_maplock_defer(&op);
	}
}

/* ---- the calls ---- */

MT_EXPORT void *mmap(void *addr, size_t len, int prot, int flags, int fd,
		     off_t offset)
{
	bool fixed = (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) == MAP_FIXED;
	struct mt_mapping_bill bill = NEW_BILL;
	struct mt_map_range range;
	uint64_t mapped;
	uint64_t mark;
	int64_t cost;
	void *p;

	if (!begin(&mark) ||
	    !describe(&range, &mapped, len, prot, flags, fd, offset))
		return real.mmap(addr, len, prot, flags, fd, offset);
	cost = cost_of(&range, mapped, fixed ? (uint64_t)(uintptr_t)addr : 0,
		       HERE);
	if (!pay(&bill, range.group, mt_mapping_kind(range.type), cost)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	p = real.mmap(addr, len, prot, flags, fd, offset);
	if (is_another(mark))
		return p;
	if (likely(p != MAP_FAILED)) {
		note_mapping(&range, p, mapped, &bill, HERE);
	} else {
		int saved = errno;

		if (fixed && is_aligned((uint64_t)(uintptr_t)addr))
			reconcile((uint64_t)(uintptr_t)addr,
				  (uint64_t)(uintptr_t)addr + mapped, &bill,
				  HERE);
		settle(&bill);
		errno = saved;
	}
	return p;
}

MT_EXPORT void *mmap64(void *addr, size_t len, int prot, int flags, int fd,
		       off64_t offset) __attribute__((alias("mmap")));

MT_EXPORT int munmap(void *addr, size_t len)
{
	uint64_t start = (uint64_t)(uintptr_t)addr;
	uint64_t end = start + page_up(len);
	struct mt_mapping_bill bill = NEW_BILL;
	struct mt_mapping_taken taken;
	uint64_t mark;
	bool locked;
	int ret;

	/* What the kernel will refuse touches nothing. */
	if (knows_nothing() || end <= start || page_up(len) < len ||
	    !is_aligned(start) || !begin(&mark))
		return real.munmap(addr, len);
	locked = mt_maplock_take(HERE);
	if (likely(locked)) {
		mt_mapping_take(&table, start, end, &bill, &taken);
		mt_maplock_release();
	}
	ret = real.munmap(addr, len);
	if (is_another(mark))
		return ret;
	if (unlikely(!locked)) {
		if (!ret)
			defer_range(MT_OP_PUNCH, start, end, 0);
	} else if (likely(!ret)) {
		forget(&taken, HERE);
		settle(&bill);
	} else {
		int saved = errno;

		put_back(&taken, &bill, HERE);
		settle(&bill);
		errno = saved;
	}
	return ret;
}

/* Only such a call may move several mappings, with gaps between them. */
static bool is_sparse(uint64_t old_size, uint64_t size, int flags)
{
	return (flags & MREMAP_FIXED) && old_size == size;
}

/* mremap() that leaves the old range where it is. */
static void *copy_mapping(void *addr, size_t old_len, size_t new_len, int flags,
			  void *to, uint64_t mark, void *frame)
{
	const uint64_t start = (uint64_t)(uintptr_t)addr;
	const uint64_t old_size = page_up(old_len);
	const uint64_t size = page_up(new_len);
	struct mt_mapping_bill bill = NEW_BILL;
	struct mt_mapping_bill cost = NEW_COST;
	struct mt_map_op op = {
		.kind = MT_OP_COPY,
		.range = { .start = start, .end = start + old_size },
		.len = size,
		.sparse = is_sparse(old_size, size, flags),
	};
	struct mt_map_range range;
	int saved;
	void *p;

	if (mt_maplock_take(frame)) {
		if (old_size) {
			mt_mapping_copy_cost(&table, start, start + old_size,
					     &cost);
		} else if (mt_mapping_find(&table, start, &range) &&
			   range.start <= start && range.type == MT_MAP_SHMEM) {
			int64_t pages = mt_mapping_object_cost(
				&table, range.object,
				range.offset + (start - range.start), size);

			if (!(range.state & MT_MAP_HUGETLB))
				mt_mapping_bill_add(&cost, range.group,
						    MT_SHMEM, pages);
		}
		mt_maplock_release();
	}
	if (!pay_all(&bill, &cost)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	p = real.mremap(addr, old_len, new_len, flags, to);
	if (is_another(mark))
		return p;
	saved = errno;
	if (p == MAP_FAILED) {
		if (flags & MREMAP_FIXED)
			reconcile((uint64_t)(uintptr_t)to,
				  (uint64_t)(uintptr_t)to + size, &bill, frame);
	} else {
		op.to = (uint64_t)(uintptr_t)p;
		if (mt_maplock_take(frame)) {
			mt_mapping_copy(&table, start, old_size, op.to, size,
					op.sparse, &bill);
			mt_maplock_release();
		} else {
			mt_maplock_defer(&op);
		}
	}
	settle(&bill);
	errno = saved;
	return p;
}

/* The lock was lost in the middle: what was taken is charged anew there. */
static void land_later(const struct mt_mapping_taken *taken, uint64_t start,
		       uint64_t to)
{
	for (uint32_t n = 0; n < taken->nr_parts; n++) {
		struct mt_map_op op = {
			.kind = MT_OP_INSERT,
			.range = taken->part[n],
		};

		op.range.start = op.range.start - start + to;
		op.range.end = op.range.end - start + to;
		mt_maplock_defer(&op);
	}
}

static void *move_mapping(void *addr, size_t old_len, size_t new_len, int flags,
			  void *to, uint64_t mark, void *frame)
{
	const uint64_t start = (uint64_t)(uintptr_t)addr;
	uint64_t old_size = page_up(old_len);
	uint64_t size = page_up(new_len);
	struct mt_mapping_bill bill = NEW_BILL;
	struct mt_mapping_taken taken = { .nr_parts = 0, .chain = 0 };
	struct mt_map_range last = { .type = MT_MAP_FREE };
	int64_t growth = 0;
	bool locked;
	int saved;
	void *p;

	locked = mt_maplock_take(frame);
	if (locked) {
		if (mt_mapping_find(&table, start, &last) &&
		    last.start <= start && (last.state & MT_MAP_HUGETLB)) {
			uint32_t huge = last.state >> MT_MAP_HUGE_SHIFT & 63;
			uint64_t mask = (UINT64_C(1) << huge) - 1;

			old_size = (old_len + mask) & ~mask;
			size = (new_len + mask) & ~mask;
		}
		mt_mapping_take(&table, start, start + old_size, &bill, &taken);
		if (size > old_size &&
		    mt_mapping_taken_last(&table, &taken, start + old_size,
					  &last))
			growth = mt_mapping_growth_cost(&table, &last,
							size - old_size);
		mt_maplock_release();
	}
	if (growth >= LARGE_PAGES && is_hopeless(growth))
		growth = 0;
	if (!pay(&bill, last.group, mt_mapping_kind(last.type), growth)) {
		put_back(&taken, &bill, frame);
		settle(&bill);
		errno = ENOMEM;
		return MAP_FAILED;
	}
	p = real.mremap(addr, old_len, new_len, flags, to);
	if (is_another(mark))
		return p;
	saved = errno;
	if (p == MAP_FAILED) {
		bool many = taken.chain || taken.nr_parts > 1;

		if (locked)
			put_back(&taken, &bill, frame);
		/* Newer kernels move several at once, and may stop half way. */
		if (many && size == old_size)
			reconcile(start, start + old_size, &bill, frame);
		if (flags & MREMAP_FIXED)
			reconcile((uint64_t)(uintptr_t)to,
				  (uint64_t)(uintptr_t)to + size, &bill, frame);
	} else if (!locked) {
		const struct mt_map_op op = {
			.kind = MT_OP_MOVE,
			.range = { .start = start, .end = start + old_size },
			.to = (uint64_t)(uintptr_t)p,
			.len = size,
			.sparse = is_sparse(old_size, size, flags),
		};

		mt_maplock_defer(&op);
	} else if (mt_maplock_take(frame)) {
		mt_mapping_land(&table, &taken, start, old_size,
				(uint64_t)(uintptr_t)p, size,
				is_sparse(old_size, size, flags), &bill);
		mt_maplock_release();
	} else {
		land_later(&taken, start, (uint64_t)(uintptr_t)p);
	}
	settle(&bill);
	errno = saved;
	return p;
}

MT_EXPORT void *mremap(void *addr, size_t old_len, size_t new_len, int flags,
		       ...)
{
	void *to = NULL;
	uint64_t mark;

	if (flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) {
		va_list ap;

		va_start(ap, flags);
		to = va_arg(ap, void *);
		va_end(ap);
	}
	if (knows_nothing() || !new_len || page_up(new_len) < new_len ||
	    page_up(old_len) < old_len ||
	    !is_aligned((uint64_t)(uintptr_t)addr) || !begin(&mark))
		return real.mremap(addr, old_len, new_len, flags, to);
	if (!old_len || (flags & MREMAP_DONTUNMAP))
		return copy_mapping(addr, old_len, new_len, flags, to, mark,
				    HERE);
	return move_mapping(addr, old_len, new_len, flags, to, mark, HERE);
}

/* pkey_mprotect() with key -1 is mprotect(), for the kernel as well. */
static int call_protect(void *addr, size_t len, int prot, const int *key)
{
	return key ? real.pkey_mprotect(addr, len, prot, *key)
		   : real.mprotect(addr, len, prot);
}

static inline int protect(void *addr, size_t len, int prot, const int *key,
			  void *frame)
{
	uint64_t start = (uint64_t)(uintptr_t)addr;
	uint64_t end = start + page_up(len);
	uint32_t state = (prot & PROT_WRITE ? MT_MAP_WRITE : 0) |
			 (prot == PROT_NONE ? MT_MAP_NONE : 0);
	struct mt_mapping_bill bill = NEW_BILL;
	struct mt_mapping_bill cost = NEW_COST;
	uint64_t mark;
	int ret;

	if (knows_nothing() || end <= start || page_up(len) < len ||
	    !is_aligned(start) || !begin(&mark))
		return call_protect(addr, len, prot, key);
	if ((prot & PROT_WRITE) && mt_maplock_take(frame)) {
		mt_mapping_protect_cost(&table, start, end, state, &cost);
		mt_maplock_release();
		if (!pay_all(&bill, &cost)) {
			errno = ENOMEM;
			return -1;
		}
	}
	ret = call_protect(addr, len, prot, key);
	if (is_another(mark))
		return ret;
	if (unlikely(ret)) {
		int saved = errno;

		if (saved != EINVAL)
			reconcile(start, end, &bill, frame);
		settle(&bill);
		errno = saved;
		return ret;
	}
	if (likely(mt_maplock_take(frame))) {
		mt_mapping_protect(&table, start, end, state, &bill);
		mt_maplock_release();
	} else {
		defer_range(MT_OP_PROTECT, start, end, state);
	}
	settle(&bill);
	return ret;
}

MT_EXPORT int mprotect(void *addr, size_t len, int prot)
{
	return protect(addr, len, prot, NULL, HERE);
}

MT_EXPORT int pkey_mprotect(void *addr, size_t len, int prot, int key)
{
	return protect(addr, len, prot, &key, HERE);
}

/* ---- the break ---- */

/*
 * What the break leaves or enters, in whole pages.  Two threads that move it
 * at once are lost without us as well: libc has no lock there.
 */
static int64_t pay_for_break(struct mt_mapping_bill *bill, uint64_t from,
			     uint64_t to)
{
	int64_t pages =
		((int64_t)page_up(to) - (int64_t)page_up(from)) >> page_shift;

	if (pages >= LARGE_PAGES && is_hopeless(pages))
		return 0;
	if (pay(bill, mt_account_current(), MT_BRK, pages))
		return pages;
	return -1;
}

static void note_growth(struct mt_mapping_bill *bill, uint64_t from,
			uint64_t to, void *frame)
{
	struct mt_map_range range = {
		.group = mt_account_current(),
		.type = MT_MAP_BRK,
		.state = MT_MAP_WRITE,
	};

	from = page_up(from);
	to = page_up(to);
	if (from < to)
		note_mapping(&range, (void *)(uintptr_t)from, to - from, bill,
			     frame);
}

static void *move_break(uint64_t from, intptr_t increment, void *addr,
			void *frame)
{
	uint64_t to =
		addr ? (uint64_t)(uintptr_t)addr : from + (uint64_t)increment;
	struct mt_mapping_bill bill = NEW_BILL;
	struct mt_mapping_taken taken = { .nr_parts = 0, .chain = 0 };
	bool locked = true;
	uint64_t mark;
	void *ret;
	int saved;

	if ((addr ? false : (increment > 0) != (to > from)) || !begin(&mark))
		return addr ? (void *)(intptr_t)real.brk(addr)
			    : real.sbrk(increment);
	if (to > from && pay_for_break(&bill, from, to) < 0) {
		errno = ENOMEM;
		return (void *)-1;
	}
	if (to < from) {
		locked = mt_maplock_take(frame);
		if (locked) {
			mt_mapping_take(&table, page_up(to), page_up(from),
					&bill, &taken);
			mt_maplock_release();
		}
	}
	ret = addr ? (void *)(intptr_t)real.brk(addr) : real.sbrk(increment);
	if (is_another(mark))
		return ret;
	saved = errno;
	if (ret == (void *)-1) {
		put_back(&taken, &bill, frame);
	} else if (to > from) {
		note_growth(&bill, from, to, frame);
		errno = saved;
		return ret;
	} else if (!locked) {
		defer_range(MT_OP_PUNCH, page_up(to), page_up(from), 0);
	} else {
		forget(&taken, frame);
	}
	settle(&bill);
	errno = saved;
	return ret;
}

static MT_COLD bool find_break(void)
{
	if (!real.sbrk || !real.brk)
		mt_mmap_resolve();
	if (real.sbrk && real.brk)
		return true;
	errno = ENOMEM;
	return false;
}

MT_EXPORT int brk(void *addr)
{
	if (!find_break())
		return -1;
	if (!addr)
		return real.brk(addr);
	return (int)(intptr_t)move_break((uint64_t)(uintptr_t)real.sbrk(0), 0,
					 addr, HERE);
}

MT_EXPORT void *sbrk(intptr_t increment)
{
	if (!find_break())
		return (void *)-1;
	if (!increment)
		return real.sbrk(0);
	return move_break((uint64_t)(uintptr_t)real.sbrk(0), increment, NULL,
			  HERE);
}

/* ---- System V shared memory ---- */

MT_EXPORT void *shmat(int id, const void *addr, int flags)
{
	struct mt_map_range range = {
		.type = MT_MAP_SHMEM,
		.state = flags & SHM_RDONLY ? 0 : MT_MAP_WRITE,
		.object = OBJECT_SYSV | (uint32_t)id,
	};
	struct mt_mapping_bill bill = NEW_BILL;
	struct shmid_ds segment = { 0 };
	uint64_t mark;
	uint64_t size;
	void *p;

	if (mt_syscall3(SYS_shmctl, id, IPC_STAT, &segment) || !begin(&mark))
		return real.shmat(id, addr, flags);
	size = page_up(segment.shm_segsz);
	range.group = mt_account_current();
	if (!pay(&bill, range.group, MT_SHMEM,
		 cost_of(&range, size, 0, HERE))) {
		errno = ENOMEM;
		return (void *)-1;
	}
	p = real.shmat(id, addr, flags);
	if (is_another(mark))
		return p;
	if (p != (void *)-1) {
		note_mapping(&range, p, size, &bill, HERE);
	} else {
		int saved = errno;

		settle(&bill);
		errno = saved;
	}
	return p;
}

/*
 * Where does the segment that is attached at @start end?  As the kernel does,
 * by the offset: the program may have unmapped its beginning.
 */
static uint64_t attachment_end(uint64_t start)
{
	uint64_t end = start;
	uint64_t object = 0;
	struct mt_map_range range;

	while (mt_mapping_find(&table, end, &range) &&
	       (range.object & (OBJECT_ANON | OBJECT_SYSV)) == OBJECT_SYSV &&
	       range.type == MT_MAP_SHMEM &&
	       (!object || range.object == object) &&
	       range.start - range.offset == start) {
		object = range.object;
		end = range.end;
	}
	return end;
}

MT_EXPORT int shmdt(const void *addr)
{
	uint64_t start = (uint64_t)(uintptr_t)addr;
	struct mt_mapping_bill bill = NEW_BILL;
	struct mt_mapping_taken taken = { .nr_parts = 0, .chain = 0 };
	uint64_t end;
	uint64_t mark;
	int ret;
	int saved;

	if (knows_nothing() || !begin(&mark))
		return real.shmdt(addr);
	if (mt_maplock_take(HERE)) {
		end = attachment_end(start);
		mt_mapping_take(&table, start, end, &bill, &taken);
		mt_maplock_release();
	}
	ret = real.shmdt(addr);
	if (is_another(mark))
		return ret;
	saved = errno;
	if (ret)
		put_back(&taken, &bill, HERE);
	else
		forget(&taken, HERE);
	settle(&bill);
	errno = saved;
	return ret;
}

/* ---- for the rest of the library ---- */

int mt_mmap_regroup(void *addr, size_t len, uint32_t group)
{
	uint64_t start = (uint64_t)(uintptr_t)addr;
	struct mt_mapping_bill bill = NEW_BILL;
	uint64_t mark;

	if (knows_nothing() || !begin(&mark))
		return 0;
	if (!mt_maplock_take(HERE))
		return -EAGAIN;
	mt_mapping_regroup(&table, start, start + page_up(len), group, &bill);
	mt_maplock_release();
	settle(&bill);
	return 0;
}

void mt_mmap_tracked(struct mt_mapping_tracked *ret_tracked)
{
	memset(ret_tracked, 0, sizeof(*ret_tracked));
	if (knows_nothing() || !mt_maplock_take(HERE))
		return;
	mt_mapping_tracked(&table, ret_tracked);
	mt_maplock_release();
}

void mt_mmap_write_back(uint32_t group)
{
	const struct mt_session *session = mt_account_session();
	uint64_t at = 0;

	while (!knows_nothing() && mt_maplock_take(HERE)) {
		struct mt_map_range range = { .end = 0 };

		while (mt_mapping_find(&table, at, &range) &&
		       (range.type != MT_MAP_SHARED_FILE ||
			!mt_counter_is_below(session,
					     mt_account_resolve(range.group),
					     group))) {
			at = range.end;
			range.end = 0;
		}
		mt_maplock_release();
		if (!range.end)
			return;
		/* It may be gone by now: then this fails, or does no harm. */
		mt_syscall3(SYS_msync, range.start, range.end - range.start,
			    MS_SYNC);
		at = range.end;
	}
}
