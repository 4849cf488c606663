/* SPDX-License-Identifier: MIT */
/*
 * task.c - charging through words and stocks.
 *
 * A word is changed by compare-and-swap only, since anyone may drain it: a
 * plain store against a drainer that exchanges loses pages.
 */
#include "core/task.h"

#include <string.h>

#include "core/atomic.h"
#include "core/audit.h"
#include "core/counter.h"
#include "core/group.h"
#include "core/sys.h"

#define SLOTLESS_ENTER ((UINT64_C(1) << 32) | 1)
#define SLOTLESS_LEAVE (UINT64_C(1) << 32)

/* An operation that touches the tree, under way. */
struct op {
	struct mt_thread *thread; /* NULL: a handler's, or without a slot */
	struct mt_process *process;
};

static struct mt_process *process_of(struct mt_session *session,
				     const struct mt_task *task)
{
	return &session->processes[task->process - 1];
}

/*
 * An audit wants a quiet moment: it is closed for a millisecond at most, and
 * whatever anybody wrote there, nobody waits longer.
 */
static MT_COLD void wait_for_gate(struct mt_session *session)
{
	uint64_t limit = mt_sys_clock_ns(CLOCK_MONOTONIC) + MT_GATE_NS;

	for (;;) {
		uint64_t until = load_relaxed(&session->header->gate);
		uint64_t now = mt_sys_clock_ns(CLOCK_MONOTONIC);

		/* Left closed by one that died: open it for everybody. */
		if (until && now >= until)
			cas_seq_cst(&session->header->gate, &until, 0);
		if (now >= MT_MIN(until, limit))
			return;
		mt_sys_yield();
	}
}

static struct op op_begin(struct mt_session *session, struct mt_task *task)
{
	struct op op = { NULL, process_of(session, task) };
	struct mt_thread *thread;
	uint64_t seq;

	/* Not a handler inside an operation: its own thread is not at rest. */
	if (unlikely(load_relaxed(&session->header->gate)) && !task->depth)
		wait_for_gate(session);
	if (!task->thread || task->depth) {
		fetch_add_seq_cst(&op.process->slotless, SLOTLESS_ENTER);
		return op;
	}
	task->depth = 1;
	fence_signal();
	thread = &session->threads[task->thread - 1];
	seq = load_relaxed(&thread->seq);
	/* Odd already: a vfork child was killed inside. */
	if (unlikely(seq & 1))
		fetch_add_relaxed(&session->header->doubts, 1);
	store_seq_cst(&thread->seq, (seq | 1) + ((seq & 1) ? 2 : 0));
	op.thread = thread;
	return op;
}

static void op_end(struct mt_task *task, struct op *op)
{
	if (!op->thread) {
		fetch_add_seq_cst(&op->process->slotless,
				  (uint64_t)0 - SLOTLESS_LEAVE);
		return;
	}
	store_relaxed(&op->thread->op_pages, 0);
	store_release(&op->thread->seq, load_relaxed(&op->thread->seq) + 1);
	fence_signal();
	task->depth = 0;
}

/* Say what is being done; @at first, since @pages is what makes it count. */
static void op_say(struct op *op, uint64_t at, int64_t pages)
{
	if (!op->thread)
		return;
	store_relaxed(&op->thread->op_at, at);
	fence_signal();
	store_relaxed(&op->thread->op_pages, pages);
	fence_signal();
}

static void note_process(struct mt_process *process, int64_t pages)
{
	int64_t usage = fetch_add_relaxed(&process->usage, pages) + pages;
	int64_t peak = load_relaxed(&process->peak);

	while (usage > peak && !cas_weak_relaxed(&process->peak, &peak, usage))
		;
}

static void word_add(_Atomic uint64_t *word, int64_t used, int64_t stock)
{
	uint64_t seen = load_relaxed(word);

	while (!cas_weak_seq_cst(word, &seen,
				 mt_word_with(seen, mt_word_used(seen) + used,
					      mt_word_stock(seen) + stock)))
		;
}

static void line_release(struct mt_session *session, uint32_t index,
			 uint64_t ident)
{
	struct mt_table *table = &session->header->tables[MT_LINES];

	if (cas_seq_cst(&session->lines[index].ident, &ident, 0) &&
	    index < load_relaxed(&table->hint))
		store_relaxed(&table->hint, index);
}

static void line_clear(struct mt_line *line)
{
	uint64_t tag = fetch_add_relaxed(&line->uses, 1) + 1;

	for (int k = 0; k < MT_NR_KINDS; k++)
		store_seq_cst(&line->word[k], (tag & 0x7f) << 17);
}

