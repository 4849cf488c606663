/* SPDX-License-Identifier: MIT */
/*
 * layout.h - the session's shared-memory file ("the segment"), byte by byte.
 *
 * One file per session, on tmpfs, mode 0600, mapped read-write by every
 * process of the session and read-only by tools that look.  It holds a
 * header and eight tables:
 *
 *	groups      the tree: one page counter, limits, claims, events each
 *	processes   who joined, and whether they are still there
 *	threads     one sequence number per thread, to tell rest from motion
 *	lines       the words: who holds how many pages, of which group
 *	ended       what is remembered of processes that have gone
 *	records     the log of refusals and kills
 *	rules       limits for groups by the pattern of their path
 *	peaks       who reset a group's peak for itself
 *
 * Rules.  Fixed-width types, offsets and indices only, never a pointer.  All
 * quantities are pages unless the field says otherwise.  A table is found at
 * header.tables[t].offset, and record i at offset + i * stride, so that a
 * reader built for a later minor version can step over fields it does not
 * know and an older one can tell which fields a record reaches.  Fields are
 * appended, never moved; reserved ones are zero.  The magic is stored last,
 * with release.  A reader refuses another major version and trusts no index.
 *
 * The file is sparse: a table's memory is populated in chunks before its
 * first use (see mt_segment_back()), because writing into a hole of a full
 * tmpfs would kill the program with SIGBUS.
 */
#ifndef MT_CORE_LAYOUT_H
#define MT_CORE_LAYOUT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base.h"

/* "MEMTALLY", little endian. */
#define MT_SEGMENT_MAGIC UINT64_C(0x594c4c41544d454d)
#define MT_SEGMENT_MAJOR 1
#define MT_SEGMENT_MINOR 0

/* Limits: any value at or above means "max". */
#define MT_UNLIMITED  INT64_C(2251799813685247)
/* One charge is never larger than this. */
#define MT_CHARGE_MAX (INT64_C(1) << 38)

#define MT_BATCH_DEFAULT 64
#define MT_BATCH_MAX     65536

#define MT_NONE      UINT32_MAX /* "no such index" */
#define MT_ROOT      0          /* the group "/" */
#define MT_DEPTH_MAX 16         /* levels of groups, "/" included */
#define MT_NAME_MAX  64         /* bytes of one path component, NUL included */

/* What a charged page is.  The order is the order of a line's words. */
enum mt_kind {
	MT_HEAP,     /* malloc and its family */
	MT_ANON,     /* private anonymous mappings */
	MT_FILE,     /* private writable file mappings */
	MT_SHMEM,    /* shared anonymous memory, memfd, shm, System V */
	MT_BRK,      /* brk() by the program itself */
	MT_EXTERNAL, /* charged through the API */
	MT_NR_KINDS
};

/* cgroup v2's memory.events, in its order. */
enum mt_event {
	MT_EVENT_LOW,
	MT_EVENT_HIGH,
	MT_EVENT_MAX,
	MT_EVENT_OOM,
	MT_EVENT_OOM_KILL,
	MT_EVENT_OOM_GROUP_KILL,
	MT_NR_EVENTS
};

/* Over how long a share of time is averaged: 10, 60 and 300 s. */
#define MT_NR_STALLS 3

/* Beside the kernel's: written back, as more than dirty_max was dirty. */
#define MT_EVENT_DIRTY 6

enum mt_table_id {
	MT_GROUPS,
	MT_PROCESSES,
	MT_THREADS,
	MT_LINES,
	MT_ENDED,
	MT_RECORDS,
	MT_RULES,
	MT_PEAKS,
	MT_NR_TABLES
};

struct mt_table {
	uint64_t offset;       /* from the start of the segment */
	uint32_t stride;       /* bytes of one record, as the writer knows it */
	uint32_t capacity;     /* records */
	_Atomic uint32_t high; /* no record at or above has ever been used */
	_Atomic uint32_t backed; /* records below have memory behind them */
	_Atomic uint32_t hint;   /* where to look for a free one; a guess */
	uint32_t reserved;
};

struct mt_header {
	_Atomic uint64_t magic; /* stored last; 0 while being made */
	uint16_t major;
	uint16_t minor;
	uint32_t header_size;
	uint64_t segment_size;     /* readers trust no offset past it */
	uint32_t page_size;        /* bytes */
	uint32_t batch;            /* pages a thread charges ahead at most */
	uint32_t uid;              /* effective user of the creator */
	uint32_t flags;            /* MT_SESSION_* */
	uint64_t pid_ns;           /* inode of the creator's pid namespace */
	uint64_t created_ns;       /* CLOCK_REALTIME */
	uint64_t boot_ns;          /* CLOCK_BOOTTIME at the same moment */
	char name[MT_NAME_MAX];    /* of the session */
	char command[MT_NAME_MAX]; /* what was started in it, for people */
	uint8_t boot_id[16];       /* of /proc/sys/kernel/random/boot_id */

