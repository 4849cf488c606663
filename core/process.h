/* SPDX-License-Identifier: MIT */
/*
 * process.h - who takes part: joining, dying, and taking back what the dead
 * held.
 *
 * Who is dead.  The pid is gone; or it is a zombie without a living thread;
 * or it belongs to a process that started after the slot was taken (pids are
 * reused).  Only a process of the same pid namespace may judge by pid.
 *
 * Slots are taken lowest first, so the table in use stays short: looking a
 * pid up among a thousand costs less than a thousandth of a start.
 */
#ifndef MT_CORE_PROCESS_H
#define MT_CORE_PROCESS_H

#include "core/task.h"

enum mt_life { MT_ALIVE, MT_DEAD, MT_CANNOT_TELL };

/* The facts a process joins with. */
struct mt_process_facts {
	uint32_t pid;    /* in its own namespace */
	uint64_t pid_ns; /* inode of /proc/self/ns/pid; 0: unknown */
	uint64_t now_ns; /* CLOCK_BOOTTIME */
	uint32_t parent_pid;
	char comm[16];
};

/* Read this process's facts.  Where there is no /proc, its pid namespace is
 * what an ancestor read. */
void mt_process_facts(struct mt_process_facts *ret_facts);

/* Called by every process that forks, and by every forked one: the first in a
 * new pid namespace forgets what its ancestors read. */
void mt_process_forget_ns(bool forked);

/**
 * mt_process_join - take a slot
 * @ret_process: its index
 *
 * A slot that this pid holds already is its own from before an exec, or a
 * dead namesake's: what it held is taken back first.
 *
 * Return: 0, or -ENOSPC.
 */
int mt_process_join(struct mt_session *session,
		    const struct mt_process_facts *facts,
		    uint32_t *ret_process);

/**
 * mt_process_make_home - make a process's default group
 *
 * By the session's flags: /COMM.PID, /COMM, or "/" itself; @path, if not
 * NULL, overrides.  Stores it in the slot.
 *
 * Return: the group; an ancestor when it can't be had.
 */
uint32_t mt_process_make_home(struct mt_session *session, uint32_t process,
			      const char *path);

/* Inode of this process's pid namespace; where there is no /proc, what an
 * ancestor read; 0: unknown. */
uint64_t mt_process_pid_ns(void);

/**
 * mt_process_pid_life - is a process there that had this pid at a moment?
 * @pid: in the caller's own namespace
 * @since_ns: that moment, CLOCK_BOOTTIME; 0: not known, any such pid will do
 */
enum mt_life mt_process_pid_life(uint32_t pid, uint64_t since_ns);

/**
 * mt_process_leaving - this process is about to exec what can't join
 * @name: of the new program as the kernel will call it; NULL: it failed
 *
 * The new image won't empty the slot of the old: an onlooker does, who sees
 * that the process has that name.  A process that is called so already keeps
 * its pages until it ends.
 */
void mt_process_leaving(struct mt_session *session, uint32_t process,
			const char *name);

/* The slot in which @pid of namespace @pid_ns lives, or MT_NONE. */
uint32_t mt_process_find(struct mt_session *session, uint32_t pid,
			 uint64_t pid_ns);

/**
 * mt_process_life - is the process in this slot there?
 * @pid_ns: the caller's own
 * @ret_state: the slot's state word that was judged, for mt_process_reap()
 */
enum mt_life mt_process_life(struct mt_session *session, uint32_t process,
			     uint64_t pid_ns, uint64_t *ret_state);

/**
 * mt_process_reap - take back what a dead process held
 * @state: the slot's state word when it was seen dead
 * @how: MT_ENDED_*
 *
 * Does nothing when the slot has changed since.  Any number of callers at
 * once are harmless; one of them does it.  Frees the slot, removes its
 * mapping table and retires its group.
 *
 * Return: true if this call did it.
 */
bool mt_process_reap(struct mt_session *session, uint32_t process,
		     uint64_t state, uint32_t how);

/**
 * mt_process_reap_dead - reap every process seen dead
 * @pid_ns: the caller's own
 * @most: look at no more than this many live slots (they go round)
 *
 * Return: how many were reaped.
 */
unsigned mt_process_reap_dead(struct mt_session *session, uint64_t pid_ns,
			      unsigned most);

/**
 * mt_process_signal - send a signal to a process of the session
 * @state: of its slot, as it was seen LIVE
 * @pid_ns: the caller's own
 *
 * What lives in another pid namespace is left to the supervisor.  Never hits
 * another process that has the pid by now.
 *
 * Return: 0 sent; -EINPROGRESS the supervisor was asked; -ESRCH it is gone;
 * -EXDEV out of reach, and there is no supervisor; other -errno.
 */
int mt_process_signal(struct mt_session *session, uint32_t process,
		      uint64_t state, uint64_t pid_ns, int signal);

/* For the supervisor, who has a pidfd of the process in this slot: send what
 * it was asked to send. */
void mt_process_pass_signal(struct mt_session *session, uint32_t process,
			    uint64_t state, int pidfd);

/* Pages that a process holds in @group and below it, stocks left out. */
int64_t mt_process_charged_below(struct mt_session *session, uint32_t process,
				 uint32_t group);

/* Pages that a process holds, stocks left out: all kinds, or one. */
int64_t mt_process_charged(struct mt_session *session, uint32_t process);
int64_t mt_process_charged_kind(struct mt_session *session, uint32_t process,
				enum mt_kind kind);

#endif
