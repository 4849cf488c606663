/* SPDX-License-Identifier: MIT */
/*
 * process.c - joining, dying, reaping.
 */
#include "core/process.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "core/atomic.h"
#include "core/counter.h"
#include "core/group.h"
#include "core/peak.h"
#include "core/sys.h"

#define STATE(word)      ((word)&0xff)
#define GENERATION(word) ((word) >> 8 & 0xffffff)
#define PID(word)        ((uint32_t)((word) >> 32))

/* Ticks of /proc/PID/stat: USER_HZ is 100 on every architecture we know. */
#define TICK_NS UINT64_C(10000000)

static uint64_t state_word(uint64_t state, uint64_t generation, uint32_t pid)
{
	return state | (generation & 0xffffff) << 8 | (uint64_t)pid << 32;
}

/*
 * The pid namespace that was read last, in the low half, and who read it.  A
 * child that can't read its own, in a root without /proc, is in its parent's,
 * unless its parent has no number there: then it began a new one.
 */
static _Atomic uint64_t known_pid_ns;

void mt_process_forget_ns(bool forked)
{
	uint64_t reader = load_relaxed(&known_pid_ns) >> 32;

	if (mt_syscall0(SYS_getppid) == 0 &&
	    (forked || reader != (uint64_t)mt_sys_getpid()))
		store_relaxed(&known_pid_ns, 0);
}

uint64_t mt_process_pid_ns(void)
{
	struct stat st;

	if (mt_syscall4(SYS_newfstatat, AT_FDCWD, "/proc/self/ns/pid", &st,
			0) == 0) {
		store_relaxed(&known_pid_ns, (uint64_t)mt_sys_getpid() << 32 |
						     (uint32_t)st.st_ino);
		return st.st_ino;
	}
	mt_process_forget_ns(false);
	return (uint32_t)load_relaxed(&known_pid_ns);
}

void mt_process_facts(struct mt_process_facts *facts)
{
	memset(facts, 0, sizeof(*facts));
	facts->pid = (uint32_t)mt_sys_getpid();
	facts->parent_pid = (uint32_t)mt_syscall0(SYS_getppid);
	facts->now_ns = mt_sys_clock_ns(CLOCK_BOOTTIME);
	mt_syscall2(SYS_prctl, PR_GET_NAME, facts->comm);
	facts->comm[sizeof(facts->comm) - 1] = '\0';
	facts->pid_ns = mt_process_pid_ns();
}

/* Give back what an operation cut short had, or had yet to take. */
static void repair_op(struct mt_session *session, struct mt_thread *thread)
{
	uint64_t at = load_relaxed(&thread->op_at);
	int64_t pages = exchange_acq_rel(&thread->op_pages, 0);
	uint32_t levels = (uint32_t)(at >> 32);
	uint32_t group = (uint32_t)at;

	if (pages > MT_CHARGE_MAX || pages < -MT_CHARGE_MAX)
		return;
	if (pages > 0 && at != MT_OP_COMMIT) {
		while (levels-- &&
		       mt_counter_is_below(session, group, MT_ROOT)) {
			mt_counter_cancel(session, group, pages);
			group = load_relaxed(&session->groups[group].parent);
		}
	} else if (pages < 0) {
		while (levels-- && mt_counter_is_below(session, group, MT_ROOT))
			group = load_relaxed(&session->groups[group].parent);
		if (mt_counter_is_below(session, group, MT_ROOT))
			mt_counter_uncharge(session, group, -pages, NULL);
	}
}

static void take_threads(struct mt_session *session, uint32_t process)
{
	struct mt_table *table = &session->header->tables[MT_THREADS];
	uint32_t high = mt_table_high(session, MT_THREADS);

	for (uint32_t i = 0; i < high; i++) {
		struct mt_thread *thread = &session->threads[i];
		uint64_t ident = load_acquire(&thread->ident);
		uint64_t seq;

		if ((uint32_t)(ident >> 32) != process + 1)
			continue;
		seq = load_acquire(&thread->seq);
		if (seq & 1) {
			fetch_add_relaxed(&session->header->doubts, 1);
			repair_op(session, thread);
			cas_seq_cst(&thread->seq, &seq, seq + 1);
		}
		if (cas_seq_cst(&thread->ident, &ident, 0) &&
		    i < load_relaxed(&table->hint))
			store_relaxed(&table->hint, i);
	}
}

