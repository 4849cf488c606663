/* SPDX-License-Identifier: MIT */
/*
 * target.h - will the library work in this program?
 *
 * Reads the file with system calls only, on small buffers: safe in a vfork
 * child on its way to exec.
 */
#ifndef MT_CORE_TARGET_H
#define MT_CORE_TARGET_H

#include <stdbool.h>

enum mt_target {
	MT_TARGET_OK,        /* or not a program we can judge */
	MT_TARGET_STATIC,    /* ignores the library: harmless */
	MT_TARGET_SETUID,    /* the loader drops the library: harmless */
	MT_TARGET_MACHINE,   /* another ELF class or machine: complains */
	MT_TARGET_MUSL,      /* another libc: breaks */
	MT_TARGET_SANITIZER, /* its runtime must come first: breaks */
};

/* Follows scripts to their interpreters. */
enum mt_target mt_target_look(const char *path);
enum mt_target mt_target_look_fd(int fd);

/* Must the library be kept away from it? */
static inline bool mt_target_objects(enum mt_target target)
{
	return target >= MT_TARGET_MACHINE;
}

#endif
