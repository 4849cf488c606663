/* SPDX-License-Identifier: MIT */
/* Every flag of mmap and every advice, one by one: what is charged stays what
 * the kernel accounts, and goes with the mapping. */
#include <sys/syscall.h>

#include "map_test.h"

#ifndef MADV_COLD
#define MADV_COLD 20
#endif
#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define PAGES 16

static long base;
static long base_shmem;

/* The kernel accounts all of a private mapping here, or as it says. */
static void agree(const char *what, char *p, size_t pages)
{
	long ours = read_pages(ACCOUNTED) - base;
	long kernels = kernel_pages(p, p + pages * PAGE);

	if (ours != kernels)
		FAIL("%s: %ld pages charged, %ld accounted", what, ours,
		     kernels);
}

static void flags(void)
{
	static const struct {
		const char *name;
		int flags;
		long charged;
	} all[] = {
		{ "private", 0, PAGES },
		{ "populate", MAP_POPULATE, PAGES },
		{ "locked", MAP_LOCKED, PAGES },
		{ "32bit", MAP_32BIT, PAGES },
		{ "stack", MAP_STACK, PAGES },
		{ "nonblock", MAP_NONBLOCK | MAP_POPULATE, PAGES },
		{ "denywrite", MAP_DENYWRITE, PAGES },
		{ "executable", MAP_EXECUTABLE, PAGES },
		{ "noreserve", MAP_NORESERVE, 0 },
		{ "uninitialized", 0x4000000, PAGES },
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		char *p = mmap(NULL, PAGES * PAGE - 5, RW, ANON | all[i].flags,
			       -1, 0);

		/* Locking may not be allowed. */
		if (p == MAP_FAILED && (all[i].flags & MAP_LOCKED))
			continue;
		CHECK(p != MAP_FAILED);
		SAME(read_pages(ACCOUNTED) - base, all[i].charged);
		agree(all[i].name, p, PAGES);
		CHECK(!munmap(p, PAGES * PAGE));
		SAME(read_pages(ACCOUNTED), base);
	}
}

static void advice(void)
{
	static const int all[] = {
		MADV_NORMAL,     MADV_RANDOM,        MADV_SEQUENTIAL,
		MADV_WILLNEED,   MADV_DONTNEED,      MADV_FREE,
		MADV_REMOVE,     MADV_DONTFORK,      MADV_DOFORK,
		MADV_MERGEABLE,  MADV_UNMERGEABLE,   MADV_HUGEPAGE,
		MADV_NOHUGEPAGE, MADV_DONTDUMP,      MADV_DODUMP,
		MADV_WIPEONFORK, MADV_KEEPONFORK,    MADV_COLD,
		MADV_PAGEOUT,    MADV_POPULATE_READ, MADV_POPULATE_WRITE,
		MADV_COLLAPSE,
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		char name[32];
		char *p = map(PAGES, RW, ANON);
		char *shared = map(PAGES, RW, MAP_SHARED | MAP_ANONYMOUS);

		snprintf(name, sizeof(name), "advice %d", all[i]);
		touch(p, PAGES * PAGE);
		touch(shared, PAGES * PAGE);
		/* Some are for other mappings, or other kernels. */
		(void)madvise(p + PAGE, 6 * PAGE, all[i]);
		(void)madvise(shared + PAGE, 6 * PAGE, all[i]);
		agree(name, p, PAGES);
		SAME(read_pages(SHMEM) - base_shmem, PAGES);
		CHECK(!mprotect(p, 4 * PAGE, PROT_READ));
		agree(name, p, PAGES);
		CHECK(!munmap(p, PAGES * PAGE));
		CHECK(!munmap(shared, PAGES * PAGE));
		SAME(read_pages(ACCOUNTED), base);
		SAME(read_pages(SHMEM), base_shmem);
	}
}

static void others(void)
{
	char *p = map(PAGES, RW, ANON);
	struct {
		void *at;
		size_t len;
	} vector = { p, PAGES * PAGE };
	int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	int key;

	touch(p, PAGES * PAGE);
	CHECK(!posix_madvise(p, PAGES * PAGE, POSIX_MADV_DONTNEED));
	agree("posix_madvise", p, PAGES);
	(void)syscall(SYS_process_madvise, pidfd, &vector, 1, MADV_COLD, 0);
	agree("process_madvise", p, PAGES);
	close(pidfd);
	if (!mlock(p, PAGES * PAGE)) {
		agree("mlock", p, PAGES);
		CHECK(!munlock(p, PAGES * PAGE));
	}
	agree("munlock", p, PAGES);
	CHECK(!pkey_mprotect(p, 2 * PAGE, PROT_NONE, -1));
	agree("pkey_mprotect", p, PAGES);
	key = pkey_alloc(0, 0);
	if (key >= 0) {
		CHECK(!pkey_mprotect(p, 3 * PAGE, RW, key));
		agree("pkey_mprotect, a key", p, PAGES);
	}
	CHECK(!munmap(p, PAGES * PAGE));
	SAME(read_pages(ACCOUNTED), base);
}

/* Pages of a shared object in another order: as many as before. */
static void remapped_file(void)
{
	char *p = map(PAGES, RW, MAP_SHARED | MAP_ANONYMOUS);

	p[0] = 1;
	p[PAGE] = 2;
	SAME(read_pages(SHMEM) - base_shmem, PAGES);
	if (!remap_file_pages(p, PAGE, 0, 1, 0))
		CHECK(p[0] == 2);
	SAME(read_pages(SHMEM) - base_shmem, PAGES);
	CHECK(!munmap(p, PAGES * PAGE));
	SAME(read_pages(SHMEM), base_shmem);
}

static void posix_shared_memory(void)
{
	char name[64];
	char *p;
	int fd;

	snprintf(name, sizeof(name), "/memtally-test-%d", (int)getpid());
	fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	CHECK(fd >= 0 && !shm_unlink(name));
	CHECK(!ftruncate(fd, PAGES * (off_t)PAGE));
	p = mmap(NULL, PAGES * PAGE, RW, MAP_SHARED_VALIDATE, fd, 0);
	CHECK(p != MAP_FAILED);
	SAME(read_pages(SHMEM) - base_shmem, PAGES);
	/* The pages go, the object's length is what counts. */
	CHECK(!madvise(p, 4 * PAGE, MADV_REMOVE));
	SAME(read_pages(SHMEM) - base_shmem, PAGES);
	CHECK(!munmap(p, PAGES * PAGE));
	SAME(read_pages(SHMEM), base_shmem);
	close(fd);
}

int main(void)
{
	base = read_pages(ACCOUNTED);
	base_shmem = read_pages(SHMEM);
	flags();
	advice();
	others();
	remapped_file();
	posix_shared_memory();
	return 0;
}
