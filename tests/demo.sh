#!/usr/bin/env bash
# Something real under memtally: memtally's own build, watched while it runs.
set -u
B=${B:-build}
out=$B/demo
rm -rf "$out" && mkdir -p "$out"
name=demo.$$

echo "\$ memtally run -m 2G -n $name -- make -j2 B=$out"
"$B/memtally" run -m 2G -n "$name" -s "json:$out/summary.json" -- \
	make -s -j2 "B=$out" "$out/memtally" "$out/libmemtally.so" \
	>"$out/log" 2>&1 &
build=$!

echo "\$ memtally stat -w 1 $name"
sleep 0.5
"$B/memtally" stat -w 1 "$name" 2>/dev/null &
watch=$!
sleep 2
echo
echo "\$ memtally stat $name            (who holds it, at this moment)"
"$B/memtally" stat "$name"
echo
wait $build
status=$?
kill $watch 2>/dev/null
wait $watch 2>/dev/null

echo
echo "the build ended with status $status; the processes that held most:"
jq -r '.processes[:8][] | "\(.group) \(.peak)"' "$out/summary.json" |
	awk '{ printf "  %-24s %6.1f MiB\n", $1, $2 / 1048576 }'
jq -r '"\(.processes_total) processes in all; peak of the whole tree \(.groups[0].peak / 1048576 | round) MiB; left over \(.groups[0].current) bytes, drift \(.drift)"' \
	"$out/summary.json"
"$B/memtally" gc >/dev/null
exit $status
