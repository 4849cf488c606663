/* SPDX-License-Identifier: MIT */
#ifndef MT_PRELOAD_FORK_H
#define MT_PRELOAD_FORK_H

/* Register our fork handlers, once, before anybody else's. */
void mt_fork_register(void);

#endif
