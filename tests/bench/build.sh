#!/usr/bin/env bash
# A real build (memtally's own core) under memtally, RUNS times with each lock
# for the mapping table, in "/" and in a group below it; interleaved.  Mean,
# standard deviation and a histogram of the wall times.
set -u
export LC_ALL=C
B=${B:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
RUNS=${RUNS:-30}
LOCKS=${LOCKS:-plain disable mixed restore ours}
work=$(mktemp -d) || exit 1
XDG_RUNTIME_DIR=$(mktemp -d /dev/shm/memtally-bench.XXXXXX) || exit 1
export XDG_RUNTIME_DIR DEPS_DONE=1
trap 'rm -rf "$work" "$XDG_RUNTIME_DIR"' EXIT
unset MAKEFLAGS MFLAGS MEMTALLY_SESSION

# one LOCK GROUP: seconds.
one() {
	local start end

	rm -rf "$work/b"
	start=$EPOCHREALTIME
	MEMTALLY_GROUP=$2 "$B/bench/with-$1/memtally" run -n build -s none \
		--by none -- make -s -j"$(nproc)" B="$work/b" \
		"$work/b/libmemtally-core.a" >"$work/out" 2>&1 || {
		cat "$work/out"
		exit 1
	}
	end=$EPOCHREALTIME
	rm -f "$XDG_RUNTIME_DIR"/memtally/*
	awk -v us=$((${end/./} - ${start/./})) 'BEGIN { print us / 1e6 }'
}

all=()
for lock in $LOCKS; do
	all+=("$lock /" "$lock /child")
done
one ours / >/dev/null
for ((run = 0; run < RUNS; run++)); do
	while read -r lock group; do
		one "$lock" "$group" >>"$work/$lock${group//\//-}" || exit 1
	done < <(printf '%s\n' "${all[@]}" | shuf --random-source=<(yes $run))
done
echo "$RUNS runs of a build with $(nproc) jobs; seconds, mean and standard deviation"
printf '  %-10s %18s %18s   %s\n' lock '/' '/child' 'child / root, medians'
for lock in $LOCKS; do
	paste "$work/$lock-" "$work/$lock-child" | awk -v name="$lock" '
		{ a[NR] = $1; b[NR] = $2; sa += $1; sb += $2; r[NR] = $2 / $1 }
		function sort(x, n,   i, j, t) {
			for (i = 1; i <= n; i++)
				for (j = i + 1; j <= n; j++)
					if (x[j] < x[i]) { t = x[i]; x[i] = x[j]; x[j] = t }
		}
		function median(x, n) {
			sort(x, n)
			return n % 2 ? x[(n + 1) / 2] : (x[n / 2] + x[n / 2 + 1]) / 2
		}
		END {
			ma = sa / NR; mb = sb / NR
			for (i = 1; i <= NR; i++) { va += (a[i] - ma) ^ 2; vb += (b[i] - mb) ^ 2 }
			n = NR > 1 ? NR - 1 : 1
			printf "  %-10s %9.3f +- %5.3f %9.3f +- %5.3f   %.4f\n", name, ma,
				sqrt(va / n), mb, sqrt(vb / n), median(b, NR) / median(a, NR)
		}'
done
for lock in $LOCKS; do
	cat "$work/$lock-" "$work/$lock-child" | awk -v name="$lock" '
		{ bin = int($1 * 20); count[bin]++
		  if (NR == 1 || bin < low) low = bin
		  if (bin > high) high = bin }
		END { printf "\n%s\n", name
		      for (i = low; i <= high && i < low + 40; i++) {
			bar = ""
			for (k = 0; k < count[i]; k++) bar = bar "#"
			printf "  %6.2f %s\n", i / 20, bar } }'
done
