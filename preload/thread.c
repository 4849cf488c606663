/* SPDX-License-Identifier: MIT */
/*
 * thread.c - threads begin here; they end in account.c's key destructor.
 *
 * A thread made in another way (thrd_create, timers, raw clone) misses
 * nothing: it attaches at its first charge.
 */
#include "preload/thread.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "core/base.h"
#include "preload/account.h"
#include "preload/heap.h"

typedef void *start_fn(void *);
typedef int create_fn(pthread_t *, const pthread_attr_t *, start_fn *, void *);

static create_fn *real_create;

struct beginning {
	start_fn *start;
	void *arg;
};

static void *begin(void *p)
{
	struct beginning beginning = *(struct beginning *)p;

	/*
	 * The first touch of the heap must not come from the thread's last
	 * destructors, where the allocator could no longer clean up.
	 */
	mt_heap_thread_start();
	free(p);
	return beginning.start(beginning.arg);
}

void mt_thread_resolve(void)
{
	if (!real_create)
		real_create = (create_fn *)dlsym(RTLD_NEXT, "pthread_create");
}

MT_EXPORT int pthread_create(pthread_t *restrict thread,
			     const pthread_attr_t *restrict attr,
			     start_fn *start, void *restrict arg)
{
	struct beginning *beginning;
	int ret;

	mt_thread_resolve();
	if (!real_create)
		return EAGAIN;
	beginning = malloc(sizeof(*beginning));
	if (!beginning)
		return EAGAIN;
	beginning->start = start;
	beginning->arg = arg;
	ret = real_create(thread, attr, begin, beginning);
	if (ret)
		free(beginning);
	return ret;
}