/* Empty a word; what it held. */
static int64_t take_word(_Atomic uint64_t *word)
{
	uint64_t seen = load_acquire(word);

	while (mt_word_used(seen) || mt_word_stock(seen)) {
		if (cas_weak_seq_cst(word, &seen, mt_word_with(seen, 0, 0)))
			return mt_word_used(seen) + mt_word_stock(seen);
	}
	return 0;
}

static void add_used(_Atomic uint64_t *word, int64_t pages)
{
	uint64_t seen = load_acquire(word);

	while (!cas_weak_seq_cst(word, &seen,
				 mt_word_with(seen, mt_word_used(seen) + pages,
					      mt_word_stock(seen))))
		;
}

/*
 * Take back a word that nobody writes but drainers and other reapers.  The
 * word first and the tree after, or, for a debt that nothing could settle, the
 * tree first: dying in between leaves usage too high.
 */
static int64_t take_back(struct mt_session *session, uint32_t group,
			 _Atomic uint64_t *word)
{
	int64_t used = mt_word_used(load_acquire(word));
	int64_t debt = MT_MAX(-used, 0);
	int64_t held;

	if (debt) {
		mt_counter_charge(session, group, debt, NULL);
		add_used(word, debt);
	}
	held = take_word(word);
	if (held > 0)
		mt_counter_uncharge(session, group, held, NULL);
	return held - debt;
}

/*
 * Settle a negative word against a positive one of the same process and
 * group: pages given back by another thread than took them.  The positive one
 * first, so that the sum never rises above usage.
 */
static void settle_against(_Atomic uint64_t *debt, _Atomic uint64_t *credit)
{
	for (;;) {
		uint64_t word = load_acquire(credit);
		int64_t owed = -mt_word_used(load_acquire(debt));
		int64_t n = MT_MIN(mt_word_used(word), owed);

		if (n <= 0)
			return;
		if (cas_seq_cst(credit, &word,
				mt_word_with(word, mt_word_used(word) - n,
					     mt_word_stock(word))))
			add_used(debt, n);
	}
}

static void settle_word(struct mt_session *session, uint32_t process,
			uint32_t group, _Atomic uint64_t *debt)
{
	uint32_t high = mt_table_high(session, MT_LINES);

	if (mt_word_used(load_acquire(debt)) >= 0)
		return;
	for (uint32_t i = 0; i < high; i++) {
		struct mt_line *line = &session->lines[i];
		uint64_t ident = load_acquire(&line->ident);

		if (!ident || mt_line_process(ident) != process ||
		    mt_line_group(ident) != group)
			continue;
		for (int k = 0; k < MT_NR_KINDS; k++)
			settle_against(debt, &line->word[k]);
	}
	/* The words in its slot are for "/" as well. */
	for (int k = 0; group == MT_ROOT && k < MT_NR_KINDS; k++)
		settle_against(debt, &session->processes[process].word[k]);
}

static int64_t take_lines(struct mt_session *session, uint32_t process)
{
	struct mt_table *table = &session->header->tables[MT_LINES];
	uint32_t high = mt_table_high(session, MT_LINES);
	int64_t total = 0;

	for (int pass = 0; pass < 2; pass++) {
		for (uint32_t i = 0; i < high; i++) {
			struct mt_line *line = &session->lines[i];
			uint64_t ident = load_acquire(&line->ident);

			if (!ident || mt_line_process(ident) != process)
				continue;
			for (int k = 0; k < MT_NR_KINDS; k++) {
				if (pass == 0)
					settle_word(session, process,
						    mt_line_group(ident),
						    &line->word[k]);
				else
					total += take_back(session,
							   mt_line_group(ident),
							   &line->word[k]);
			}
			if (pass == 1 && cas_seq_cst(&line->ident, &ident, 0) &&
			    i < load_relaxed(&table->hint))
				store_relaxed(&table->hint, i);
		}
	}
	return total;
}

/* Everything a dead process held, back to the tree. */
static int64_t empty_ledger(struct mt_session *session, uint32_t index)
{
	struct mt_process *process = &session->processes[index];
	int64_t total;

	if (load_relaxed(&process->slotless) >> 32)
		fetch_add_relaxed(&session->header->doubts, 1);
	take_threads(session, index);
	for (int k = 0; k < MT_NR_KINDS; k++)
		settle_word(session, index, MT_ROOT, &process->word[k]);
	total = take_lines(session, index);
	for (int k = 0; k < MT_NR_KINDS; k++)
		total += take_back(session, MT_ROOT, &process->word[k]);
	mt_peak_forget(session, index);
	return total;
}

