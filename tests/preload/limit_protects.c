/* SPDX-License-Identifier: MIT */
/* Frees what it had, which stays cached, and goes on with a little:
 *	limit_protects MIB NAME
 * writes its pid to NAME when that much is cached, and ends when NAME.stop is
 * there.  limit_protects.sh has others at its limit. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK (256 * 1024)

static char *blocks[4096];

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) * 4 : 0;
	char stop[4096];
	FILE *file;

	if (argc < 3 || n > 4096)
		return 2;
	snprintf(stop, sizeof(stop), "%s.stop", argv[2]);
	for (int i = 0; i < n; i++) {
		blocks[i] = malloc(BLOCK);
		if (!blocks[i])
			return 1;
		memset(blocks[i], 1, BLOCK);
	}
	for (int i = 0; i < n; i++)
		free(blocks[i]);
	file = fopen(argv[2], "w");
	if (!file)
		return 1;
	fprintf(file, "%d\n", (int)getpid());
	fclose(file);
	while (access(stop, F_OK)) {
		/* Out of the cache, of another size each time. */
		free(malloc(20000 + (size_t)(rand() % 64) * 4096));
		usleep(500);
	}
	return 0;
}
