/* SPDX-License-Identifier: MIT */
/*
 * account.c - this process's place in the session, and its threads'.
 *
 * All that says "who am I" lies in memory that the kernel wipes on fork and
 * on a raw clone, and keeps on vfork: a child finds zeros and knows by that,
 * without any handler having run, that it is a new process.  It joins at its
 * first charge; most children exec before that and never pay for it.
 *
 * A thread's state is claimed by the address of its thread-local variable,
 * so that a wiped or recycled one is never mistaken for its own.
 */
#include "preload/account.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/atomic.h"
#include "core/counter.h"
#include "core/group.h"
#include "core/process.h"
#include "core/sys.h"
#include "preload/api.h"
#include "preload/heap.h"
#include "preload/init.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

MT_TLS uint8_t mt_flags;
MT_TLS uint32_t mt_refuser;
MT_TLS int64_t mt_refused;

/* A thread's own. */
struct seat {
	_Alignas(128) _Atomic uintptr_t owner; /* address of its my_seat */
	struct mt_task task;
};

#define NR_SEATS 8192

enum { NOT_JOINED, JOINING, JOINED, NO_ROOM };

/* In wipe-on-fork memory. */
struct self {
	_Atomic uint64_t mark;
	_Atomic uint32_t state;
	uint32_t process;
	uint32_t home;
	_Atomic uint32_t next_seat;
	/* Charged while nobody could be charged, by kind. */
	_Atomic int64_t pending[MT_NR_KINDS];
	_Atomic uint32_t has_pending;
	struct seat shared; /* for threads without a seat of their own */
	struct seat seats[NR_SEATS];
};

static struct self *self;
static struct mt_session session;

enum { BEFORE_START, STARTING, COUNTING, ASIDE };
static _Atomic uint32_t phase;

/* Before there is a struct self. */
static _Atomic int64_t early[MT_NR_KINDS];

static MT_TLS struct seat *my_seat;
static MT_TLS uint32_t my_group; /* entered group + 1; 0: MT_HOME */
static MT_TLS uint8_t my_exits;  /* destructor rounds seen; 255: over */

static pthread_key_t exit_key;
static _Atomic uint32_t exit_key_made;
#define EXIT_ROUNDS 3

static char home_path[1024];

