#!/usr/bin/env bash
# run -g: limits for groups by the pattern of their path.
# shellcheck disable=SC2016 # for the shells that are started
. tests/tools/checks.bash

refuses() { # WHAT WHY
	local out status

	out=$("$m" run -g "$1" -- true 2>&1)
	status=$?
	equal "$status" 125 && matches "$out" "^memtally: $2" &&
		equal "$(wc -l <<<"$out")" 1
}
check "no pattern" refuses 'x:max=1M' "x:max=1M: --group takes"
check "no limit" refuses '/x' "/x: --group takes"
check "no such key" refuses "/x:most=1M" "most=1M: --group takes"
check "no size" refuses '/x:max=12Q' "12Q: not a size"

# Two programs that take 64 MiB; one of them may have less.
cp /bin/dd "$work/small" && cp /bin/dd "$work/large"
out=$("$m" run -n pat -s "json:$work/out.json" -g '/small.*:max=16M' -- sh -c '
	"$0/small" if=/dev/zero of=/dev/null bs=64M count=1 2>/dev/null
	echo "small $?"
	"$0/large" if=/dev/zero of=/dev/null bs=64M count=1 2>/dev/null
	echo "large $?"' "$work" 2>&1)
check "only the one that matches is limited" equal "$out" "small 1
large 0"
check "and stays below" jq -e '[.processes[] | select(.comm == "small")] |
	length == 1 and .[0].peak <= 16777216' "$work/out.json"
check "a pattern reaches into subgroups" equal "$(MEMTALLY_GROUP=/jobs/one \
	"$m" run -s none -g '/jobs/*:max=16M' -- "$work/large" if=/dev/zero \
	of=/dev/null bs=64M count=1 2>&1 | grep -c 'memory exhausted')" 1
exit $bad
