/* SPDX-License-Identifier: MIT */
/*
 * fork.c - the order of locks around fork.
 *
 * libc runs prepare handlers last-registered first, and the others
 * first-registered first.  Ours must be registered before everybody else's:
 * then the program's own handlers, which may allocate, run before our locks
 * are taken and after they are released.  Constructors of libraries that the
 * program is linked with run before ours, so the registration itself is
 * interposed: whoever comes first makes us register before them.
 *
 * Raw clone and _Fork run no handler: memory that is wiped on fork tells the
 * child what it is, see account.c.
 */
#include "preload/fork.h"

#include <dlfcn.h>

#include "core/atomic.h"
#include "core/base.h"
#include "core/process.h"
#include "preload/heap.h"
#include "preload/mmap.h"

typedef int register_fn(void (*)(void), void (*)(void), void (*)(void), void *);

int __register_atfork(void (*prepare)(void), void (*parent)(void),
		      void (*child)(void), void *dso);

static register_fn *real_register;
static _Atomic int registered;

/* jemalloc's locks first: its hooks may take none of ours, but our mapping
 * lock may be held by a thread that waits for nothing. */
static void prepare_fork(void)
{
	mt_process_forget_ns(false); /* we may be a raw clone */
	mt_heap_prefork();
	mt_mmap_prefork();
}

static void after_fork_parent(void)
{
	mt_mmap_postfork_parent();
	mt_heap_postfork_parent();
}

static void after_fork_child(void)
{
	mt_process_forget_ns(true);
	mt_mmap_postfork_child();
	mt_heap_postfork_child();
}

void mt_fork_register(void)
{
	if (exchange_seq_cst(&registered, 1))
		return;
	real_register = (register_fn *)dlsym(RTLD_NEXT, "__register_atfork");
	if (real_register)
		real_register(prepare_fork, after_fork_parent, after_fork_child,
			      NULL);
}

MT_EXPORT int __register_atfork(void (*prepare)(void), void (*parent)(void),
				void (*child)(void), void *dso)
{
	mt_fork_register();
	return real_register ? real_register(prepare, parent, child, dso) : 12;
}