/* A new line, or MT_NONE: the table is full, or the group is going. */
static uint32_t line_make(struct mt_session *session, uint64_t ident)
{
	struct mt_table *table = &session->header->tables[MT_LINES];
	uint32_t start = load_relaxed(&table->hint);

	for (uint32_t n = 0; n < table->capacity;) {
		uint32_t i = mt_segment_turn(session, MT_LINES, start, &n);
		uint64_t none = 0;

		if (i == MT_NONE || load_relaxed(&session->lines[i].ident) ||
		    !cas_seq_cst(&session->lines[i].ident, &none, ident))
			continue;
		store_relaxed(&table->hint, i + 1);
		line_clear(&session->lines[i]);
		mt_segment_raise_high(session, MT_LINES, i);
		if (!mt_group_hold(session, mt_line_group(ident))) {
			line_release(session, i, ident);
			return MT_NONE;
		}
		return i;
	}
	return MT_NONE;
}

static uint32_t line_find(struct mt_session *session, uint64_t ident)
{
	uint32_t high = mt_table_high(session, MT_LINES);

	for (uint32_t i = 0; i < high; i++) {
		if (load_acquire(&session->lines[i].ident) == ident)
			return i;
	}
	return MT_NONE;
}

/* The line of the process itself: ended threads, threads without a slot. */
static uint32_t own_line(struct mt_session *session, struct mt_task *task,
			 uint32_t group)
{
	uint64_t ident = mt_line_ident(task->process - 1, MT_NONE, group);
	uint32_t line = line_find(session, ident);

	return line != MT_NONE ? line : line_make(session, ident);
}

static void remember(struct mt_task *task, uint32_t group, uint32_t line)
{
	uint32_t i;

	for (i = 0; i < MT_TASK_LINES && task->lines[i].line; i++)
		;
	if (i == MT_TASK_LINES) {
		/* The line stays; it is found again by a search. */
		i = task->next_victim++ % MT_TASK_LINES;
		task->evicted = 1;
	}
	task->lines[i].line = 0;
	fence_signal();
	task->lines[i].group = group + 1;
	fence_signal();
	task->lines[i].line = line + 1;
}

static uint32_t thread_line_slow(struct mt_session *session,
				 struct mt_task *task, uint32_t group)
{
	uint64_t ident =
		mt_line_ident(task->process - 1, task->thread - 1, group);
	uint32_t line = MT_NONE;

	if (task->evicted)
		line = line_find(session, ident);
	if (line == MT_NONE)
		line = line_make(session, ident);
	if (line != MT_NONE)
		remember(task, group, line);
	return line;
}

/* This thread's line for @group, or MT_NONE. */
static uint32_t thread_line(const struct mt_task *task, uint32_t group)
{
	for (int i = 0; i < MT_TASK_LINES; i++) {
		if (task->lines[i].group == group + 1 && task->lines[i].line)
			return task->lines[i].line - 1;
	}
	return MT_NONE;
}

/* Where a charge is recorded. */
struct place {
	uint32_t group; /* where it enters the tree */
	_Atomic uint64_t *word;
	bool stock; /* may this word hold a stock? */
};

static struct place find_place(struct mt_session *session, struct mt_task *task,
			       uint32_t group, enum mt_kind kind)
{
	struct place place = { group, NULL, false };
	uint32_t line = MT_NONE;

	if (likely(task->thread && !task->depth)) {
		line = thread_line(task, group);
		if (unlikely(line == MT_NONE))
			line = thread_line_slow(session, task, group);
		place.stock = line != MT_NONE;
	}
	if (line == MT_NONE && group != MT_ROOT) {
		line = own_line(session, task, group);
		if (line == MT_NONE) {
			/* The tables are full: "/" has a word in each slot. */
			fetch_add_relaxed(&session->header->fallbacks, 1);
			place.group = MT_ROOT;
		}
	}
	place.word = line != MT_NONE ? &session->lines[line].word[kind]
				     : &process_of(session, task)->word[kind];
	return place;
}

static bool consume(_Atomic uint64_t *word, int64_t pages)
{
	uint64_t seen = load_relaxed(word);

	do {
		if (mt_word_stock(seen) < pages)
			return false;
	} while (
		!cas_weak_seq_cst(word, &seen,
				  mt_word_with(seen, mt_word_used(seen) + pages,
					       mt_word_stock(seen) - pages)));
	return true;
}

