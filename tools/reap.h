/* SPDX-License-Identifier: MIT */
/*
 * reap.h - taking back what the dead of a session hold.
 */
#ifndef MT_TOOLS_REAP_H
#define MT_TOOLS_REAP_H

/**
 * reap_path - reap all that are dead in a session
 *
 * Core judges by pid.  That says nothing of another pid namespace's processes,
 * nor of one that could not read its own: they are dead when nobody at all has
 * the session open or mapped, which the caller must not have either.
 *
 * Does nothing where we may not write.
 */
void reap_path(const char *path);

#endif
