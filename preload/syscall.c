/* SPDX-License-Identifier: MIT */
/*
 * syscall.c - libc's syscall(), for programs that map in that way.
 *
 * A call that isn't about mappings goes on to libc's as it came: registers and
 * stack as they are, so that nothing can tell (a child that a raw clone makes
 * returns from it, too).  The others are those of mmap.c.
 */
#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <unistd.h>

#include "core/base.h"
#include "core/sys.h"
#include "preload/context.h"
#include "preload/mmap.h"

int pkey_mprotect(void *addr, size_t len, int prot, int key);

/* Libc's; until it is found, the kernel itself. */
uintptr_t mt_syscall_next;

long mt_syscall_raw(long nr, long a, long b, long c, long d, long e, long f)
	__attribute__((visibility("hidden"), used));
long mt_syscall_map(long nr, long a, long b, long c, long d, long e, long f)
	__attribute__((visibility("hidden"), used));

long mt_syscall_raw(long nr, long a, long b, long c, long d, long e, long f)
{
	long ret = mt_syscall6(nr, a, b, c, d, e, f);

	if ((unsigned long)ret < (unsigned long)-4095L)
		return ret;
	errno = (int)-ret;
	return -1;
}

/* The kernel's answers where the break is, whether it moved or not. */
static long move_break(long to)
{
	if (to && brk((void *)to) == 0)
		return to;
	return mt_syscall1(SYS_brk, 0);
}

long mt_syscall_map(long nr, long a, long b, long c, long d, long e, long f)
{
	switch (nr) {
	case SYS_mmap:
		return (long)mmap((void *)a, (size_t)b, (int)c, (int)d, (int)e,
				  f);
	case SYS_munmap:
		return munmap((void *)a, (size_t)b);
	case SYS_mprotect:
		return mprotect((void *)a, (size_t)b, (int)c);
	case SYS_pkey_mprotect:
		return pkey_mprotect((void *)a, (size_t)b, (int)c, (int)d);
	case SYS_mremap:
		return (long)mremap((void *)a, (size_t)b, (size_t)c, (int)d,
				    (void *)e);
	case SYS_shmat:
		return (long)shmat((int)a, (const void *)b, (int)c);
	case SYS_shmdt:
		return shmdt((const void *)a);
	case SYS_brk:
		return move_break(a);
	case SYS_seccomp:
		mt_context_sandbox();
		return mt_syscall_raw(nr, a, b, c, d, e, f);
	case SYS_prctl:
		if (a == PR_SET_SECCOMP)
			mt_context_sandbox();
		return mt_syscall_raw(nr, a, b, c, d, e, f);
	default:
		return mt_syscall_raw(nr, a, b, c, d, e, f);
	}
}

#if defined(__x86_64__)
/* 9 to 12: mmap, mprotect, munmap, brk; then mremap, shmat, shmdt,
 * pkey_mprotect; and prctl and seccomp. */
_Static_assert(SYS_mmap == 9 && SYS_mprotect == 10 && SYS_munmap == 11 &&
		       SYS_brk == 12 && SYS_mremap == 25 && SYS_shmat == 30 &&
		       SYS_shmdt == 67 && SYS_pkey_mprotect == 329 &&
		       SYS_prctl == 157 && SYS_seccomp == 317,
	       "syscall: numbers");
__asm__(".text\n"
	".globl syscall\n"
	".type syscall, @function\n"
	"syscall:\n"
	"	.cfi_startproc\n"
	"	leaq -9(%rdi), %rax\n"
	"	cmpq $3, %rax\n"
	"	jbe mt_syscall_map\n"
	"	cmpq $25, %rdi\n"
	"	je mt_syscall_map\n"
	"	cmpq $30, %rdi\n"
	"	je mt_syscall_map\n"
	"	cmpq $67, %rdi\n"
	"	je mt_syscall_map\n"
	"	cmpq $329, %rdi\n"
	"	je mt_syscall_map\n"
	"	cmpq $157, %rdi\n"
	"	je mt_syscall_map\n"
	"	cmpq $317, %rdi\n"
	"	je mt_syscall_map\n"
	"	movq mt_syscall_next(%rip), %rax\n"
	"	testq %rax, %rax\n"
	"	jz mt_syscall_raw\n"
	"	jmp *%rax\n"
	"	.cfi_endproc\n"
	".size syscall, . - syscall\n");
#else
MT_EXPORT long syscall(long nr, ...)
{
	long arg[6];
	va_list ap;

	va_start(ap, nr);
	for (int i = 0; i < 6; i++)
		arg[i] = va_arg(ap, long);
	va_end(ap);
	return mt_syscall_map(nr, arg[0], arg[1], arg[2], arg[3], arg[4],
			      arg[5]);
}
#endif
