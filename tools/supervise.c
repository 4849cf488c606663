/* SPDX-License-Identifier: MIT */
/*
 * supervise.c - one epoll loop: the command, signals, and a descriptor for each
 * process of the session that says when it is gone.
 *
 * New processes bump a word of the segment; a thread waits on it as on a
 * futex and wakes the loop.
 */
#include "tools/supervise.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/atomic.h"
#include "core/audit.h"
#include "core/group.h"
#include "core/process.h"
#include "core/reclaim.h"
#include "tools/dirty.h"
#include "tools/model.h"
#include "tools/proc.h"

/* Should an event be missed, the table is looked over this often. */
#define LOOK_MS 200

/* What an event is of: these two, or the slot that it carries. */
#define SIGNALS UINT32_MAX
#define JOINS   (UINT32_MAX - 1)

struct watch {
	struct mt_session *session;
	struct mt_process_facts self;
	pid_t child;
	int status; /* of the child */
	bool ended;
	int events; /* epoll's */
	int signals;
	int joins;        /* eventfd: somebody joined */
	int *fds;         /* one for each slot; -1: none */
	uint64_t *states; /* the slot's, when it was first watched */
	uint32_t nr_slots;
};

struct waker {
	struct mt_session *session;
	int fd;
};

void supervise_signals(sigset_t *set)
{
	/* Faults are our own, and these two the terminal's answer to us. */
	static const int kept[] = { SIGSEGV, SIGBUS,  SIGFPE,  SIGILL, SIGTRAP,
				    SIGSYS,  SIGABRT, SIGTTIN, SIGTTOU };

	sigfillset(set);
	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
		sigdelset(set, kept[i]);
}

static void *wait_for_joins(void *arg)
{
	struct waker *waker = arg;
	_Atomic uint32_t *joins = &waker->session->header->joins;

	for (;;) {
		uint32_t seen = load_acquire(joins);
		uint64_t one = 1;

		if (write(waker->fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
			return NULL;
		syscall(SYS_futex, joins, FUTEX_WAIT, seen, NULL, NULL, 0);
	}
}

static void drop(struct watch *watch, uint32_t slot)
{
	/* Its last descriptor closed, it leaves the epoll set by itself. */
	if (watch->fds[slot] >= 0)
		close(watch->fds[slot]);
	watch->fds[slot] = -1;
	watch->states[slot] = 0;
}

/*
 * Take back what a slot's process held, if it is dead.  Who joins reaps too,
 * and may have been first: then the slot is somebody else's, or nobody's.
 */
static void reap(struct watch *watch, uint32_t slot)
{
	uint32_t how = MT_ENDED_EXITED;
	uint64_t state;

	if (mt_process_life(watch->session, slot, watch->self.pid_ns, &state) !=
	    MT_DEAD)
		return;
	if ((pid_t)(state >> 32) == watch->child && watch->ended &&
	    WIFSIGNALED(watch->status))
		how = MT_ENDED_KILLED;
	mt_process_reap(watch->session, slot, state, how);
}

static bool add(struct watch *watch, int fd, uint32_t what)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u32 = what };

	return fd >= 0 && !epoll_ctl(watch->events, EPOLL_CTL_ADD, fd, &event);
}

/* Watch @pid, who has the slot. */
static bool watch_one(struct watch *watch, uint32_t slot, uint32_t pid,
		      uint64_t state)
{
	drop(watch, slot);
	watch->fds[slot] = (int)syscall(SYS_pidfd_open, pid, 0);
	watch->states[slot] = state;
	if (add(watch, watch->fds[slot], slot))
		return true;
	drop(watch, slot);
	return false;
}

