# shellcheck shell=bash
# The libraries that the program opens.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# library NAME OPTION... < SOURCE
library() {
	local name=$1
	shift
	${CC:-gcc} -O1 -fPIC -shared -fno-builtin "$@" -x c \
		-o "$work/$name.so" - || exit 1
}

# Of different sizes, so that the loader's tables change.
for n in 1 2 3; do
	library "tls$n" -DSIZE="${n}500" <<-'C'
		#include <stdlib.h>
		static __thread char room[SIZE];
		static void *kept;
		char *touch(unsigned long n);
		char *touch(unsigned long n) { room[0] = (char)n; return room; }
		__attribute__((constructor)) static void in(void)
		{
			for (int i = 0; i < 30; i++)
				free(malloc(100 + i * 300));
			kept = malloc(4000);
		}
		__attribute__((destructor)) static void out(void) { free(kept); }
	C
done

# As when an allocator is linked in statically, and hidden.
library own <<-'C'
	#include <string.h>
	static char room[1 << 16];
	static size_t used;
	#define HIDDEN __attribute__((visibility("hidden")))
	HIDDEN void *malloc(size_t n)
	{ used += (n + 15) & ~15ul; return room + used - ((n + 15) & ~15ul); }
	HIDDEN void free(void *p)
	{ if ((char *)p < room || (char *)p >= room + sizeof(room)) __builtin_trap(); }
	char *work(void);
	char *work(void)
	{
		for (int i = 0; i < 50; i++) {
			char *p = malloc(100);
			memset(p, 1, 100);
			free(p);
		}
		return strdup("made by strdup");
	}
C
"$MEMTALLY" run -s none -- "$1" "$work"
