/* SPDX-License-Identifier: MIT */
/*
 * group.c - finding, making and retiring the nodes of the tree.
 *
 * A record's life is its ident word, changed by compare-and-swap only:
 *
 *	FREE -> CLAIMED -> CANDIDATE -> LIVE -> RETIRING -> FREE
 *		   |	      |		  ^	   |
 *		   +-> FREE   +-> FREE	  +--------+ somebody needs it
 *
 * A claimed record belongs to the process in ident; if that dies, a sweep
 * frees it.  A candidate is complete: whoever needs its name may make it live
 * (its maker may be dead or stopped).
 *
 * One name, one group.  A candidate is made live only after a look at all
 * others that began when it was one already, and that met neither a group of
 * its name nor a lower candidate; higher ones are taken down on the way.  Of
 * two candidates, whoever makes the later one live has looked when the earlier
 * one was there: that look gives way to the earlier one, or takes it down.
 */
#include "core/group.h"

#include <errno.h>
#include <string.h>

#include "core/atomic.h"
#include "core/sys.h"

#define STATE(ident)      ((ident)&0xf)
#define GENERATION(ident) ((ident) >> 4 & 0xfffff)
#define HASH(ident)       ((ident) >> 24)

static uint64_t make_ident(uint64_t state, uint64_t generation, uint64_t hash)
{
	return state | (generation & 0xfffff) << 4 | hash << 24;
}

static uint64_t with_state(uint64_t ident, uint64_t state)
{
	return (ident & ~UINT64_C(0xf)) | state;
}

bool mt_group_name_ok(const char *name, size_t len)
{
	if (len == 0 || len >= MT_NAME_MAX)
		return false;
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)name[i];

		if (c < 0x20 || c == 0x7f || c == '/')
			return false;
	}
	return !(name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')));
}

/* FNV-1a over the parent and the name, 40 bits. */
static uint64_t hash_name(uint32_t parent, const char *name, size_t len)
{
	uint64_t hash = UINT64_C(14695981039346656037) ^ parent;

	for (size_t i = 0; i < len; i++) {
		hash ^= (unsigned char)name[i];
		hash *= UINT64_C(1099511628211);
	}
	return (hash ^ hash >> 40) & ((UINT64_C(1) << 40) - 1);
}

/* The bytes may belong to another group by now: the caller looks again. */
static bool same_name(const struct mt_group *group, const char *name,
		      size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (load_byte_relaxed(&group->name[i]) != name[i])
			return false;
	}
	return !load_byte_relaxed(&group->name[len]);
}

bool mt_group_is_live(const struct mt_session *session, uint32_t group)
{
	return group < mt_table_high(session, MT_GROUPS) &&
	       STATE(load_seq_cst(&session->groups[group].ident)) ==
		       MT_GROUP_LIVE;
}

static uint32_t depth_of(const struct mt_session *session, uint32_t group)
{
	uint32_t depth = 0;

	while (group < session->header->tables[MT_GROUPS].capacity &&
	       depth <= MT_DEPTH_MAX) {
		depth++;
		group = load_relaxed(&session->groups[group].parent);
	}
	return depth;
}

/* Take a free record; MT_NONE when there is none. */
static uint32_t claim(struct mt_session *session)
{
	struct mt_table *table = &session->header->tables[MT_GROUPS];
	uint64_t pid = (uint64_t)mt_sys_getpid();
	uint32_t start = load_relaxed(&table->hint);

	if (start >= table->capacity)
		start = 1;
	for (uint32_t n = 0; n < table->capacity;) {
		uint32_t i = mt_segment_turn(session, MT_GROUPS, start, &n);
		uint64_t ident;

		if (i == MT_ROOT || i == MT_NONE)
			continue;
		ident = load_relaxed(&session->groups[i].ident);
		if (STATE(ident) != MT_GROUP_FREE)
			continue;
		if (cas_seq_cst(&session->groups[i].ident, &ident,
				make_ident(MT_GROUP_CLAIMED,
					   GENERATION(ident) + 1, pid))) {
			store_relaxed(&table->hint, i + 1);
			mt_segment_raise_high(session, MT_GROUPS, i);
			return i;
		}
	}
	return MT_NONE;
}

