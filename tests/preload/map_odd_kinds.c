/* SPDX-License-Identifier: MIT */
/*
 * Kinds of mappings that are rare, or none of ours: huge pages, stacks that
 * grow, advice, more mappings than the system allows, fixed places; and the
 * main stack, page tables and file pages, which are not counted.
 */
#include <sys/resource.h>

#include "map_test.h"

static long base;

static void expect(long pages)
{
	SAME(read_pages(ACCOUNTED) - base, pages);
}

/* Counted in the small pages that the system took. */
static void huge(void)
{
	size_t len = (size_t)2 << 20;
	char *p = mmap(NULL, 4096, RW, ANON | MAP_HUGETLB, -1, 0);

	if (p == MAP_FAILED)
		return; /* no huge pages reserved */
	p[len - 1] = 1;
	expect(kernel_pages(p, p + len));
	CHECK(munmap(p, 4096) == -1 && errno == EINVAL);
	expect(kernel_pages(p, p + len));
	CHECK(!munmap(p, len));
	expect(0);
}

/* What was given back to the system can be touched again: it stays charged,
 * as it stays accounted in the kernel. */
static void advice(void)
{
	char *p = map(100, RW, ANON);
	int status;
	pid_t pid;

	touch(p, 100 * PAGE);
	CHECK(!madvise(p, 50 * PAGE, MADV_DONTNEED));
	CHECK(!p[0] && p[60 * PAGE] == 1);
	CHECK(!madvise(p + 50 * PAGE, 50 * PAGE, MADV_FREE));
	CHECK(!madvise(p, 10 * PAGE, MADV_DONTFORK));
	CHECK(!madvise(p + 10 * PAGE, 10 * PAGE, MADV_WIPEONFORK));
	touch(p, 20 * PAGE);
	expect(100);
	SAME(kernel_pages(p, p + 100 * PAGE), 100);
	pid = fork();
	if (pid == 0) {
		CHECK(!p[10 * PAGE]);
		/* What isn't there can be unmapped, and mapped anew. */
		CHECK(!munmap(p, 20 * PAGE));
		CHECK(mmap(p, 20 * PAGE, RW, ANON | MAP_FIXED, -1, 0) == p);
		SAME(read_pages(ACCOUNTED), 20);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	expect(100);
	CHECK(!munmap(p, 100 * PAGE));
	expect(0);
}

static void growing(void)
{
	char *zone = window(1000);
	char *p = mmap(zone + 900 * PAGE, 10 * PAGE, RW,
		       ANON | MAP_FIXED | MAP_GROWSDOWN, -1, 0);
	char *q;

	CHECK(p == zone + 900 * PAGE);
	expect(10);
	CHECK(!munmap(p, 10 * PAGE));
	expect(0);
	/* MAP_STACK is for libraries of threads and coroutines. */
	q = map(10, RW, ANON | MAP_STACK);
	expect(10);
	CHECK(!munmap(q, 10 * PAGE));
	CHECK(!munmap(zone, 1000 * PAGE));
	expect(0);
}

/* Every second page of another protection, until the system has enough. */
static void many(void)
{
	size_t pages = 150000;
	char *p = map(pages, PROT_READ, ANON);
	size_t done = 0;
	char *q;

	while (done < pages && !mprotect(p + done * PAGE, PAGE, RW)) {
		p[done * PAGE] = 1;
		done += 2;
	}
	CHECK(done == pages || errno == ENOMEM);
	expect((long)done / 2);
	CHECK(!munmap(p, pages * PAGE));
	expect(0);
	q = map(10, RW, ANON);
	expect(10);
	CHECK(!munmap(q, 10 * PAGE));
	expect(0);
}

/* Where programs put things at fixed low addresses there is room. */
static void fixed_places(void)
{
	static const unsigned long places[] = { 0x10000000, 0x7fff0000,
						0x100000000, 0x1000000000,
						0xc000000000 };

	for (unsigned i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		char *p = mmap((void *)places[i], 16 * PAGE, RW,
			       ANON | MAP_FIXED_NOREPLACE, -1, 0);

		if (p == MAP_FAILED)
			FAIL("%lx is taken", places[i]);
		expect(16);
		CHECK(!munmap(p, 16 * PAGE));
	}
	expect(0);
}

__attribute__((noinline)) static long dig(long depth)
{
	volatile char room[2000];

	room[0] = room[1999] = (char)depth;
	return depth ? dig(depth - 1) + room[0] - room[1999] : 0;
}

/* README.md says so of them. */
static void not_counted(void)
{
	size_t len = (size_t)1 << 28;
	int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	char *p;
	char *q;

	SAME(dig(2000), 0);
	expect(0);
	CHECK(file >= 0);
	p = mmap(NULL, 4 * PAGE, PROT_READ, MAP_PRIVATE, file, 0);
	CHECK(p != MAP_FAILED && p[0] == 0x7f);
	expect(0);
	CHECK(!munmap(p, 4 * PAGE));
	/* A page of tables for each 2 MiB. */
	q = mmap(NULL, len, RW, ANON | MAP_NORESERVE, -1, 0);
	CHECK(q != MAP_FAILED);
	for (size_t i = 0; i < len; i += (size_t)2 << 20)
		q[i] = 1;
	expect(kernel_pages(q, q + len));
	CHECK(!munmap(q, len));
	close(file);
	expect(0);
}

int main(void)
{
	alarm(60);
	base = read_pages(ACCOUNTED);
	huge();
	advice();
	growing();
	fixed_places();
	not_counted();
	many();
	return 0;
}
