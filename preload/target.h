/* SPDX-License-Identifier: MIT */
#ifndef MT_PRELOAD_TARGET_H
#define MT_PRELOAD_TARGET_H

#include <stdbool.h>

/*
 * Would the library break, or be complained of by, the program in this file?
 * So it is with programs of another ELF class or machine, with musl's loader,
 * and with those linked to a sanitizer that must come first.  Static and
 * setuid programs ignore it: harmless, and their children are followed again.
 * Reads the file with system calls only; @fd is not closed.
 */
bool mt_target_objects(const char *path);
bool mt_target_objects_fd(int fd);

#endif
