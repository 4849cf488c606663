#!/usr/bin/env bash
# The summary, and that run keeps the numbers right while processes come and go.
# shellcheck disable=SC2016 # for the shells that are started
. tests/tools/checks.bash

check "nothing on a pipe" equal "$("$m" run -- true 2>&1)" ""
out=$("$m" run -m 512M -s text -- sh -c 'sleep 0; true' 2>&1)
check "text" matches "$out" \
	'^memtally: sh\[[0-9]+\] and [0-9]+ child(ren)?   peak [0-9.]+[KM] of 512\.0M \([0-9]+%\)   now 0   refused 0'
check "who held most" matches "$out" '  at most:  [a-z]+\.[0-9]+ [0-9.]+[KM]'
cp /bin/true "$work/"$'esc\033[2J'
out=$("$m" run -s text -- "$work/"$'esc\033[2J' 2>&1)
check "names don't reach the terminal's ears" matches "$out" 'esc\?\[2J'
check "who didn't take part is named" matches "$(
	MEMTALLY_DISABLE=1 "$m" run -s none -- true 2>&1)" \
	'^memtally: true: never reported in'

echo "left from last time, longer than what comes" >"$work/out"
"$m" run -s "text:$work/out" -- true
check "a file is written anew" equal "$(grep -c 'left from' "$work/out")" 0

start=$SECONDS
out=$("$m" run -n stays -s text -- sh -c '
	sh -c ": >\"\$0\"; exec sleep 30" "$0" >/dev/null 2>&1 &
	until [ -e "$0" ]; do sleep 0.05; done' "$work/stays" 2>&1)
check "run doesn't wait for what stays behind" test $((SECONDS - start)) -lt 20
check "and says so" matches "$out" '   1 still running'
check "the session lives on" says '.sessions[] | select(.name == "stays") |
	.state == "live" and .processes == 1' "$m" ls --json
pid=$("$m" stat --json stays | jq '.processes[0].pid')
kill -9 "$pid"
check "until it is killed" await says '.sessions[] | select(.name == "stays") |
	.state == "dead" and .current == 0' "$m" ls --json

mkfifo "$work/stop"
"$m" run -n many -s "json:$work/many.json" -- bash -c '
	for k in 1 2 3 4; do
		(for i in $(seq 75); do /bin/true; done) &
	done
	wait
	: >"$0"
	read -r <"$1"' "$work/idle" "$work/stop" &
run=$!
check "300 short processes" await test -e "$work/idle"
ticks() { awk '{ print $14 + $15 }' "/proc/$run/stat"; }
a=$(ticks)
sleep 1
check "run is idle when nothing happens" test $(($(ticks) - a)) -le 20
check "no dead one is left in the table" says '[.processes[].state] |
	all(. == "live") and length <= 3' "$m" stat --json many
echo >"$work/stop"
wait $run
check "all were counted, and all given back" jq -e '.processes_total >= 300 and
	.groups[0].current == 0 and .groups[0].charged == 0 and .drift == 0 and
	(.processes | length) == 64 and
	([.processes[].peak] | . == (sort | reverse))' "$work/many.json"
exit $bad