/* Watch whoever is in the table and not watched yet. */
static void look(struct watch *watch, bool at_leisure)
{
	uint32_t high = mt_table_high(watch->session, MT_PROCESSES);

	for (uint32_t i = 0; i < high && i < watch->nr_slots; i++) {
		struct mt_process *process = &watch->session->processes[i];
		uint64_t state = load_acquire(&process->state);
		uint32_t pid = (uint32_t)(state >> 32);
		uint64_t ns = load_relaxed(&process->pid_ns);

		if ((state & 0xff) != MT_PROC_LIVE)
			continue;
		if (watch->states[i] == state && watch->fds[i] >= 0) {
			mt_process_pass_signal(watch->session, i, state,
					       watch->fds[i]);
			continue;
		}
		if (ns == watch->self.pid_ns) {
			/* No descriptor to be had: it is looked at now and
			 * then. */
			if (!watch_one(watch, i, pid, state))
				reap(watch, i);
		} else if (at_leisure || watch->states[i] != state) {
			/* It costs a look at all of /proc: when it is new, and
			 * when there is time. */
			pid = proc_find(pid, ns);
			if (!pid || load_acquire(&process->state) != state)
				drop(watch, i);
			else if (watch_one(watch, i, pid, state))
				mt_process_pass_signal(watch->session, i, state,
						       watch->fds[i]);
			watch->states[i] = state;
		}
	}
}

/* The process that was watched in this slot has ended. */
static void take_end(struct watch *watch, uint32_t slot)
{
	uint64_t state = watch->states[slot];

	/* Of another namespace: core can't see it, but we have seen its end. */
	if (load_relaxed(&watch->session->processes[slot].pid_ns) !=
	    watch->self.pid_ns)
		mt_process_reap(watch->session, slot, state, MT_ENDED_EXITED);
	else
		reap(watch, slot);
	/* It stays readable: it would wake us for ever. */
	drop(watch, slot);
}

static void wait_for_children(struct watch *watch)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
		if (pid != watch->child)
			continue;
		if (WIFSTOPPED(status)) {
			/* As if it were us: the shell sees a stopped job. */
			raise(SIGSTOP);
			kill(watch->child, SIGCONT);
			continue;
		}
		watch->status = status;
		watch->ended = true;
	}
}

static void take_signals(struct watch *watch)
{
	struct signalfd_siginfo info;

	while (read(watch->signals, &info, sizeof(info)) ==
	       (ssize_t)sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			continue;
		/*
		 * What the terminal sent went to the whole foreground group:
		 * the child has it already.  What the kernel sends for a deed
		 * of ours (SIGPIPE) has our own pid.
		 */
		if (info.ssi_code <= 0 && !watch->ended &&
		    (pid_t)info.ssi_pid != getpid())
			kill(watch->child, (int)info.ssi_signo);
	}
	wait_for_children(watch);
}

static int open_watch(struct watch *watch)
{
	struct rlimit files;
	sigset_t set;

	watch->nr_slots = watch->session->header->tables[MT_PROCESSES].capacity;
	watch->fds = calloc(watch->nr_slots, sizeof(*watch->fds));
	watch->states = calloc(watch->nr_slots, sizeof(*watch->states));
	if (!watch->fds || !watch->states)
		return -ENOMEM;
	for (uint32_t i = 0; i < watch->nr_slots; i++)
		watch->fds[i] = -1;
	/* A descriptor for each process: as many as we may have. */
	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	supervise_signals(&set);
	watch->events = epoll_create1(EPOLL_CLOEXEC);
	watch->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	watch->joins = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!add(watch, watch->signals, SIGNALS))
		return -errno;
	add(watch, watch->joins, JOINS);
	return 0;
}

static void start_waker(struct watch *watch)
{
	static struct waker waker;
	pthread_t thread;

	waker.session = watch->session;
	waker.fd = watch->joins;
	if (!pthread_create(&thread, NULL, wait_for_joins, &waker))
		pthread_detach(thread);
}

static void take_event(struct watch *watch, uint32_t what)
{
	uint64_t count;

	if (what == SIGNALS) {
		take_signals(watch);
	} else if (what == JOINS) {
		if (read(watch->joins, &count, sizeof(count)) > 0)
			look(watch, false);
	} else {
		take_end(watch, what);
	}
}

