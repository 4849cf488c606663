# shellcheck shell=bash
# checks.bash - what the scripts beside it share.  Sourced.
#
# $m: memtally; $work: a folder; $places: where sessions are.  All of it goes
# at the end.

m=${MEMTALLY:-$PWD/build/memtally}
[ -x "$m" ] || {
	echo "$m: not built"
	exit 1
}
bad=0
work=$(mktemp -d) || exit 1
runtime=$(mktemp -d /dev/shm/memtally-test.XXXXXX) || exit 1
export XDG_RUNTIME_DIR=$runtime
places=$runtime/memtally
export m bad work places
unset MEMTALLY_SESSION MEMTALLY_GROUP LD_PRELOAD
trap 'rm -rf "$work" "$runtime"' EXIT

# check NAME COMMAND...: one line; what a failing command said comes after it.
check() {
	local name=$1 out
	shift
	if out=$("$@" 2>&1); then
		echo "ok    $name"
	else
		echo "FAIL  $name"
		[ -z "$out" ] || printf '      %s\n' "$out"
		bad=1
	fi
}

# equal A B, matches TEXT REGEX: for check, with the difference said.
equal() { [ "$1" = "$2" ] || { echo "'$1' is not '$2'"; false; }; }
matches() { [[ $1 =~ $2 ]] || { echo "'$1' does not match '$2'"; false; }; }

# await COMMAND...: until it succeeds; fails after 10 s.
await() {
	local end=$((SECONDS + 10))

	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.02
	done
}

# says FILTER COMMAND...: what the command prints passes jq's filter.
says() {
	local filter=$1
	shift
	"$@" | jq -e "$filter" >/dev/null
}

# fails STATUS TEXT COMMAND...: with that exit status, and one line on stderr
# that has the text in it, and nothing else.
fails() {
	local status=$1 text=$2 said got
	shift 2
	said=$("$@" 2>&1 >/dev/null)
	got=$?
	[ $got -eq "$status" ] && [[ $said == "memtally: "*"$text"* ]] &&
		[[ $said != *$'\n'* ]] && return
	echo "status $got: $said"
	false
}
