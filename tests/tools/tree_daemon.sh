#!/usr/bin/env bash
# A daemon cuts every tie, is counted all the same, outlives run, and leaves
# nothing behind.
# shellcheck disable=SC2016 # for the shell that is started
. tests/tools/tree.bash

# daemon NAME DIR STEP...: 9 MiB after STEPs; DIR is what it sees as "/".
daemon() {
	local name=$1 dir=$2 in=$2
	shift 2
	rm -f "$dir/ready" "$dir/stop"
	: >"$work/out"
	[ "$dir" = "$work" ] || in=
	"$m" run -n daemon -s "text:$work/out" -- sh -c '
		ready=$0; "$@"; until [ -e "$ready" ]; do sleep 0.02; done' \
		"$dir/ready" "$grow" hold 5 daemon "$@" hold 9 map 3 \
		say "$in/ready" wait "$in/stop" 2>"$work/err"
	check "$name: run doesn't wait" equal "$?$(cat "$work/err")" 0
	check "$name: run says so" matches "$(cat "$work/out")" \
		' 1 still running'
	read -r pid _ <"$dir/ready"
	check "$name: counted" holds "$pid" 9
	check "$name: its mapping, too" test "$(value accounted "$pid")" \
		-ge 768
	check "$name: alone, and sound" session daemon \
		'.state == "live" and (.processes | length) == 1'
	check "$name: ls" listed daemon live 1
	check "$name: gc leaves it" equal "$("$m" gc | grep daemon)" ""
	: >"$dir/stop"
	check "$name: ended, it is dead" await listed daemon dead
	check "$name: stat" session daemon '.state == "dead" and
		(.processes | length) == 0 and .groups[0].charged == 0'
	check "$name: gc" removed daemon
}

daemon "fork, setsid, chdir" "$work"
daemon "no descriptor" "$work" close_all
if [ "$(id -u)" = 0 ]; then
	mkdir -m 777 "$work/empty"
	chmod 711 "$work"
	daemon "an empty root" "$work/empty" chroot "$work/empty"
	daemon "nobody" "$work/empty" chroot "$work/empty" setuid 65534
	daemon "all of it" "$work/empty" hold 1 drop close_all \
		chroot "$work/empty" setuid 65534
else
	echo "skip  chroot and setuid: only root may"
fi
exit $bad