static void fill(struct mt_group *group, uint32_t parent, const char *name,
		 size_t len, uint32_t flags)
{
	store_relaxed(&group->usage, 0);
	store_relaxed(&group->min_usage, 0);
	store_relaxed(&group->low_usage, 0);
	store_relaxed(&group->children_min_usage, 0);
	store_relaxed(&group->children_low_usage, 0);
	store_relaxed(&group->peak, 0);
	store_relaxed(&group->peak_local, 0);
	store_relaxed(&group->emin, 0);
	store_relaxed(&group->elow, 0);
	store_relaxed(&group->min, 0);
	store_relaxed(&group->low, 0);
	store_relaxed(&group->high, MT_UNLIMITED);
	store_relaxed(&group->max, MT_UNLIMITED);
	store_relaxed(&group->dirty_max, MT_UNLIMITED);
	store_relaxed(&group->parent, parent);
	store_relaxed(&group->flags, flags);
	for (int i = 0; i < 8; i++) {
		store_relaxed(&group->events[i], 0);
		store_relaxed(&group->events_local[i], 0);
	}
	store_relaxed(&group->stall_us, 0);
	store_relaxed(&group->repairs, 0);
	store_relaxed(&group->underflows, 0);
	store_relaxed(&group->drains, 0);
	store_relaxed(&group->failcnt, 0);
	for (size_t i = 0; i < sizeof(group->name); i++)
		store_byte_relaxed(&group->name[i], i < len ? name[i] : '\0');
}

bool mt_group_matches(const char *path, const char *pattern)
{
	const char *star = NULL;  /* the last one met in @pattern */
	const char *after = NULL; /* where in @path it may end */

	while (*path) {
		if (*pattern == '*') {
			star = pattern++;
			after = path;
		} else if (*pattern == *path ||
			   (*pattern == '?' && *path != '/')) {
			pattern++;
			path++;
		} else if (star && *after != '/') {
			/* The star takes one byte more. */
			pattern = star + 1;
			path = ++after;
		} else {
			return false;
		}
	}
	while (*pattern == '*')
		pattern++;
	return !*pattern;
}

void mt_group_set_limits(struct mt_session *session, uint32_t group,
			 const struct mt_rule_limits *limits)
{
	if (limits->min != MT_RULE_UNSET)
		mt_counter_set_min(session, group, limits->min);
	if (limits->low != MT_RULE_UNSET)
		mt_counter_set_low(session, group, limits->low);
	if (limits->high != MT_RULE_UNSET)
		mt_counter_set_high(session, group, limits->high);
	if (limits->max != MT_RULE_UNSET)
		mt_counter_force_max(session, group, limits->max);
}

static void obey(struct mt_session *session, uint32_t index,
		 const struct mt_rule *rule)
{
	struct mt_rule_limits limits = { rule->min, rule->low, rule->high,
					 rule->max };

	mt_group_set_limits(session, index, &limits);
}

/* What the session's rules say of a group that is being made: whom it is
 * below is known, and its name.  Return: how many rules there were. */
static uint32_t obey_rules(struct mt_session *session, uint32_t index)
{
	uint32_t high = mt_table_high(session, MT_RULES);
	char path[MT_DEPTH_MAX * MT_NAME_MAX];

	if (likely(!high))
		return 0;
	mt_group_path(session, index, path, sizeof(path));
	for (uint32_t i = 0; i < high; i++) {
		const struct mt_rule *rule = &session->rules[i];

		if (load_acquire(&rule->state) == MT_RULE_LIVE &&
		    mt_group_matches(path, rule->pattern))
			obey(session, index, rule);
	}
	return high;
}

static bool release(struct mt_session *session, uint32_t index, uint64_t ident)
{
	struct mt_table *table = &session->header->tables[MT_GROUPS];

	if (!cas_seq_cst(&session->groups[index].ident, &ident,
			 with_state(ident, MT_GROUP_FREE)))
		return false;
	if (index < load_relaxed(&table->hint))
		store_relaxed(&table->hint, index);
	return true;
}

