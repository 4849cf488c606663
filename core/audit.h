/* SPDX-License-Identifier: MIT */
/*
 * audit.h - taking back what operations cut short have left on the counters.
 *
 * Usage is never below the sum of the words; what it is above is drift: the
 * operations under way, and those that died under way.  At a moment when none
 * is under way the drift is exact, and can be subtracted.
 */
#ifndef MT_CORE_AUDIT_H
#define MT_CORE_AUDIT_H

#include "core/segment.h"

/* Memory an audit works in: one number per group and kind of sum.  Nobody
 * else's audit of the same session touches it meanwhile: it may be shared. */
struct mt_audit_scratch {
	int64_t words[4096];
	int64_t min_usage[4096];
	int64_t low_usage[4096];
};

enum mt_audit_result {
	MT_AUDIT_DONE, /* counters are exact now */
	MT_AUDIT_BUSY, /* no quiet moment, or another audit is under way */
};

/* The gate is closed for no longer. */
#define MT_GATE_NS UINT64_C(1000000)

/* Has anybody died inside an operation since the last audit? */
bool mt_audit_is_due(const struct mt_session *session);

/**
 * mt_audit - make every counter equal to the sum of the words below it
 * @scratch: the caller's; contents don't matter
 * @ret_pages: drift taken back
 *
 * Looks a few times for a quiet moment, and then makes one: operations that
 * begin wait, MT_GATE_NS at most.  Where a thread doesn't come to rest, the
 * drift is left and header.repair_pending counts it.  The dead should have
 * been reaped.  Not to be called inside an operation.
 */
enum mt_audit_result mt_audit(struct mt_session *session,
			      struct mt_audit_scratch *scratch,
			      int64_t *ret_pages);

/* Pages by which "/" is above the sum of all words: exact only at rest. */
int64_t mt_audit_drift(struct mt_session *session);

#endif
