/* SPDX-License-Identifier: MIT */
/*
 * jemalloc_sys.c - what jemalloc asks of the system, answered by us.
 *
 * Its own memory (base blocks) comes from internal slices, so that whatever
 * it returns can be told from foreign memory; nothing it does passes our
 * hooks; no variable or file of the user's configures it; it starts no thread
 * and registers no handler.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/types.h>

#include "core/sys.h"
#include "preload/account.h"
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

/* jemalloc looks at the results only, so errno stays as it is. */

void *mt_je_mmap(void *addr, size_t len, int prot MT_UNUSED,
		 int flags MT_UNUSED, int fd MT_UNUSED, off_t offset MT_UNUSED)
{
	void *p;

	/* It asks for an address only to extend in place: no. */
	if (addr)
		return MAP_FAILED;
	p = mt_slice_take(MT_OWNER_INTERNAL, len,
			  len >= HUGE_PAGE ? HUGE_PAGE : mt_page_size());
	if (!p)
		return MAP_FAILED;
	mt_account_metadata((int64_t)(len / mt_page_size()));
	return p;
}

/* Address space is not given back, memory is. */
int mt_je_munmap(void *addr, size_t len)
{
	mt_account_metadata(-(int64_t)(len / mt_page_size()));
	return mt_sys_madvise(addr, len, MADV_DONTNEED) ? -1 : 0;
}

int mt_je_madvise(void *addr, size_t len, int advice)
{
	return mt_sys_madvise(addr, len, advice) ? -1 : 0;
}

int mt_je_mprotect(void *addr, size_t len, int prot)
{
	return mt_sys_mprotect(addr, len, prot) ? -1 : 0;
}

void *mt_je_sbrk(intptr_t increment MT_UNUSED)
{
	return (void *)-1;
}

char *mt_je_secure_getenv(const char *name MT_UNUSED)
{
	return NULL;
}

ssize_t mt_je_readlink(const char *path MT_UNUSED, char *buf MT_UNUSED,
		       size_t size MT_UNUSED)
{
	return -1;
}

/*
 * It opens the overcommit mode (which decides how its own mmap maps: that is
 * our business) and the state of huge pages (which it need not know, thp
 * being left as it is).  Absent files are a case it handles.
 */
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

/* Heap profiling uses these; it can't be switched on here. */

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