	/* Written now and then, by anybody. */
	_Alignas(MT_CACHELINE) _Atomic uint32_t supervisor; /* pid, 0: none */
	_Atomic uint32_t events;  /* bumped at each event; a futex */
	_Atomic uint32_t joins;   /* bumped when a process joins; a futex */
	_Atomic uint32_t nr_live; /* process slots in use */
	_Atomic uint64_t processes_total; /* that ever joined */
	_Atomic uint64_t repairs;         /* pages the audit took back */
	_Atomic uint64_t reaped;          /* dead processes taken back */
	_Atomic uint64_t fallbacks; /* charges that went to an ancestor or a
					 shared word for want of a slot */

	/* Who audits: its pid in bits 32-63, and of its pid namespace's inode
	 * the low half; 0: nobody. */
	_Alignas(MT_CACHELINE) _Atomic uint64_t auditor;
	_Atomic uint64_t gate; /* deadline, CLOCK_MONOTONIC ns; 0: open */
	_Atomic uint64_t repair_pending; /* audits that found no quiet moment */
	_Atomic uint64_t ended_seq;      /* next number in the ended table */
	_Atomic uint64_t record_seq;     /* next number in the record table */
	_Atomic uint64_t audit_ns; /* CLOCK_BOOTTIME when the auditor began */
	_Atomic uint64_t doubts;   /* operations found cut short, ever */
	_Atomic uint64_t settled;  /* of them, those that an audit has seen */

	_Alignas(MT_CACHELINE) struct mt_table tables[MT_NR_TABLES];

	_Atomic uint32_t
		on_max; /* MT_ON_MAX_*: when nothing can be reclaimed */
	_Atomic uint32_t wait_ms; /* for MT_ON_MAX_WAIT */
	/* Who chooses whom to kill: its pid in the high half, and since when,
	 * CLOCK_MONOTONIC ms, in the low; 0: nobody. */
	_Atomic uint64_t killer;
	uint64_t reserved1[2];
};

/* header.on_max */
#define MT_ON_MAX_ENOMEM     0u
#define MT_ON_MAX_WAIT       1u
#define MT_ON_MAX_KILL       2u
#define MT_ON_MAX_KILL_GROUP 3u
#define MT_ON_MAX_STOP       4u

/* header.flags */
#define MT_SESSION_BY_PROC   0u /* default groups: /COMM.PID */
#define MT_SESSION_BY_PROG   1u /* /COMM, shared */
#define MT_SESSION_BY_NONE   2u /* all in "/" */
#define MT_SESSION_BY_MASK   3u
#define MT_SESSION_NO_FOLLOW 4u
#define MT_SESSION_BACKED    8u /* no holes: fallocated as a whole */

/*
 * A group, and its page counter.  Grouped by who writes: usage by every
 * charge below it; claims and peaks when they change; limits and the parent
 * by an administrator only, though every charge reads them.
 */
struct mt_group {
	_Alignas(MT_CACHELINE) _Atomic int64_t usage; /* stocks included */

	/* Protected usage, published to the parent only when it changes. */
	_Alignas(MT_CACHELINE) _Atomic int64_t min_usage;
	_Atomic int64_t low_usage;
	_Atomic int64_t children_min_usage;
	_Atomic int64_t children_low_usage;
	_Atomic int64_t peak;       /* highest committed usage */
	_Atomic int64_t peak_local; /* since a reader's last reset */
	_Atomic int64_t emin;       /* effective, as of the last reclaim */
	_Atomic int64_t elow;

	_Alignas(MT_CACHELINE) _Atomic int64_t min;
	_Atomic int64_t low;
	_Atomic int64_t high;
	_Atomic int64_t max;
	_Atomic uint32_t parent; /* MT_NONE for "/" */
	_Atomic uint32_t flags;  /* MT_GROUP_* */
	_Atomic uint64_t ident;  /* enum mt_group_state in bits 0-3, generation
				  * in bits 4-23, hash or owner's pid above */
	_Atomic int64_t dirty_max; /* of shared file mappings, see dirty */
	_Atomic int64_t dirty; /* as the supervisor saw it; only with a limit */

