/* SPDX-License-Identifier: MIT */
/*
 * init.c - the library's start.
 *
 * Work may arrive before the constructor: the loader allocates, and other
 * libraries' constructors come first.  So everything the hooks need is ready
 * statically (system calls in place of libc's functions, pages noted instead
 * of charged), and the start itself runs at the first mapping call or in the
 * constructor, whichever comes first.
 */
#include "preload/init.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/segment.h"
#include "preload/account.h"
#include "preload/context.h"
#include "preload/exec.h"
#include "preload/fork.h"
#include "preload/malloc.h"
#include "preload/mmap.h"
#include "preload/thread.h"

static char session_entry[MT_PATH_MAX + 32];
static char group_entry[1024];
static char library[MT_PATH_MAX];

bool mt_env_ready(void)
{
	return environ != NULL;
}

const char *mt_env_get(const char *name)
{
	size_t len = strlen(name);

	for (char **e = environ; e && *e; e++) {
		if (strncmp(*e, name, len) == 0 && (*e)[len] == '=')
			return *e + len + 1;
	}
	return NULL;
}

size_t mt_print_number(char *buf, uint32_t n)
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

void mt_init_found_session(const char *path)
{
	const char *group = mt_env_get("MEMTALLY_GROUP");

	memcpy(session_entry, "MEMTALLY_SESSION=", 17);
	memcpy(session_entry + 17, path, strlen(path) + 1);
	if (group && strlen(group) + 16 <= sizeof(group_entry)) {
		memcpy(group_entry, "MEMTALLY_GROUP=", 15);
		memcpy(group_entry + 15, group, strlen(group) + 1);
	}
}

const char *mt_init_session_entry(void)
{
	return session_entry[0] ? session_entry : NULL;
}

const char *mt_init_group_entry(void)
{
	return group_entry[0] ? group_entry : NULL;
}

const char *mt_init_library(void)
{
	return library[0] ? library : NULL;
}

bool mt_init_follow(void)
{
	struct mt_session *session = mt_account_session();

	return !session || !(session->header->flags & MT_SESSION_NO_FOLLOW);
}

/* Which entry of LD_PRELOAD are we?  The one named libmemtally*. */
static void find_library(void)
{
	const char *list = mt_env_get("LD_PRELOAD");

	while (list && *list) {
		size_t len = strcspn(list, ": ");
		const char *base = list + len;

		while (base > list && base[-1] != '/')
			base--;
		if (strncmp(base, "libmemtally", 11) == 0 &&
		    len < sizeof(library)) {
			memcpy(library, list, len);
			library[len] = '\0';
			return;
		}
		list += len;
		list += strspn(list, ": ");
	}
}

__attribute__((constructor(101))) static void load(void)
{
	mt_context_start();
	mt_malloc_resolve();
	mt_mmap_resolve();
	mt_exec_resolve();
	mt_thread_resolve();
	mt_fork_register();
	find_library();
	mt_account_start();
	/*
	 * A session of our own: children that libc starts by itself (system,
	 * popen) take it from the environment.
	 */
	if (session_entry[0] && !getenv("MEMTALLY_SESSION"))
		setenv("MEMTALLY_SESSION", session_entry + 17, 1);
}
