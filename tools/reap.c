/* SPDX-License-Identifier: MIT */
/*
 * reap.c - the tools' share of the reaping: sessions that all have left.
 */
#include "tools/reap.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "core/atomic.h"
#include "core/audit.h"
#include "core/process.h"

/* Slots whose processes core can't judge: index and state word. */
struct foreign {
	uint32_t slot;
	uint64_t state;
};

static uint32_t list_foreign(const struct mt_session *session, uint64_t pid_ns,
			     struct foreign *list, uint32_t most)
{
	uint32_t high = mt_table_high(session, MT_PROCESSES);
	uint32_t n = 0;

	for (uint32_t i = 0; i < high && n < most; i++) {
		const struct mt_process *process = &session->processes[i];
		uint64_t state = load_acquire(&process->state);

		if ((state & 0xff) == MT_PROC_LIVE &&
		    load_relaxed(&process->pid_ns) != pid_ns)
			list[n++] = (struct foreign){ i, state };
	}
	return n;
}

/*
 * A write lease is granted only while nobody else has the file open, and a
 * mapping keeps it open: in any namespace, whatever we may see of it.  Given
 * back at once: who opens meanwhile, without waiting, is refused.
 */
static bool nobody_has(const char *path)
{
	int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	bool nobody;

	if (fd < 0)
		return false;
	/* What tells us that somebody waits would end us. */
	signal(SIGIO, SIG_IGN);
	nobody = !fcntl(fd, F_SETLEASE, F_WRLCK);
	if (nobody)
		fcntl(fd, F_SETLEASE, F_UNLCK);
	close(fd);
	return nobody;
}

void reap_path(const char *path)
{
	static struct mt_audit_scratch scratch;
	static struct foreign list[4096];
	struct mt_process_facts facts;
	struct mt_session session;
	int64_t repaired;
	uint32_t n;

	if (mt_segment_attach(&session, path))
		return;
	mt_process_facts(&facts);
	mt_process_reap_dead(&session, facts.pid_ns, UINT32_MAX);
	if (mt_audit_is_due(&session))
		mt_audit(&session, &scratch, &repaired);
	n = list_foreign(&session, facts.pid_ns, list, MT_ARRAY_SIZE(list));
	mt_segment_detach(&session);
	if (!n || !nobody_has(path) || mt_segment_attach(&session, path))
		return;
	/* Whoever takes one of these slots from now on changes its state. */
	for (uint32_t i = 0; i < n; i++)
		mt_process_reap(&session, list[i].slot, list[i].state,
				MT_ENDED_EXITED);
	if (mt_audit_is_due(&session))
		mt_audit(&session, &scratch, &repaired);
	mt_segment_detach(&session);
}