	_Alignas(MT_CACHELINE) _Atomic uint64_t events[8];       /* subtree */
	_Alignas(MT_CACHELINE) _Atomic uint64_t events_local[8]; /* own */

	_Alignas(MT_CACHELINE) _Atomic uint64_t stall_us;
	_Atomic uint64_t repairs; /* pages the audit took back here */
	_Atomic uint64_t
		underflows;       /* uncharges that met less than they gave */
	_Atomic uint64_t drains;  /* pages taken out of stocks below */
	_Atomic uint64_t failcnt; /* refused attempts, batch and exact */
	/* The share of time waited, over 10, 60 and 300 s: mt_stall_share(). */
	_Atomic uint64_t stall_avg[MT_NR_STALLS];

	_Alignas(MT_CACHELINE) char name[MT_NAME_MAX]; /* last component */
};

enum mt_group_state {
	MT_GROUP_FREE,
	MT_GROUP_CLAIMED,   /* being filled in by the pid in ident */
	MT_GROUP_CANDIDATE, /* filled in; its name may lose to another's */
	MT_GROUP_LIVE,
	MT_GROUP_RETIRING, /* being taken down */
};

#define MT_GROUP_EXCLUSIVE 1u /* made for one process, which names it */
#define MT_GROUP_KEEP      2u /* has limits or was asked for: do not retire */
#define MT_GROUP_OOM_GROUP 4u /* oom.group */
#define MT_GROUP_STOPPED   8u /* processes below were stopped at its limit */

enum mt_process_state {
	MT_PROC_FREE,
	MT_PROC_JOINING, /* claimed, being filled in */
	MT_PROC_LIVE,
	MT_PROC_REAPING, /* someone takes its pages back */
};

/*
 * A process.  @state is one word, so that claim, hand-over and end are each
 * one compare-and-swap: state in bits 0-7, generation (bumped at each join)
 * in bits 8-31, the reaper's pid in bits 32-63 while REAPING, else the
 * process's own pid.
 */
struct mt_process {
	_Alignas(MT_CACHELINE) _Atomic uint64_t state;
	_Atomic uint32_t home; /* its default group, MT_NONE until made */
	/* What the supervisor is to send it: generation in bits 8-31, signal
	 * in bits 0-7; 0: nothing. */
	_Atomic uint32_t signal;
	_Atomic uint64_t pid_ns;    /* inode of its pid namespace; 0: unknown */
	_Atomic uint64_t joined_ns; /* CLOCK_BOOTTIME; started no later */
	_Atomic uint64_t start_ticks; /* field 22 of its stat; 0: not read */
	char comm[24];                /* as it joined, NUL-terminated */

	/* Charged by its slow paths, stocks included: what the peak is of. */
	_Alignas(MT_CACHELINE) _Atomic int64_t usage;
	_Atomic int64_t peak;
	/* For threads without a slot, and for a signal handler inside an
	 * operation: operations under way in the high half, begun in the low. */
	_Atomic uint64_t slotless;
	_Atomic uint32_t map_file; /* 1: it has a mapping file */
	_Atomic uint32_t stacks; /* pages that libc mapped for threads' stacks,
				    * guards included; tracked, not charged */
	_Atomic uint64_t metadata; /* pages of the allocator's own, uncharged */
	_Atomic uint64_t parent_pid; /* at join */
	/* Under way to a program that can't join: the name it will have. */
	char leaving[16];

	/* The word of last resort, for "/" (order of enum mt_kind). */
	_Alignas(MT_CACHELINE) _Atomic uint64_t word[MT_NR_KINDS];
	/* Somebody at a limit wants cached pages back: since when in the high
	 * half (CLOCK_MONOTONIC ms); the limited group in bits 0-19, in spite
	 * of low in bit 20, the binary logarithm of how many in bits 21-26.
	 * With bit 27, shared file mappings are to be written back instead.
	 * And the last it has answered. */
	_Atomic uint64_t asked;
	_Atomic uint64_t answered;
};

/*
 * A thread.  @seq is even at rest and odd inside an operation that touches a
 * counter; it is never reset, so that a slot's next owner cannot be mistaken
 * for its last.  While it is odd, @op_pages and @op_at say what is being done,
 * for a reaper: of a charge, the levels that have it; of an uncharge, those
 * that have given it or are about to.  Both err on the side that leaves usage
 * too high by the one level in doubt.  MT_OP_COMMIT: the word may have it, so
 * that all of it is left to the audit.
 */
struct mt_thread {
	_Alignas(MT_CACHELINE) _Atomic uint64_t ident; /* process slot + 1 in
							  bits 32-63, tid */
	_Atomic uint64_t seq;
	_Atomic int64_t op_pages; /* > 0 charge, < 0 uncharge, 0: none */
	_Atomic uint64_t op_at;   /* levels done << 32 | lowest of them */
	uint64_t reserved[4];
};