/* As the kernel does: not on a stock hit, and what was really charged. */
static void note_high(struct mt_session *session, struct mt_task *task,
		      uint32_t group, int64_t pages)
{
	uint32_t at = group;

	for (int i = 0; i < MT_DEPTH_MAX; i++) {
		const struct mt_group *level;

		if (at >= session->header->tables[MT_GROUPS].capacity)
			return;
		level = &session->groups[at];
		if (unlikely(load_relaxed(&level->usage) >
			     load_relaxed(&level->high))) {
			task->over_group = group;
			task->over_pages += pages;
			return;
		}
		at = load_relaxed(&level->parent);
	}
}

static bool charge_tree(struct mt_session *session, struct mt_task *task,
			const struct place *place, int64_t pages,
			int64_t surplus, bool forced, uint32_t *ret_refuser)
{
	struct op op = op_begin(session, task);
	int64_t all = pages + surplus;
	bool ok = true;

	op_say(&op, 0, all);
	if (forced)
		mt_counter_charge(session, place->group, all, op.thread);
	else
		ok = mt_counter_try_charge(session, place->group, all,
					   op.thread, ret_refuser);
	if (ok) {
		op_say(&op, MT_OP_COMMIT, all);
		word_add(place->word, pages, surplus);
		note_process(op.process, all);
		note_high(session, task, place->group, all);
	}
	op_end(task, &op);
	return ok;
}

/*
 * How much to charge at once: near a limit less, so that what is left below it
 * isn't shared out in stocks.
 */
static int64_t batch_near(struct mt_session *session, uint32_t group,
			  int64_t batch)
{
	/* As many as ever were at once: no fewer than there are. */
	uint32_t threads = mt_table_high(session, MT_THREADS);
	int64_t room = MT_UNLIMITED;

	for (int i = 0; i < MT_DEPTH_MAX; i++) {
		const struct mt_group *level;
		int64_t max;

		if (group >= session->header->tables[MT_GROUPS].capacity)
			break;
		level = &session->groups[group];
		max = load_relaxed(&level->max);
		if (max < MT_UNLIMITED)
			room = MT_MIN(room, max - load_relaxed(&level->usage));
		group = load_relaxed(&level->parent);
	}
	/* One alone shares with nobody. */
	if (likely(room == MT_UNLIMITED) || threads < 2)
		return batch;
	return MT_MIN(batch, room / 2 / threads);
}

bool mt_charge_once(struct mt_session *session, struct mt_task *task,
		    uint32_t group, enum mt_kind kind, int64_t pages,
		    uint32_t *ret_refuser)
{
	struct place place = find_place(session, task, group, kind);
	int64_t batch = session->header->batch;

	if (place.stock && pages <= batch) {
		if (likely(consume(place.word, pages)))
			return true;
		batch = batch_near(session, place.group, batch);
		if (pages < batch &&
		    charge_tree(session, task, &place, pages, batch - pages,
				false, ret_refuser))
			return true;
		if (pages < batch && consume(place.word, pages))
			return true;
	}
	return charge_tree(session, task, &place, pages, 0, false, ret_refuser);
}

/* The word of the group that this thread used first, or last made room for:
 * nearly always the one.  NULL: look further. */
static inline _Atomic uint64_t *usual_word(struct mt_session *session,
					   const struct mt_task *task,
					   uint32_t group, enum mt_kind kind)
{
	uint32_t line = task->lines[0].line;

	if (unlikely(task->lines[0].group != group + 1 || !line ||
		     !task->thread || task->depth))
		return NULL;
	return &session->lines[line - 1].word[kind];
}

static MT_COLD bool charge_slow(struct mt_session *session,
				struct mt_task *task, uint32_t group,
				enum mt_kind kind, int64_t pages,
				uint32_t *ret_refuser)
{
	struct place place;

	if (likely(mt_charge_once(session, task, group, kind, pages,
				  ret_refuser)))
		return true;
	if (mt_drain(session, task, *ret_refuser) == 0)
		return false;
	place = find_place(session, task, group, kind);
	return charge_tree(session, task, &place, pages, 0, false, ret_refuser);
}

bool mt_charge(struct mt_session *session, struct mt_task *task, uint32_t group,
	       enum mt_kind kind, int64_t pages, uint32_t *ret_refuser)
{
	_Atomic uint64_t *word = usual_word(session, task, group, kind);

	if (likely(word && consume(word, pages)))
		return true;
	return charge_slow(session, task, group, kind, pages, ret_refuser);
}

void mt_charge_forced(struct mt_session *session, struct mt_task *task,
		      uint32_t group, enum mt_kind kind, int64_t pages)
{
	struct place place = find_place(session, task, group, kind);
	uint32_t nobody;

	charge_tree(session, task, &place, pages, 0, true, &nobody);
}

