#!/usr/bin/env bash
# One limit over a tree, for an ordinary user: all meet it together.
# shellcheck disable=SC2016 # for the shells that are started
. tests/tools/tree.bash

unprivileged mkdir -p "$work/nobody"
tool=$m
hog=$grow
[ "$(id -u)" != 0 ] || { tool=$work/open/memtally hog=$work/open/tree_grow; }
cd "$work" || exit 1
unprivileged "$tool" run -n hogs -m 300M -s "json:$work/nobody/end" -- sh -c '
	for i in 1 2 3; do
		"$0" hog say "$1/$i" wait "$1/stop" status $i &
		pids="$pids $!"
	done
	for pid in $pids; do
		wait $pid
		echo $? >>"$1/statuses"
	done
	exit 9' "$hog" "$work/nobody" &
run=$!
most=0
look() {
	local now
	now=$(unprivileged "$tool" stat --json hogs 2>/dev/null |
		jq '.groups[0].current') || return
	[ "${now:-0}" -le "$most" ] || most=$now
}
for _ in $(seq 500); do
	look
	[ -e nobody/1 ] && [ -e nobody/2 ] && [ -e nobody/3 ] && break
done
look
check "never above the limit" test "$most" -le $((300 << 20))
check "within 1 % of it in the end" test "$most" -ge $((297 << 20))
sum=0
for i in 1 2 3; do
	read -r _ mib <"nobody/$i"
	check "hog $i got something" test "$mib" -gt 0
	sum=$((sum + mib))
done
check "together what there is" test $sum -ge 290 -a $sum -le 300
check "they hold it still" unprivileged "$tool" stat hogs
: >nobody/stop
wait $run
check "run's status" equal $? 9
check "theirs" equal "$(tr '\n' ' ' <nobody/statuses)" "1 2 3 "
check "each was refused, and all is back" jq -e '.state == "dead" and
	.groups[0].peak <= 300 * 1048576 and .groups[0].events.oom >= 3 and
	.groups[0].current == 0 and .groups[0].charged == 0 and .drift == 0 and
	(.groups | length) == 1' nobody/end
exit $bad
