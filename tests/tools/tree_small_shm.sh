#!/usr/bin/env bash
# Little or no memory in /dev/shm: programs do what they do, and no more than
# one line each says what isn't counted.
# shellcheck disable=SC2016 # for the shells that are started
. tests/tools/tree.bash

# Mounts of our own, seen by nobody else.
if [ "${1:-}" != inside ]; then
	unshare -m mount -t tmpfs none /dev/shm 2>/dev/null || {
		echo "/dev/shm can't be mounted over here"
		exit 77
	}
	unshare -m bash "$0" inside
	exit
fi
unset XDG_RUNTIME_DIR
lib=${m%/*}/libmemtally.so
small() { mount -t tmpfs -o "size=$1" none /dev/shm; }

# sane NAME: what 40 processes, bash and seq printed and said.
sane() {
	check "$1: the results" equal "$(sort -n "$work/out")" \
		"$(seq 40)"
	check "$1: nobody died" equal "$(sort -u "$work/statuses")" 0
	check "$1: a line each at most" test \
		"$(wc -l <"$work/err")" -le 42
	check "$1: of ours" equal "$(grep -cv '^memtally: ' "$work/err")" 0
}
forty='for i in $(seq 40); do
	( "$0" map 1 hold 2 fork map 1 hold 2; echo $? >>"$1/statuses"
	echo $i ) & done; wait'

for size in 64k 1m; do
	small $size
	rm -f "$work/statuses"
	LD_PRELOAD=$lib bash -c "$forty" "$grow" "$work" \
		>"$work/out" 2>"$work/err"
	sane "$size, by hand"
	umount /dev/shm
done

small 64k
out=$("$m" run -m 1G -- echo started 2>&1)
check "64k, run: fails before the start" equal $? 125
check "64k, run: why" matches "$out" '^memtally: /dev/shm/.*: No space left on device$'
check "64k, run: leaves nothing" equal "$(find /dev/shm -type f)" ""
umount /dev/shm

small 1m
rm -f "$work/statuses"
"$m" run -n little -s "json:$work/end" -- bash -c "$forty" "$grow" "$work" \
	>"$work/out" 2>"$work/err"
check "1m, run: its status" equal $? 0
sane "1m, run"
check "1m, run: counted, and all is back" jq -e '.processes_total > 40 and
	.groups[0].peak > 2097152 and .groups[0].current == 0 and .drift == 0' \
	"$work/end"
"$m" gc >/dev/null
check "1m, run: leaves nothing" equal "$(find /dev/shm -type f)" ""

# The rest of it goes while the session grows.
rm -f "$work"/{statuses,end,go}
"$m" run -n full -s "json:$work/end" -- bash -c '
	"$0" hold 3 say "$1/first" wait "$1/go" map 2 hold 3 &
	until [ -e "$1/go" ]; do sleep 0.05; done; '"$forty" "$grow" "$work" \
	>"$work/out" 2>"$work/err" &
run=$!
said first
cat /dev/zero >/dev/shm/fill 2>/dev/null
check "full: no byte is left" test \
	"$(df --output=avail /dev/shm | tail -n 1)" -eq 0
: >"$work/go"
wait $run
check "full: its status" equal $? 0
sane "full"
check "full: all that was counted is back" jq -e '.groups[0].peak > 3145728 and
	.groups[0].current == 0 and .groups[0].charged == 0 and .drift == 0' \
	"$work/end"
rm -f /dev/shm/fill
"$m" gc >/dev/null
check "full: leaves nothing" equal "$(find /dev/shm -type f)" ""
exit $bad
