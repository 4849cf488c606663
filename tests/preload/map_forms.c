/* SPDX-License-Identifier: MIT */
/*
 * Each call of the family by itself: what it charges, what it returns and what
 * it does to errno.
 */
#include <linux/memfd.h>
#include <sys/shm.h>

#include "map_test.h"

static long accounted_base;
static long shmem_base;

static void expect(long accounted, long shmem)
{
	SAME(read_pages(ACCOUNTED) - accounted_base, accounted);
	SAME(read_pages(SHMEM) - shmem_base, shmem);
}

#define REFUSED(call, failed, error)                                           \
	do {                                                                   \
		errno = 0;                                                     \
		if ((call) != (failed) || errno != (error))                    \
			FAIL("%s: errno %d", #call, errno);                    \
	} while (0)

static void results(void)
{
	char *p;

	errno = 77;
	p = map(10, RW, ANON);
	CHECK(!mprotect(p, PAGE, PROT_READ));
	CHECK(!munmap(p + 5 * PAGE, 1));
	p = mremap(p, 5 * PAGE, 3 * PAGE, 0);
	CHECK(p != MAP_FAILED);
	CHECK(!munmap(p, 3 * PAGE));
	CHECK(sbrk(0) != (void *)-1);
	SAME(errno, 77);
	CHECK(!munmap(p + 6 * PAGE, 4 * PAGE));
	p = map(4, RW, ANON);
	expect(4, 0);
	REFUSED(mmap(NULL, 0, RW, ANON, -1, 0), MAP_FAILED, EINVAL);
	REFUSED(mmap(NULL, SIZE_MAX, RW, ANON, -1, 0), MAP_FAILED, ENOMEM);
	REFUSED(mmap(NULL, (size_t)1 << 60, RW, ANON, -1, 0), MAP_FAILED,
		ENOMEM);
	REFUSED(mmap(NULL, PAGE, RW, MAP_PRIVATE, 999, 0), MAP_FAILED, EBADF);
	REFUSED(mmap(p, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0),
		MAP_FAILED, EEXIST);
	REFUSED(mmap(p + 1, PAGE, RW, ANON | MAP_FIXED, -1, 0), MAP_FAILED,
		EINVAL);
	REFUSED(munmap(p + 1, PAGE), -1, EINVAL);
	REFUSED(munmap(p, 0), -1, EINVAL);
	REFUSED(munmap(p, SIZE_MAX), -1, EINVAL);
	REFUSED(mremap(p, 4 * PAGE, 0, 0), MAP_FAILED, EINVAL);
	REFUSED(mremap(p, 4 * PAGE, (size_t)1 << 45, MREMAP_MAYMOVE),
		MAP_FAILED, ENOMEM);
	REFUSED(mprotect(p + 1, PAGE, PROT_NONE), -1, EINVAL);
	REFUSED(mprotect(p, SIZE_MAX - PAGE * 2, PROT_NONE), -1, ENOMEM);
	REFUSED(shmdt(p), -1, EINVAL);
	REFUSED(shmat(0x7ffffff0, NULL, 0), (void *)-1, EINVAL);
	REFUSED(brk((void *)(UINTPTR_MAX - PAGE + 1)), -1, ENOMEM);
	REFUSED(sbrk(INTPTR_MAX), (void *)-1, ENOMEM);
	expect(4, 0);
	CHECK(!munmap(p, 4 * PAGE));
	expect(0, 0);
}

static void sticking(void)
{
	char *p = map(10, PROT_NONE, ANON);
	char *q;

	expect(0, 0);
	CHECK(!mprotect(p + PAGE, 4 * PAGE, RW));
	touch(p + PAGE, 4 * PAGE);
	expect(4, 0);
	CHECK(!mprotect(p, 10 * PAGE, PROT_READ));
	expect(4, 0);
	SAME(kernel_pages(p, p + 10 * PAGE), 4);
	/* It stops at the hole: what lies before is done. */
	CHECK(!munmap(p + 7 * PAGE, PAGE));
	q = mmap(p + 7 * PAGE, PAGE, PROT_NONE, ANON | MAP_FIXED, -1, 0);
	CHECK(q == p + 7 * PAGE && !munmap(q, PAGE));
	REFUSED(mprotect(p, 10 * PAGE, RW), -1, ENOMEM);
	touch(p, 7 * PAGE);
	expect(7, 0);
	SAME(kernel_pages(p, p + 10 * PAGE), 7);
	CHECK(!munmap(p, 10 * PAGE));
	expect(0, 0);
	p = map(5, RW, ANON | MAP_NORESERVE);
	expect(kernel_pages(p, p + 5 * PAGE), 0);
	CHECK(!munmap(p, 5 * PAGE));
	expect(0, 0);
}

static void moving(void)
{
	char *zone = window(100);
	char *p = mmap(zone, 10 * PAGE, RW, ANON | MAP_FIXED, -1, 0);

	CHECK(p == zone);
	touch(p, 10 * PAGE);
	CHECK(mremap(p + 2 * PAGE, 3 * PAGE, 6 * PAGE,
		     MREMAP_MAYMOVE | MREMAP_FIXED,
		     zone + 50 * PAGE) == zone + 50 * PAGE);
	expect(13, 0);
	CHECK(mremap(zone + 50 * PAGE, 6 * PAGE, 2 * PAGE, 0) ==
	      zone + 50 * PAGE);
	expect(9, 0);
	/* No room to grow in place. */
	REFUSED(mremap(zone + 50 * PAGE, PAGE, 2 * PAGE, 0), MAP_FAILED,
		ENOMEM);
	expect(9, 0);
	/* What lies at the target goes. */
	CHECK(mremap(zone, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
		     zone + 50 * PAGE) == zone + 50 * PAGE);
	expect(7, 0);
	p = mremap(zone + 50 * PAGE, 2 * PAGE, 2 * PAGE,
		   MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	if (p != MAP_FAILED) {
		expect(9, 0);
		CHECK(!munmap(p, 2 * PAGE));
	}
	expect(7, 0);
	SAME(kernel_pages(zone, zone + 100 * PAGE), 7);
	CHECK(!munmap(zone, 100 * PAGE));
	expect(0, 0);

	p = map(8, RW, MAP_SHARED | MAP_ANONYMOUS);
	expect(0, 8);
	zone = mremap(p, 0, 8 * PAGE, MREMAP_MAYMOVE);
	CHECK(zone != MAP_FAILED);
	expect(0, 8);
	CHECK(!munmap(p, 8 * PAGE));
	expect(0, 8);
	CHECK(!munmap(zone, 8 * PAGE));
	expect(0, 0);
}

static char *map_fd(int fd, int flags, size_t pages, int prot)
{
	char *p = mmap64(NULL, pages * PAGE, prot, flags, fd, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

static void sharing(void)
{
	char name[] = "/var/tmp/map_formsXXXXXX";
	int memory = (int)syscall(SYS_memfd_create, "forms", MFD_CLOEXEC);
	int zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
	int file = mkstemp(name);
	char *p;
	char *q;
	char *r;
	int id;

	CHECK(memory >= 0 && zero >= 0 && file >= 0);
	unlink(name);
	CHECK(!ftruncate(memory, 20 * (off_t)PAGE));
	CHECK(!ftruncate(file, 20 * (off_t)PAGE));
	p = map_fd(memory, MAP_SHARED, 10, RW);
	q = map_fd(memory, MAP_SHARED, 20, PROT_READ);
	r = map_fd(memory, MAP_PRIVATE, 5, RW);
	expect(5, 20);
	CHECK(!munmap(q, 20 * PAGE));
	expect(5, 10);
	CHECK(!munmap(r, 5 * PAGE));
	CHECK(!munmap(p, 4 * PAGE));
	expect(0, 6);
	CHECK(!munmap(p + 4 * PAGE, 6 * PAGE));
	expect(0, 0);

	p = map_fd(zero, MAP_PRIVATE, 3, RW);
	q = map_fd(zero, MAP_SHARED, 4, RW);
	expect(3, 4);
	CHECK(!munmap(p, 3 * PAGE) && !munmap(q, 4 * PAGE));

	p = map_fd(file, MAP_PRIVATE, 3, RW);
	q = map_fd(file, MAP_SHARED, 4, RW);
	r = map_fd(file, MAP_PRIVATE, 5, PROT_READ);
	expect(3, 0);
	CHECK(!munmap(p, 3 * PAGE) && !munmap(q, 4 * PAGE) &&
	      !munmap(r, 5 * PAGE));
	expect(0, 0);

	id = shmget(IPC_PRIVATE, 6 * PAGE - 10, IPC_CREAT | 0600);
	if (id >= 0) {
		p = shmat(id, NULL, 0);
		q = shmat(id, NULL, SHM_RDONLY);
		r = map(6, RW, ANON);
		shmctl(id, IPC_RMID, NULL);
		CHECK(p != (void *)-1 && q != (void *)-1);
		expect(6, 6);
		CHECK(shmat(id, r, SHM_REMAP) == r);
		expect(0, 6);
		CHECK(!shmdt(p) && !shmdt(q));
		expect(0, 6);
		CHECK(!shmdt(r));
	}
	expect(0, 0);
	close(memory);
	close(zero);
	close(file);
}

static void breaking(void)
{
	char *top = sbrk(0);
	long before = read_pages(ACCOUNTED);

	/* Whole pages: the break may lie inside one. */
	CHECK(sbrk(10 * (intptr_t)PAGE) == top);
	SAME(read_pages(ACCOUNTED) - before, 10);
	CHECK(!brk(top + 4 * PAGE));
	SAME(read_pages(ACCOUNTED) - before, 4);
	CHECK(sbrk(-4 * (intptr_t)PAGE) == top + 4 * PAGE);
	SAME(read_pages(ACCOUNTED), before);
}

int main(void)
{
	alarm(60);
	accounted_base = read_pages(ACCOUNTED);
	shmem_base = read_pages(SHMEM);
	results();
	sticking();
	moving();
	sharing();
	breaking();
	return 0;
}
