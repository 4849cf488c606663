/* SPDX-License-Identifier: MIT */
/* The mapping calls through libc's syscall() count as those by name do, and
 * every other call goes on as it came. */
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#include "tests/preload/count.h"

int main(void)
{
	long size = 10 * page();
	long base = accounted();
	long shared = shmem();
	int status;
	pid_t child;
	long end;
	char *p;
	int id;

	p = (char *)syscall(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
	must(p != MAP_FAILED);
	p[size - 1] = 1;
	must(accounted() == base + 10);
	must(syscall(SYS_mprotect, p, size, PROT_READ) == 0);
	must(syscall(SYS_mprotect, p, page(), PROT_READ | PROT_WRITE) == 0);
	must(accounted() == base + 10);
	p = (char *)syscall(SYS_mremap, p, size, 2 * size, MREMAP_MAYMOVE,
			    NULL);
	must(p == MAP_FAILED && errno == EFAULT); /* two mappings by now */
	must(accounted() == base + 10);
	p = (char *)syscall(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
	p = (char *)syscall(SYS_mremap, p, size, 2 * size, MREMAP_MAYMOVE,
			    NULL);
	must(p != MAP_FAILED && accounted() == base + 30);
	must(syscall(SYS_munmap, p, 2 * size) == 0);
	must(accounted() == base + 10);

	/* The kernel's way to answer: the break, wherever it is. */
	end = syscall(SYS_brk, 0);
	must(end == (long)sbrk(0));
	must(syscall(SYS_brk, end + 3 * page()) == end + 3 * page());
	must((long)sbrk(0) == end + 3 * page());
	must(accounted() == base + 13);
	must(syscall(SYS_brk, -1L) == end + 3 * page());
	must(syscall(SYS_brk, end) == end && accounted() == base + 10);

	id = shmget(IPC_PRIVATE, (size_t)size, IPC_CREAT | 0600);
	must(id >= 0);
	p = (char *)syscall(SYS_shmat, id, NULL, 0);
	must(p != (char *)-1 && shmem() == shared + 10);
	must(syscall(SYS_shmdt, p) == 0 && shmem() == shared);
	must(shmctl(id, IPC_RMID, NULL) == 0);

	/* Errors, and calls that are none of ours. */
	errno = 0;
	must(syscall(SYS_munmap, 1L, 1L) == -1 && errno == EINVAL);
	errno = 0;
	must(syscall(SYS_close, -1) == -1 && errno == EBADF);
	must(syscall(SYS_gettid) == gettid());
	must(syscall(100000) == -1 && errno == ENOSYS);
	/* Six arguments, the last on the stack: wait for nobody, 1 ms. */
	{
		struct timespec soon = { 0, 1000000 };
		int word = 7;

		must(syscall(SYS_futex, &word, 9 /* WAIT_BITSET */, 8, &soon,
			     NULL, -1) == -1 &&
		     errno == EAGAIN);
	}
	/* A child returns from it as well. */
	child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (child == 0)
		_exit(3);
	must(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3);
	must(accounted() == base + 10);
	return 0;
}
