/* SPDX-License-Identifier: MIT */
/*
 * memtally.h - for programs that want to say whose memory is whose.
 *
 * Header only, C99 and C++; nothing to link with where dlsym() is in libc
 * (glibc 2.34 and later).  Without memtally preloaded every call costs one
 * predictable branch, succeeds and does nothing.
 *
 *	#include <memtally.h>
 *
 *	memtally_group cache = memtally_group_get("cache");
 *	memtally_group previous = memtally_enter(cache);
 *	... what is allocated here is the cache's ...
 *	memtally_leave(previous);
 *
 * Sizes are bytes; they are counted in pages, rounded up when charged and down
 * when they are limits.  All of it may be called by any thread, and nothing of
 * it from a signal handler.
 */
#ifndef MEMTALLY_H
#define MEMTALLY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t memtally_group; /* 0: "/" */

enum memtally_limit {
	MEMTALLY_MIN,  /* left to it, whatever others want */
	MEMTALLY_LOW,  /* left to it, if others find enough elsewhere */
	MEMTALLY_HIGH, /* above it, it is slowed down */
	MEMTALLY_MAX   /* above it, it is refused */
};

#define MEMTALLY_UNLIMITED UINT64_MAX

/* Bits for memtally_event_fd(): memory.events' keys, and thresholds. */
#define MEMTALLY_EVENT_LOW            1u
#define MEMTALLY_EVENT_HIGH           2u
#define MEMTALLY_EVENT_MAX            4u
#define MEMTALLY_EVENT_OOM            8u
#define MEMTALLY_EVENT_OOM_KILL       16u
#define MEMTALLY_EVENT_OOM_GROUP_KILL 32u
#define MEMTALLY_EVENT_THRESHOLD      64u

/* What a group holds and may hold; grows at the end. */
struct memtally_usage {
	uint64_t current; /* as memory.current: subtree, stocks included */
	uint64_t charged; /* the same without stocks: exact */
	uint64_t peak;    /* highest current; see memtally_peak_reset() */
	uint64_t min;
	uint64_t low;
	uint64_t high; /* MEMTALLY_UNLIMITED: none; max, too */
	uint64_t max;
	uint64_t events[6]; /* in the order of the bits above, subtree */
	uint64_t stall_us;  /* waited above high, and at max */
};

/* Returns how many bytes it let go.  Called in a thread that is refused or
 * slowed down, or that answers another process, with no lock of memtally's
 * held; never in two threads at once, nor inside itself. */
typedef uint64_t (*memtally_reclaim_fn)(uint64_t want, void *arg);

/* The table behind the functions below: its own size first. */
struct memtally_api {
	size_t size;
	memtally_group (*group_get)(const char *path);
	memtally_group (*enter)(memtally_group group);
	void (*leave)(memtally_group previous);
	int (*limit_set)(memtally_group group, int which, uint64_t bytes);
	int (*usage)(memtally_group group, struct memtally_usage *out,
		     size_t size);
	uint64_t (*headroom)(memtally_group group);
	int (*charge)(memtally_group group, uint64_t bytes);
	void (*uncharge)(memtally_group group, uint64_t bytes);
	int (*reclaim_add)(memtally_group group, memtally_reclaim_fn fn,
			   void *arg, int cost);
	void (*reclaim_del)(memtally_group group, memtally_reclaim_fn fn,
			    void *arg);
	int (*event_fd)(memtally_group group, unsigned mask);
	int (*threshold_add)(memtally_group group, uint64_t bytes,
			     const char *name);
	int (*peak_reset)(memtally_group group);
	int (*move)(void *addr, size_t len, memtally_group to);
};

#ifndef MEMTALLY_NO_FUNCTIONS

/*
 * A weak reference finds the table where the linker leaves it open; in a
 * program that isn't position-independent it has been fixed to nothing, so it
 * is looked up once.
 */
extern const struct memtally_api memtally_api_v1 __attribute__((weak));
/* By a name of its own, so that it is at peace with <dlfcn.h>. */
extern void *memtally_dlsym_(void *handle, const char *name) __asm__("dlsym");

static inline const struct memtally_api *memtally_api_(size_t reach)
{
	/* 1: not looked up yet. */
	static const struct memtally_api *found =
		(const struct memtally_api *)1;
	const struct memtally_api *api = &memtally_api_v1;

	if (!api) {
		api = __atomic_load_n(&found, __ATOMIC_RELAXED);
		if (__builtin_expect(api == (const struct memtally_api *)1,
				     0)) {
			api = (const struct memtally_api *)memtally_dlsym_(
				(void *)0, "memtally_api_v1");
			__atomic_store_n(&found, api, __ATOMIC_RELAXED);
		}
	}
	return api && api->size >= reach ? api : (const struct memtally_api *)0;
}

#define MEMTALLY_API_(member)                                                  \
	memtally_api_(offsetof(struct memtally_api, member) + sizeof(void *))

/* "cache" is below this process's group, "/cache" is shared by the session.
 * What can't be had becomes its nearest ancestor. */
static inline memtally_group memtally_group_get(const char *path)
{
	const struct memtally_api *api = MEMTALLY_API_(group_get);

	return api ? api->group_get(path) : 0;
}

/* This thread's allocations and mappings go to @group from now on.  Returns
 * what to give to memtally_leave(). */
static inline memtally_group memtally_enter(memtally_group group)
{
	const struct memtally_api *api = MEMTALLY_API_(enter);

	return api ? api->enter(group) : 0;
}

