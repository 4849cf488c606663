#!/usr/bin/env bash
# The commands as scripts meet them: exit statuses, one line for each mistake,
# JSON with its keys.
set -u
m=$MEMTALLY
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
bad=0

# expect STATUS PATTERN COMMAND...: exit status, and one line on stderr that
# matches (an empty pattern: nothing on stderr).
expect() {
	local status=$1 pattern=$2 got
	shift 2
	"$@" >"$work/out" 2>"$work/err" </dev/null
	got=$?
	if [ $got -ne "$status" ]; then
		echo "status $got instead of $status: $*"
		bad=1
	fi
	if [ -z "$pattern" ]; then
		[ ! -s "$work/err" ] || {
			echo "said something: $*: $(cat "$work/err")"
			bad=1
		}
	elif [ "$(wc -l <"$work/err")" -ne 1 ] ||
		! grep -qE "^memtally: .*$pattern" "$work/err"; then
		echo "expected '$pattern' from: $*"
		cat "$work/err"
		bad=1
	fi
}

expect 2 'did you mean stat' "$m" statt
expect 2 'no such command' "$m" frobnicate
expect 0 '' "$m" --help
expect 0 '' "$m" run --help
expect 0 '' "$m" --version
expect 125 'no command given' "$m" run
expect 125 '12Q: not a size' "$m" run -m 12Q true
expect 125 'not a size' "$m" run -m -5 true
expect 125 'not a size' "$m" run -m 0x10 true
expect 125 'not fit' "$m" run -n ../x true
expect 125 'not fit' "$m" run -n "$(printf 'a\nb')" true
expect 125 '1 to 65536' "$m" run --batch 0 true
expect 127 'command not found' "$m" run -- no-such-command
expect 126 'Permission denied' "$m" run -- /etc/passwd
expect 0 '' "$m" run -s none -- true
expect 7 '' "$m" run -s none -- sh -c 'exit 7'
expect 137 '' "$m" run -s none -- sh -c 'kill -9 $$'
expect 143 '' "$m" run -s none -- sh -c 'kill $$'
expect 1 'no such session' "$m" stat no-such-session
expect 2 'not a pid' "$m" stat --pid x --value charged
expect 2 'no such value' "$m" stat --pid 1 --value nonsense
expect 1 'in no session' "$m" stat --pid 1 --value charged
expect 2 'seconds' "$m" stat -w nan

# Programs that can't be covered are named; --best-effort starts them.
printf 'int main(void) { return 5; }\n' >"$work/p.c"
gcc -static "$work/p.c" -o "$work/static" &&
	expect 125 'statically linked' "$m" run -- "$work/static" &&
	expect 5 'statically linked' "$m" run --best-effort -- "$work/static"
gcc -fsanitize=address "$work/p.c" -o "$work/asan" 2>/dev/null &&
	expect 125 'sanitizer' "$m" run -- "$work/asan" &&
	expect 5 'sanitizer' "$m" run --best-effort -- "$work/asan"

# A signal sent to run reaches the command.
"$m" run -s none -- sh -c 'trap "exit 9" TERM; : >"$0"; while :; do sleep 0.1; done' \
	"$work/ready" &
run=$!
for _ in $(seq 100); do
	[ -e "$work/ready" ] && break
	sleep 0.05
done
kill -TERM $run
wait $run
[ $? -eq 9 ] || { echo "SIGTERM did not reach the command"; bad=1; }

# The object of stat --json, and of a summary.
"$m" run -n jsontest -s "json:$work/end.json" -- sh -c \
	"$m stat --json jsontest >$work/live.json; $m ls --json >$work/ls.json"
jq -e '(.state == "live") and (.page_size == 4096) and (.drift == 0) and
	(.groups[0].path == "/") and (.groups[0].max == null) and
	([.groups[] | (.kinds | add) == .charged] | all) and
	([.groups[] | .current >= .charged] | all) and
	(.groups[0].tracked | keys == ["file_mapped", "reserved", "shared",
		"stack"]) and
	(.groups[0].events | has("oom_group_kill")) and
	([.processes[] | .state == "live" and .charged > 0] | all) and
	((.processes | map(.charged) | add) == .groups[0].charged)' \
	"$work/live.json" >/dev/null || { echo "stat --json:"; cat "$work/live.json"; bad=1; }
jq -e '.state == "dead" and .groups[0].current == 0 and
	.processes_total >= 3 and (.processes | length >= 3)' \
	"$work/end.json" >/dev/null || { echo "summary:"; cat "$work/end.json"; bad=1; }
jq -e '.sessions[] | select(.name == "jsontest") |
	.state == "live" and .processes >= 1' "$work/ls.json" >/dev/null ||
	{ echo "ls --json"; bad=1; }

# A dead session stays readable; another version's and a cut one are refused.
expect 0 '' "$m" stat jsontest
cp "$XDG_RUNTIME_DIR/memtally/jsontest" "$work/old"
chmod 600 "$work/old"
printf '\011' | dd of="$work/old" bs=1 seek=8 conv=notrunc 2>/dev/null
expect 3 'another version' "$m" stat "$work/old"
cp "$XDG_RUNTIME_DIR/memtally/jsontest" "$work/old"
truncate -s 9000 "$work/old"
expect 3 'not a session' "$m" stat "$work/old"
ln -s "$XDG_RUNTIME_DIR/memtally/jsontest" "$work/link"
expect 1 'symbolic link' "$m" stat "$work/link"
"$m" gc | grep -qx jsontest || { echo "gc did not remove it"; bad=1; }
expect 1 'no such session' "$m" stat jsontest

# A session's name is taken once.
"$m" run -n twice -s none -- true
expect 125 'session of that name' "$m" run -n twice -- true

# The program runs on, uncounted, when its session can't be had.
out=$(MEMTALLY_SESSION=/nonexistent/x LD_PRELOAD=$SHIM /bin/echo hello \
	2>"$work/err")
[ "$out" = hello ] && [ "$(grep -c '^memtally: ' "$work/err")" -eq 1 ] ||
	{ echo "without a session: '$out' $(cat "$work/err")"; bad=1; }

# A full disk is noticed.
"$m" ls --json >/dev/full 2>"$work/err" && { echo "no error on a full disk"; bad=1; }

# A limit holds over several processes, each of which gets its own ENOMEM.
# shellcheck disable=SC2016 # for the shell that is started
"$m" run -n hogs -m 300M -s "json:$work/hogs.json" -- sh -c '
	for i in 1 2 3; do
		/usr/bin/python3 -c "
import os
x = []
try:
    while True:
        x.append(bytes(1000000))
except MemoryError:
    os.write(1, b\"refused\\n\")
" & done; wait' >"$work/hogs"
[ "$(grep -c refused "$work/hogs")" -eq 3 ] || { echo "hogs: $(cat "$work/hogs")"; bad=1; }
jq -e '.groups[0].peak <= 314572800 and .groups[0].peak > 300000000 and
	.groups[0].current == 0 and .drift == 0' "$work/hogs.json" >/dev/null ||
	{ echo "hogs:"; head -c 600 "$work/hogs.json"; bad=1; }
exit $bad