/* Its retirer may be dead, or about to free it: in another generation its
 * compare-and-swap fails. */
static bool rescue(struct mt_session *session, uint32_t index, uint64_t ident)
{
	return cas_seq_cst(
		&session->groups[index].ident, &ident,
		make_ident(MT_GROUP_LIVE, GENERATION(ident) + 1, HASH(ident)));
}

/* Pairs with retire_one(): use it, then look. */
bool mt_group_hold(struct mt_session *session, uint32_t group)
{
	for (;;) {
		uint64_t ident = load_seq_cst(&session->groups[group].ident);

		if (STATE(ident) == MT_GROUP_LIVE)
			return true;
		if (STATE(ident) != MT_GROUP_RETIRING)
			return false;
		if (rescue(session, group, ident))
			return true;
	}
}

struct key {
	uint32_t parent;
	const char *name;
	size_t len;
	uint64_t hash;
};

static struct key make_key(uint32_t parent, const char *name, size_t len)
{
	return (struct key){ parent, name, len, hash_name(parent, name, len) };
}

/* The ident of record @index if it has that name and is at least a candidate,
 * else 0. */
static uint64_t named(const struct mt_session *session, uint32_t index,
		      const struct key *key)
{
	const struct mt_group *group = &session->groups[index];

	for (;;) {
		uint64_t ident = load_seq_cst(&group->ident);

		if (HASH(ident) != key->hash ||
		    STATE(ident) < MT_GROUP_CANDIDATE ||
		    load_relaxed(&group->parent) != key->parent ||
		    !same_name(group, key->name, key->len))
			return 0;
		if (load_seq_cst(&group->ident) == ident)
			return ident;
	}
}

/* Make a candidate live, if nobody has a better right to its name. */
static bool promote(struct mt_session *session, const struct key *key,
		    uint32_t index, uint64_t ident)
{
	uint32_t high = mt_table_high(session, MT_GROUPS);
	uint64_t live = with_state(ident, MT_GROUP_LIVE);

	for (uint32_t i = 0; i < high; i++) {
		uint64_t other = i == index ? 0 : named(session, i, key);

		if (other && (STATE(other) != MT_GROUP_CANDIDATE || i < index ||
			      !release(session, i, other)))
			return false;
	}
	return cas_seq_cst(&session->groups[index].ident, &ident, live) ||
	       ident == live;
}

/* The group of that name, live; MT_NONE if there is none, or no parent. */
static uint32_t look_up(struct mt_session *session, const struct key *key)
{
	for (;;) {
		uint32_t high = mt_table_high(session, MT_GROUPS);
		uint32_t first = MT_NONE;
		uint64_t first_ident = 0;

		for (uint32_t i = 0; i < high; i++) {
			uint64_t ident = named(session, i, key);

			if (STATE(ident) >= MT_GROUP_LIVE &&
			    mt_group_hold(session, i))
				return i;
			if (STATE(ident) == MT_GROUP_CANDIDATE &&
			    first == MT_NONE) {
				first = i;
				first_ident = ident;
			}
		}
		/* The child is there: hold its parent. */
		if (first == MT_NONE || !mt_group_hold(session, key->parent))
			return MT_NONE;
		if (promote(session, key, first, first_ident))
			return first;
	}
}

