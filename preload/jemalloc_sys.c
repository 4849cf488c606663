/* SPDX-License-Identifier: MIT */
/*
 * jemalloc_sys.c - what jemalloc asks of the system, answered by us.
 *
 * Its own memory (base blocks) comes from internal slices; nothing it does
 * passes our own or anybody's hooks; no variable or file of the user's
 * configures it; it starts no thread and registers no handler.
 * It has an errno of its own: the program's stays as it is until a wrapper
 * in malloc.c reports a failure.
 */
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>

#include "core/atomic.h"
#include "core/sys.h"
#include "preload/account.h"
#include "preload/context.h"
#include "preload/heap.h"
#include "preload/jemalloc.h"
#include "preload/slice.h"

#define HUGE_PAGE (UINT64_C(2) << 20)

void *mt_je_mmap(void *addr, size_t len, int prot, int flags, int fd,
		 off_t offset);
int mt_je_munmap(void *addr, size_t len);
int mt_je_madvise(void *addr, size_t len, int advice);
int mt_je_mprotect(void *addr, size_t len, int prot);
void *mt_je_sbrk(intptr_t increment);
char *mt_je_secure_getenv(const char *name);
ssize_t mt_je_readlink(const char *path, char *buf, size_t size);
int *mt_je_errno_location(void);
long mt_je_syscall(long nr, ...);
int mt_je_open(const char *path, int flags, ...);
int mt_je_creat(const char *path, mode_t mode);
int mt_je_close(int fd);
void *mt_je_dlsym(void *handle, const char *name);
int mt_je_pthread_atfork(void (*prepare)(void), void (*parent)(void),
			 void (*child)(void));
int mt_je_atexit(void (*fn)(void));
int mt_je_pthread_create(void *thread, const void *attr, void *(*fn)(void *),
			 void *arg);
double mt_je_exp(double x);
double mt_je_log(double x);
double mt_je_round(double x);
int mt_je__Unwind_Backtrace(void *fn, void *arg);
uintptr_t mt_je__Unwind_GetIP(void *context);

int *mt_je_errno_location(void)
{
	static MT_TLS int je_errno;

	return &je_errno;
}

/*
 * Base blocks are whole huge pages.  The one smaller request is a page, at
 * the start, to try MADV_FREE on: that is refused below, so it need not be
 * there.
 */
static char no_page[1];

/* Its base blocks, and how much of them was in use when last looked at. */
#define NR_BLOCKS 2048
static struct block {
	_Atomic uintptr_t start; /* set last */
	size_t len;
	_Atomic uint32_t pages;
} blocks[NR_BLOCKS];
static _Atomic uint32_t nr_blocks;

/* Pages of a block that have memory behind them. */
static uint32_t resident_in(const struct block *block)
{
	uintptr_t at = load_relaxed(&block->start);
	uintptr_t end = at + block->len;
	size_t page = mt_page_size();
	unsigned char in_core[1024];
	uint32_t count = 0;

	while (at < end) {
		size_t n = MT_MIN((end - at) / page, sizeof(in_core));

		if (mt_syscall3(SYS_mincore, at, n * page, in_core))
			return count;
		for (size_t i = 0; i < n; i++)
			count += in_core[i] & 1;
		at += n * page;
	}
	return count;
}

/*
 * Base blocks are large and fill up slowly, so their size would say little.
 * The latest are the ones that change; a microsecond or two each.
 */
void mt_je_note_metadata(bool all)
{
	uint32_t n = MT_MIN(load_acquire(&nr_blocks), NR_BLOCKS);
	int64_t change = 0;

	/* It stays as it was. */
	if (mt_in_sandbox())
		return;
	for (uint32_t i = all || n < 4 ? 0 : n - 4; i < n; i++) {
		struct block *block = &blocks[i];
		uint32_t now;

		if (!load_acquire(&block->start))
			continue;
		now = resident_in(block);
		change += (int64_t)now - exchange_seq_cst(&block->pages, now);
	}
	if (change)
		mt_account_metadata(change);
}

