/* SPDX-License-Identifier: MIT */
/* Writes to a shared mapping of a file, again and again, and allocates beside
 * it:	dirty_pages_are_limited FILE MIB STOP
 * dirty_pages_are_limited.sh looks at what is dirty, and limits it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	size_t size = argc > 2 ? (size_t)atoi(argv[2]) << 20 : 0;
	int fd;
	char *p;

	if (argc < 4)
		return 77;
	fd = open(argv[1], O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)size))
		return 1;
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return 1;
	for (size_t i = 0; i < size; i += 4096)
		p[i] = 1;
	puts("dirty");
	fflush(stdout);
	while (access(argv[3], F_OK)) {
		free(malloc(20000 + (size_t)(rand() % 64) * 4096));
		usleep(2000);
	}
	for (size_t i = 0; i < size; i += 4096)
		if (p[i] != 1)
			return 1;
	return 0;
}
