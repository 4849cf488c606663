#!/usr/bin/env bash
# Pids mean nothing in another pid namespace: nobody there takes the living
# for dead, and what they held is back when all have gone.
# shellcheck disable=SC2016 # for the shells that are started
. tests/tools/tree.bash

unshare -pf --mount-proc true 2>/dev/null || {
	echo "no pid namespace can be made here"
	exit 77
}

# Two with the same pids, and others who join in each and look for the dead.
"$m" run -n twins -s none -- sh -c '
	for i in 1 2; do
		unshare -pf --mount-proc "$@" hold 20 say "$0/outer$i" \
			fork hold 30 say "$0/inner$i" wait "$0/go" \
			fork hold 1 drop say "$0/joined$i" wait "$0/stop" &
	done
	wait' "$work" "$grow" &
run=$!
twins='[.processes[] | select(.charged > 10485760).charged / 1048576 | floor] |
	sort == [20, 20, 30, 30]'
for i in 1 2; do
	said outer$i
	check "twin $i is pid 1" equal "$pid" 1
	said inner$i
done
check "four in two namespaces" session twins "$twins"
: >"$work/go"
said joined1
said joined2
check "joining reaps none of the other" session twins "$twins"
for i in 1 2 3; do
	unshare -pf --mount-proc "$m" ls >/dev/null
	unshare -pf --mount-proc "$m" gc >/dev/null
done
check "nor do ls and gc in a third" session twins "$twins"
kill -9 $run
wait $run 2>/dev/null
check "nor when run is gone" session twins "$twins"
: >"$work/stop"
check "both ended: all is back" await listed twins dead
check "both ended: gc" removed twins

# Those that run can see from outside are back at their end, whoever else is
# still there.
"$m" run -n inner -s none -- sh -c '
	unshare -pf --mount-proc --kill-child "$@" hold 20 fork hold 30 \
		say "$0/in" wait "$0/end" &
	echo $! >"$0/unshare"
	exec "$1" hold 5 say "$0/out" wait "$0/last"' "$work" "$grow" &
run=$!
said out
said in
check "three in two namespaces" session inner \
	'[.processes[] | select(.charged > 4194304)] | length == 3'
kill -9 "$(cat "$work/unshare")"
check "what was in a namespace that ended is back" await session inner \
	'.processes | length == 1'
: >"$work/last"
wait $run
check "and all at the end" listed inner dead
check "gc" removed inner

# A new namespace in an empty root, where nobody can read which it is.
mkdir -m 777 "$work/empty"
"$m" run -n blind -s none -- "$grow" newpid fork chroot "$work/empty" hold 3 \
	fork hold 4 say /ready fork hold 5 drop wait /stop &
run=$!
said empty/ready
check "without /proc: its pid is small" test "$pid" -lt 10
sleep 0.5
sh -c :
check "without /proc: both are there" session blind '[.processes[].charged /
	1048576 | floor] | sort | contains([3, 4])'
"$m" ls >/dev/null
check "without /proc: for ls, too" session blind '[.processes[].charged /
	1048576 | floor] | sort | contains([3, 4])'
: >"$work/empty/stop"
wait $run
check "without /proc: all is back" listed blind dead
check "without /proc: gc" removed blind
exit $bad
