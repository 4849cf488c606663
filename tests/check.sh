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
run_test "stress/limit_holds" "$B/tests/stress/limit_holds" 1

# That the experiments work and nothing is left over; not how long they take.
BENCH_RUNS=1 BENCH_ROUNDS=5120 THREADS='1 2' \
	run_test "bench/counter" tests/bench/counter.sh

for script in tests/tools/*.sh; do
	[ -e "$script" ] || continue
	run_test "tools/$(basename "$script" .sh)" bash "$script"
done
summary
