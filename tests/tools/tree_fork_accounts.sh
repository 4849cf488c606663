#!/usr/bin/env bash
# Who pays after a fork: the parent for what was there, the child for its own.
. tests/tools/tree.bash

# near A B: within two batches of 64 pages.
near() {
	local d=$(($1 - $2))
	[ ${d#-} -le 128 ] || { echo "$1 pages, not $2"; return 1; }
}

"$m" run -n worker -s none -- "$grow" hold 40 say "$work/parent" fork \
	cycle 40 1 say "$work/once" wait "$work/go" cycle 40 50 \
	say "$work/often" wait "$work/drop" drop say "$work/dropped" \
	wait "$work/stop" &
run=$!
said parent
parent=$pid
said once
before=$(value charged "$parent")
once=$(value charged "$pid")
: >"$work/go"
said often
check "50 rounds of 40 MiB leave a worker where it was" \
	near "$(value charged "$pid")" "$once"
check "which is next to nothing" test "$once" -lt 512
: >"$work/drop"
said dropped
check "freeing what was inherited takes nothing off the child" \
	near "$(value charged "$pid")" "$once"
check "nor off the parent" equal "$(value charged "$parent")" "$before"
check "who holds it" holds "$parent" 40
check "all adds up" session worker '(.processes | length) == 2'
: >"$work/stop"
wait $run

# 60 MiB of data, 78 MiB at most: the copies that writing makes are the
# kernel's, not the parent's charge.
"$m" run -n snapshot -m 78M -s "json:$work/end" -- "$grow" hold 60 snapshot \
	rewrite say "$work/after"
check "a snapshot fits" equal $? 0
said after
check "and the data" equal "$mib" 60
check "nothing was refused" jq -e '.groups[0].peak <= 78 * 1048576 and
	.groups[0].events.max == 0 and .groups[0].events.oom == 0 and
	.groups[0].current == 0 and .processes_total == 2' "$work/end"
exit $bad
