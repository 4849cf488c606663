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
 * (its maker may be dead or stopped), or take it down in favour of a lower
 * index.
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

static bool same_name(const struct mt_group *group, const char *name,
		      size_t len)
{
	return strnlen(group->name, MT_NAME_MAX) == len &&
	       memcmp(group->name, name, len) == 0;
}

bool mt_group_is_live(const struct mt_session *session, uint32_t group)
{
	return group < mt_table_high(session, MT_GROUPS) &&
	       STATE(load_acquire(&session->groups[group].ident)) ==
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
	for (uint32_t n = 0; n < table->capacity; n++) {
		uint32_t i = (start + n) % table->capacity;
		uint64_t ident;

		if (i == MT_ROOT)
			continue;
		if (!mt_segment_back(session, MT_GROUPS, i))
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
	memset(group->name, 0, sizeof(group->name));
	memcpy(group->name, name, len);
}

static void release(struct mt_session *session, uint32_t index, uint64_t ident)
{
	struct mt_table *table = &session->header->tables[MT_GROUPS];

	if (cas_seq_cst(&session->groups[index].ident, &ident,
			with_state(ident, MT_GROUP_FREE)) &&
	    index < load_relaxed(&table->hint))
		store_relaxed(&table->hint, index);
}

/*
 * Look for a group of that name.  A candidate counts as found when its index
 * is below @mine, and is made live; one above is taken down.
 */
static uint32_t look_up(struct mt_session *session, uint32_t parent,
			const char *name, size_t len, uint64_t hash,
			uint32_t mine)
{
	uint32_t high = mt_table_high(session, MT_GROUPS);

	for (uint32_t i = 0; i < high; i++) {
		struct mt_group *group = &session->groups[i];
		uint64_t ident = load_seq_cst(&group->ident);

		if (i == mine || HASH(ident) != hash ||
		    (STATE(ident) != MT_GROUP_LIVE &&
		     STATE(ident) != MT_GROUP_CANDIDATE))
			continue;
		if (load_relaxed(&group->parent) != parent ||
		    !same_name(group, name, len))
			continue;
		if (STATE(ident) == MT_GROUP_LIVE)
			return i;
		if (mine != MT_NONE && i > mine) {
			release(session, i, ident);
			if (STATE(load_seq_cst(&group->ident)) == MT_GROUP_LIVE)
				return i;
		} else if (cas_seq_cst(&group->ident, &ident,
				       with_state(ident, MT_GROUP_LIVE)) ||
			   STATE(ident) == MT_GROUP_LIVE) {
			return i;
		}
	}
	return MT_NONE;
}

static int make(struct mt_session *session, uint32_t parent, const char *name,
		size_t len, uint32_t flags, uint32_t *ret_group)
{
	uint64_t hash = hash_name(parent, name, len);

	for (;;) {
		struct mt_group *group;
		uint32_t other = MT_NONE;
		uint64_t ident;
		uint32_t mine;

		if (!(flags & MT_GROUP_EXCLUSIVE))
			other = look_up(session, parent, name, len, hash,
					MT_NONE);
		if (other != MT_NONE) {
			*ret_group = other;
			return 0;
		}
		mine = claim(session);
		if (mine == MT_NONE)
			return -ENOSPC;
		group = &session->groups[mine];
		fill(group, parent, name, len, flags);
		ident = make_ident(MT_GROUP_CANDIDATE,
				   GENERATION(load_relaxed(&group->ident)),
				   hash);
		/* Pairs with look_up(): publish, then look. */
		store_seq_cst(&group->ident, ident);
		if (!(flags & MT_GROUP_EXCLUSIVE))
			other = look_up(session, parent, name, len, hash, mine);
		if (other != MT_NONE) {
			release(session, mine, ident);
			*ret_group = other;
			return 0;
		}
		if (cas_seq_cst(&group->ident, &ident,
				with_state(ident, MT_GROUP_LIVE)) ||
		    ident == with_state(make_ident(MT_GROUP_LIVE,
						   GENERATION(ident), hash),
					MT_GROUP_LIVE)) {
			*ret_group = mine;
			return 0;
		}
		/* Taken down in favour of a lower index: it is there now. */
	}
}

int mt_group_make(struct mt_session *session, uint32_t parent, const char *name,
		  uint32_t flags, uint32_t *ret_group)
{
	size_t len = strlen(name);

	if (len >= MT_NAME_MAX)
		return -ENAMETOOLONG;
	if (!mt_group_name_ok(name, len))
		return -EINVAL;
	if (depth_of(session, parent) >= MT_DEPTH_MAX)
		return -E2BIG;
	return make(session, parent, name, len, flags, ret_group);
}

int mt_group_make_path(struct mt_session *session, uint32_t base,
		       const char *path, uint32_t flags, uint32_t *ret_group)
{
	uint32_t at = *path == '/' ? MT_ROOT : base;
	int ret = 0;

	while (!ret) {
		char name[MT_NAME_MAX];
		size_t len;

		while (*path == '/')
			path++;
		if (!*path)
			break;
		for (len = 0; path[len] && path[len] != '/'; len++)
			;
		if (len >= MT_NAME_MAX) {
			ret = -ENAMETOOLONG;
			break;
		}
		memcpy(name, path, len);
		name[len] = '\0';
		ret = mt_group_make(session, at, name, flags, &at);
		path += len;
	}
	*ret_group = at;
	return ret;
}

uint32_t mt_group_find(struct mt_session *session, const char *path)
{
	uint32_t at = MT_ROOT;

	if (*path != '/')
		return MT_NONE;
	while (at != MT_NONE) {
		size_t len;

		while (*path == '/')
			path++;
		if (!*path)
			break;
		for (len = 0; path[len] && path[len] != '/'; len++)
			;
		if (!mt_group_name_ok(path, len))
			return MT_NONE;
		at = look_up(session, at, path, len, hash_name(at, path, len),
			     MT_NONE);
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
	mt_counter_set_min(session, index, 0);
	mt_counter_set_low(session, index, 0);
	parent = load_relaxed(&group->parent);
	release(session, index, ident);
	return parent;
}

void mt_group_retire(struct mt_session *session, uint32_t group)
{
	while (group != MT_ROOT && group < mt_table_high(session, MT_GROUPS))
		group = retire_one(session, group);
}

void mt_group_sweep(struct mt_session *session)
{
	uint32_t high = mt_table_high(session, MT_GROUPS);

	for (uint32_t i = 1; i < high; i++)
		mt_group_retire(session, i);
}

void mt_group_event(struct mt_session *session, uint32_t group,
		    enum mt_event event)
{
	if (group >= session->header->tables[MT_GROUPS].capacity)
		return;
	fetch_add_relaxed(&session->groups[group].events_local[event], 1);
	for (int i = 0; i < MT_DEPTH_MAX; i++) {
		if (group >= session->header->tables[MT_GROUPS].capacity)
			return;
		fetch_add_relaxed(&session->groups[group].events[event], 1);
		group = load_relaxed(&session->groups[group].parent);
	}
}
