#!/usr/bin/env bash
# The heap's tests where the system makes huge pages by itself, as Debian's
# own kernels do.  As root that is switched on, for the whole machine, and
# back afterwards; otherwise, or where it can't be switched, skipped.
set -u
switch=/sys/kernel/mm/transparent_hugepage/enabled

before=$(sed 's/.*\[\(.*\)\].*/\1/' "$switch" 2>/dev/null)
trap '[ -z "$before" ] || echo "$before" 2>/dev/null >"$switch"' EXIT
if [ "$before" != always ] && ! { echo always >"$switch"; } 2>/dev/null; then
	echo "0 passed, 0 failed, 1 skipped"
	exit
fi
make -s check T=preload/heap_
