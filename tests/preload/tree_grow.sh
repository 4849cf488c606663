#!/usr/bin/env bash
# However a process is started, it joins: with a row and numbers of its own.
. tests/tools/tree.bash

# child TEXT FILTER STEP...: 5 MiB, then STEP..., then 7 MiB more, of which
# the last one is asked.
child() {
	local name=$1 filter=$2
	shift 2
	rm -f "$work/ready" "$work/stop"
	"$m" run -n join -s none -- "$grow" hold 5 "$@" hold 7 \
		say "$work/ready" wait "$work/stop" status 3 &
	run=$!
	said ready
	check "$name: counted" holds "$pid" 7
	check "$name: the tree" session join "$filter"
	: >"$work/stop"
	wait $run
	check "$name: its status" equal $? 3
	check "$name: nothing is left" listed join dead
	check "$name: no file is left" removed join
}
two='(.processes | length) == 2 and
	([.groups[1:][].charged / 1048576 | floor] | sort) == [5, 7]'
one='(.processes | length) == 1 and
	([.groups[1:][].charged / 1048576 | floor]) == [7]'
for step in fork _Fork clone raw_clone raw_fork vfork spawn spawn_empty; do
	child "$step" "$two" $step
done
# The shell may be there still.
for step in system popen; do
	child "$step" '[.groups[1:][].charged / 1048576 | floor] |
		contains([5, 7]) and add == 12' $step
done
# The kernel's view as well: one address space, one owner.
rm -f "$work/ready" "$work/stop"
"$m" run -n vm -s none -- "$grow" hold 5 say "$work/parent" \
	clone_vm hold 7 say "$work/ready" wait "$work/stop" &
run=$!
said ready
said parent
check "clone with CLONE_VM: its parent's row" holds "$pid" 12
check "clone with CLONE_VM: no other" session vm '(.processes | length) == 1'
: >"$work/stop"
wait $run
check "clone with CLONE_VM: nothing is left" removed vm

for step in exec exec_empty execle; do
	child "$step" "$one" $step
done
for by in env setsid; do
	child "exec of $by" "$one" exec_by $by "$grow"
done
# shellcheck disable=SC2046 # many words
child "a chain of execs" "$one and .processes_total == 21" \
	$(printf "hold 2 exec %.0s" {1..20})
child "forks and execs by turns" '[.groups[1:][].charged / 1048576 | floor] |
	sort == [2, 2, 2, 5, 7]' fork hold 1 exec hold 2 fork exec_empty hold 2 \
	vfork hold 1 execle hold 2 fork
exit $bad