int mt_group_add_rule(struct mt_session *session, const char *pattern,
		      const struct mt_rule_limits *limits)
{
	uint32_t capacity = session->header->tables[MT_RULES].capacity;
	size_t len = strnlen(pattern, sizeof(session->rules->pattern));
	struct mt_rule *rule = NULL;
	uint32_t index;

	if (pattern[0] != '/' || len == sizeof(session->rules->pattern))
		return -EINVAL;
	for (index = 0; index < capacity; index++) {
		uint32_t free = MT_RULE_FREE;

		if (!mt_segment_back(session, MT_RULES, index))
			return -ENOSPC;
		rule = &session->rules[index];
		if (cas_seq_cst(&rule->state, &free, MT_RULE_CLAIMED))
			break;
	}
	if (index == capacity)
		return -ENOSPC;
	rule->min = limits->min;
	rule->low = limits->low;
	rule->high = limits->high;
	rule->max = limits->max;
	memcpy(rule->pattern, pattern, len + 1);
	store_seq_cst(&rule->state, MT_RULE_LIVE);
	mt_segment_raise_high(session, MT_RULES, index);
	/* Whoever makes a group from now on sees the rule; those that are
	 * there, and those about to be, we see. */
	for (uint32_t i = 0; i < mt_table_high(session, MT_GROUPS); i++) {
		char path[MT_DEPTH_MAX * MT_NAME_MAX];

		if (STATE(load_seq_cst(&session->groups[i].ident)) <
		    MT_GROUP_CANDIDATE)
			continue;
		mt_group_path(session, i, path, sizeof(path));
		if (mt_group_matches(path, pattern))
			obey(session, i, rule);
	}
	return 0;
}

/* Returns the ident of the new candidate @ret_index, or 0. */
static uint64_t make_candidate(struct mt_session *session,
			       const struct key *key, uint32_t flags,
			       uint32_t *ret_index)
{
	for (;;) {
		uint32_t index = claim(session);
		struct mt_group *group;
		uint64_t claimed;
		uint64_t ident;
		uint32_t rules;

		if (index == MT_NONE)
			return 0;
		group = &session->groups[index];
		claimed = load_relaxed(&group->ident);
		fill(group, key->parent, key->name, key->len, flags);
		rules = obey_rules(session, index);
		ident = make_ident(MT_GROUP_CANDIDATE, GENERATION(claimed),
				   key->hash);
		*ret_index = index;
		/* Fails when a sweep took us for dead. */
		if (!cas_seq_cst(&group->ident, &claimed, ident))
			continue;
		/* Pairs with mt_group_add_rule(), which did not see us if we
		 * did not see its rule. */
		if (unlikely(mt_table_high(session, MT_RULES) != rules))
			obey_rules(session, index);
		return ident;
	}
}

static int make(struct mt_session *session, const struct key *key,
		uint32_t flags, uint32_t *ret_group)
{
	uint32_t found = look_up(session, key);

	while (found == MT_NONE) {
		uint32_t mine;
		uint64_t ident = make_candidate(session, key, flags, &mine);
		uint64_t seen = ident;

		if (!ident)
			return -ENOSPC;
		if (!mt_group_hold(session, key->parent)) {
			release(session, mine, ident);
			return -ENOENT;
		}
		if ((flags & MT_GROUP_EXCLUSIVE) &&
		    cas_seq_cst(&session->groups[mine].ident, &seen,
				with_state(ident, MT_GROUP_LIVE)))
			found = mine;
		else
			found = look_up(session, key);
		if (found != mine)
			release(session, mine, ident);
	}
	*ret_group = found;
	return 0;
}

int mt_group_make(struct mt_session *session, uint32_t parent, const char *name,
		  uint32_t flags, uint32_t *ret_group)
{
	size_t len = strlen(name);
	struct key key;

	if (len >= MT_NAME_MAX)
		return -ENAMETOOLONG;
	if (!mt_group_name_ok(name, len))
		return -EINVAL;
	if (!mt_group_is_live(session, parent))
		return -ENOENT;
	if (depth_of(session, parent) >= MT_DEPTH_MAX)
		return -E2BIG;
	key = make_key(parent, name, len);
	return make(session, &key, flags, ret_group);
}

/* A group on the way along a path: its record may be another's later. */
struct step {
	uint32_t group;
	uint64_t life; /* ident without the state */
};

static uint64_t life(uint64_t ident)
{
	return with_state(ident, MT_GROUP_FREE);
}

