/* SPDX-License-Identifier: MIT */
/*
 * supervise.h - watching over a session while its command runs.
 */
#ifndef MT_TOOLS_SUPERVISE_H
#define MT_TOOLS_SUPERVISE_H

#include <signal.h>
#include <sys/types.h>

#include "core/segment.h"

/* The signals that are passed on; block them before the command starts. */
void supervise_signals(sigset_t *ret_set);

/**
 * supervise - until @child ends
 *
 * Takes back what each process of the session holds as soon as it dies, passes
 * on signals that somebody sent to us, stops when the child stops.
 *
 * Return: its wait status.
 */
int supervise(struct mt_session *session, pid_t child);

#endif
