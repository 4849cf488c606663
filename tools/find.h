/* SPDX-License-Identifier: MIT */
/*
 * find.h - where sessions are.
 */
#ifndef MT_TOOLS_FIND_H
#define MT_TOOLS_FIND_H

#include <stdbool.h>
#include <stddef.h>

/* Paths of segments, in order of their names. */
struct sessions {
	char **paths;
	size_t n;
};

/* The directories of this user: "" for one that isn't there, or isn't safe. */
void find_dirs(char ret_dirs[2][4096]);

/**
 * find_sessions - all segments
 * @everybody: root sees other users' too; they come last
 */
void find_sessions(struct sessions *ret_sessions, bool everybody);
void free_sessions(struct sessions *sessions);

/**
 * find_session - the one that @name means
 * @name: an absolute path, a name, or NULL: the only live one
 * @ret_path: 4096 bytes
 *
 * Return: an exit status; when it is not CMD_OK a line has been said.
 */
int find_session(const char *name, char *ret_path);

/**
 * find_group - what "[SESSION:]/PATH" means
 * @ret_path: of the session, as find_session() gives it
 * @ret_group: 4096 bytes, the group's path, without a '/' at its end
 *
 * Return: an exit status; when it is not CMD_OK a line has been said.  That the
 * group is there is not looked at.
 */
int find_group(const char *text, char *ret_path, char *ret_group);

#endif
