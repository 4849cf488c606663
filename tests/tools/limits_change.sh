#!/usr/bin/env bash
# memtally show, get and set, on a tree that runs: cgroup v2's words, all or
# nothing, and what a new limit does.
# shellcheck disable=SC2016 # for the shells that are started
. tests/tools/tree.bash
hog=${m%/*}/tests/preload/limit_hog
export hog
MIB=1048576

show() { "$m" show "$@"; }
get() { "$m" get "$@"; }

"$m" run -n live -s none -m 200M -g '/b:low=10M,high=150M' -- sh -c '
	MEMTALLY_GROUP=/a "$0" hold 20 say "$1/a" fork hold 30 say "$1/child" \
		wait "$1/stop" &
	MEMTALLY_GROUP=/b "$0" hold 5 say "$1/b" wait "$1/stop" &
	wait' "$grow" "$work" &
run=$!
said a
said child
said b

check "one file is bare" matches "$(show live:/ memory.max)" "^$((200 * MIB))\$"
check "the only live session" equal "$(show / memory.max)" $((200 * MIB))
check "a group's own" equal "$(show live:/b memory.low memory.high)" \
	"memory.low $((10 * MIB))
memory.high $((150 * MIB))"
check "unlimited" equal "$(show live:/a memory.max)" max
check "what is charged" test "$(show live:/a memory.current)" -ge $((50 * MIB))
check "a path's last slash" equal "$(show live:/a/ memory.min)" 0
check "events" equal "$(show live:/a memory.events | tr '\n' ' ')" \
	"low 0 high 0 max 0 oom 0 oom_kill 0 oom_group_kill 0 dirty 0 "
check "all files" equal "$(show live:/a | cut -d' ' -f1 | uniq | tr '\n' ' ')" \
	"memory.current memory.peak memory.min memory.low memory.high memory.max memory.events memory.events.local memory.stat "
stat=$(show live:/a memory.stat)
stat_of() { awk -v key="$1" '$1 == key { print $2 }' <<<"$stat"; }
check "stat: anon is heap and more" test "$(stat_of anon)" -ge "$(stat_of heap)" \
	-a "$(stat_of heap)" -ge $((50 * MIB))
check "get: all" equal "$(get live:/b | tr '\n' ' ')" \
	"min 0 low $((10 * MIB)) high $((150 * MIB)) max max oom.group 0 dirty_max max "
check "get: one" equal "$(get live:/b high)" $((150 * MIB))

check "set: several" "$m" set live:/b low=12M min=1M oom.group=1 dirty_max=3M
check "set: they are" equal "$(get live:/b | tr '\n' ' ')" \
	"min $MIB low $((12 * MIB)) high $((150 * MIB)) max max oom.group 1 dirty_max $((3 * MIB)) "
check "set: all or nothing" fails 2 "12Q: not a size" \
	"$m" set live:/b low=13M max=12Q
check "set: nothing" equal "$(get live:/b low)" $((12 * MIB))
check "set: claims are published" says '.groups[] | select(.path == "/b") |
	.elow == 12582912 or .elow > .charged' "$m" stat --json live

# A limit below what is there: the write succeeds, and nobody gets more.
check "set: below usage" "$m" set / max=20M
check "set: it is" equal "$(get / max)" $((20 * MIB))
check "set: what is there stays" test "$(show / memory.current)" -gt $((50 * MIB))
check "set: nobody gets more" equal "$(MEMTALLY_SESSION=$places/live \
	LD_PRELOAD=${m%/*}/libmemtally.so "$hog" 3 2>/dev/null)" "got 0"
check "set: and off again" "$m" set / max=max

check "no such group" fails 1 "no such group" "$m" show live:/none
check "no such group to set" fails 1 "no such group" "$m" set live:/none max=1M
check "no such session" fails 1 "no such session" "$m" show none:/
check "no such file" fails 2 "no such file" "$m" show / memory.swap.max
check "no such key" fails 2 "no such limit" "$m" get / swap
check "not a path" fails 2 "not a group" "$m" show live
check "no value" fails 2 "not KEY=VALUE" "$m" set / max
check "no key" fails 2 "not KEY=VALUE" "$m" set / swap=1M
check "not a flag" fails 2 "0 or 1" "$m" set / oom.group=yes
check "nothing to set" fails 2 "what" "$m" set /
check "which group" fails 2 "which group" "$m" show
head -c 100000 /dev/urandom >"$places/junk"
chmod 600 "$places/junk"
check "garbage to show" fails 3 "not a session" "$m" show junk:/
check "garbage to set" fails 3 "not a session" "$m" set junk:/ max=1M
check "garbage to tell of" fails 3 "not a session" "$m" events junk
rm "$places/junk"

: >"$work/stop"
wait $run
check "when it has ended, too" equal "$(show live:/ memory.current)" 0
check "but nothing is set" fails 1 "has ended" "$m" set live:/ max=1M
"$m" gc >/dev/null

# The policy holds for a lowered limit as well: the largest goes.
"$m" run -n kills -s "json:$work/end" --on-max kill -- sh -c '
	"$hog" 40 0 20000 & "$hog" 20 0 3000 & wait' >"$work/out" &
run=$!
both() { [ "$(wc -l <"$work/out")" = 2 ]; }
await both
check "set: kills" "$m" set kills:/ max=30M
check "set: until there is room" test "$(show kills:/ memory.current)" -le \
	$((30 * MIB))
wait $run
check "set: the largest, and no other" says '.groups[0].events |
	.oom == 1 and .oom_kill == 1' cat "$work/end"
check "set: the log says so" says '.event == "killed" and
	.victim.bytes > 40000000' "$m" events --json kills

# What was stopped for want of room goes on with it.
"$m" run -n stops -s none -m 50M --on-max stop -- "$hog" 60 >"$work/out" &
run=$!
stopped() { [ "$(cut -d" " -f3 "/proc/$1/stat")" = T ]; }
check "stop: it is" await stopped $run
check "stop: raised" "$m" set stops:/ max=100M
wait $run
check "stop: it goes on" equal "$(cat "$work/out")" "got 60"
check "stop: the log says so" says '.event == "stopped"' "$m" events --json stops
exit $bad
