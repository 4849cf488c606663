/* SPDX-License-Identifier: MIT */
/* An object mapped twice is charged once, by the pages that are mapped at
 * all, until its last view goes. */
#include <sys/shm.h>

#include "tests/preload/count.h"

#define EXPECT(pages)                                                          \
	do {                                                                   \
		long now_ = shmem() - base;                                    \
		if (now_ != (pages))                                           \
			fail("line %d: %ld pages, not %ld", __LINE__, now_,    \
			     (long)(pages));                                   \
	} while (0)

static char *map(int fd, size_t pages, size_t from)
{
	char *p = mmap(NULL, pages * (size_t)page(), PROT_READ | PROT_WRITE,
		       MAP_SHARED, fd, (off_t)(from * (size_t)page()));

	must(p != MAP_FAILED);
	return p;
}

int main(void)
{
	size_t pg = (size_t)page();
	long base = shmem();
	int fd = memfd_create("twice", 0);
	char *a;
	char *b;
	char *c;
	int id;

	must(fd >= 0 && ftruncate(fd, (off_t)(100 * pg)) == 0);
	a = map(fd, 60, 0);
	EXPECT(60);
	b = map(fd, 60, 40); /* 20 of these are new to us: 40 to 99 */
	EXPECT(100);
	c = map(fd, 100, 0);
	EXPECT(100);
	must(munmap(a, 60 * pg) == 0);
	EXPECT(100);
	must(munmap(c, 100 * pg) == 0);
	EXPECT(60); /* 40 to 99, by the view that is left */
	must(munmap(b, 30 * pg) == 0);
	EXPECT(30);
	must(munmap(b + 30 * pg, 30 * pg) == 0);
	EXPECT(0);
	a = mmap(NULL, 5 * pg, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	must(a != MAP_FAILED);
	EXPECT(5);
	must(munmap(a, 5 * pg) == 0);
	id = shmget(IPC_PRIVATE, 7 * pg, 0600);
	if (id >= 0) {
		a = shmat(id, NULL, 0);
		b = shmat(id, NULL, 0);
		shmctl(id, IPC_RMID, NULL);
		must(a != (void *)-1 && b != (void *)-1);
		EXPECT(7);
		must(shmdt(a) == 0);
		EXPECT(7);
		/* With a hole in its middle: all of the rest goes. */
		must(munmap(b + 2 * pg, pg) == 0);
		EXPECT(6);
		must(shmdt(b) == 0);
	}
	EXPECT(0);
	return 0;
}
