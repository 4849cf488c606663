/* SPDX-License-Identifier: MIT */
/* A variable meant for another allocator neither speaks nor acts through
 * ours; the companion script looks at the output. */
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
	for (int i = 0; i < 1000; i++)
		free(malloc(100000));
	puts("quiet");
	return 0;
}
