/* SPDX-License-Identifier: MIT */
/*
 * Random calls on one thread, and on four: what is charged is what the kernel
 * accounts, to the page, whenever they rest; and nothing at the end.  Then the
 * same in three groups, with ranges moved between them: each has what it made,
 * or was given.
 *
 *	map_random [SEED [HOW-MANY [ROUNDS [CALLS-A-ROUND]]]]
 *
 * All that is writable is touched: newer kernels forget an anonymous range
 * that was not, when it is made unwritable.
 */
#include "map_test.h"
#include "preload/memtally.h"

#define PAGES   64
#define THREADS 4
#define GROUPS  3

static unsigned long rounds = 60;
static unsigned long calls = 80; /* of all threads together */
static memtally_group groups[GROUPS];
static memtally_group home;
static int grouped;

static char *zone; /* THREADS windows of PAGES pages */
static int memory_fd;
static int file_fd;
static pthread_barrier_t barrier;
static int nr_threads;

struct state {
	char *zone;
	unsigned long seed;
	unsigned char writable[PAGES];
	unsigned char ends[PAGES];  /* of an object with an end */
	unsigned char owner[PAGES]; /* number of its group */
	unsigned char hole[PAGES];
	unsigned char now; /* of the group entered */
};

static unsigned roll(struct state *s, unsigned n)
{
	s->seed = s->seed * 6364136223846793005ul + 1442695040888963407ul;
	return (unsigned)(s->seed >> 33) % n;
}

static void touch_writable(struct state *s, unsigned page, unsigned n)
{
	for (unsigned i = page; i < page + n; i++) {
		if (s->writable[i])
			((volatile char *)s->zone)[i * PAGE] = 1;
	}
}

static void new_mapping(struct state *s, unsigned page, unsigned n)
{
	static const int prots[] = { PROT_NONE, PROT_READ, RW, RW };
	int prot = prots[roll(s, 4)];
	int flags = MAP_FIXED;
	int fd = -1;

	/* Who pays for a shared page is another matter. */
	switch (grouped ? roll(s, 4) * 3 : roll(s, 6)) {
	case 0:
		flags |= MAP_PRIVATE;
		fd = file_fd;
		break;
	case 1:
		flags |= MAP_SHARED;
		fd = memory_fd;
		break;
	case 2:
		flags |= MAP_SHARED | MAP_ANONYMOUS;
		break;
	case 3:
		flags |= ANON | MAP_NORESERVE;
		break;
	default:
		flags |= ANON;
	}
	CHECK(mmap(s->zone + page * PAGE, n * PAGE, prot, flags, fd,
		   fd < 0 ? 0 : (off_t)(roll(s, 8) * PAGE)) != MAP_FAILED);
	memset(s->writable + page, prot == RW, n);
	memset(s->ends + page, (flags & MAP_SHARED) || fd >= 0, n);
	memset(s->owner + page, s->now, n);
	memset(s->hole + page, 0, n);
	touch_writable(s, page, n);
}

static void protect(struct state *s, unsigned page, unsigned n)
{
	int prot = roll(s, 2) ? RW : PROT_READ;
	int ret = mprotect(s->zone + page * PAGE, n * PAGE, prot);
	FILE *maps;
	char line[512];

	CHECK(!ret || errno == ENOMEM);
	/* Over a hole it does the first part: ask what is writable. */
	memset(s->writable + page, 0, n);
	memtally_leave(home);
	maps = fopen("/proc/self/maps", "r");
	CHECK(maps);
	while (fgets(line, sizeof(line), maps)) {
		unsigned long from;
		unsigned long to;
		char w;

		CHECK(sscanf(line, "%lx-%lx %*c%c", &from, &to, &w) == 3);
		for (unsigned i = page; i < page + n; i++) {
			unsigned long at = (unsigned long)s->zone + i * PAGE;

			if (at >= from && at < to)
				s->writable[i] = w == 'w';
		}
	}
	fclose(maps);
	if (grouped)
		memtally_enter(groups[s->now]);
	touch_writable(s, page, n);
}

static void remap(struct state *s, unsigned page, unsigned n)
{
	unsigned to = roll(s, PAGES - 8);
	unsigned len = 1 + roll(s, 8);
	int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
	struct state old = *s;
	char *p;

	if (n > 8 || (to < page + n && page < to + len))
		return;
	if (!roll(s, 3)) {
		flags |= MREMAP_DONTUNMAP;
		len = n;
	}
	/* Past an object's end there is nothing to touch. */
	if (len > n && memchr(s->ends + page, 1, n))
		len = n;
	p = mremap(s->zone + page * PAGE, n * PAGE, len * PAGE, flags,
		   s->zone + to * PAGE);
	/* Whether it worked or not, the target may be gone: fill it. */
	if (p == MAP_FAILED) {
		CHECK(mmap(s->zone + page * PAGE, n * PAGE, PROT_NONE,
			   ANON | MAP_FIXED, -1, 0) != MAP_FAILED);
		CHECK(mmap(s->zone + to * PAGE, len * PAGE, PROT_NONE,
			   ANON | MAP_FIXED, -1, 0) != MAP_FAILED);
		memset(s->writable + page, 0, n);
		memset(s->writable + to, 0, len);
		memset(s->owner + page, s->now, n);
		memset(s->owner + to, s->now, len);
		memset(s->hole + page, 0, n);
		memset(s->hole + to, 0, len);
		return;
	}
	for (unsigned i = 0; i < len; i++) {
		unsigned from = page + (i < n ? i : n - 1);

		/* Newer kernels move several mappings, and leave what is
		 * there where nothing comes. */
		if (old.hole[from])
			continue;
		s->hole[to + i] = 0;
		s->writable[to + i] = old.writable[from];
		s->ends[to + i] = old.ends[from];
		s->owner[to + i] = old.owner[from];
	}
	if (!(flags & MREMAP_DONTUNMAP)) {
		memset(s->writable + page, 0, n);
		memset(s->hole + page, 1, n);
	}
	touch_writable(s, to, len);
	touch_writable(s, page, n);
}

