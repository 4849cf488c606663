/* SPDX-License-Identifier: MIT */
/*
 * api.c - groups, for programs that know of memtally.
 */
#include "preload/api.h"

#include "core/group.h"
#include "preload/account.h"

static uint32_t group_get(const char *path)
{
	struct mt_session *session = mt_account_session();
	uint32_t process = mt_account_process();
	uint32_t group = MT_ROOT;
	uint32_t home;

	if (!session || process == MT_NONE || !path)
		return MT_ROOT;
	home = atomic_load(&session->processes[process].home);
	mt_group_make_path(session, home, path, MT_GROUP_KEEP, &group);
	/* Its threads must be able to charge there, whatever comes. */
	while (group != MT_ROOT &&
	       !mt_task_ensure_line(session, process, group))
		group = atomic_load(&session->groups[group].parent);
	return group;
}

static uint32_t enter(uint32_t group)
{
	uint32_t previous = mt_account_current();
	struct mt_session *session = mt_account_session();

	if (session && mt_group_is_live(session, group))
		mt_account_enter(group);
	return previous;
}

static void leave(uint32_t previous)
{
	struct mt_session *session = mt_account_session();

	if (previous == MT_HOME ||
	    (session && mt_group_is_live(session, previous)))
		mt_account_enter(previous);
}

MT_EXPORT const struct memtally_api memtally_api_v1 = {
	.size = sizeof(struct memtally_api),
	.group_get = group_get,
	.enter = enter,
	.leave = leave,
};
