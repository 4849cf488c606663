/* SPDX-License-Identifier: MIT */
/* Takes blocks of 1 MiB, up to so many; says how many it got:
 *	limit_hog MIB [PAUSE_MS [HOLD_MS]]
 * limit_hog.sh has it meet limits of every kind. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int want = argc > 1 ? atoi(argv[1]) : 0;
	int pause_ms = argc > 2 ? atoi(argv[2]) : 0;
	int hold_ms = argc > 3 ? atoi(argv[3]) : 0;
	int got;

	for (got = 0; got < want; got++) {
		char *p = malloc(1 << 20);

		if (!p)
			break;
		memset(p, 1, 1 << 20);
		usleep((useconds_t)pause_ms * 1000);
	}
	printf("got %d\n", got);
	fflush(stdout);
	usleep((useconds_t)hold_ms * 1000);
	return got < want;
}