/* What the dead left of an operation goes; not without end where somebody is
 * stopped inside one. */
static void repair(struct mt_session *session)
{
	static struct mt_audit_scratch scratch;
	static time_t last;
	struct timespec now;
	int64_t pages;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (!mt_audit_is_due(session) || now.tv_sec == last)
		return;
	last = now.tv_sec;
	mt_audit(session, &scratch, &pages);
}

/* Does any group have a limit for what is dirty? */
static bool any_dirty_max(struct mt_session *session)
{
	uint32_t high = mt_table_high(session, MT_GROUPS);

	for (uint32_t i = 0; i < high; i++) {
		if (load_relaxed(&session->groups[i].dirty_max) <
			    MT_UNLIMITED &&
		    mt_group_is_live(session, i))
			return true;
	}
	return false;
}

/* Once a second, and only where somebody wants it: say how much is dirty, and
 * ask who is above the limit to write it back. */
static void look_at_dirty(struct mt_session *session)
{
	static time_t last;
	struct timespec now;
	struct model model;
	struct dirty *dirty;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (now.tv_sec == last || !any_dirty_max(session))
		return;
	last = now.tv_sec;
	if (model_load_quick(&model, session->path))
		return;
	dirty = calloc(model.nr_groups + 1, sizeof(*dirty));
	if (dirty)
		dirty_read(&model, dirty, false);
	for (uint32_t i = 0; dirty && i < model.nr_groups; i++) {
		struct mt_group *g = &session->groups[i];
		int64_t max = load_relaxed(&g->dirty_max);

		if (max >= MT_UNLIMITED || !model.groups[i].used)
			continue;
		store_relaxed(&g->dirty, dirty[i].dirty);
		if (dirty[i].dirty > max)
			mt_want_write_back(session, i);
	}
	free(dirty);
	model_free(&model);
}

static void reap_all(struct watch *watch)
{
	uint32_t high = mt_table_high(watch->session, MT_PROCESSES);

	for (uint32_t i = 0; i < high && i < watch->nr_slots; i++)
		reap(watch, i);
	mt_process_reap_dead(watch->session, watch->self.pid_ns, UINT32_MAX);
}

int supervise(struct mt_session *session, pid_t child)
{
	struct watch watch = { .session = session, .child = child };

	mt_process_facts(&watch.self);
	if (open_watch(&watch)) {
		/* Without it there is still the command to wait for. */
		while (waitpid(child, &watch.status, 0) < 0 && errno == EINTR)
			;
		return watch.status;
	}
	start_waker(&watch);
	wait_for_children(&watch);
	look(&watch, true);
	for (unsigned idle = 0; !watch.ended;) {
		struct epoll_event events[64];
		int n = epoll_wait(watch.events, events, MT_ARRAY_SIZE(events),
				   LOOK_MS);

		if (n <= 0) {
			look(&watch, ++idle % 16 == 0);
			mt_process_reap_dead(session, watch.self.pid_ns, 16);
		}
		for (int i = 0; i < n; i++)
			take_event(&watch, events[i].data.u32);
		repair(session);
		look_at_dirty(session);
	}
	/* The command has been waited for: its own slot first.  Where a whole
	 * group was killed, the rest of it needs another moment. */
	for (int tries = 0; tries < 100; tries++) {
		reap_all(&watch);
		if (!WIFSIGNALED(watch.status) ||
		    WTERMSIG(watch.status) != SIGKILL ||
		    !load_relaxed(&session->header->nr_live))
			break;
		usleep(2000);
	}
	for (uint32_t i = 0; i < watch.nr_slots; i++)
		drop(&watch, i);
	close(watch.events);
	close(watch.signals);
	free(watch.fds);
	free(watch.states);
	return watch.status;
}
