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

#include "core/atomic.h"
#include "core/sys.h"
#include "preload/account.h"
#include "preload/heap.h"

typedef void *start_fn(void *);
typedef int create_fn(pthread_t *, const pthread_attr_t *, start_fn *, void *);

static create_fn *real_create;

struct beginning {
	start_fn *start;
	void *arg;
	uint32_t stack; /* pages */
	uint64_t mark;
};

/* Also when it ends by pthread_exit() or is cancelled. */
static void end(void *p)
{
	const struct beginning *beginning = p;

	mt_account_stack_end(beginning->stack, beginning->mark);
}

static void *begin(void *p)
{
	struct beginning beginning = *(struct beginning *)p;
	void *ret;

	/*
	 * The first touch of the heap must not come from the thread's last
	 * destructors, where the allocator could no longer clean up.
	 */
	mt_heap_thread_start();
	free(p);
	if (!beginning.stack)
		return beginning.start(beginning.arg);
	beginning.mark = mt_account_stack_begin(beginning.stack);
	pthread_cleanup_push(end, &beginning);
	ret = beginning.start(beginning.arg);
	pthread_cleanup_pop(1);
	return ret;
}

/* What libc will map for a thread's stack, as far as it does; 0: the program
 * brings its own. */
static uint32_t stack_pages(const pthread_attr_t *attr)
{
	static _Atomic uint32_t by_default;
	uint32_t known = load_relaxed(&by_default);
	pthread_attr_t defaults;
	size_t guard = 0;
	size_t size = 0;
	void *at = NULL;

	if (!attr && known)
		return known;
	if (!attr && pthread_getattr_default_np(&defaults))
		return 0;
	/* An address that wasn't set is the end of nothing. */
	pthread_attr_getstack(attr ? attr : &defaults, &at, &size);
	pthread_attr_getguardsize(attr ? attr : &defaults, &guard);
	if (!attr)
		pthread_attr_destroy(&defaults);
	if (attr && (uintptr_t)at + size != 0)
		return 0;
	known = (uint32_t)((size + mt_page_size() - 1) / mt_page_size() +
			   (guard + mt_page_size() - 1) / mt_page_size());
	if (!attr)
		store_relaxed(&by_default, known);
	return known;
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
	beginning->stack = stack_pages(attr);
	ret = real_create(thread, attr, begin, beginning);
	if (ret)
		free(beginning);
	return ret;
}
