#!/usr/bin/env bash
# The rules between the folders, and what the library shows to the outside.
B=${B:-build}
bad=0
fail() {
	echo "layers: $1" >&2
	bad=1
}

# Who may include whom.
grep -nE '#include "' core/*.[ch] | grep -v '"core/' &&
	fail "core includes only core"
grep -nE '#include "' preload/*.[ch] | grep -vE '"(core|preload)/' &&
	fail "preload includes only core and preload"
grep -nE '#include "' tools/*.[ch] | grep -vE '"(core|tools)/' &&
	fail "tools include only core and tools"

# Core asks libc for next to nothing.
while read -r symbol; do
	grep -qx "$symbol" tests/abi/core-imports.txt ||
		fail "core uses $symbol, which is not in tests/abi/core-imports.txt"
done < <(nm -u "$B/libmemtally-core.a" | awk '$1 == "U" { print $2 }' |
	sort -u | grep -v '^mt_' | grep -v '^_GLOBAL_OFFSET_TABLE_$')

# The orders of memory accesses are spelled in one file.
grep -ln 'memory_order_' core/*.c preload/*.c tools/*.c &&
	fail "memory orders belong to core/atomic.h"

# Exported is what is meant to be, under an anonymous version node.
shim=$B/libmemtally.so
diff <(nm -D --defined-only "$shim" | awk '{ print $3 }' | LC_ALL=C sort) \
	<(tests/exported.sh "$B"/preload/*.o |
		grep -vxE 'je_.*' | LC_ALL=C sort) >&2 ||
	fail "exports differ from what is marked MT_EXPORT: make exports"
diff <(nm -D --defined-only "$shim" | awk '{ print $3 }' | LC_ALL=C sort) \
	<(sed -n 's/^[[:space:]]*\([A-Za-z0-9_]*\);$/\1/p' preload/exports.map |
		LC_ALL=C sort) >&2 ||
	fail "exports differ from preload/exports.map: make exports"
head -n 1 preload/exports.map | grep -q '^{' ||
	fail "the version node must have no name"
nm -D --defined-only "$shim" | grep '@' && fail "a symbol has a version"

# Nothing in it may allocate, resolve or execute at a bad moment.
[ "$(readelf -rW "$shim" | grep -c DTPMOD)" -eq 0 ] ||
	fail "thread-local storage that is not initial-exec"
readelf -dW "$shim" | grep -q 'NOW' || fail "not linked with -z now"
readelf -lW "$shim" | grep 'GNU_STACK' | grep -q 'RWE' &&
	fail "wants an executable stack"
needed=$(readelf -dW "$shim" | grep NEEDED | grep -vE 'libc\.so|ld-linux')
[ -z "$needed" ] || fail "needs more than libc: $needed"
exit $bad
