#!/usr/bin/env bash
# What is sent to run reaches the command, once, and both stop together.
. tests/tools/checks.bash

cat >"$work/trap.sh" <<'EOF'
for s in TERM HUP USR1 USR2 INT QUIT ALRM WINCH PROF RTMIN+3; do
	trap "echo $s >>'$1'" $s
done
: >"$2"
while [ ! -e "$3" ]; do sleep 0.05; done
EOF
"$m" run -s none -- bash "$work/trap.sh" "$work/log" "$work/ready" \
	"$work/stop" &
run=$!
check "the command starts" await test -e "$work/ready"
# (INT and QUIT are ignored in what a script starts in the background.)
for s in TERM HUP USR1 USR2 ALRM WINCH PROF RTMIN+3; do
	kill -s "$s" $run
	check "SIG$s arrives" await grep -qx -- "$s" "$work/log"
done
: >"$work/stop"
wait $run
check "run outlives them, and ends as the command does" equal $? 0
check "each arrives once" equal "$(sort "$work/log" | uniq -d)" ""

# The terminal itself sends to both: run must not send it again.
cat >"$work/terminal.py" <<'EOF'
import os, pty, sys, time
if len(sys.argv) == 1:
    sys.exit(not pty.openpty())
log, ready, stop = sys.argv[2:5]
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], [sys.argv[1], "run", "-s", "none", "--",
        "bash", os.path.dirname(log) + "/trap.sh", log, ready, stop])
def until(test):
    end = time.time() + 10
    while not test():
        if time.time() > end:
            sys.exit("too late")
        time.sleep(0.02)
until(lambda: os.path.exists(ready))
os.write(fd, b"\x03")
until(lambda: os.path.exists(log) and os.path.getsize(log))
time.sleep(0.3)
open(stop, "w")
os.waitpid(pid, 0)
print(open(log).read().split())
EOF
rm -f "$work/log" "$work/ready" "$work/stop"
terminal=yes
python3 "$work/terminal.py" 2>/dev/null || terminal=no
[ $terminal = no ] || check "Ctrl-C is not doubled" equal "$(
	python3 "$work/terminal.py" "$m" "$work/log" "$work/ready" "$work/stop"
)" "['INT']"

# shellcheck disable=SC2016 # for the shell that is started
"$m" run -s none -- sh -c 'kill -STOP $$; exit 4' &
run=$!
# shellcheck disable=SC2317 # await calls it
state() { [ "$(sed 's/.*) \(.\).*/\1/' "/proc/$run/stat")" = "$1" ]; }
check "when the command stops, run stops" await state T
kill -CONT $run
wait $run
check "and continues with it" equal $? 4
[ $bad = 0 ] || exit 1
[ $terminal = yes ] || {
	echo "no terminal can be opened: Ctrl-C was not tried"
	exit 77
}
