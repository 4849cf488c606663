/* SPDX-License-Identifier: MIT */
/*
 * peak.h - a group's peak, for each process since it last asked to begin anew.
 *
 * As memory.peak with a descriptor of one's own, except that what was reached
 * since a process's reset isn't forgotten when another one resets.
 */
#ifndef MT_CORE_PEAK_H
#define MT_CORE_PEAK_H

#include "core/segment.h"

/**
 * mt_peak_reset - from now on, @process's peak of @group counts from here
 *
 * What others read is left as it is.  Two resets at the same moment may each
 * take what was reached just before the other for something after it.
 *
 * Return: 0; -ENOSPC, as many as the table holds have reset one.
 */
int mt_peak_reset(struct mt_session *session, uint32_t process, uint32_t group);

/* Pages: since @process's last reset; the group's own when it made none. */
int64_t mt_peak_read(const struct mt_session *session, uint32_t process,
		     uint32_t group);

/* A process is gone: so are its resets. */
void mt_peak_forget(struct mt_session *session, uint32_t process);

#endif
