#!/usr/bin/env bash
# What is dirty of shared file mappings is shown, and kept below dirty_max: it
# is written back, and nothing is lost.
. tests/tools/checks.bash
file=$(mktemp -u /var/tmp/memtally-dirty.XXXXXX)
trap 'rm -rf "$work" "$runtime" "$file"' EXIT

stat_of() {
	"$m" show live:/ memory.stat | awk -v key="$1" '$1 == key { print $2 }'
}
dirty() { test "$(stat_of file_dirty)" "-$1" "$2"; }
half=$((10 << 20))

"$m" run -n live -s none -- "$1" "$file" 20 "$work/stop" >"$work/out" &
run=$!
await grep -q dirty "$work/out" || exit 1
# A file system that doesn't tell (tmpfs) can't be tested on.
dirty gt $half || {
	echo "nothing is dirty on /var/tmp"
	: >"$work/stop"
	exit 77
}
check "it is dirty" dirty ge $((20 << 20))
check "and in memory" test "$(stat_of file_mapped)" -ge $((20 << 20))
[ "$(id -u)" != 0 ] ||
	check "on its way: a number" matches "$(stat_of file_writeback)" '^[0-9]+$'
check "nothing is charged for it" test "$("$m" show live:/ memory.current)" -lt \
	$half
check "no event yet" equal "$("$m" show live:/ memory.events | tail -n 1)" "dirty 0"
check "a limit" "$m" set live:/ dirty_max=4M
check "it is written back" await dirty le $((4 << 20))
check "counted" says '.groups[0].events.dirty >= 1' "$m" stat --json live
: >"$work/stop"
wait $run
check "nothing is lost" equal $? 0
exit $bad