/* Take @pages, and the stock if @with_stock, out of a word and the tree. */
static void uncharge_tree(struct mt_session *session, struct mt_task *task,
			  const struct place *place, int64_t pages,
			  bool with_stock)
{
	struct op op = op_begin(session, task);
	uint64_t seen = load_relaxed(place->word);
	int64_t stock;

	do {
		stock = with_stock ? mt_word_stock(seen) : 0;
	} while (
		!cas_weak_seq_cst(place->word, &seen,
				  mt_word_with(seen, mt_word_used(seen) - pages,
					       mt_word_stock(seen) - stock)));
	op_say(&op, place->group, -(pages + stock));
	mt_counter_uncharge(session, place->group, pages + stock, op.thread);
	note_process(op.process, -(pages + stock));
	op_end(task, &op);
}

/* Pages become stock, if that leaves it within a batch. */
static inline bool give_back(_Atomic uint64_t *word, int64_t pages,
			     int64_t batch)
{
	uint64_t seen = load_relaxed(word);

	do {
		if (mt_word_stock(seen) + pages > batch)
			return false;
	} while (
		!cas_weak_seq_cst(word, &seen,
				  mt_word_with(seen, mt_word_used(seen) - pages,
					       mt_word_stock(seen) + pages)));
	return true;
}

static MT_COLD void uncharge_slow(struct mt_session *session,
				  struct mt_task *task, uint32_t group,
				  enum mt_kind kind, int64_t pages)
{
	struct place place = find_place(session, task, group, kind);

	if (!place.stock || pages > session->header->batch)
		uncharge_tree(session, task, &place, pages, false);
	else if (!give_back(place.word, pages, session->header->batch))
		uncharge_tree(session, task, &place, pages, true);
}

void mt_uncharge(struct mt_session *session, struct mt_task *task,
		 uint32_t group, enum mt_kind kind, int64_t pages)
{
	_Atomic uint64_t *word = usual_word(session, task, group, kind);

	if (unlikely(!word || !give_back(word, pages, session->header->batch)))
		uncharge_slow(session, task, group, kind, pages);
}

void mt_move_charge(struct mt_session *session, struct mt_task *task,
		    uint32_t from, enum mt_kind from_kind, uint32_t to,
		    enum mt_kind to_kind, int64_t pages)
{
	struct place source = find_place(session, task, from, from_kind);
	struct place target = find_place(session, task, to, to_kind);
	uint32_t top = mt_counter_common(session, source.group, target.group);
	struct op op = op_begin(session, task);

	/* Words between the two walks, and the lower one first: so usage is at
	 * no level below their sum.  Cut short, it is all the audit's. */
	mt_counter_charge_below(session, target.group, top, pages);
	word_add(source.word, -pages, 0);
	word_add(target.word, pages, 0);
	mt_counter_uncharge_below(session, source.group, top, pages);
	op_end(task, &op);
}

/* Take one word's stock; the line must still be @ident's then. */
static int64_t take_stock(struct mt_line *line, uint64_t ident, int kind)
{
	uint64_t seen = load_acquire(&line->word[kind]);
	int64_t stock;

	do {
		stock = mt_word_stock(seen);
		if (!stock || load_seq_cst(&line->ident) != ident)
			return 0;
		/* The tag in @seen is this owner's, so the swap is too. */
	} while (!cas_weak_seq_cst(&line->word[kind], &seen,
				   mt_word_with(seen, mt_word_used(seen), 0)));
	return stock;
}

static int64_t drain_line(struct mt_session *session, struct mt_task *task,
			  struct mt_line *line, uint64_t ident)
{
	uint32_t group = mt_line_group(ident);
	uint32_t owner = mt_line_process(ident);
	int64_t total = 0;

	for (int k = 0; k < MT_NR_KINDS; k++) {
		struct op op;
		int64_t stock;

		if (!mt_word_stock(load_relaxed(&line->word[k])))
			continue;
		op = op_begin(session, task);
		stock = take_stock(line, ident, k);
		if (stock) {
			op_say(&op, group, -stock);
			mt_counter_uncharge(session, group, stock, op.thread);
			if (owner <
			    session->header->tables[MT_PROCESSES].capacity)
				note_process(&session->processes[owner],
					     -stock);
		}
		op_end(task, &op);
		total += stock;
	}
	return total;
}

