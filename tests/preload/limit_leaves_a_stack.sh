#!/usr/bin/env bash
# Runs the program beside it at a limit, and reads what it left in the log.
. tests/tools/checks.bash
program=$1

events() { "$m" events --json "$1" | jq -se "$2"; }

"$m" run -n stacks -s none -m 60M -- "$program"
check "it goes on" equal $? 0
check "a record for each" events stacks 'length == 9 and
	all(.[]; .event == "refused" and .group == "/" and
		.comm == "limit_leaves_a_" and .bytes == 536870912 and
		.limit == 62914560)'
check "where it was" events stacks '.[0].stack | map(.function) |
	.[0] == "refuse_here" and .[1] == "compare" and
	any(.[2:][]; . == "qsort_r" or . == "qsort") and
	index("main") > 2'
check "by file and line" events stacks '.[0].stack[0] |
	(.file | endswith("limit_leaves_a_stack.c")) and .line > 10 and
	(.build_id | test("^[0-9a-f]{40}$"))'
check "deep, cut at the outer end" events stacks '.[1].stack |
	length > 30 and .[0].function == "refuse_here" and
	all(.[1:][]; .function == "deep_down")'
check "a thread of its own" events stacks '.[4] |
	.tid != .pid and .stack[1].function == "thread"'
check "no stack where there is no room" events stacks '.[2].stack == []'
check "a mapping" events stacks '.[8].stack | map(.function) |
	index("main") == 0'
check "as text" matches "$("$m" events stacks)" \
	'refused  /: 512.0M by limit_leaves_a_\[[0-9]+\]; usage .* of max 60.0M'

"$m" run -n often -s none -m 60M -- "$program" often
check "20,000 refusals" equal $? 0
check "the last are kept" events often 'length == 256 and
	(map(.number) | .[0] == 20000 - 256 and . == sort) and
	(map(select(.stack != [])) | length < 200)'
check "follow ends with the session" timeout 10 "$m" events -f often
exit $bad
