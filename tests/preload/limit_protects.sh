#!/usr/bin/env bash
# Whose cached pages go at a limit, in what the kernel says is resident: first
# of those above their protection, then in spite of low, and never below min.
# shellcheck disable=SC2016 # for the shells that are started
cache=$1
hog=${cache%/*}/limit_hog
. tests/tools/checks.bash
export cache hog

resident() { # PID: MiB of anonymous memory
	awk '/^Anonymous:/ { print int($2 / 1024) }' "/proc/$1/smaps_rollup"
}
charged() { # PATH: MiB
	"$m" stat --json protects |
		jq ".groups[] | select(.path == \"$1\").charged / 1048576 | floor"
}
show() {
	echo "      $1: kept $(resident "$kept") MiB resident," \
		"loose $(resident "$loose")"
}
low_events() {
	"$m" stat --json protects |
		jq '.groups[] | select(.path == "/kept").events.low'
}
# What it caches goes back by itself in time, a little in the first seconds.
keeps() { [ "$(resident "$kept")" -ge 20 ]; }
lost() { [ "$(resident "$1")" -le "$2" ]; }
got() { await grep -q "^got" "$work/$1" && grep -qx "got $2" "$work/$1"; }

# take NAME MIB: another process, who holds what it got until $work/end.
take() {
	MEMTALLY_SESSION=$places/protects MEMTALLY_GROUP=/$1 \
		LD_PRELOAD=${m%/*}/libmemtally.so \
		"$hog" "$2" 0 60000 >"$work/$1" 2>"$work/$1.err" &
	hogs+=($!)
}
hogs=()

# Two siblings, each with 24 MiB cached, below 60 MiB; one has 30 MiB of low.
start() { # LIMIT-OF-KEPT
	rm -f "$work"/kept* "$work"/loose*
	# Time for others to answer, on a busy machine.
	"$m" run -n protects -s none -m 60M --on-max wait=2 -g "/kept:$1" -- sh -c '
		MEMTALLY_GROUP=/kept "$cache" 24 "$0/kept" &
		MEMTALLY_GROUP=/loose "$cache" 24 "$0/loose" &
		wait' "$work" &
	await test -s "$work/kept" -a -s "$work/loose"
	kept=$(cat "$work/kept") loose=$(cat "$work/loose")
	show "before"
}
finish() {
	kill "${hogs[@]}"
	: >"$work/kept.stop"
	: >"$work/loose.stop"
	wait
	hogs=()
	check "$1: nothing is left" says '.groups[0].current == 0 and
		.drift == 0' "$m" stat --json protects
	"$m" gc >/dev/null
} 2>/dev/null

start low=30M
check "both have their caches" test "$(charged /kept)" -ge 24 -a \
	"$(charged /loose)" -ge 24
take first 24
check "low: there was enough in the other" got first 24
show "24 MiB later"
check "low: the other lost it" lost "$loose" 12
check "low: the protected lost nothing" keeps
check "low: no event" equal "$(low_events)" 0
take second 20
check "low: in the end it goes as well" got second 20
show "44 MiB later"
check "low: in memory, too" lost "$kept" 12
check "low: an event" test "$(low_events)" -ge 1
finish low

start min=30M
take first 24
check "min: there was enough in the other" got first 24
take second 20
check "min: refused, rather than taken" await grep -q "^got" "$work/second"
check "min: short of it" test "$(cut -d" " -f2 "$work/second")" -lt 18
show "later"
check "min: the protected lost nothing" keeps
finish min
exit $bad