static void *wiped_memory(size_t size)
{
	void *p =
		mt_sys_mmap(NULL, size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (mt_sys_is_error(p))
		return NULL;
	if (mt_sys_madvise(p, size, MADV_WIPEONFORK)) {
		mt_sys_munmap(p, size);
		return NULL;
	}
	return p;
}

static void pend(enum mt_kind kind, int64_t pages)
{
	if (!self) {
		fetch_add_relaxed(&early[kind], pages);
		return;
	}
	fetch_add_relaxed(&self->pending[kind], pages);
	store_release(&self->has_pending, 1);
}

static void leave_seat(struct seat *seat)
{
	mt_task_detach(&session, &seat->task);
	memset(&seat->task, 0, sizeof(seat->task));
	store_release(&seat->owner, 0);
}

/* The thread ends.  Other destructors may still allocate: come last. */
static void thread_exits(void *arg)
{
	if (++my_exits < EXIT_ROUNDS && !pthread_setspecific(exit_key, arg))
		return;
	mt_heap_thread_exit();
	my_exits = 255;
	if (my_seat && load_relaxed(&my_seat->owner) == (uintptr_t)&my_seat)
		leave_seat(my_seat);
	my_seat = NULL;
}

static struct mt_task *shared_task(void)
{
	self->shared.task.process = self->process + 1;
	return &self->shared.task;
}

static MT_COLD struct mt_task *take_seat(void)
{
	uint32_t start;

	if (my_exits == 255)
		return shared_task();
	start = load_relaxed(&self->next_seat);
	for (uint32_t n = 0; n < NR_SEATS; n++) {
		uint32_t i = (start + n) % NR_SEATS;
		struct seat *seat = &self->seats[i];
		uintptr_t none = 0;

		if (load_relaxed(&seat->owner) ||
		    !cas_seq_cst(&seat->owner, &none, (uintptr_t)&my_seat))
			continue;
		store_relaxed(&self->next_seat, n < 64 ? 0 : i + 1);
		mt_task_attach(&session, &seat->task, self->process,
			       (uint32_t)mt_sys_gettid());
		my_seat = seat;
		if (load_relaxed(&exit_key_made))
			pthread_setspecific(exit_key, seat);
		return &seat->task;
	}
	return shared_task();
}

static inline struct mt_task *my_task(void)
{
	struct seat *seat = my_seat;

	if (likely(seat && load_relaxed(&seat->owner) == (uintptr_t)&my_seat))
		return &seat->task;
	return take_seat();
}

static inline uint32_t resolve(uint32_t group)
{
	return group == MT_HOME ? self->home : group;
}

static void flush_pending(void)
{
	store_release(&self->has_pending, 0);
	for (int k = 0; k < MT_NR_KINDS; k++) {
		int64_t pages = exchange_seq_cst(&self->pending[k], 0);

		if (pages > 0)
			mt_charge_forced(&session, my_task(), self->home,
					 (enum mt_kind)k, pages);
		else if (pages < 0)
			mt_uncharge(&session, my_task(), self->home,
				    (enum mt_kind)k, -pages);
	}
}

static void join(void)
{
	struct mt_process_facts facts;
	uint32_t process;
	uint32_t home;

	mt_process_facts(&facts);
	if (mt_process_join(&session, &facts, &process)) {
		fetch_add_relaxed(&session.header->fallbacks, 1);
		store_release(&self->state, NO_ROOM);
		return;
	}
	home = mt_process_make_home(&session, process, home_path);
	/* Threads that find no slot of their own must find this. */
	if (!mt_task_ensure_line(&session, process, home)) {
		home = MT_ROOT;
		store_relaxed(&session.processes[process].home, home);
	}
	self->process = process;
	self->home = home;
	store_release(&self->state, JOINED);
	flush_pending();
	mt_process_reap_dead(&session, facts.pid_ns, 2);
}

/*
 * Is this process in the session?  A new one joins now, whatever the context:
 * nothing in it allocates, locks or sleeps.
 */
static MT_COLD bool join_or_wait(void)
{
	uint32_t state = NOT_JOINED;

	if (mt_flags & MT_INSIDE)
		return false; /* a handler, or a hook, inside the join */
	if (cas_seq_cst(&self->state, &state, JOINING)) {
		mt_flags |= MT_INSIDE;
		join();
		mt_flags &= (uint8_t)~MT_INSIDE;
	}
	/* Two threads of a new process at once: a few microseconds. */
	while (load_acquire(&self->state) == JOINING)
		mt_sys_yield();
	return load_acquire(&self->state) == JOINED;
}

static inline bool joined(void)
{
	if (likely(self && load_acquire(&self->state) == JOINED))
		return true;
	if (load_acquire(&phase) != COUNTING)
		return false;
	return join_or_wait();
}

/* Not counted now: will it be? */
static bool will_count(void)
{
	uint32_t now = load_acquire(&phase);

	if (now == ASIDE)
		return false;
	return !(now == COUNTING && load_acquire(&self->state) == NO_ROOM);
}

static inline bool is_asked(void)
{
	const struct mt_process *me = &session.processes[self->process];

	return load_relaxed(&me->asked) != load_relaxed(&me->answered);
}

void mt_account_look(void)
{
	if (likely(self && load_acquire(&self->state) == JOINED) &&
	    unlikely(is_asked()))
		mt_flags |= MT_LATER;
}

bool mt_account_charge(uint32_t group, enum mt_kind kind, int64_t pages)
{
	struct mt_task *task;

	if (unlikely(group == MT_NOBODY))
		return true;
	if (unlikely(!joined())) {
		if (will_count())
			pend(kind, pages);
		return true;
	}
	if (unlikely(load_relaxed(&self->has_pending)))
		flush_pending();
	task = my_task();
	if (unlikely(!mt_charge(&session, task, resolve(group), kind, pages,
				&mt_refuser))) {
		mt_refused = pages;
		mt_flags |= MT_REFUSED;
		return false;
	}
	if (unlikely(task->over_pages || is_asked()))
		mt_flags |= MT_LATER;
	if (unlikely(load_relaxed(&mt_api_watches)))
		mt_api_look();
	return true;
}

void mt_account_charge_forced(uint32_t group, enum mt_kind kind, int64_t pages)
{
	if (unlikely(group == MT_NOBODY))
		return;
	if (likely(joined()))
		mt_charge_forced(&session, my_task(), resolve(group), kind,
				 pages);
	else if (will_count())
		pend(kind, pages);
}

void mt_account_uncharge(uint32_t group, enum mt_kind kind, int64_t pages)
{
	if (unlikely(group == MT_NOBODY))
		return;
	if (likely(joined()))
		mt_uncharge(&session, my_task(), resolve(group), kind, pages);
	else if (will_count())
		pend(kind, -pages);
	if (unlikely(load_relaxed(&mt_api_watches)))
		mt_api_look();
}

void mt_account_move(uint32_t from, enum mt_kind from_kind, uint32_t to,
		     enum mt_kind to_kind, int64_t pages)
{
	if (unlikely(from == MT_NOBODY || to == MT_NOBODY)) {
		mt_account_charge_forced(to, to_kind, pages);
		mt_account_uncharge(from, from_kind, pages);
	} else if (likely(joined())) {
		mt_move_charge(&session, my_task(), resolve(from), from_kind,
			       resolve(to), to_kind, pages);
	} else if (will_count()) {
		pend(from_kind, -pages);
		pend(to_kind, pages);
	}
}

void mt_account_metadata(int64_t pages)
{
	static _Atomic int64_t total;
	int64_t now = fetch_add_relaxed(&total, pages) + pages;

	if (self && load_acquire(&self->state) == JOINED)
		store_relaxed(&session.processes[self->process].metadata,
			      (uint64_t)now);
}

uint64_t mt_account_stack_begin(uint32_t pages)
{
	if (!self || load_acquire(&self->state) != JOINED)
		return 0;
	fetch_add_relaxed(&session.processes[self->process].stacks, pages);
	return mt_account_mark();
}

void mt_account_stack_end(uint32_t pages, uint64_t mark)
{
	/* Not in a forked child, which has its own count. */
	if (mark && self && load_acquire(&self->state) == JOINED &&
	    mark == mt_account_mark())
		fetch_add_relaxed(&session.processes[self->process].stacks,
				  0 - pages);
}

struct mt_task *mt_account_task(void)
{
	return my_task();
}

uint32_t mt_account_resolve(uint32_t group)
{
	return resolve(group);
}

uint32_t mt_account_current(void)
{
	return my_group ? my_group - 1 : MT_HOME;
}

void mt_account_enter(uint32_t group)
{
	my_group = group == MT_HOME ? 0 : group + 1;
	mt_heap_enter(group);
}

uint64_t mt_account_mark(void)
{
	static _Atomic uint64_t before_start = 1;
	uint64_t mark;

	if (!self)
		return load_relaxed(&before_start);
	mark = load_relaxed(&self->mark);
	if (likely(mark))
		return mark;
	/* A new process: no number that any ancestor had. */
	mark = 0;
	cas_seq_cst(&self->mark, &mark,
		    (uint64_t)mt_sys_getpid() << 32 |
			    (mt_sys_clock_ns(CLOCK_MONOTONIC) & 0xfffffffe) |
			    1);
	return load_relaxed(&self->mark);
}

/* Not in a vfork child, which runs in its parent's memory. */
static bool is_self(void)
{
	return load_acquire(&phase) == COUNTING &&
	       load_acquire(&self->state) == JOINED &&
	       load_relaxed(&session.processes[self->process].state) >> 32 ==
		       (uint64_t)mt_sys_getpid();
}

bool mt_account_is_first(void)
{
	/* Slots are taken lowest first. */
	return is_self() && self->process == 0;
}

void mt_account_leaving(const char *name)
{
	if (is_self())
		mt_process_leaving(&session, self->process, name);
}

struct mt_session *mt_account_session(void)
{
	return load_acquire(&phase) == COUNTING ? &session : NULL;
}

uint32_t mt_account_process(void)
{
	return joined() ? self->process : MT_NONE;
}

/* Where and how loud to speak: MEMTALLY_LOG=LEVEL[:FILE]. */
static const char *log_file;
static bool log_off;

void mt_warn(const char *part, ...)
{
	static _Atomic uint32_t lines;
	char text[512] = "memtally: ";
	size_t len = 10;
	va_list ap;
	int fd = 2;

	if (log_off || fetch_add_relaxed(&lines, 1) >= 10)
		return;
	va_start(ap, part);
	for (; part; part = va_arg(ap, const char *)) {
		size_t n = strlen(part);

		n = MT_MIN(n, sizeof(text) - 2 - len);
		memcpy(text + len, part, n);
		len += n;
	}
	va_end(ap);
	text[len++] = '\n';
	if (log_file)
		fd = mt_sys_open(log_file,
				 O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC |
					 O_NOFOLLOW,
				 0600);
	if (fd >= 0)
		mt_sys_write(fd, text, len);
	if (log_file && fd >= 0)
		mt_sys_close(fd);
}

static const char *why(int error)
{
	switch (-error) {
	case ENOENT:
		return "it is gone";
	case EPROTO:
		return "it is of another version of memtally";
	case EINVAL:
		return "it is not a session, or cut short";
	case ELOOP:
		return "it is a symbolic link";
	case ENOSPC:
		return "no memory left there";
	case EPERM:
	case EACCES:
		return "not permitted";
	case EMEDIUMTYPE:
		return "not in memory (tmpfs)";
	case EFBIG:
		return "the file size limit (ulimit -f) is too low";
	case EROFS:
		return "read-only file system";
	default:
		return "it can't be had";
	}
}

/* A session of our own, for a program preloaded by hand. */
static int make_session(char *path)
{
	struct mt_segment_config config = { 0 };
	char name[MT_NAME_MAX] = "";
	struct mt_process_facts facts;
	size_t len;
	int ret;

	mt_process_facts(&facts);
	len = strnlen(facts.comm, 15);
	memcpy(name, facts.comm, len);
	for (size_t i = 0; i < len; i++) {
		if ((unsigned char)name[i] < 0x20 || name[i] == '/' ||
		    name[i] == '@' || name[i] == 0x7f)
			name[i] = '_';
	}
	if (len == 0 || name[0] == '.')
		name[0] = '_';
	name[len ? len : 1] = '.';
	mt_print_number(name + (len ? len : 1) + 1, facts.pid);
	config.name = name;
	config.command = facts.comm;
	ret = mt_place_dir(path, mt_env_get("XDG_RUNTIME_DIR"), true);
	if (ret) {
		mt_warn(path, ": ", why(ret), ": not counting", NULL);
		return ret;
	}
	len = strlen(path);
	path[len++] = '/';
	memcpy(path + len, name, strlen(name) + 1);
	ret = mt_segment_create(&session, path, &config);
	if (ret == -EEXIST) {
		/* A dead namesake's: its pid was reused. */
		mt_syscall3(SYS_unlinkat, AT_FDCWD, path, 0);
		ret = mt_segment_create(&session, path, &config);
	}
	if (ret)
		mt_warn(path, ": ", why(ret), ": not counting", NULL);
	return ret;
}

static int find_session(char *path)
{
	const char *given = mt_env_get("MEMTALLY_SESSION");
	size_t len;
	int ret;

	if (!given || !*given)
		return make_session(path);
	len = strlen(given);
	if (len >= MT_PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(path, given, len + 1);
	ret = mt_segment_attach(&session, path);
	/* Merely inherited from another user: none of our business. */
	if (ret && ret != -EPERM && ret != -EACCES)
		mt_warn(path, ": ", why(ret), ": not counting", NULL);
	return ret;
}

static void read_log_option(void)
{
	const char *option = mt_env_get("MEMTALLY_LOG");
	const char *colon;

	if (!option)
		return;
	colon = strchr(option, ':');
	if (colon && colon[1])
		log_file = colon + 1;
	log_off = strncmp(option, "none", 4) == 0;
}

static bool start(void)
{
	const char *option = mt_env_get("MEMTALLY_DISABLE");
	const char *group = mt_env_get("MEMTALLY_GROUP");
	static char path[MT_PATH_MAX];

	/* A privileged program takes no orders from its environment. */
	if (getauxval(AT_SECURE) || (option && strcmp(option, "1") == 0))
		return false;
	read_log_option();
	self = wiped_memory(sizeof(*self));
	if (!self)
		return false;
	if (find_session(path))
		return false;
	if ((session.header->flags & MT_SESSION_NO_FOLLOW) &&
	    load_relaxed(&session.header->processes_total) > 0) {
		struct mt_process_facts facts;

		/* Only the first process, whatever it execs. */
		mt_process_facts(&facts);
		if (mt_process_find(&session, facts.pid, facts.pid_ns) ==
		    MT_NONE)
			return false;
	}
	if (group && strlen(group) < sizeof(home_path))
		memcpy(home_path, group, strlen(group) + 1);
	for (int k = 0; k < MT_NR_KINDS; k++)
		pend((enum mt_kind)k, exchange_seq_cst(&early[k], 0));
	mt_init_found_session(path);
	return true;
}

bool mt_account_start(void)
{
	uint32_t now = BEFORE_START;

	if (likely(load_acquire(&phase) == COUNTING))
		return joined();
	if (load_acquire(&phase) != BEFORE_START || !mt_env_ready())
		return false;
	if (!cas_seq_cst(&phase, &now, STARTING))
		return false;
	if (!start()) {
		store_release(&phase, ASIDE);
		return false;
	}
	if (!pthread_key_create(&exit_key, thread_exits))
		store_release(&exit_key_made, 1);
	store_release(&phase, COUNTING);
	return joined();
}
