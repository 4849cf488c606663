#!/usr/bin/env bash
# What explain says of known amounts, to the page where nothing else adds to
# them; and its sum against the kernel's.
. tests/tools/checks.bash
file=$(mktemp -u /var/tmp/memtally-explain.XXXXXX)
trap 'rm -rf "$work" "$runtime" "$file"' EXIT
mib=1048576

"$m" run -n live -s none -- "$1" "$file" "$work/stop" >"$work/out" &
run=$!
await grep -q ready "$work/out" || exit 1
pid=$("$m" stat --json live | jq '.processes[0].pid')
"$m" explain --json "$pid" >"$work/json"
kernel=$(awk '/^Rss:/ { kib += $2 } END { print kib * 1024 }' "/proc/$pid/smaps")
of() { # CATEGORY GROUP KEY
	jq --arg name "$1" --arg group "$2" "[.processes[0].categories[] |
		select(.name == \$name and (.group // \"\" | startswith(\$group))) |
		.$3] | add" "$work/json"
}
is() { equal "$(of "$1" "$2" "$3")" "$4"; }
between() { test "$1" -ge "$2" -a "$1" -le "$3"; }

check "the sum is the kernel's" equal "$(jq '.processes[0].rss' "$work/json")" \
	"$kernel"
check "and that of the categories" jq -e '.processes[0] |
	.rss == ([.categories[].resident] | add)' "$work/json"
check "nearly all is known" jq -e '.processes[0].coverage >= 0.99' "$work/json"
check "anonymous" is "anonymous mappings" /explain_ resident $((5 * mib))
check "charged more than touched" is "anonymous mappings" /explain_ charged \
	$((10 * mib))
check "in another group" is "anonymous mappings" /cache resident $((7 * mib))
check "charged there" is "anonymous mappings" /cache charged $((14 * mib))
check "a private file" is "private file mappings" / resident $((3 * mib))
check "shared memory" is "shared memory" / resident $((2 * mib))
check "a shared file" is "shared file mappings" / resident $((4 * mib))
check "which is charged to nobody" is "shared file mappings" / charged 0
check "the break" is break / resident $mib
check "the heap" between "$(of heap / resident)" $((20 * mib)) $((21 * mib))
check "a thread's stack" between "$(of 'thread stacks' "" resident)" $((mib / 2)) \
	$((mib / 2 + 131072))
check "code" test "$(of 'program and libraries: code' "" resident)" -gt 100000
check "memtally itself" test "$(of 'memtally itself' "" resident)" -gt 100000
check "as a table" grep -q '^  shared memory .* 2.0M *4.0M$' \
	<("$m" explain "$pid")
check "all of the only session" grep -q "\[$pid\]" <("$m" explain)
check "mapping by mapping" test "$("$m" explain --maps "$pid" | wc -l)" -gt 20
: >"$work/stop"
wait $run
check "gone" fails 1 "in no session" "$m" explain "$pid"
check "not a pid" fails 2 "not a pid" "$m" explain x
check "both forms" fails 2 "not both" "$m" explain --maps --json 1
exit $bad
