/* SPDX-License-Identifier: MIT */
/*
 * library.h - libmemtally.so: where it is, and naming it in LD_PRELOAD.
 */
#ifndef MT_TOOLS_LIBRARY_H
#define MT_TOOLS_LIBRARY_H

/**
 * library_find - the library that belongs to this memtally
 * @link_dir: where a link may be put when its own path has a character that
 *	      LD_PRELOAD can't hold
 * @ret_path: MT_PATH_MAX bytes
 *
 * Looks beside the program and where it is installed relative to it, and makes
 * sure that the loader will take it.
 *
 * Return: 0, or -1 after a line was said.
 */
int library_find(const char *link_dir, char *ret_path);

/* Put @path in front of LD_PRELOAD, once. */
void library_preload(const char *path);

#endif