static inline void memtally_leave(memtally_group previous)
{
	const struct memtally_api *api = MEMTALLY_API_(leave);

	if (api)
		api->leave(previous);
}

/* As writing memory.max and its like: takes effect at once, whatever usage is.
 * 0, -EINVAL or -ENOENT. */
static inline int memtally_limit_set(memtally_group group,
				     enum memtally_limit which, uint64_t bytes)
{
	const struct memtally_api *api = MEMTALLY_API_(limit_set);

	return api ? api->limit_set(group, (int)which, bytes) : 0;
}

/* Fills in @size bytes of *@out; zeros without memtally.  0 or -ENOENT. */
static inline int memtally_usage(memtally_group group,
				 struct memtally_usage *out, size_t size)
{
	const struct memtally_api *api = MEMTALLY_API_(usage);

	if (api)
		return api->usage(group, out, size);
	__builtin_memset(out, 0, size);
	return 0;
}

/* Bytes to the nearest high or max, of the group or above it. */
static inline uint64_t memtally_headroom(memtally_group group)
{
	const struct memtally_api *api = MEMTALLY_API_(headroom);

	return api ? api->headroom(group) : MEMTALLY_UNLIMITED;
}

/* Memory that memtally can't see (a device's, another allocator's), in whole
 * pages, rounded up.  0 or -ENOMEM, after all that a refused malloc tries. */
static inline int memtally_charge(memtally_group group, uint64_t bytes)
{
	const struct memtally_api *api = MEMTALLY_API_(charge);

	return api ? api->charge(group, bytes) : 0;
}

static inline void memtally_uncharge(memtally_group group, uint64_t bytes)
{
	const struct memtally_api *api = MEMTALLY_API_(uncharge);

	if (api)
		api->uncharge(group, bytes);
}

/* What is mapped in whole pages from @addr on becomes @to's: charged there and
 * no longer where it was.  The heap's pages stay where they are.  No limit is
 * looked at, for the pages are there.  0, -EINVAL, -ENOENT; -EAGAIN while a
 * thread was stopped in a mapping call. */
static inline int memtally_move(void *addr, size_t len, memtally_group to)
{
	const struct memtally_api *api = MEMTALLY_API_(move);

	return api ? api->move(addr, len, to) : 0;
}

/* Have @fn called when something below a limit of @group, or above it, is to be
 * let go: the cheapest (@cost) first.  0 or -ENOSPC. */
static inline int memtally_reclaim_add(memtally_group group,
				       memtally_reclaim_fn fn, void *arg,
				       int cost)
{
	const struct memtally_api *api = MEMTALLY_API_(reclaim_add);

	return api ? api->reclaim_add(group, fn, arg, cost) : 0;
}

/* When it returns, @fn is not running in another thread, nor will it. */
static inline void memtally_reclaim_del(memtally_group group,
					memtally_reclaim_fn fn, void *arg)
{
	const struct memtally_api *api = MEMTALLY_API_(reclaim_del);

	if (api)
		api->reclaim_del(group, fn, arg);
}

/*
 * An eventfd that becomes readable when one of the events in @mask has been
 * counted at @group or below.  Events of other processes are noticed when this
 * one charges or gives back the next time.  Close it when done.  A descriptor,
 * or -errno; -ENOSYS without memtally.
 */
static inline int memtally_event_fd(memtally_group group, unsigned mask)
{
	const struct memtally_api *api = MEMTALLY_API_(event_fd);

	return api ? api->event_fd(group, mask) : -38;
}

/* Fires when current reaches @bytes, and when it falls below: an event
 * MEMTALLY_EVENT_THRESHOLD, each way.  0, -EINVAL or -ENOSPC. */
static inline int memtally_threshold_add(memtally_group group, uint64_t bytes,
					 const char *name)
{
	const struct memtally_api *api = MEMTALLY_API_(threshold_add);

	return api ? api->threshold_add(group, bytes, name) : 0;
}

/* From now on, the peak that this process reads is the highest since now;
 * what others read doesn't change.  0, -ENOENT or -ENOSPC. */
static inline int memtally_peak_reset(memtally_group group)
{
	const struct memtally_api *api = MEMTALLY_API_(peak_reset);

	return api ? api->peak_reset(group) : 0;
}

#ifndef __cplusplus
static inline void memtally_leave_scope_(const memtally_group *previous)
{
	memtally_leave(*previous);
}

#define MEMTALLY_PASTE_(a, b) a##b
#define MEMTALLY_NAME_(line)  MEMTALLY_PASTE_(memtally_scope_, line)
/* Until the end of the block, allocations go to @group. */
#define MEMTALLY_SCOPE(group)                                                  \
	memtally_group MEMTALLY_NAME_(__LINE__)                                \
		__attribute__((cleanup(memtally_leave_scope_), unused)) =      \
			memtally_enter(group)
#else
} /* extern "C" */
struct memtally_scope_ {
	explicit memtally_scope_(memtally_group group)
	    : previous(memtally_enter(group))
	{
	}
	~memtally_scope_()
	{
		memtally_leave(previous);
	}
	memtally_group previous;
};
#define MEMTALLY_PASTE_(a, b) a##b
#define MEMTALLY_NAME_(line)  MEMTALLY_PASTE_(memtally_scope_at_, line)
#define MEMTALLY_SCOPE(group) memtally_scope_ MEMTALLY_NAME_(__LINE__)(group)
extern "C" {
#endif

#endif /* MEMTALLY_NO_FUNCTIONS */

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif
