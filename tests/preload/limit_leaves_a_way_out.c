/* SPDX-License-Identifier: MIT */
/*
 * At the exact limit (see the companion script) programs can still give back,
 * start a thread or be told that they can't, open a library, fail an
 * allocation in an exit handler, and end.
 */
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>

#include "tests/preload/count.h"

#define RW   (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
#define MIB  ((size_t)1 << 20)

#define LIMIT   (64 * MIB)
#define THREADS 200

static char *blocks[300000];
static int nr_blocks;

/* To the last page, and then to the last block. */
static void fill(void)
{
	char *p;

	for (size_t pages = 4096; pages; pages /= 2) {
		while ((p = mmap(NULL, pages * (size_t)page(), RW, ANON, -1,
				 0)) != MAP_FAILED)
			;
		must(errno == ENOMEM);
	}
	for (size_t size = 65536; size >= 16; size /= 2) {
		while (nr_blocks < 300000 && (p = malloc(size)))
			blocks[nr_blocks++] = p;
		must(errno == ENOMEM);
	}
}

/* Of one mapping, so that what is kept can be given back piece by piece. */
static char *fill_one(size_t *len)
{
	char *p = MAP_FAILED;

	for (*len = LIMIT; p == MAP_FAILED; *len -= (size_t)page())
		p = mmap(NULL, *len, RW, ANON, -1, 0);
	*len += (size_t)page();
	return p;
}

static pthread_key_t key;

static void destroy(void *arg)
{
	(void)arg;
	free(malloc(100000));
}

static void *quick(void *arg)
{
	pthread_setspecific(key, &key);
	free(malloc(100));
	return arg;
}

static void exit_handler(void)
{
	char *p = malloc(MIB);

	if (p)
		fail("there was room in the exit handler");
	free(blocks[--nr_blocks]);
}

/* Whatever can't be had, nothing crashes, and the errors are the right ones. */
static void at_the_limit(void)
{
	pthread_t thread;
	void *library;
	int status;
	pid_t pid;

	must(pthread_key_create(&key, destroy) == 0);
	fill();
	for (int i = 0; i < 50; i++) {
		int ret = pthread_create(&thread, NULL, quick, NULL);

		if (ret == 0)
			must(pthread_join(thread, NULL) == 0);
		else if (ret != EAGAIN)
			fail("pthread_create: %d", ret);
	}
	library = dlopen("libm.so.6", RTLD_NOW);
	if (library)
		dlclose(library);
	else
		must(dlerror());
	/* A child of ours has no more room than we have. */
	pid = fork();
	must(pid >= 0 || errno == ENOMEM);
	if (pid == 0) {
		must(!malloc(MIB) && errno == ENOMEM);
		exit(0);
	}
	if (pid > 0) {
		must(waitpid(pid, &status, 0) == pid);
		must(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	must(atexit(exit_handler) == 0);
	exit(0);
}

/* None of this may be refused, and all of it comes back. */
static void giving_back(void)
{
	size_t pg = (size_t)page();
	size_t len;
	char *p = fill_one(&len);
	char *q;

	/* Not a page more; then over it, in place, and smaller. */
	must(mmap(NULL, 64 * MIB, RW, ANON, -1, 0) == MAP_FAILED);
	q = mmap(p, 16 * MIB, RW, ANON | MAP_FIXED, -1, 0);
	must(q == p);
	q = mmap(p, MIB, PROT_NONE, ANON | MAP_FIXED | MAP_NORESERVE, -1, 0);
	must(q == p);
	must(mprotect(p + MIB, MIB, PROT_READ) == 0);
	must(mprotect(p + MIB, MIB, RW) == 0);
	must(madvise(p + MIB, MIB, MADV_DONTNEED) == 0);
	p += MIB;
	len -= MIB;
	must(munmap(p + 4 * pg, pg) == 0);
	must(mremap(p + MIB, len - MIB, len / 2, 0) == p + MIB);
	must(munmap(p, len) == 0);
	if (charged() > 1500)
		fail("all given back, %ld pages are charged", charged());
	/* What the heap keeps cached makes way at once. */
	for (nr_blocks = 0; nr_blocks < 4000; nr_blocks++) {
		must(blocks[nr_blocks] = malloc(10000));
		memset(blocks[nr_blocks], 1, 10000);
	}
	while (nr_blocks)
		free(blocks[--nr_blocks]);
	p = mmap(NULL, 50 * MIB, RW, ANON, -1, 0);
	must(p != MAP_FAILED);
	must(munmap(p, 50 * MIB) == 0);
}

/* Reserved, and far beyond the limit. */
static void reservations(void)
{
	char *p = mmap(NULL, (size_t)1 << 40, PROT_NONE, ANON | MAP_NORESERVE,
		       -1, 0);
	char *q = mmap(NULL, (size_t)1 << 38, RW, ANON | MAP_NORESERVE, -1, 0);

	must(p != MAP_FAILED);
	must(munmap(p, (size_t)1 << 40) == 0);
	if (q != MAP_FAILED)
		must(munmap(q, (size_t)1 << 38) == 0);
}

static sem_t ready;
static sem_t go;

static void *holds_a_stock(void *arg)
{
	char *p = malloc(60000);

	must(p);
	memset(p, 1, 60000);
	free(p);
	sem_post(&ready);
	sem_wait(&go);
	return arg;
}

/* What idle threads charged ahead is there for whoever needs it. */
static void stocks(void)
{
	pthread_t threads[THREADS];
	pthread_attr_t attr;
	size_t room;
	long idle;
	char *p;

	must(sem_init(&ready, 0, 0) == 0 && sem_init(&go, 0, 0) == 0);
	must(pthread_attr_init(&attr) == 0);
	must(pthread_attr_setstacksize(&attr, 65536) == 0);
	for (int i = 0; i < THREADS; i++) {
		must(!pthread_create(&threads[i], &attr, holds_a_stock, NULL));
		sem_wait(&ready);
	}
	/* 200 stocks of 64 pages would be 50 MiB. */
	idle = charged();
	room = LIMIT - (size_t)idle * (size_t)page() - 2 * MIB;
	p = mmap(NULL, room, RW, ANON, -1, 0);
	if (p == MAP_FAILED)
		fail("%ld pages are charged, but %zu more are refused", idle,
		     room / (size_t)page());
	must(munmap(p, room) == 0);
	for (int i = 0; i < THREADS; i++)
		sem_post(&go);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

int main(void)
{
	int status;
	pid_t pid;

	giving_back();
	reservations();
	stocks();
	malloc_trim(0);
	pid = fork();
	if (pid == 0)
		at_the_limit();
	must(waitpid(pid, &status, 0) == pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail("at the limit: status %x", status);
	if (charged() > 1500)
		fail("at the end %ld pages are charged", charged());
	return 0;
}