/* On to the group @name below @at; -ENOENT when either has gone meanwhile. */
static int step_down(struct mt_session *session, struct step *at,
		     const char *name, size_t len, uint32_t flags)
{
	struct key key = make_key(at->group, name, len);
	char text[MT_NAME_MAX];
	uint32_t child;
	int ret;

	if (len >= MT_NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(text, name, len);
	text[len] = '\0';
	ret = mt_group_make(session, at->group, text, flags, &child);
	if (ret)
		return ret;
	/* The child keeps its parent: was that still the one we came by? */
	if (life(load_seq_cst(&session->groups[at->group].ident)) != at->life) {
		mt_group_retire(session, child);
		return -ENOENT;
	}
	*at = (struct step){ child, life(named(session, child, &key)) };
	return at->life ? 0 : -ENOENT;
}

static int make_path(struct mt_session *session, struct step *at,
		     const char *path, uint32_t flags)
{
	int ret = 0;

	while (!ret) {
		size_t len;

		while (*path == '/')
			path++;
		if (!*path)
			break;
		for (len = 0; path[len] && path[len] != '/'; len++)
			;
		ret = step_down(session, at, path, len, flags);
		path += len;
	}
	return ret;
}

int mt_group_make_path(struct mt_session *session, uint32_t base,
		       const char *path, uint32_t flags, uint32_t *ret_group)
{
	uint32_t from = *path == '/' ? MT_ROOT : base;
	int ret = -ENOENT;

	*ret_group = from;
	/* A group on the way may be retired before its child is there. */
	for (int tries = 0; ret == -ENOENT && tries < 16; tries++) {
		struct step at = { from, 0 };

		if (!mt_group_is_live(session, from))
			return -ENOENT;
		at.life = life(load_seq_cst(&session->groups[from].ident));
		ret = make_path(session, &at, path, flags);
		if (ret != -ENOENT)
			*ret_group = at.group;
	}
	return ret;
}

static uint32_t find_live(const struct mt_session *session,
			  const struct key *key)
{
	uint32_t high = mt_table_high(session, MT_GROUPS);

	for (uint32_t i = 0; i < high; i++) {
		if (STATE(named(session, i, key)) == MT_GROUP_LIVE)
			return i;
	}
	return MT_NONE;
}

uint32_t mt_group_find(struct mt_session *session, const char *path)
{
	uint32_t at = MT_ROOT;

	if (*path != '/')
		return MT_NONE;
	while (at != MT_NONE) {
		struct key key;
		size_t len;

		while (*path == '/')
			path++;
		if (!*path)
			break;
		for (len = 0; path[len] && path[len] != '/'; len++)
			;
		if (!mt_group_name_ok(path, len))
			return MT_NONE;
		key = make_key(at, path, len);
		at = find_live(session, &key);
		path += len;
	}
	return at;
}

size_t mt_group_path(const struct mt_session *session, uint32_t group,
		     char *buf, size_t size)
{
	const char *parts[MT_DEPTH_MAX];
	size_t len = 0;
	int depth = 0;

	while (group != MT_ROOT && depth < MT_DEPTH_MAX) {
		if (group >= mt_table_high(session, MT_GROUPS) ||
		    STATE(load_acquire(&session->groups[group].ident)) ==
			    MT_GROUP_FREE) {
			parts[depth++] = "?";
			break;
		}
		parts[depth++] = session->groups[group].name;
		group = load_relaxed(&session->groups[group].parent);
	}
	if (depth == 0 && size > 1)
		buf[len++] = '/';
	while (depth-- > 0) {
		size_t n = strnlen(parts[depth], MT_NAME_MAX - 1);

		if (len + n + 2 > size)
			break;
		buf[len++] = '/';
		memcpy(buf + len, parts[depth], n);
		len += n;
	}
	if (size)
		buf[len] = '\0';
	return len;
}

static bool has_members(const struct mt_session *session, uint32_t group)
{
	uint32_t high = mt_table_high(session, MT_PROCESSES);

	for (uint32_t i = 0; i < high; i++) {
		const struct mt_process *process = &session->processes[i];

		if ((load_seq_cst(&process->state) & 0xff) != MT_PROC_FREE &&
		    load_seq_cst(&process->home) == group)
			return true;
	}
	high = mt_table_high(session, MT_LINES);
	for (uint32_t i = 0; i < high; i++) {
		uint64_t ident = load_seq_cst(&session->lines[i].ident);

		if (ident && mt_line_group(ident) == group)
			return true;
	}
	return false;
}

static bool has_children(const struct mt_session *session, uint32_t group)
{
	uint32_t high = mt_table_high(session, MT_GROUPS);

	for (uint32_t i = 0; i < high; i++) {
		uint64_t state = STATE(load_seq_cst(&session->groups[i].ident));

		if (state != MT_GROUP_FREE && state != MT_GROUP_CLAIMED &&
		    load_relaxed(&session->groups[i].parent) == group)
			return true;
	}
	return false;
}

static bool can_retire(struct mt_session *session, uint32_t index)
{
	struct mt_group *group = &session->groups[index];

	return !(load_relaxed(&group->flags) & MT_GROUP_KEEP) &&
	       load_seq_cst(&group->usage) == 0 &&
	       !has_members(session, index) && !has_children(session, index);
}

/* Returns the parent when the record was freed, else MT_NONE. */
static uint32_t retire_one(struct mt_session *session, uint32_t index)
{
	struct mt_group *group = &session->groups[index];
	uint64_t ident = load_seq_cst(&group->ident);
	uint32_t parent;

	if (STATE(ident) != MT_GROUP_LIVE || !can_retire(session, index))
		return MT_NONE;
	if (!cas_seq_cst(&group->ident, &ident,
			 with_state(ident, MT_GROUP_RETIRING)))
		return MT_NONE;
	ident = with_state(ident, MT_GROUP_RETIRING);
	/*
	 * Whoever starts to use a group stores that first and then looks
	 * whether it is still live; we say first that it is not, and then
	 * look whether it is used.
	 */
	if (!can_retire(session, index)) {
		cas_seq_cst(&group->ident, &ident,
			    with_state(ident, MT_GROUP_LIVE));
		return MT_NONE;
	}
	/* Usage is zero: what is still published to the parent goes. */
	mt_counter_settle(session, index);
	parent = load_relaxed(&group->parent);
	return release(session, index, ident) ? parent : MT_NONE;
}

void mt_group_retire(struct mt_session *session, uint32_t group)
{
	while (group != MT_ROOT && group < mt_table_high(session, MT_GROUPS))
		group = retire_one(session, group);
}

/*
 * End what its maker or retirer may have died in.  Those that are alive start
 * anew.  (To us, a process of another pid namespace is dead: it would have to
 * be caught in the microsecond that a claim lasts.)
 */
static void finish(struct mt_session *session, uint32_t index)
{
	uint64_t ident = load_seq_cst(&session->groups[index].ident);

	if (STATE(ident) == MT_GROUP_CANDIDATE ||
	    (STATE(ident) == MT_GROUP_CLAIMED &&
	     mt_sys_kill((int)HASH(ident), 0) == -ESRCH))
		release(session, index, ident);
	else if (STATE(ident) == MT_GROUP_RETIRING)
		rescue(session, index, ident);
}

void mt_group_sweep(struct mt_session *session)
{
	uint32_t high = mt_table_high(session, MT_GROUPS);

	for (uint32_t i = 1; i < high; i++) {
		finish(session, i);
		mt_group_retire(session, i);
	}
}

void mt_group_event(struct mt_session *session, uint32_t group,
		    enum mt_event event)
{
	if (group >= session->header->tables[MT_GROUPS].capacity)
		return;
	fetch_add_relaxed(&session->groups[group].events_local[event], 1);
	for (int i = 0; i < MT_DEPTH_MAX; i++) {
		if (group >= session->header->tables[MT_GROUPS].capacity)
			break;
		fetch_add_relaxed(&session->groups[group].events[event], 1);
		group = load_relaxed(&session->groups[group].parent);
	}
	fetch_add_seq_cst(&session->header->events, 1);
	mt_syscall3(SYS_futex, &session->header->events, FUTEX_WAKE, INT32_MAX);
}
