/* SPDX-License-Identifier: MIT */
/*
 * format.h - sizes, to and from text.
 */
#ifndef MT_TOOLS_FORMAT_H
#define MT_TOOLS_FORMAT_H

#include <stdint.h>

/* Bytes as people read them: "0", "4.0K", "431.2M", "1.5T".  @buf: 16. */
const char *format_bytes(int64_t bytes, char *buf);

/**
 * parse_size - a size as users write it
 *
 * A number, perhaps with a fraction, and K M G T or P (1024); "max"; or a
 * percentage of MemTotal or of the container's own limit, whichever is lower.
 *
 * Return: 0, or -EINVAL.  @ret_bytes: INT64_MAX for "max".
 */
int parse_size(const char *text, int64_t *ret_bytes);

#endif
