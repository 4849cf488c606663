#!/usr/bin/env bash
# Hundreds of processes that start at once are all counted, and gone at once.
. tests/tools/tree.bash

"$m" run -n crowd -s "json:$work/end" -- "$grow" crowd 300 exec map 1 hold 1 \
	say "$work/in.%" wait "$work/stop" &
run=$!
# shellcheck disable=SC2317 # await calls it
all_in() { [ "$(find "$work" -name 'in.*[0-9]' | wc -l)" = 300 ]; }
check "300 processes" await all_in
check "each is counted, and their sums are" session crowd '
	([.processes[] | select(.charged >= 2097152 and .charged < 2600000)] |
		length) == 300 and (.groups | length) == (.processes | length) + 1'
check "ls" await listed crowd live 301
: >"$work/stop"
wait $run
check "all ended well" equal $? 0
check "nothing is left" jq -e '.state == "dead" and .drift == 0 and
	.groups[0].current == 0 and .groups[0].charged == 0 and
	(.groups | length) == 1' "$work/end"
check "each image that charged joined once" jq -e \
	'.processes_total >= 301 and .processes_total <= 601' "$work/end"
check "no file is left" removed crowd
exit $bad
