# shellcheck shell=bash
# lib.sh - what the test scripts share.  Sourced.
#
# $B: the build folder; $T: run only what has this in its name.

B=${B:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
export MEMTALLY=$B/memtally SHIM=$B/libmemtally.so
export ACCT_READ="$MEMTALLY stat --pid \$ACCT_PID --value charged"
export READ_ACCOUNTED="$MEMTALLY stat --pid \$ACCT_PID --value accounted"
export READ_STACK="$MEMTALLY stat --pid \$ACCT_PID --value stack"
export READ_SHMEM="$MEMTALLY stat --pid \$ACCT_PID --value shmem"
export READ_HEAP="$MEMTALLY stat --pid \$ACCT_PID --value heap"
passed=0 failed=0 skipped=0

# A place of our own for sessions, on tmpfs, gone at the end.
scratch=$(mktemp -d /dev/shm/memtally-test.XXXXXX) || exit 1
chmod 700 "$scratch"
export XDG_RUNTIME_DIR=$scratch TMPDIR=${TMPDIR:-/tmp}
trap 'rm -rf "$scratch"' EXIT

wanted() { [ -z "${T:-}" ] || [[ $1 == *"$T"* ]]; }

# result NAME STATUS [TEXT]: count it, and say it in one line.
result() {
	case $2 in
	0) passed=$((passed + 1)) word=pass ;;
	77) skipped=$((skipped + 1)) word=skip ;;
	*) failed=$((failed + 1)) word=FAIL ;;
	esac
	printf '  %-5s %-36s %s\n' "$word" "$1" "${3:-}"
}

# run_test NAME COMMAND...: its status decides; a failure's output is shown.
run_test() {
	local name=$1 start out status
	shift
	wanted "$name" || return 0
	start=$(date +%s%N)
	out=$(timeout -k 5 "${LIMIT:-60}" "$@" 2>&1 </dev/null)
	status=$?
	case $status in
	77) result "$name" 77 "$(tail -n 1 <<<"$out")" ;;
	0) result "$name" 0 "$((($(date +%s%N) - start) / 1000000)) ms" ;;
	*)
		result "$name" "$status" "status $status"
		tail -n 15 <<<"$out" | sed 's/^/        /'
		;;
	esac
}

# The unit tests in $B/tests/unit; each prints Check's own line.
run_units() {
	local t name out status
	for t in "$B"/tests/unit/check_*; do
		case $t in *.o | *.d | *\**) continue ;; esac
		name=unit/${t##*/check_}
		wanted "$name" || continue
		out=$(timeout -k 5 300 "$t" 2>&1 </dev/null)
		status=$?
		result "$name" "$status" \
			"$(grep -m 1 '^[0-9]*%: Checks' <<<"$out")"
		[ $status -eq 0 ] || tail -n 20 <<<"$out" | sed 's/^/        /'
	done
}

# The last line of a script, and its exit status.
summary() {
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" -eq 0 ]
}