/* Its mapping table says where the dead one's memory was: of no use now. */
static void remove_map_file(struct mt_session *session, uint32_t index,
			    uint32_t generation)
{
	char path[MT_PATH_MAX + MT_MAP_SUFFIX];

	if (!exchange_seq_cst(&session->processes[index].map_file, 0))
		return;
	mt_segment_map_path(session, index, generation, path);
	mt_syscall3(SYS_unlinkat, AT_FDCWD, path, 0);
}

static void write_ended(struct mt_ended *ended,
			const struct mt_process *process, uint32_t pid,
			uint32_t how, int64_t left, const char *group)
{
	ended->pid = pid;
	ended->how = how;
	ended->peak = (uint64_t)MT_MAX(load_relaxed(&process->peak), 0);
	ended->left = (uint64_t)MT_MAX(left, 0);
	ended->ended_ns = mt_sys_clock_ns(CLOCK_REALTIME);
	memcpy(ended->comm, process->comm, sizeof(ended->comm));
	memset(ended->group, 0, sizeof(ended->group));
	memcpy(ended->group, group, strnlen(group, sizeof(ended->group) - 1));
}

/* Remember a process if its peak is among the highest. */
static void remember(struct mt_session *session, uint32_t index, uint32_t pid,
		     uint32_t how, int64_t left)
{
	struct mt_process *process = &session->processes[index];
	struct mt_table *table = &session->header->tables[MT_ENDED];
	uint64_t peak = (uint64_t)MT_MAX(load_relaxed(&process->peak), 0);
	uint32_t home = load_relaxed(&process->home);
	const char *group = "";

	if (mt_group_is_live(session, home))
		group = session->groups[home].name;
	fetch_add_relaxed(&session->header->ended_seq, 1);
	/* Another writer in the chosen place: look for the next best. */
	for (int tries = 0; tries < 8; tries++) {
		struct mt_ended *least = NULL;
		uint64_t seq;

		for (uint32_t i = 0; i < table->capacity; i++) {
			struct mt_ended *ended = &session->ended[i];

			if (!mt_segment_back(session, MT_ENDED, i) ||
			    (load_acquire(&ended->seq) & 1))
				continue;
			if (!least || load_acquire(&ended->seq) == 0 ||
			    ended->peak < least->peak)
				least = ended;
			if (load_acquire(&least->seq) == 0)
				break;
		}
		if (!least)
			return;
		seq = load_acquire(&least->seq);
		if (seq && least->peak >= peak)
			return;
		if ((seq & 1) || !cas_seq_cst(&least->seq, &seq, seq + 1))
			continue;
		write_ended(least, process, pid, how, left, group);
		store_release(&least->seq, seq + 2);
		mt_segment_raise_high(session, MT_ENDED,
				      (uint32_t)(least - session->ended));
		return;
	}
}

static void wake_supervisor(struct mt_session *session)
{
	if (load_seq_cst(&session->header->supervisor))
		mt_syscall3(SYS_futex, &session->header->joins, FUTEX_WAKE,
			    INT32_MAX);
}

int mt_process_signal(struct mt_session *session, uint32_t index,
		      uint64_t state, uint64_t pid_ns, int signal)
{
	struct mt_process *process = &session->processes[index];
	int ret;
	int fd;

	if (STATE(state) != MT_PROC_LIVE)
		return -ESRCH;
	if (load_relaxed(&process->pid_ns) != pid_ns) {
		if (!load_seq_cst(&session->header->supervisor))
			return -EXDEV;
		store_seq_cst(&process->signal, (uint32_t)GENERATION(state)
								<< 8 |
							(uint32_t)signal);
		fetch_add_relaxed(&session->header->joins, 1);
		wake_supervisor(session);
		return -EINPROGRESS;
	}
	fd = (int)mt_syscall2(SYS_pidfd_open, PID(state), 0);
	if (fd < 0)
		return fd;
	/* Still that one, now that its pid can't become another's. */
	ret = load_acquire(&process->state) == state
		      ? (int)mt_syscall4(SYS_pidfd_send_signal, fd, signal,
					 NULL, 0)
		      : -ESRCH;
	mt_sys_close(fd);
	return ret;
}