#define MT_OP_COMMIT UINT64_MAX

/*
 * A line: the words of one (thread, group), or of one (process, group) for
 * the totals of its ended threads and for threads without a slot.
 *
 * A word is `used` (signed) in bits 24-63, a tag in bits 17-23 and `stock` in
 * bits 0-16, changed by compare-and-swap only, by anyone.  The tag changes
 * each time the line gets a new owner, so that nobody who read a word before
 * can change it after.
 */
struct mt_line {
	_Alignas(MT_CACHELINE) _Atomic uint64_t ident; /* mt_line_ident() */
	_Atomic uint64_t uses; /* how often it was claimed; the tag's source */
	_Atomic uint64_t word[MT_NR_KINDS];
};

/* Bits of a line's identity; 0 is a free line. */
#define MT_LINE_USED (UINT64_C(1) << 63)

static inline uint64_t mt_line_ident(uint32_t process, uint32_t thread,
				     uint32_t group)
{
	/* thread MT_NONE: the process's own line */
	return MT_LINE_USED | (uint64_t)(process & 0xfffff) << 40 |
	       (uint64_t)((thread + 1) & 0xfffff) << 20 | (group & 0xfffff);
}

static inline uint32_t mt_line_process(uint64_t ident)
{
	return (ident >> 40) & 0xfffff;
}

static inline uint32_t mt_line_thread(uint64_t ident)
{
	return (((ident >> 20) & 0xfffff) ? ((ident >> 20) & 0xfffff) - 1
					  : MT_NONE);
}

static inline uint32_t mt_line_group(uint64_t ident)
{
	return ident & 0xfffff;
}

static inline int64_t mt_word_used(uint64_t word)
{
	return (int64_t)word >> 24;
}

static inline int64_t mt_word_stock(uint64_t word)
{
	return (int64_t)(word & 0x1ffff);
}

/* The same word with other contents: its tag is kept. */
static inline uint64_t mt_word_with(uint64_t word, int64_t used, int64_t stock)
{
	return (uint64_t)used << 24 | (word & 0xfe0000) | (uint64_t)stock;
}

/* What is remembered of a process: the 64 with the highest peaks. */
struct mt_ended {
	_Alignas(MT_CACHELINE) _Atomic uint64_t seq; /* odd while written */
	uint32_t pid;
	uint32_t how;  /* MT_ENDED_* */
	uint64_t peak; /* pages */
	uint64_t left; /* pages it held when it was taken back */
	char comm[24];
	_Atomic uint64_t claim;  /* writer's pid while written */
	char group[MT_NAME_MAX]; /* last component of its default group */
	uint64_t ended_ns;       /* CLOCK_REALTIME, when it was noticed */
	uint64_t reserved[7];
};

#define MT_ENDED_EXITED 0u /* no longer there; how is not known */
#define MT_ENDED_KILLED 1u /* by a signal, as the supervisor saw */
#define MT_ENDED_EXECED 2u /* replaced its program; same pid goes on */

/* What a record tells of. */
enum mt_record_what {
	MT_RECORD_REFUSED = 1, /* ENOMEM, given to the program */
	MT_RECORD_KILLED,      /* a process, by the policy */
	MT_RECORD_STOPPED,     /* all below the group, by the policy */
	MT_RECORD_HIGH,        /* slowed down above high; one a second */
	MT_RECORD_RISE,        /* a threshold was reached */
	MT_RECORD_FALL,        /* and left again */
};

#define MT_RECORD_LARGEST 5
#define MT_RECORD_MODULES 8
#define MT_RECORD_FRAMES  48

/* A loaded file that a frame is in. */
struct mt_module {
	uint8_t build_id[20]; /* zeros: it has none */
	char path[108];       /* as it was loaded; cut in front when longer */
};

/*
 * One thing that happened at a limit.  The table is a ring: record number n
 * (from 0) is at n modulo its capacity.  Whoever writes one may be stopped or
 * die, and the next round write over it: what a reader takes for whole has the
 * right sum.
 */
