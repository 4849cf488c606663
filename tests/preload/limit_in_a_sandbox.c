/* SPDX-License-Identifier: MIT */
/* A program that a filter would end for calls it never makes itself: at its
 * limit, and when it gives back, the library makes none of them either.
 * limit_in_a_sandbox.sh gives it a limit. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "tests/preload/count.h"

#define DEADLY(nr)                                                             \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),                         \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

static void on_signal(int sig)
{
	(void)sig;
}

int main(int argc, char **argv)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		DEADLY(SYS_process_vm_readv),
		DEADLY(SYS_mincore),
		DEADLY(SYS_pidfd_open),
		DEADLY(SYS_pipe2),
		DEADLY(SYS_sigaltstack),
		DEADLY(SYS_prctl),
		DEADLY(SYS_rt_sigaction),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {
		.len = sizeof(filter) / sizeof(filter[0]),
		.filter = filter,
	};
	static char *blocks[4096];
	int n = 0;

	(void)argv;
	signal(SIGUSR1, on_signal);
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	if (argc > 1)
		must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0,
			     &program) == 0);
	else
		must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
	for (int round = 0; round < 3; round++) {
		while (n < 4096 && (blocks[n] = malloc(100000)))
			memset(blocks[n++], 1, 100000);
		must(n > 100 && n < 1000);
		must(mmap(NULL, 1 << 26, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
		while (n)
			free(blocks[--n]);
	}
	return 0;
}