void mt_process_pass_signal(struct mt_session *session, uint32_t index,
			    uint64_t state, int pidfd)
{
	struct mt_process *process = &session->processes[index];
	uint32_t asked = load_acquire(&process->signal);

	if (asked && cas_seq_cst(&process->signal, &asked, 0) &&
	    asked >> 8 == GENERATION(state))
		mt_syscall4(SYS_pidfd_send_signal, pidfd, asked & 0xff, NULL,
			    0);
}

static void fill_slot(struct mt_process *process,
		      const struct mt_process_facts *facts)
{
	store_relaxed(&process->home, MT_NONE);
	store_relaxed(&process->pid_ns, facts->pid_ns);
	store_relaxed(&process->joined_ns, facts->now_ns);
	store_relaxed(&process->start_ticks, 0);
	store_relaxed(&process->usage, 0);
	store_relaxed(&process->peak, 0);
	store_relaxed(&process->slotless, 0);
	store_relaxed(&process->map_file, 0);
	store_relaxed(&process->signal, 0);
	store_relaxed(&process->stacks, 0);
	store_relaxed(&process->metadata, 0);
	store_relaxed(&process->parent_pid, facts->parent_pid);
	store_relaxed(&process->answered, load_relaxed(&process->asked));
	store_byte_relaxed(&process->leaving[0], '\0');
	memset(process->comm, 0, sizeof(process->comm));
	memcpy(process->comm, facts->comm, sizeof(facts->comm));
}

/* Finish a join: the slot is ours, in state JOINING, unless a reaper of
 * another pid namespace took us for dead meanwhile. */
static bool settle_in(struct mt_session *session, uint32_t index,
		      uint64_t joining, const struct mt_process_facts *facts)
{
	struct mt_process *process = &session->processes[index];

	mt_segment_raise_high(session, MT_PROCESSES, index);
	fill_slot(process, facts);
	if (!cas_seq_cst(
		    &process->state, &joining,
		    state_word(MT_PROC_LIVE, GENERATION(joining), facts->pid)))
		return false;
	fetch_add_relaxed(&session->header->processes_total, 1);
	fetch_add_relaxed(&session->header->joins, 1);
	return true;
}

/* An old slot of this very pid: take back what is in it, and keep it. */
static bool take_over(struct mt_session *session, uint32_t index, uint64_t seen,
		      const struct mt_process_facts *facts)
{
	struct mt_process *process = &session->processes[index];
	uint64_t reaping =
		state_word(MT_PROC_REAPING, GENERATION(seen), facts->pid);
	uint64_t joining =
		state_word(MT_PROC_JOINING, GENERATION(seen) + 1, facts->pid);
	uint32_t home;
	int64_t left;

	/* It may have been reaped since it was found, and be another's now. */
	if (PID(seen) != facts->pid ||
	    (STATE(seen) != MT_PROC_LIVE && STATE(seen) != MT_PROC_JOINING) ||
	    !cas_seq_cst(&process->state, &seen, reaping))
		return false;
	left = empty_ledger(session, index);
	remove_map_file(session, index, (uint32_t)GENERATION(reaping));
	if (STATE(seen) == MT_PROC_LIVE)
		remember(session, index, facts->pid, MT_ENDED_EXECED, left);
	home = exchange_seq_cst(&process->home, MT_NONE);
	if (!cas_seq_cst(&process->state, &reaping, joining))
		return false;
	mt_group_retire(session, home);
	return settle_in(session, index, joining, facts);
}

uint32_t mt_process_find(struct mt_session *session, uint32_t pid,
			 uint64_t pid_ns)
{
	uint32_t high = mt_table_high(session, MT_PROCESSES);

	for (uint32_t i = 0; i < high; i++) {
		struct mt_process *process = &session->processes[i];
		uint64_t state = load_acquire(&process->state);

		if (PID(state) == pid &&
		    (STATE(state) == MT_PROC_LIVE ||
		     STATE(state) == MT_PROC_JOINING) &&
		    load_relaxed(&process->pid_ns) == pid_ns)
			return i;
	}
	return MT_NONE;
}

