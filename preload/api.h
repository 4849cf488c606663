/* SPDX-License-Identifier: MIT */
/*
 * api.h - the one object that programs which know memtally look for; and what
 * its watches need of the rest of the library.
 */
#ifndef MT_PRELOAD_API_H
#define MT_PRELOAD_API_H

#include <stdbool.h>

#include "preload/account.h"

#define MEMTALLY_NO_FUNCTIONS
#include "preload/memtally.h"

extern const struct memtally_api memtally_api_v1;

/* Has this process an event descriptor or a threshold?  Then every charge
 * and uncharge calls mt_api_look(), which is safe in a hook. */
extern _Atomic uint32_t mt_api_watches;
void mt_api_look(void);

#endif
