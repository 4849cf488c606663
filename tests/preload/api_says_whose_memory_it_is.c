/* SPDX-License-Identifier: MIT */
/* memtally.h: groups, limits, external memory, callbacks, events. */
#include <poll.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "preload/memtally.h"
#include "tests/preload/count.h"

#define MIB (UINT64_C(1) << 20)

static struct memtally_usage usage_of(memtally_group group)
{
	struct memtally_usage usage;

	must(memtally_usage(group, &usage, sizeof(usage)) == 0);
	return usage;
}

static void expect_bytes(const char *what, uint64_t got, uint64_t want,
			 uint64_t slack)
{
	if (got < want || got > want + slack)
		fail("%s: %lu, not %lu", what, (unsigned long)got,
		     (unsigned long)want);
}

static void *volatile kept;

static void groups(memtally_group cache)
{
	memtally_group again = memtally_group_get("cache");
	uint64_t before = usage_of(cache).charged;

	must(cache != 0 && again == cache);
	must(memtally_group_get("/") == 0);
	{
		MEMTALLY_SCOPE(cache);
		kept = malloc(8 * MIB);
		memset(kept, 1, 8 * MIB);
	}
	expect_bytes("scope", usage_of(cache).charged - before, 8 * MIB, MIB);
	/* Outside of the scope it is not its memory any more. */
	before = usage_of(cache).charged;
	free(malloc(4 * MIB));
	expect_bytes("after the scope", usage_of(cache).charged, before, 0);
	free(kept);
}

static void limits(memtally_group outside)
{
	must(memtally_limit_set(outside, MEMTALLY_MAX, 10 * MIB + 5) == 0);
	must(usage_of(outside).max == 10 * MIB);
	must(usage_of(outside).high == MEMTALLY_UNLIMITED);
	must(memtally_limit_set(outside, (enum memtally_limit)9, 1) == -EINVAL);
	must(memtally_limit_set(12345678, MEMTALLY_MAX, 1) == -ENOENT);

	must(memtally_charge(outside, 6 * MIB - 1) == 0);
	expect_bytes("charge", usage_of(outside).charged, 6 * MIB, 0);
	expect_bytes("headroom", memtally_headroom(outside), 4 * MIB, 0);
	must(memtally_charge(outside, 5 * MIB) == -ENOMEM);
	must(memtally_charge(outside, UINT64_MAX) == -ENOMEM);
	expect_bytes("refused", usage_of(outside).charged, 6 * MIB, 0);
	must(usage_of(outside).events[2] >= 1);
	/* To the last page. */
	must(memtally_charge(outside, 4 * MIB) == 0);
	must(memtally_headroom(outside) == 0);
	must(memtally_charge(outside, 1) == -ENOMEM);
	memtally_uncharge(outside, 6 * MIB - 1);
	memtally_uncharge(outside, 4 * MIB);
	expect_bytes("all back", usage_of(outside).charged, 0, 0);
	must(memtally_limit_set(outside, MEMTALLY_MAX, MEMTALLY_UNLIMITED) ==
	     0);
	must(usage_of(outside).max == MEMTALLY_UNLIMITED);
}

struct stash {
	memtally_group group;
	uint64_t held;
	unsigned calls;
	unsigned inside;
};

static uint64_t let_go(uint64_t want, void *arg)
{
	struct stash *stash = arg;
	uint64_t bytes = want < stash->held ? want : stash->held;

	must(stash->inside++ == 0);
	stash->calls++;
	memtally_uncharge(stash->group, bytes);
	stash->held -= bytes;
	stash->inside--;
	return bytes;
}

static uint64_t never(uint64_t want, void *arg)
{
	(void)want;
	(void)arg;
	fail("the dear one was called, and the cheap one had enough");
}

static void callbacks(memtally_group group)
{
	struct stash stash = { group, 8 * MIB, 0, 0 };

	must(memtally_limit_set(group, MEMTALLY_MAX, 10 * MIB) == 0);
	must(memtally_charge(group, stash.held) == 0);
	must(memtally_reclaim_add(group, never, NULL, 9) == 0);
	must(memtally_reclaim_add(group, let_go, &stash, 1) == 0);
	/* 3 MiB fit only when the stash lets go of one. */
	must(memtally_charge(group, 3 * MIB) == 0);
	must(stash.calls == 1 && stash.held < 8 * MIB);
	expect_bytes("after the call", usage_of(group).charged,
		     stash.held + 3 * MIB, 0);
	memtally_reclaim_del(group, never, NULL);
	memtally_reclaim_del(group, let_go, &stash);
	must(memtally_charge(group, 8 * MIB) == -ENOMEM);
	must(stash.calls == 1);
	memtally_uncharge(group, stash.held + 3 * MIB);
	must(memtally_limit_set(group, MEMTALLY_MAX, MEMTALLY_UNLIMITED) == 0);
}

