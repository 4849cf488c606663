/* SPDX-License-Identifier: MIT */
/* Holds known amounts of each kind, and waits for a file to appear:
 *	explain_knows_each_page SCRATCH STOP
 * explain_knows_each_page.sh compares. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "preload/memtally.h"

#define MIB ((size_t)1 << 20)
#define RW  (PROT_READ | PROT_WRITE)

static void must(int x, const char *what)
{
	if (!x) {
		perror(what);
		exit(1);
	}
}

/* Mapped twice as large as it is touched. */
static void take(size_t size, int flags, int fd)
{
	char *p = mmap(NULL, 2 * size, RW, flags, fd, 0);

	must(p != MAP_FAILED, "mmap");
	memset(p, 1, size);
}

static void *deep(void *arg)
{
	volatile char some[512 * 1024];

	for (size_t i = 0; i < sizeof(some); i += 1024)
		some[i] = 1;
	pthread_barrier_wait(arg);
	for (;;)
		pause();
	return (void *)(uintptr_t)some[0];
}

int main(int argc, char **argv)
{
	pthread_barrier_t barrier;
	memtally_group previous;
	pthread_t thread;
	int fd;

	if (argc < 3)
		return 77;
	fd = open(argv[1], O_RDWR | O_CREAT | O_EXCL, 0600);
	must(fd >= 0 && !ftruncate(fd, 32 * (off_t)MIB), argv[1]);
	take(5 * MIB, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	previous = memtally_enter(memtally_group_get("/cache"));
	/* Right beside it, where the kernel makes one mapping of both. */
	take(7 * MIB, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	memtally_leave(previous);
	take(3 * MIB, MAP_PRIVATE, fd);
	take(2 * MIB, MAP_SHARED | MAP_ANONYMOUS, -1);
	take(4 * MIB, MAP_SHARED, fd);
	memset(malloc(20 * MIB), 1, 20 * MIB);
	memset(sbrk((intptr_t)MIB), 1, MIB);
	pthread_barrier_init(&barrier, NULL, 2);
	must(!pthread_create(&thread, NULL, deep, &barrier), "thread");
	pthread_barrier_wait(&barrier);
	puts("ready");
	fflush(stdout);
	while (access(argv[2], F_OK))
		usleep(10000);
	return 0;
}
