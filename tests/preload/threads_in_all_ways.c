/* SPDX-License-Identifier: MIT */
/*
 * Threads that begin, live and end in unusual ways: without pthread_create(),
 * on the smallest stack, cancelled, gone from deep inside, detached, freeing
 * only; and a task that shares our memory and our thread-local storage.  All
 * of them are counted, and nothing of them is left.
 */
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <threads.h>
#include <time.h>

#include "tests/preload/count.h"

#define MAPPED 50

static sem_t done;
static volatile int cleaned;

/* A bit of everything that is hooked; what it returns is to be unmapped. */
static char *work(void)
{
	size_t len = MAPPED * (size_t)page();
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *q;

	must(p != MAP_FAILED);
	must(mprotect(p, (size_t)page(), PROT_READ) == 0);
	for (size_t n = 1; n < 5000000; n *= 7) {
		must(q = malloc(n));
		must(q = realloc(q, n * 2));
		q[n] = 1;
		free(q);
		must(q = memalign(8192, n));
		free(q);
	}
	return p;
}

static void unwork(char *p)
{
	must(munmap(p, MAPPED * (size_t)page()) == 0);
}

static void *plain(void *arg)
{
	unwork(work());
	return arg;
}

static int standard(void *arg)
{
	unwork(work());
	return *(int *)arg;
}

static void on_timer(union sigval value)
{
	unwork(work());
	sem_post(value.sival_ptr);
}

static void *detached(void *arg)
{
	unwork(work());
	sem_post(&done);
	return arg;
}

__attribute__((noinline, noreturn)) static void leave_from_below(int depth)
{
	volatile char room[200];

	room[0] = (char)depth;
	if (depth + room[0] - (char)depth > 0)
		leave_from_below(depth - 1);
	pthread_exit((void *)7);
}

static void clean_up(void *arg)
{
	unwork(arg);
	cleaned++;
}

static void *leaves(void *arg)
{
	pthread_cleanup_push(clean_up, work());
	leave_from_below(20);
	pthread_cleanup_pop(0);
	return arg;
}

static void *cancelled(void *arg)
{
	pthread_cleanup_push(clean_up, work());
	sem_post(&done);
	for (;;)
		pause();
	pthread_cleanup_pop(0);
	return arg;
}

/* Cancelled wherever it is: only calls for which that is no harm. */
static void *cancelled_inside(void *arg)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	sem_post(&done);
	for (;;) {
		char *p = mmap(NULL, (size_t)page(), PROT_READ,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		munmap(p, (size_t)page());
	}
	return arg;
}

static void other_ways(void)
{
	struct sigevent event = { 0 };
	struct itimerspec soon = { { 0, 0 }, { 0, 1000000 } };
	timer_t timer;
	int status = 23;
	thrd_t thread;
	int result;

	must(thrd_create(&thread, standard, &status) == thrd_success);
	must(thrd_join(thread, &result) == thrd_success && result == 23);
	event.sigev_notify = SIGEV_THREAD;
	event.sigev_notify_function = on_timer;
	event.sigev_value.sival_ptr = &done;
	must(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	must(timer_settime(timer, 0, &soon, NULL) == 0);
	sem_wait(&done);
	timer_delete(timer);
}

static void all_ends(void)
{
	static char own[256 * 1024] __attribute__((aligned(4096)));
	pthread_attr_t attr;
	pthread_t thread;
	void *result;

	must(pthread_attr_init(&attr) == 0);
	must(pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN) == 0);
	must(pthread_create(&thread, &attr, plain, &done) == 0);
	must(pthread_join(thread, &result) == 0 && result == &done);
	must(pthread_attr_setstack(&attr, own, sizeof(own)) == 0);
	must(pthread_create(&thread, &attr, plain, own) == 0);
	must(pthread_join(thread, &result) == 0 && result == own);
	pthread_attr_destroy(&attr);

	must(pthread_attr_init(&attr) == 0);
	must(!pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED));
	must(pthread_create(&thread, &attr, detached, NULL) == 0);
	sem_wait(&done);
	pthread_attr_destroy(&attr);

	must(pthread_create(&thread, NULL, leaves, NULL) == 0);
	must(pthread_join(thread, &result) == 0 && result == (void *)7);
	must(cleaned == 1);
	must(pthread_create(&thread, NULL, cancelled, NULL) == 0);
	sem_wait(&done);
	must(pthread_cancel(thread) == 0);
	must(!pthread_join(thread, &result) && result == PTHREAD_CANCELED);
	must(cleaned == 2);
	cleaned = 0;
}

static void *free_all(void *arg)
{
	char **blocks = arg;

	for (int i = 0; i < 1000; i++)
		free(blocks[i]);
	return NULL;
}

/* They have no cache of their own to keep it in. */
static void free_only(void)
{
	static char *blocks[1000];
	pthread_t thread;

	for (int i = 0; i < 1000; i++) {
		must(blocks[i] = malloc(4000));
		memset(blocks[i], 1, 4000);
	}
	must(pthread_create(&thread, NULL, free_all, blocks) == 0);
	must(pthread_join(thread, NULL) == 0);
}

static int shares_everything(void *arg)
{
	*(char **)arg = work();
	return 3;
}

/* As crash reporters and container tools do it.  Not vfork: both run. */
static void shared_task(void)
{
	static char stack[256 * 1024] __attribute__((aligned(16)));
	char *p = NULL;
	int status;
	pid_t pid;

	pid = clone(shares_everything, stack + sizeof(stack),
		    CLONE_VM | CLONE_FS | CLONE_FILES | SIGCHLD, &p);
	must(pid > 0);
	must(waitpid(pid, &status, 0) == pid);
	must(WIFEXITED(status) && WEXITSTATUS(status) == 3 && p);
	unwork(p);
}

int main(void)
{
	long mapped = 0;
	long before = 0;
	pthread_t thread;
	char *p;

	must(sem_init(&done, 0, 0) == 0);
	/* The first round makes stacks, arenas and libc's helper thread. */
	for (int round = 0; round < 10; round++) {
		if (round == 1) {
			malloc_trim(0);
			mapped = accounted();
			before = heap();
		}
		other_ways();
		all_ends();
		free_only();
		shared_task();
	}
	malloc_trim(0);
	if (accounted() != mapped)
		fail("%ld mapped pages are left", accounted() - mapped);
	if (heap() > before + left_over())
		fail("%ld pages of heap are left", heap() - before);

	/* Whatever they held, others go on. */
	for (int round = 0; round < 50; round++) {
		must(!pthread_create(&thread, NULL, cancelled_inside, NULL));
		sem_wait(&done);
		sched_yield();
		must(pthread_cancel(thread) == 0);
		must(pthread_join(thread, NULL) == 0);
	}
	p = work();
	mapped = accounted();
	unwork(p);
	if (accounted() != mapped - MAPPED)
		fail("unmapped %d pages, counted %ld", MAPPED,
		     mapped - accounted());
	return 0;
}
