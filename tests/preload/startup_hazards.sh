# shellcheck shell=bash
# The program in all the surroundings that a start may have.
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

# starts NAME COMMAND...: within ten seconds, well, and without a word.
starts() {
	local name=$1 out status
	shift
	out=$(timeout -k 1 10 "$@" 2>&1)
	status=$?
	if [ $status -ne 0 ] || [ -n "$out" ]; then
		echo "$name: status $status: $out"
		bad=1
	fi
}

# library NAME < SOURCE
library() {
	${CC:-gcc} -O1 -fPIC -shared -x c -o "$work/$1.so" - -ldl || exit 1
}

run=("$MEMTALLY" run -s none --)
starts "as ever" "${run[@]}" "$program"
starts "no environment" env -i XDG_RUNTIME_DIR="$work" LD_PRELOAD="$SHIM" \
	"$program"
starts "bound at once" env LD_BIND_NOW=1 "${run[@]}" "$program"
starts "no rseq" env GLIBC_TUNABLES=glibc.pthread.rseq=0 "${run[@]}" "$program"

# Static thread-local storage is scarce when there are auditors: README.md.
library audit <<-'C'
	unsigned la_version(unsigned v) { return v; }
C
starts "audited" env LD_AUDIT="$work/audit.so" \
	GLIBC_TUNABLES=glibc.rtld.optional_static_tls=4096 "${run[@]}" "$program"

# Another library that wraps what the allocator's start needs, and looks the
# real ones up when it is called, on either side of ours.
library wrap <<-'C'
	#define _GNU_SOURCE
	#include <dlfcn.h>
	#include <stddef.h>
	#include <sys/types.h>
	#define NEXT(name) static __typeof__(name) *next; \
		if (!next) next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name);
	void *mmap(void *, size_t, int, int, int, off_t);
	int munmap(void *, size_t);
	ssize_t read(int, void *, size_t);
	int clock_gettime(int, void *);
	void *malloc(size_t);
	int pthread_create(void *, const void *, void *, void *);
	void *mmap(void *a, size_t n, int p, int f, int d, off_t o)
	{ NEXT(mmap) return next(a, n, p, f, d, o); }
	int munmap(void *a, size_t n) { NEXT(munmap) return next(a, n); }
	ssize_t read(int d, void *b, size_t n) { NEXT(read) return next(d, b, n); }
	int clock_gettime(int c, void *t) { NEXT(clock_gettime) return next(c, t); }
	void *malloc(size_t n) { NEXT(malloc) return next(n); }
	int pthread_create(void *t, const void *a, void *f, void *x)
	{ NEXT(pthread_create) return next(t, a, f, x); }
C
starts "before another" env XDG_RUNTIME_DIR="$work" \
	LD_PRELOAD="$SHIM:$work/wrap.so" "$program"
starts "after another" env XDG_RUNTIME_DIR="$work" \
	LD_PRELOAD="$work/wrap.so:$SHIM" "$program"
exit $bad
