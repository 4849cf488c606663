#!/usr/bin/env bash
# high slows down and never refuses; each policy at max does what it says.
# shellcheck disable=SC2016 # for the shells that are started
hog=$1
. tests/tools/checks.bash
export hog

# run_json OPTION... -- COMMAND...: its output in $out, status in $status, the
# session's numbers in $work/end.
run_json() {
	out=$("$m" run -s "json:$work/end" "$@" 2>/dev/null)
	status=$?
}
root() { jq -e ".groups[0] | $1" "$work/end"; }

start=$(date +%s%N)
run_json -H 20M -- "$hog" 23
took=$((($(date +%s%N) - start) / 1000000))
check "high: nothing is refused" equal "$out" "got 23"
check "high: it takes its time" test $took -ge 500
check "high: counted" root '.events.high > 0 and .events.max == 0 and
	.stall_us > 500000'
start=$(date +%s%N)
run_json -H 100M -- "$hog" 23
check "below high: no delay" root '.events.high == 0 and .stall_us == 0'

run_json -m 20M -- "$hog" 23
check "enomem: refused" equal "$status $out" "1 got 19"
check "enomem: counted" root '.events.max >= 1 and .events.oom == 1 and
	.events.oom_kill == 0 and .peak <= 20971520 and .current == 0'

run_json -m 300M --on-max kill -- sh -c '
	"$hog" 200 1 1000 & "$hog" 90 1 1000 & "$hog" 90 1 1000 & wait'
check "kill: the largest, and no other" equal "$out" "got 90
got 90"
check "kill: counted" root '.events.oom == 1 and .events.oom_kill == 1 and
	.events.oom_group_kill == 0 and .peak <= 314572800 and .current == 0'

# The largest in another pid namespace: run knows it there.
if unshare -pf --mount-proc true 2>/dev/null; then
	run_json -m 150M --on-max kill -- sh -c '
		unshare -pf --mount-proc "$hog" 80 1 20000 & sleep 0.5
		"$hog" 75; wait'
	check "kill: into another pid namespace" equal "$out" "got 80
got 75"
	check "kill: into it, counted" root '.events.oom_kill == 1 and
		.current == 0'
	run_json -m 150M --on-max kill -- sh -c '
		"$hog" 80 1 20000 & sleep 0.5
		unshare -pf --mount-proc "$hog" 75; wait'
	check "kill: and out of one" equal "$out" "got 80
got 75"
	check "kill: out of it, counted" root '.events.oom_kill == 1 and
		.current == 0'
fi

run_json -m 50M --on-max kill-group -- sh -c '
	"$hog" 40 1 5000 & "$hog" 40 1 5000 & wait'
check "kill-group: all of them" equal "$status $out" "137 "
check "kill-group: counted" root '.events.oom_group_kill == 1 and
	.events.oom_kill >= 3 and .current == 0'

run_json -m 100M --on-max wait=20 -- sh -c '
	"$hog" 70 0 700 & sleep 0.2; "$hog" 60; wait'
check "wait: until there is room" equal "$(sort <<<"$out")" "got 60
got 70"
check "wait: counted as a stall" root '.stall_us > 100000 and
	.events.oom == 1'
run_json -m 20M --on-max wait=0.3 -- "$hog" 23
check "wait: not for ever" equal "$status $out" "1 got 19"

run_json -m 20M -g '/limit_hog.*:max=10M' --on-max kill -- sh -c '
	"$hog" 15; echo "status $?"'
check "a group's own limit: who is below it dies" equal "$out" "status 137"

# Stopped at the limit, as a whole; continued with room, it goes on.
"$m" run -n stops -s "json:$work/end" -m 100M --on-max stop -- sh -c '
	"$hog" 70 0 100000 & echo $! >"$0/first"; sleep 0.2; "$hog" 60
	kill -9 "$(cat "$0/first")"' "$work" >"$work/out" 2>/dev/null &
run=$!
stopped() { [ "$(cut -d" " -f3 "/proc/$1/stat")" = T ]; }
await test -s "$work/first"
first=$(cat "$work/first")
check "stop: all are" await stopped "$first"
check "stop: run, too" await stopped "$run"
check "stop: the limit holds" says '.groups[0].current <= 104857600' \
	"$m" stat --json stops
kill -9 "$first"
pkill -CONT -P "$run"
for pid in $(jq -r '.processes[].pid' < <("$m" stat --json stops)) "$run"; do
	kill -CONT "$pid"
done
check "stop: goes on when there is room" await grep -qx "got 60" "$work/out"
wait $run
exit $bad
