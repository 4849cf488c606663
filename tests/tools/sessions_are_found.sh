#!/usr/bin/env bash
# ls, stat and gc over sessions that live, died or never were any.
# shellcheck disable=SC2016 # for the shells that are started
. tests/tools/checks.bash

# session NAME: starts one that lives until $work/NAME.stop; its pid in $run.
session() {
	"$m" run -n "$1" -s none -- sh -c ': >"$0.ready"
		until [ -e "$0.stop" ]; do sleep 0.05; done' "$work/$1" &
	run=$!
	await test -e "$work/$1.ready"
}
is() { # NAME STATE
	says ".sessions[] | select(.name == \"$1\") | .state == \"$2\"" \
		"$m" ls --json
}

# Sessions in /dev/shm that somebody else of this user left running.
others=$("$m" ls --json | jq '.sessions | length')
alone() {
	if [ "$others" = 0 ]; then
		check "$@"
	else
		echo "skip  $1: other sessions run"
	fi
}

alone "no session: stat fails" equal "$("$m" stat 2>&1; echo $?)" \
	"memtally: no live session: start one with memtally run, or name one that ended
1"
session one
one=$run
alone "the only live one needs no name" "$m" stat
session two
two=$run
alone "of two, one must be named" equal "$("$m" stat 2>&1; echo $?)" \
	"memtally: which session: several are live, name one: one two
1"
check "by name" "$m" stat two
check "by path" "$m" stat "$places/two"

lines=$("$m" stat -w 0.01 -c 45 two)
check "-w -c: a line each, a header every 20" equal "$(wc -l <<<"$lines")" 48
"$m" stat -w 0.01 two 2>"$work/err" | head -n 1 >/dev/null
check "a closed pipe ends it" equal "${PIPESTATUS[0]}" 1
check "without a word" test ! -s "$work/err"
"$m" stat two >&- 2>"$work/err"
check "no standard output" equal $? 1
check "is told in one line" equal "$(grep -c '^memtally: ' "$work/err")" 1

touch "$places/gone@3.14" "$places/two@x" "$places/two@9.9"
check "gc -n says" equal "$("$m" gc -n)" "gone@3.14"
check "and does nothing" test -e "$places/gone@3.14"
check "gc does" equal "$("$m" gc)" "gone@3.14"
check "and no more" test -e "$places/one" -a -e "$places/two@9.9" \
	-a ! -e "$places/gone@3.14"

pid=$("$m" stat --json two | jq '[.processes[] | select(.comm == "sh")][0].pid')
check "--pid: a number" matches \
	"$("$m" stat --pid "$pid" --value charged)" '^[1-9][0-9]*$'
check "--pid: charged is heap, accounted and shmem" equal \
	"$("$m" stat --pid "$pid" --value charged)" "$((
		$("$m" stat --pid "$pid" --value heap) +
		$("$m" stat --pid "$pid" --value accounted) +
		$("$m" stat --pid "$pid" --value shmem)))"
kill -9 $two "$pid"
wait $two 2>/dev/null
check "--pid: not of the dead" equal \
	"$("$m" stat --pid "$pid" --value charged 2>&1; echo $?)" \
	"memtally: $pid: in no session
1"
check "a killed session is dead" await is two dead
check "and readable" "$m" stat two
check "gc removes it" matches "$("$m" gc)" '(^|'$'\n'')two($|'$'\n'')'
: >"$work/one.stop"
wait $one
check "ended, it can be read" "$m" stat one

# Names from the segment are not to be trusted.
cp "$places/one" "$places/evil"
printf 'e\033[2J\233x' | dd of="$places/evil" bs=1 seek=64 conv=notrunc 2>/dev/null
check "an evil name is shown harmless" matches "$("$m" ls)" 'e\?\[2J\?x'
check "in JSON too" equal "$("$m" ls --json |
	jq -r '.sessions[] | select(.name | startswith("e")).name')" 'e?[2J?x'
check "and in errors" matches "$("$m" stat $'a\033[2Jb' 2>&1)" 'a\?\[2Jb'
cp "$(command -v sleep)" "$work/fourteenchars-é"
"$m" run -n utf -s none -- "$work/fourteenchars-é" 20 &
run=$!
await is utf live
check "a name cut within a character is still UTF-8" await bash -o pipefail -c '
	"$m" stat --json utf | iconv -f utf-8 -t utf-8 |
		jq -e ".processes[0].comm == \"fourteenchars-?\""'
kill $run
wait $run 2>/dev/null

# What is no session, or none of ours.
broken() {
	local name=$1 status=$2 why=$3 path=$4 out
	out=$("$m" stat "$path" 2>&1)
	check "$name: status" equal $? "$status"
	check "$name: what and why" matches "$out" "^memtally: .*: $why\$"
	check "$name: one line" equal "$(wc -l <<<"$out")" 1
}
head -c 100 "$places/one" >"$work/short"
broken "a short file" 3 'not a session, or cut short' "$work/short"
cp "$places/one" "$work/zero"
printf '\0' | dd of="$work/zero" bs=8 conv=sync,notrunc 2>/dev/null
broken "an unfinished file" 1 'not ready yet' "$work/zero"
head -c 100000 /dev/urandom >"$work/noise"
broken "noise" 3 'not a session, or cut short' "$work/noise"
mkfifo "$work/fifo"
broken "a pipe" 3 'not a session, or cut short' "$work/fifo"
broken "a folder" 3 'not a session, or cut short' "$work"
broken "a long name" 1 'name too long' "/$(printf 'x%.0s' $(seq 5000))"
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	cp "$places/one" "$work/foreign"
	chmod 755 "$work"
	chmod 644 "$work/foreign"
	check "another user's file is refused" equal "$(setpriv --reuid 65534 \
		--clear-groups "$m" stat "$work/foreign" 2>&1; echo $?)" \
		"memtally: $work/foreign: belongs to another user, or is open to others
1"
fi

# Processes of another pid namespace can't be asked after, alive or dead.
if unshare -fp true 2>/dev/null; then
	mkfifo "$work/apart.stop"
	"$m" run -n apart -s none -- unshare -fp --kill-child sh -c '
		: >"$0.ready"; read -r _ <"$0.stop"' "$work/apart" &
	run=$!
	await test -e "$work/apart.ready"
	check "apart and alive: live" is apart live
	check "apart and alive: gc leaves it" equal "$("$m" gc | grep apart)" ""
	kill -9 $run
	wait $run 2>/dev/null
	check "without its supervisor: live" is apart live
	echo >"$work/apart.stop"
	check "apart and gone: dead" await is apart dead
	check "apart and gone: nothing is left" says '.sessions[] |
		select(.name == "apart") | .current == 0' "$m" ls --json
else
	echo "skip  pid namespaces: not allowed here"
fi
exit $bad
