/* SPDX-License-Identifier: MIT */
/*
 * proc.h - what the kernel says of a process.
 */
#ifndef MT_TOOLS_PROC_H
#define MT_TOOLS_PROC_H

#include <stdbool.h>
#include <stdint.h>

/**
 * proc_is_alive - is the process that bore @pid at a given time still there?
 * @pid: in our own pid namespace
 * @when_ns: CLOCK_BOOTTIME; whoever started later is somebody else
 *
 * A zombie without a living thread is not.  In doubt: yes.
 */
bool proc_is_alive(uint32_t pid, uint64_t when_ns);

/**
 * proc_find - who is process @pid of another pid namespace, to us?
 * @ns: inode of that namespace
 *
 * Reads all of /proc.  Return: its pid in our namespace; 0 when there is no
 * such process that we may look at: of a namespace that isn't below ours, too.
 */
uint32_t proc_find(uint32_t pid, uint64_t ns);

#endif