static void call(struct state *s)
{
	unsigned page = roll(s, PAGES);
	unsigned n = 1 + roll(s, roll(s, 4) ? 8 : PAGES);

	if (page + n > PAGES)
		n = PAGES - page;
	if (grouped) {
		s->now = (unsigned char)roll(s, GROUPS);
		memtally_enter(groups[s->now]);
		if (!roll(s, 8)) {
			CHECK(!memtally_move(s->zone + page * PAGE, n * PAGE,
					     groups[s->now]));
			memset(s->owner + page, s->now, n);
		}
	}
	switch (roll(s, 8)) {
	case 0 ... 2:
		new_mapping(s, page, n);
		break;
	case 3:
		/* Never leave a hole that another thread's call may fill. */
		if (nr_threads == 1)
			CHECK(!munmap(s->zone + page * PAGE, n * PAGE));
		else
			CHECK(mmap(s->zone + page * PAGE, n * PAGE, PROT_NONE,
				   ANON | MAP_FIXED | MAP_NORESERVE, -1,
				   0) != MAP_FAILED);
		memset(s->writable + page, 0, n);
		memset(s->owner + page, s->now, n);
		memset(s->hole + page, nr_threads == 1, n);
		break;
	case 4 ... 5:
		protect(s, page, n);
		break;
	default:
		if (nr_threads == 1)
			remap(s, page, n);
		else
			new_mapping(s, page, n);
	}
}

static void *work(void *arg)
{
	struct state *s = arg;

	for (unsigned long round = 0; round < rounds; round++) {
		for (unsigned long i = 0; i < calls / (unsigned)nr_threads;
		     i++) {
			call(s);
			if (nr_threads > 1) {
				size_t n = 1 + roll(s, 9);
				char *p = map(n, RW, ANON);

				touch(p, n * PAGE);
				CHECK(!munmap(p, n * PAGE));
			}
		}
		pthread_barrier_wait(&barrier);
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

/* Each group has the accounted pages that are its own. */
static void check_groups(const struct state *s, int threads)
{
	static unsigned char flags[THREADS * PAGES];
	long want[GROUPS] = { 0 };

	kernel_flags(zone, (size_t)(THREADS * PAGES), flags);
	for (int i = 0; i < threads; i++)
		for (int k = 0; k < PAGES; k++)
			want[s[i].owner[k]] += flags[i * PAGES + k];
	for (int g = 0; g < GROUPS; g++) {
		struct memtally_usage usage;

		CHECK(!memtally_usage(groups[g], &usage, sizeof(usage)));
		SAME(usage.charged / PAGE, want[g]);
	}
}

static void run(int threads, unsigned long seed)
{
	struct state s[THREADS];
	pthread_t thread[THREADS];
	size_t len = (size_t)(THREADS * PAGES) * PAGE;
	long shmem = read_pages(SHMEM);
	long base;

	nr_threads = threads;
	zone = window(THREADS * PAGES);
	base = read_pages(ACCOUNTED);
	pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1);
	for (int i = 0; i < threads; i++) {
		memset(&s[i], 0, sizeof(s[i]));
		s[i].zone = zone + (size_t)(i * PAGES) * PAGE;
		s[i].seed = seed * 16 + (unsigned)i;
		CHECK(!pthread_create(&thread[i], NULL, work, &s[i]));
	}
	for (unsigned long round = 0; round < rounds; round++) {
		pthread_barrier_wait(&barrier);
		if (grouped)
			check_groups(s, threads);
		else
			SAME(read_pages(ACCOUNTED) - base,
			     kernel_pages(zone, zone + len));
		pthread_barrier_wait(&barrier);
	}
	for (int i = 0; i < threads; i++)
		CHECK(!pthread_join(thread[i], NULL));
	CHECK(!munmap(zone, len));
	SAME(read_pages(ACCOUNTED), base);
	SAME(read_pages(SHMEM), shmem);
	pthread_barrier_destroy(&barrier);
}

int main(int argc, char **argv)
{
	char name[] = "/var/tmp/map_randomXXXXXX";
	unsigned long first = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
	unsigned long nr = argc > 2 ? strtoul(argv[2], NULL, 10) : 3;

	if (argc > 3)
		rounds = strtoul(argv[3], NULL, 10);
	if (argc > 4)
		calls = strtoul(argv[4], NULL, 10);
	alarm(argc > 3 ? 1200 : 300);
	for (int i = 0; i < GROUPS; i++) {
		char path[] = "/g0";

		path[2] = (char)('0' + i);
		groups[i] = memtally_group_get(path);
	}
	home = memtally_enter(groups[0]);
	memtally_leave(home);
	memory_fd = memfd_create("random", MFD_CLOEXEC);
	file_fd = mkstemp(name);
	CHECK(memory_fd >= 0 && file_fd >= 0);
	unlink(name);
	CHECK(!ftruncate(memory_fd, 128 * (off_t)PAGE));
	CHECK(!ftruncate(file_fd, 128 * (off_t)PAGE));
	for (unsigned long seed = first; seed < first + nr; seed++) {
		for (grouped = 0; grouped < 2; grouped++) {
			run(1, seed);
			run(4, seed);
		}
	}
	return 0;
}
