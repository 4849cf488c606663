#!/usr/bin/env bash
# All of `make check` that runs: unit tests, preload tests, tools.
. tests/lib.sh

run_units

# Each preload test is a program; NAME.sh, if there is one, runs it instead.
for source in tests/preload/*.c; do
	name=$(basename "$source" .c)
	if [ -e "tests/preload/$name.sh" ]; then
		run_test "preload/$name" bash "tests/preload/$name.sh" \
			"$B/tests/preload/$name"
	else
		run_test "preload/$name" "$MEMTALLY" run -s none -- \
			"$B/tests/preload/$name"
	fi
done

run_test "stress/kill_storm" "$B/tests/stress/kill_storm" 500 16

for script in tests/tools/*.sh; do
	[ -e "$script" ] || continue
	run_test "tools/$(basename "$script" .sh)" bash "$script"
done
summary
