#!/usr/bin/env bash
# kill -9 of a process in the middle, of run, of all: sums stay those of the
# living; and pids used again take over nothing.
# shellcheck disable=SC2016 # for the shells that are started
. tests/tools/tree.bash

# start NAME: three generations with 5, 6 and 7 MiB, until $work/stop.
start() {
	rm -f "$work"/{a,b,c,stop}
	"$m" run -n "$1" -s none -- "$grow" hold 5 say "$work/a" fork hold 6 \
		say "$work/b" fork hold 7 say "$work/c" wait "$work/stop" &
	run=$!
	said a && a=$pid
	said b && b=$pid
	said c && c=$pid
	check "$1: three" session "$1" \
		'([.processes[].charged / 1048576 | floor] | sort) == [5, 6, 7]'
}

start middle
kill -9 "$b"
wait $run
check "middle killed: run ends with the first" equal $? 137
check "middle killed: its child goes on" session middle '.state == "live" and
	([.processes[].charged / 1048576 | floor]) == [7]'
: >"$work/stop"
check "middle killed: after the last, dead" await listed middle dead
check "middle killed: gc" removed middle

start all
kill -9 "$a" "$b" "$c"
wait $run
check "all killed: the status" equal $? 137
check "all killed: dead" listed all dead
check "all killed: nothing is left" session all '.groups[0].charged == 0 and
	.processes_total == 3'
check "all killed: gc" removed all

start watchless
kill -9 $run
wait $run 2>/dev/null
check "run killed: ls says live" listed watchless live 3
check "run killed: gc leaves it" equal "$("$m" gc | grep watchless)" ""
kill -9 "$b"
check "run killed: the dead are seen" await session watchless \
	'([.processes[].charged / 1048576 | floor] | sort) == [7]'
check "run killed: the living go on" holds "$c" 7
: >"$work/stop"
check "run killed: after the last, dead" await listed watchless dead
check "run killed: gc" removed watchless

# A pid namespace of our own, where nobody else takes pids.
cat >"$work/again.sh" <<'EOT'
. tests/tools/tree.bash
work=$1
# give PID: whoever starts next gets it.
give() { echo $(($1 - 1)) >/proc/sys/kernel/ns_last_pid; }
"$m" run -x -n again -- "$grow" hold 20 say "$work/old" wait "$work/stop" &
said old
old=$pid
kill -9 "$old"
wait "$old" 2>/dev/null
sleep 0.05
give "$old"
sleep 100 &
check "reused by a stranger: the pid" equal "$!" "$old"
check "reused by a stranger: dead" listed again dead
kill "$!"
wait "$!" 2>/dev/null
"$m" gc >/dev/null

"$m" run -x -n again -- "$grow" hold 4 say "$work/stays" wait "$work/stop" &
said stays
stays=$pid
join() {
	MEMTALLY_SESSION=$places/again LD_PRELOAD=${m%/*}/libmemtally.so \
		exec "$@"
}
join "$grow" hold 20 map 8 say "$work/old2" wait "$work/stop" &
said old2
old=$pid
kill -9 "$old"
wait "$old" 2>/dev/null
give "$old"
join "$grow" hold 3 say "$work/new" wait "$work/stop" &
new=$!
said new
check "reused by a member: the pid" equal "$new" "$old"
check "reused by a member: takes over nothing" holds "$new" 3
check "reused by a member: exact" session again \
	'([.processes[].charged / 1048576 | floor] | sort) == [3, 4] and
	(.groups[0].charged / 1048576 | floor) == 7 and .processes_total == 3'
: >"$work/stop"
wait "$stays" "$new"
check "reused by a member: nothing is left" listed again dead
check "reused by a member: gc" removed again
exit $bad
EOT
if unshare -pf --mount-proc sh -c \
	'echo 50 >/proc/sys/kernel/ns_last_pid' 2>/dev/null; then
	mkdir "$work/again"
	unshare -pf --mount-proc --kill-child bash "$work/again.sh" \
		"$work/again" || bad=1
else
	echo "skip  pids used again: not allowed here"
fi
exit $bad
