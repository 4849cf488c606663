/* SPDX-License-Identifier: MIT */
/*
 * init.h - the start of the library, and what it knows of its environment.
 */
#ifndef MT_PRELOAD_INIT_H
#define MT_PRELOAD_INIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Can the environment be read?  Not before libc's own constructor ran. */
bool mt_env_ready(void);

/* A variable of the environment the process started with; no allocation. */
const char *mt_env_get(const char *name);

/* A decimal number; returns its length.  @buf: 12 bytes. */
size_t mt_print_number(char *buf, uint32_t n);

/* The session is at @path: children must hear of it. */
void mt_init_found_session(const char *path);

/* What exec must put back: "MEMTALLY_SESSION=...", or NULL. */
const char *mt_init_session_entry(void);

/* "MEMTALLY_GROUP=..." as this process started with, or NULL. */
const char *mt_init_group_entry(void);

/* The path by which this library was preloaded, or NULL. */
const char *mt_init_library(void);

/* Is the chain of children to be followed? */
bool mt_init_follow(void);

#endif