int64_t mt_drain(struct mt_session *session, struct mt_task *task,
		 uint32_t group)
{
	uint32_t high = mt_table_high(session, MT_LINES);
	int64_t total = 0;

	for (uint32_t i = 0; i < high; i++) {
		struct mt_line *line = &session->lines[i];
		uint64_t ident = load_acquire(&line->ident);

		if (ident &&
		    mt_counter_is_below(session, mt_line_group(ident), group))
			total += drain_line(session, task, line, ident);
	}
	if (total)
		fetch_add_relaxed(&session->groups[group].drains,
				  (uint64_t)total);
	return total;
}

void mt_task_attach(struct mt_session *session, struct mt_task *task,
		    uint32_t process, uint32_t tid)
{
	struct mt_table *table = &session->header->tables[MT_THREADS];
	uint64_t ident = (uint64_t)(process + 1) << 32 | tid;
	uint32_t start = load_relaxed(&table->hint);

	memset(task, 0, sizeof(*task));
	task->process = process + 1;
	for (uint32_t n = 0; n < table->capacity;) {
		uint32_t i = mt_segment_turn(session, MT_THREADS, start, &n);
		struct mt_thread *thread;
		uint64_t none = 0;

		if (i == MT_NONE)
			continue;
		thread = &session->threads[i];
		if (load_relaxed(&thread->ident) ||
		    !cas_seq_cst(&thread->ident, &none, ident))
			continue;
		store_relaxed(&table->hint, i + 1);
		mt_segment_raise_high(session, MT_THREADS, i);
		store_relaxed(&thread->op_pages, 0);
		task->thread = i + 1;
		return;
	}
	fetch_add_relaxed(&session->header->fallbacks, 1);
}

bool mt_task_ensure_line(struct mt_session *session, uint32_t process,
			 uint32_t group)
{
	uint64_t ident = mt_line_ident(process, MT_NONE, group);

	/* "/" has a word in each process's slot. */
	return group == MT_ROOT || line_find(session, ident) != MT_NONE ||
	       line_make(session, ident) != MT_NONE;
}

/*
 * Move what a thread's line holds to its process's.  When the process has no
 * line for that group yet, this one becomes it.
 */
static void retire_line(struct mt_session *session, struct mt_task *task,
			uint32_t index, uint64_t ident)
{
	struct mt_line *line = &session->lines[index];
	uint32_t group = mt_line_group(ident);
	uint64_t own = mt_line_ident(task->process - 1, MT_NONE, group);
	uint32_t heir;

	drain_line(session, task, line, ident);
	heir = line_find(session, own);
	if (heir == MT_NONE) {
		cas_seq_cst(&line->ident, &ident, own);
		return;
	}
	for (int k = 0; k < MT_NR_KINDS; k++) {
		struct op op = op_begin(session, task);
		int64_t used = mt_word_used(load_relaxed(&line->word[k]));

		/* Whichever goes down goes first: usage >= sum of words. */
		if (used < 0)
			word_add(&session->lines[heir].word[k], used, 0);
		word_add(&line->word[k], -used, 0);
		if (used > 0)
			word_add(&session->lines[heir].word[k], used, 0);
		op_end(task, &op);
	}
	line_release(session, index, ident);
}

void mt_task_detach(struct mt_session *session, struct mt_task *task)
{
	struct mt_table *table = &session->header->tables[MT_THREADS];
	uint32_t thread;
	uint64_t ident;

	if (!task->thread)
		return;
	thread = task->thread - 1;
	/* A handler that comes now must not use what is being taken down. */
	task->depth++;
	fence_signal();
	/* Not lines[], which knows neither the evicted nor one of two that it
	 * and a handler remembered at the same moment. */
	for (uint32_t i = 0; i < mt_table_high(session, MT_LINES); i++) {
		ident = load_acquire(&session->lines[i].ident);
		if (ident && mt_line_process(ident) == task->process - 1 &&
		    mt_line_thread(ident) == thread)
			retire_line(session, task, i, ident);
	}
	/* From here on the task works without a slot. */
	task->thread = 0;
	fence_signal();
	task->depth--;
	store_release(&session->threads[thread].ident, 0);
	if (thread < load_relaxed(&table->hint))
		store_relaxed(&table->hint, thread);
}

int64_t mt_task_stock(struct mt_session *session, struct mt_task *task,
		      uint32_t group)
{
	uint32_t line = thread_line(task, group);
	int64_t stock = 0;

	for (int k = 0; line != MT_NONE && k < MT_NR_KINDS; k++)
		stock += mt_word_stock(
			load_relaxed(&session->lines[line].word[k]));
	return stock;
}