/* Begun anew by the reader, and not for others: a child has its own. */
static void peaks(memtally_group group)
{
	int status;
	pid_t child;

	must(memtally_charge(group, 8 * MIB) == 0);
	memtally_uncharge(group, 7 * MIB);
	must(usage_of(group).peak == 8 * MIB);
	must(memtally_peak_reset(group) == 0);
	must(usage_of(group).peak == MIB);
	child = fork();
	if (child == 0) {
		/* It must be counted before it has a view of its own. */
		must(memtally_charge(memtally_group_get("/other"), 1) == 0);
		must(usage_of(group).peak == 8 * MIB);
		must(memtally_peak_reset(group) == 0);
		_exit(usage_of(group).peak == MIB ? 0 : 1);
	}
	must(waitpid(child, &status, 0) == child && status == 0);
	must(memtally_charge(group, 2 * MIB) == 0);
	memtally_uncharge(group, 3 * MIB);
	must(usage_of(group).peak == 3 * MIB);
	must(memtally_peak_reset(12345) == -ENOENT);
}

static void moves(memtally_group from, memtally_group to)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	memtally_group previous = memtally_enter(from);
	char *p = mmap(NULL, 10 * page, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memtally_leave(previous);
	must(p != MAP_FAILED);
	expect_bytes("before", usage_of(from).charged, 10 * page, 0);
	must(memtally_move(p + 2 * page, 3 * page, to) == 0);
	expect_bytes("left", usage_of(from).charged, 7 * page, 0);
	expect_bytes("moved", usage_of(to).charged, 3 * page, 0);
	/* Again, and with what isn't mapped behind it: nothing changes. */
	must(memtally_move(p + 2 * page, 3 * page, to) == 0);
	must(memtally_move(p + 2 * page, page / 2, 54321) == -ENOENT);
	must(memtally_move(p + 1, page, to) == -EINVAL);
	must(memtally_move(p, 0, to) == -EINVAL);
	expect_bytes("still", usage_of(to).charged, 3 * page, 0);
	/* Each page goes back to where it is charged. */
	must(munmap(p, 10 * page) == 0);
	expect_bytes("gone", usage_of(from).charged, 0, 0);
	expect_bytes("gone, too", usage_of(to).charged, 0, 0);
}

static bool readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint64_t count;

	if (poll(&p, 1, 0) != 1)
		return false;
	must(read(fd, &count, sizeof(count)) == sizeof(count));
	return true;
}

static void events(memtally_group group)
{
	int max = memtally_event_fd(group, MEMTALLY_EVENT_MAX);
	int mark = memtally_event_fd(group, MEMTALLY_EVENT_THRESHOLD);
	int file;

	must(max >= 0 && mark >= 0);
	must(memtally_event_fd(group, 0) == -EINVAL);
	must(memtally_threshold_add(group, 4 * MIB, "four") == 0);
	must(memtally_threshold_add(group, 0, "none") == -EINVAL);
	must(!readable(max) && !readable(mark));

	must(memtally_charge(group, 3 * MIB) == 0 && !readable(mark));
	must(memtally_charge(group, MIB) == 0 && readable(mark));
	must(memtally_charge(group, MIB) == 0 && !readable(mark));
	memtally_uncharge(group, 2 * MIB);
	must(readable(mark) && !readable(max));

	must(memtally_limit_set(group, MEMTALLY_MAX, 4 * MIB) == 0);
	must(memtally_charge(group, 2 * MIB) == -ENOMEM);
	memtally_uncharge(group, 3 * MIB);
	must(readable(max));

	/* Closed, and the number is a file's: nothing is written there. */
	close(max);
	file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	if (file == max) {
		must(memtally_charge(group, 5 * MIB) == -ENOMEM);
		memtally_uncharge(group, 0);
		free(malloc(MIB));
		must(lseek(file, 0, SEEK_END) == 0);
	}
}

int main(void)
{
	must(getenv("MEMTALLY_SESSION"));
	groups(memtally_group_get("cache"));
	limits(memtally_group_get("outside"));
	callbacks(memtally_group_get("/stash"));
	peaks(memtally_group_get("/peaks"));
	moves(memtally_group_get("/from"), memtally_group_get("/to"));
	events(memtally_group_get("events"));
	return 0;
}