static int take_slot(struct mt_session *session,
		     const struct mt_process_facts *facts,
		     uint32_t *ret_process)
{
	struct mt_table *table = &session->header->tables[MT_PROCESSES];
	uint32_t start = load_relaxed(&table->hint);

	for (uint32_t n = 0; n < table->capacity;) {
		uint32_t i = mt_segment_turn(session, MT_PROCESSES, start, &n);
		struct mt_process *process;
		uint64_t joining;
		uint64_t seen;

		if (i == MT_NONE)
			continue;
		process = &session->processes[i];
		seen = load_relaxed(&process->state);
		joining = state_word(MT_PROC_JOINING, GENERATION(seen) + 1,
				     facts->pid);
		if (STATE(seen) != MT_PROC_FREE ||
		    !cas_seq_cst(&process->state, &seen, joining))
			continue;
		store_relaxed(&table->hint, i + 1);
		fetch_add_relaxed(&session->header->nr_live, 1);
		if (!settle_in(session, i, joining, facts))
			continue;
		*ret_process = i;
		return 0;
	}
	return -ENOSPC;
}

int mt_process_join(struct mt_session *session,
		    const struct mt_process_facts *facts, uint32_t *ret_process)
{
	uint32_t old = mt_process_find(session, facts->pid, facts->pid_ns);
	int ret;

	if (old != MT_NONE &&
	    take_over(session, old,
		      load_acquire(&session->processes[old].state), facts)) {
		*ret_process = old;
		ret = 0;
	} else {
		ret = take_slot(session, facts, ret_process);
	}
	/* Only now, so that whoever waits for joins finds the slot. */
	if (!ret)
		wake_supervisor(session);
	return ret;
}

static size_t print_number(char *buf, uint32_t n)
{
	char digits[12];
	size_t len = 0;

	do {
		digits[len++] = (char)('0' + n % 10);
		n /= 10;
	} while (n);
	for (size_t i = 0; i < len; i++)
		buf[i] = digits[len - 1 - i];
	buf[len] = '\0';
	return len;
}

/* The name of a default group, without what a path can't hold. */
static void default_name(const struct mt_process *process, uint32_t flags,
			 uint32_t pid, char *name)
{
	size_t len = strnlen(process->comm, sizeof(process->comm) - 1);

	memcpy(name, process->comm, len);
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)name[i];

		if (c < 0x20 || c == 0x7f || c == '/')
			name[i] = '_';
	}
	if (len == 0)
		name[len++] = '_';
	name[len] = '\0';
	if ((flags & MT_SESSION_BY_MASK) == MT_SESSION_BY_PROC) {
		name[len++] = '.';
		print_number(name + len, pid);
	} else if (!mt_group_name_ok(name, len)) {
		name[0] = '_';
	}
}

uint32_t mt_process_make_home(struct mt_session *session, uint32_t index,
			      const char *path)
{
	struct mt_process *process = &session->processes[index];
	uint32_t by = session->header->flags & MT_SESSION_BY_MASK;
	uint32_t pid = PID(load_relaxed(&process->state));
	uint32_t last = MT_NONE;

	for (int tries = 0; tries < 16; tries++) {
		uint32_t group = MT_ROOT;
		char name[MT_NAME_MAX];

		if (path && *path) {
			mt_group_make_path(session, MT_ROOT, path, 0, &group);
		} else if (by != MT_SESSION_BY_NONE) {
			uint32_t flags = by == MT_SESSION_BY_PROC
						 ? MT_GROUP_EXCLUSIVE
						 : 0;

			default_name(process, session->header->flags, pid,
				     name);
			if (mt_group_make(session, MT_ROOT, name, flags,
					  &group))
				group = MT_ROOT;
		}
		/* Found again now that it is home, it was there, under its
		 * name, when it became that; and from then on it stays. */
		if (group == last)
			return group;
		store_seq_cst(&process->home, group);
		last = group;
	}
	store_seq_cst(&process->home, MT_ROOT);
	return MT_ROOT;
}

/* The fields of /proc/PID/stat that tell the living from the dead. */
struct stat_fields {
	char comm[16];
	char state;
	uint64_t nr_threads;
	uint64_t start_ticks;
};

/* The name between the first '(' and the last ')', which is at @end. */
static void copy_comm(char *comm, const char *text, size_t end)
{
	size_t at = 0;
	size_t n;

	while (at < end && text[at] != '(')
		at++;
	n = at < end ? MT_MIN(end - at - 1,
			      sizeof(((struct stat_fields *)0)->comm) - 1)
		     : 0;
	memcpy(comm, text + at + 1, n);
	comm[n] = '\0';
}