struct mt_record {
	/* 2 (n + 1), one less while it is being written; 0: never was. */
	_Alignas(MT_CACHELINE) _Atomic uint64_t seq;
	uint64_t sum;     /* mt_record_sum() */
	uint64_t time_ns; /* CLOCK_REALTIME */
	uint32_t what;    /* enum mt_record_what */
	uint32_t group;   /* whose limit it was */
	uint32_t pid;     /* who met it */
	uint32_t tid;
	int64_t pages;  /* what was asked for */
	int64_t usage;  /* of the group, then */
	int64_t limit;  /* of the group, then */
	char comm[16];  /* of the process */
	char path[128]; /* of the group; cut in front when longer */
	char name[32];  /* of the threshold */
	/* KILLED: whom, and what it held. */
	uint32_t victim;
	uint32_t nr_frames;
	int64_t victim_pages;
	char victim_comm[16];
	/* Who held most of the group's pages, the first most. */
	struct {
		int64_t pages;
		char path[56]; /* cut in front when longer */
	} largest[MT_RECORD_LARGEST];
	/* Where in the program it was, innermost first: a module's number in
	 * bits 56-63 (0xff: none that is known), and in bits 0-55 the offset
	 * from where it was loaded to the address to return to. */
	uint64_t frames[MT_RECORD_FRAMES];
	struct mt_module modules[MT_RECORD_MODULES];
	uint64_t reserved[14];
};

/* Limits for every group whose path matches, made now or later; where several
 * match, the last that says something about a limit is right. */
struct mt_rule {
	_Alignas(MT_CACHELINE) _Atomic uint32_t state; /* enum mt_rule_state */
	uint32_t reserved0;
	int64_t min; /* these four: pages, or MT_RULE_UNSET */
	int64_t low;
	int64_t high;
	int64_t max;
	uint64_t reserved[3];
	char pattern[128]; /* as mt_group_matches() takes it */
};

/* A process that reset a group's peak for itself. */
struct mt_peak {
	/* 0: free; else bit 63, the group's generation in bits 40-59, process
	 * slot in bits 20-39, group in bits 0-19. */
	_Alignas(MT_CACHELINE) _Atomic uint64_t ident;
	_Atomic int64_t pages; /* the highest before others' resets */
};

enum mt_rule_state { MT_RULE_FREE, MT_RULE_CLAIMED, MT_RULE_LIVE };

#define MT_RULE_UNSET INT64_MIN

_Static_assert(sizeof(_Atomic uint64_t) == 8 && ATOMIC_LLONG_LOCK_FREE == 2,
	       "segment: 64-bit atomics need locks here");
_Static_assert(sizeof(struct mt_table) == 32, "segment: table");
_Static_assert(offsetof(struct mt_header, segment_size) == 16, "header");
_Static_assert(offsetof(struct mt_header, name) == 64, "header: name");
_Static_assert(offsetof(struct mt_header, boot_id) == 192, "header: boot_id");
_Static_assert(offsetof(struct mt_header, supervisor) == 256, "header");
_Static_assert(offsetof(struct mt_header, auditor) == 320, "header: auditor");
_Static_assert(offsetof(struct mt_header, tables) == 384, "header: tables");
_Static_assert(offsetof(struct mt_header, on_max) == 640, "header: on_max");
_Static_assert(sizeof(struct mt_header) == 704, "header: size");
_Static_assert(offsetof(struct mt_group, min_usage) == 64, "group: claims");
_Static_assert(offsetof(struct mt_group, min) == 128, "group: limits");
_Static_assert(offsetof(struct mt_group, ident) == 168, "group: ident");
_Static_assert(offsetof(struct mt_group, events) == 192, "group: events");
_Static_assert(offsetof(struct mt_group, stall_us) == 320, "group: stall");
_Static_assert(offsetof(struct mt_group, name) == 384, "group: name");
_Static_assert(sizeof(struct mt_group) == 448, "group: size");
_Static_assert(offsetof(struct mt_process, usage) == 64, "process: usage");
_Static_assert(offsetof(struct mt_process, word) == 128, "process: word");
_Static_assert(sizeof(struct mt_process) == 192, "process: size");
_Static_assert(sizeof(struct mt_thread) == 64, "thread: size");
_Static_assert(offsetof(struct mt_line, word) == 16, "line: words");
_Static_assert(sizeof(struct mt_line) == 64, "line: size");
_Static_assert(sizeof(struct mt_ended) == 192, "ended: size");
_Static_assert(offsetof(struct mt_record, comm) == 64, "record: comm");
_Static_assert(offsetof(struct mt_record, frames) == 592, "record: frames");
_Static_assert(sizeof(struct mt_record) == 2112, "record: size");
_Static_assert(offsetof(struct mt_rule, pattern) == 64, "rule: pattern");
_Static_assert(sizeof(struct mt_rule) == 192, "rule: size");
_Static_assert(sizeof(struct mt_peak) == 64, "peak: size");

#endif
