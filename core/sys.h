/* SPDX-License-Identifier: MIT */
/*
 * sys.h - what core and preload ask of the kernel, directly.
 *
 * Raw system calls: no libc function runs, so no interposed function is
 * entered, errno is left alone and nothing is a cancellation point.  Every
 * call returns its result, or -errno.
 */
#ifndef MT_CORE_SYS_H
#define MT_CORE_SYS_H

#include <fcntl.h>
#include <linux/futex.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>

#if defined(__x86_64__)
static inline long mt_syscall6(long nr, long a, long b, long c, long d, long e,
			       long f)
{
	long ret;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8),
			   "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}
#elif defined(__aarch64__)
static inline long mt_syscall6(long nr, long a, long b, long c, long d, long e,
			       long f)
{
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc 0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return x0;
}
#else
#error "memtally knows x86-64 and aarch64"
#endif

#define mt_syscall0(nr)       mt_syscall6(nr, 0, 0, 0, 0, 0, 0)
#define mt_syscall1(nr, a)    mt_syscall6(nr, (long)(a), 0, 0, 0, 0, 0)
#define mt_syscall2(nr, a, b) mt_syscall6(nr, (long)(a), (long)(b), 0, 0, 0, 0)
#define mt_syscall3(nr, a, b, c)                                               \
	mt_syscall6(nr, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define mt_syscall4(nr, a, b, c, d)                                            \
	mt_syscall6(nr, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

static inline void *mt_sys_mmap(void *addr, size_t len, int prot, int flags,
				int fd, off_t offset)
{
	return (void *)mt_syscall6(SYS_mmap, (long)addr, (long)len, prot, flags,
				   fd, offset);
}

/* Did mt_sys_mmap() fail?  Then the pointer is the negative error number. */
static inline int mt_sys_is_error(const void *p)
{
	return (unsigned long)p >= (unsigned long)-4095L;
}

static inline int mt_sys_munmap(void *addr, size_t len)
{
	return (int)mt_syscall2(SYS_munmap, addr, len);
}

static inline int mt_sys_mprotect(void *addr, size_t len, int prot)
{
	return (int)mt_syscall3(SYS_mprotect, addr, len, prot);
}

static inline int mt_sys_madvise(void *addr, size_t len, int advice)
{
	return (int)mt_syscall3(SYS_madvise, addr, len, advice);
}

static inline int mt_sys_open(const char *path, int flags, int mode)
{
	return (int)mt_syscall4(SYS_openat, AT_FDCWD, path, flags, mode);
}

static inline int mt_sys_close(int fd)
{
	return (int)mt_syscall1(SYS_close, fd);
}

static inline ssize_t mt_sys_read(int fd, void *buf, size_t len)
{
	return mt_syscall3(SYS_read, fd, buf, len);
}

static inline ssize_t mt_sys_write(int fd, const void *buf, size_t len)
{
	return mt_syscall3(SYS_write, fd, buf, len);
}

static inline int mt_sys_getpid(void)
{
	return (int)mt_syscall0(SYS_getpid);
}

static inline int mt_sys_gettid(void)
{
	return (int)mt_syscall0(SYS_gettid);
}

static inline int mt_sys_kill(int pid, int sig)
{
	return (int)mt_syscall2(SYS_kill, pid, sig);
}

/* Bytes of a page; from the auxiliary vector, no system call. */
static inline size_t mt_page_size(void)
{
	static size_t known;

	/* Every thread stores the same. */
	if (__builtin_expect(!known, 0))
		known = getauxval(AT_PAGESZ);
	return known;
}

/* May a file be made this large?  (ulimit -f) */
static inline int mt_sys_file_size_ok(uint64_t size)
{
	struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };

	mt_syscall4(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &limit);
	return size <= limit.rlim_cur;
}

static inline void mt_sys_yield(void)
{
	mt_syscall0(SYS_sched_yield);
}

static inline uint64_t mt_sys_clock_ns(int clock)
{
	struct timespec ts = { 0, 0 };

	mt_syscall2(SYS_clock_gettime, clock, &ts);
	return (uint64_t)ts.tv_sec * UINT64_C(1000000000) +
	       (uint64_t)ts.tv_nsec;
}

#endif