static bool parse_stat(const char *text, size_t len, struct stat_fields *ret)
{
	size_t at = len;
	int field = 2;

	/* The name may hold anything, so look for its end from behind. */
	while (at > 0 && text[at - 1] != ')')
		at--;
	if (at == 0 || at + 2 >= len)
		return false;
	copy_comm(ret->comm, text, at - 1);
	at++;
	ret->state = text[at];
	for (field = 3; at < len && field < 22;) {
		if (text[at++] != ' ')
			continue;
		field++;
		if (field == 20 || field == 22) {
			uint64_t n = 0;

			while (at < len && text[at] >= '0' && text[at] <= '9')
				n = n * 10 + (uint64_t)(text[at++] - '0');
			if (field == 20)
				ret->nr_threads = n;
			else
				ret->start_ticks = n;
		}
	}
	return field == 22;
}

static bool read_stat(uint32_t pid, struct stat_fields *ret)
{
	char path[32] = "/proc/";
	char text[768];
	ssize_t len;
	int fd;

	memcpy(path + 6 + print_number(path + 6, pid), "/stat", 6);
	fd = mt_sys_open(path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return false;
	len = mt_sys_read(fd, text, sizeof(text));
	mt_sys_close(fd);
	return len > 0 && parse_stat(text, (size_t)len, ret);
}

enum mt_life mt_process_pid_life(uint32_t pid, uint64_t since_ns)
{
	struct stat_fields fields = { 0 };

	if (mt_sys_kill((int)pid, 0) == -ESRCH)
		return MT_DEAD;
	if (!read_stat(pid, &fields))
		return mt_sys_kill((int)pid, 0) == -ESRCH ? MT_DEAD
							  : MT_CANNOT_TELL;
	if ((fields.state == 'Z' || fields.state == 'X') &&
	    fields.nr_threads <= 1)
		return MT_DEAD;
	/*
	 * It was there at that moment, so it started before; whoever has its
	 * pid now and started later is another.  (Within the same tick we err
	 * towards alive.)
	 */
	if (since_ns && fields.start_ticks * TICK_NS > since_ns)
		return MT_DEAD;
	return MT_ALIVE;
}

void mt_process_leaving(struct mt_session *session, uint32_t index,
			const char *name)
{
	struct mt_process *process = &session->processes[index];
	uint32_t pid = PID(load_relaxed(&process->state));
	struct stat_fields now = { 0 };
	size_t len;

	store_byte_relaxed(&process->leaving[0], '\0');
	if (!name || !read_stat(pid, &now))
		return;
	len = strnlen(name, sizeof(now.comm) - 1);
	/* It must make a difference. */
	if (strncmp(now.comm, name, len) == 0 && !now.comm[len])
		return;
	fence_release();
	for (size_t i = 1; i < sizeof(process->leaving); i++)
		store_byte_relaxed(&process->leaving[i],
				   i < len ? name[i] : '\0');
	fence_release();
	store_byte_relaxed(&process->leaving[0], len ? name[0] : '\0');
}

/* Does the process run what it was about to exec? */
static bool has_left(const struct mt_process *process, uint32_t pid)
{
	struct stat_fields now = { 0 };
	char name[sizeof(process->leaving)];

	for (size_t i = 0; i < sizeof(name); i++)
		name[i] = load_byte_relaxed(&process->leaving[i]);
	name[sizeof(name) - 1] = '\0';
	return name[0] && read_stat(pid, &now) &&
	       strncmp(now.comm, name, sizeof(name)) == 0;
}

enum mt_life mt_process_life(struct mt_session *session, uint32_t index,
			     uint64_t pid_ns, uint64_t *ret_state)
{
	struct mt_process *process = &session->processes[index];
	uint64_t state = load_acquire(&process->state);
	uint64_t joined = load_relaxed(&process->joined_ns);
	enum mt_life life;

	*ret_state = state;
	/* JOINING lasts microseconds; its other fields are not there yet. */
	if (STATE(state) != MT_PROC_LIVE && STATE(state) != MT_PROC_REAPING &&
	    STATE(state) != MT_PROC_JOINING)
		return MT_CANNOT_TELL;
	if (STATE(state) == MT_PROC_LIVE &&
	    load_relaxed(&process->pid_ns) != pid_ns)
		return MT_CANNOT_TELL;
	/* It joined after it started. */
	life = mt_process_pid_life(PID(state),
				   STATE(state) == MT_PROC_LIVE ? joined : 0);
	if (life == MT_ALIVE && STATE(state) == MT_PROC_LIVE &&
	    load_byte_relaxed(&process->leaving[0]) &&
	    has_left(process, PID(state)))
		return MT_DEAD;
	return life;
}

bool mt_process_reap(struct mt_session *session, uint32_t index, uint64_t seen,
		     uint32_t how)
{
	struct mt_process *process = &session->processes[index];
	struct mt_table *table = &session->header->tables[MT_PROCESSES];
	uint32_t pid = PID(seen);
	uint64_t reaping;
	uint32_t home;
	int64_t left;

	if (STATE(seen) == MT_PROC_FREE)
		return false;
	reaping = state_word(MT_PROC_REAPING, GENERATION(seen),
			     (uint32_t)mt_sys_getpid());
	if (seen == reaping || !cas_seq_cst(&process->state, &seen, reaping))
		return false;
	/* What its last reaper had in hand when it died. */
	if (STATE(seen) == MT_PROC_REAPING)
		fetch_add_relaxed(&session->header->doubts, 1);
	left = empty_ledger(session, index);
	remove_map_file(session, index, (uint32_t)GENERATION(reaping));
	if (load_byte_relaxed(&process->leaving[0]))
		how = MT_ENDED_EXECED;
	if (STATE(seen) == MT_PROC_LIVE)
		remember(session, index, pid, how, left);
	home = exchange_seq_cst(&process->home, MT_NONE);
	if (!cas_seq_cst(&process->state, &reaping,
			 state_word(MT_PROC_FREE, GENERATION(reaping), 0)))
		return false;
	fetch_add_relaxed(&session->header->nr_live, (uint32_t)-1);
	fetch_add_relaxed(&session->header->reaped, 1);
	if (index < load_relaxed(&table->hint))
		store_relaxed(&table->hint, index);
	mt_group_retire(session, home);
	return true;
}

unsigned mt_process_reap_dead(struct mt_session *session, uint64_t pid_ns,
			      unsigned most)
{
	static _Atomic uint32_t round_robin;
	uint32_t high = mt_table_high(session, MT_PROCESSES);
	uint32_t start = load_relaxed(&round_robin);
	unsigned looked = 0;
	unsigned reaped = 0;
	uint32_t n;

	for (n = 0; n < high && looked < most; n++) {
		uint32_t i = (start + n) % high;
		uint64_t state = load_relaxed(&session->processes[i].state);

		if (STATE(state) == MT_PROC_FREE ||
		    PID(state) == (uint32_t)mt_sys_getpid())
			continue;
		looked++;
		if (mt_process_life(session, i, pid_ns, &state) == MT_DEAD &&
		    mt_process_reap(session, i, state, MT_ENDED_EXITED))
			reaped++;
	}
	store_relaxed(&round_robin, high ? (start + n) % high : 0);
	return reaped;
}

int64_t mt_process_charged_kind(struct mt_session *session, uint32_t index,
				enum mt_kind kind)
{
	uint32_t high = mt_table_high(session, MT_LINES);
	int64_t pages = mt_word_used(
		load_relaxed(&session->processes[index].word[kind]));

	for (uint32_t i = 0; i < high; i++) {
		uint64_t ident = load_acquire(&session->lines[i].ident);

		if (ident && mt_line_process(ident) == index)
			pages += mt_word_used(
				load_relaxed(&session->lines[i].word[kind]));
	}
	return pages;
}

int64_t mt_process_charged(struct mt_session *session, uint32_t index)
{
	int64_t pages = 0;

	for (int k = 0; k < MT_NR_KINDS; k++)
		pages += mt_process_charged_kind(session, index,
						 (enum mt_kind)k);
	return pages;
}

int64_t mt_process_charged_below(struct mt_session *session, uint32_t index,
				 uint32_t group)
{
	uint32_t high = mt_table_high(session, MT_LINES);
	int64_t pages = 0;

	for (int k = 0; k < MT_NR_KINDS; k++) {
		if (group == MT_ROOT)
			pages += mt_word_used(load_relaxed(
				&session->processes[index].word[k]));
	}
	for (uint32_t i = 0; i < high; i++) {
		uint64_t ident = load_acquire(&session->lines[i].ident);

		if (!ident || mt_line_process(ident) != index ||
		    !mt_counter_is_below(session, mt_line_group(ident), group))
			continue;
		for (int k = 0; k < MT_NR_KINDS; k++)
			pages += mt_word_used(
				load_relaxed(&session->lines[i].word[k]));
	}
	return pages;
}