void *mt_je_mmap(void *addr, size_t len, int prot MT_UNUSED,
		 int flags MT_UNUSED, int fd MT_UNUSED, off_t offset MT_UNUSED)
{
	uint32_t index;
	void *p;

	if (addr)
		return MAP_FAILED;
	if (len < HUGE_PAGE)
		return no_page;
	p = mt_slice_take(MT_OWNER_INTERNAL, len, HUGE_PAGE);
	if (!p)
		return MAP_FAILED;
	index = fetch_add_relaxed(&nr_blocks, 1);
	if (index < NR_BLOCKS) {
		blocks[index].len = len;
		store_release(&blocks[index].start, (uintptr_t)p);
	} else {
		mt_account_metadata((int64_t)(len / mt_page_size()));
	}
	return p;
}

/* When an arena can't be made.  Address space is not given back. */
int mt_je_munmap(void *addr, size_t len)
{
	if (addr == no_page)
		return 0;
	return mt_sys_madvise(addr, len, MADV_DONTNEED) ? -1 : 0;
}

/* Only its own hooks, which no arena has, would purge or commit anything. */
int mt_je_madvise(void *addr MT_UNUSED, size_t len MT_UNUSED,
		  int advice MT_UNUSED)
{
	return -1;
}

int mt_je_mprotect(void *addr, size_t len, int prot)
{
	return mt_sys_mprotect(addr, len, prot) ? -1 : 0;
}

void *mt_je_sbrk(intptr_t increment MT_UNUSED)
{
	return (void *)-1;
}

/* MALLOC_CONF: what is ours to say at run time. */
char *mt_je_secure_getenv(const char *name MT_UNUSED)
{
	return mt_heap_options();
}

ssize_t mt_je_readlink(const char *path MT_UNUSED, char *buf MT_UNUSED,
		       size_t size MT_UNUSED)
{
	return -1;
}

/*
 * At the start it reads the overcommit mode, to know whether its own mmap
 * commits: ours always does, so the answer is "heuristic" in every mode.  The
 * state of huge pages it need not know: they are left as they are.  That
 * saves six system calls at each start of a program.
 */
#define OVERCOMMIT_FD 0x4d544f43

static long open_file(const char *path)
{
	return strcmp(path, "/proc/sys/vm/overcommit_memory") ? -1
							      : OVERCOMMIT_FD;
}

long mt_je_syscall(long nr, ...)
{
	long a[6];
	va_list ap;
	long ret;

	va_start(ap, nr);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
#ifdef SYS_open
	if (nr == SYS_open)
		return open_file((const char *)a[0]);
#endif
	if (nr == SYS_openat)
		return open_file((const char *)a[1]);
	/* The descriptor is an int: its upper half may be anything. */
	if (nr == SYS_read && (int)a[0] == OVERCOMMIT_FD) {
		*(char *)a[1] = '0';
		return 1;
	}
	if (nr == SYS_close && (int)a[0] == OVERCOMMIT_FD)
		return 0;
	ret = mt_syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
	return ret < 0 ? -1 : ret;
}

int mt_je_open(const char *path MT_UNUSED, int flags MT_UNUSED, ...)
{
	return -1;
}

int mt_je_creat(const char *path MT_UNUSED, mode_t mode MT_UNUSED)
{
	return -1;
}

int mt_je_close(int fd MT_UNUSED)
{
	return -1;
}

/* For pthread_create, which only a background thread would need. */
void *mt_je_dlsym(void *handle MT_UNUSED, const char *name MT_UNUSED)
{
	return NULL;
}

/* fork.c calls the three fork functions itself, in our order. */
int mt_je_pthread_atfork(void (*prepare)(void) MT_UNUSED,
			 void (*parent)(void) MT_UNUSED,
			 void (*child)(void) MT_UNUSED)
{
	return 0;
}

int mt_je_atexit(void (*fn)(void) MT_UNUSED)
{
	return 0;
}

int mt_je_pthread_create(void *thread MT_UNUSED, const void *attr MT_UNUSED,
			 void *(*fn)(void *)MT_UNUSED, void *arg MT_UNUSED)
{
	return EAGAIN;
}

/* Heap profiling would use these; it can't be switched on here. */

double mt_je_exp(double x)
{
	return x;
}

double mt_je_log(double x)
{
	return x;
}

double mt_je_round(double x)
{
	return x;
}

int mt_je__Unwind_Backtrace(void *fn MT_UNUSED, void *arg MT_UNUSED)
{
	return 0;
}

uintptr_t mt_je__Unwind_GetIP(void *context MT_UNUSED)
{
	return 0;
}
