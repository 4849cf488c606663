#!/usr/bin/env bash
# The experiments behind the kernel's tuning of its page counter, on ours:
# variants of the same source, interleaved, in another order each round.  Prints
# nanoseconds (of all threads together, per operation), and ratios to the first
# of each table: medians, and in brackets the lowest and highest of a round.
#   BENCH_RUNS: rounds, 9.  THREADS: "1 2 4".  BENCH_ROUNDS: work in each.
set -u
export LC_ALL=C
B=${B:-build}
runs=${BENCH_RUNS:-9}
threads=${THREADS:-1 2 4}
LOCKS=${LOCKS:-plain disable mixed restore ours}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# table TITLE NAME=COMMAND...: all of them, RUNS times.
table() {
	local title=$1 names=() commands=() i round
	shift
	for i; do
		names+=("${i%%=*}")
		commands+=("${i#*=}")
		: >"$work/${#names[@]}"
	done
	for ((round = 0; round < runs; round++)); do
		for i in $(seq ${#names[@]} | shuf --random-source=<(yes $round)); do
			${commands[i - 1]} >>"$work/$i" || exit 1
		done
	done
	echo
	echo "$title"
	for ((i = 1; i <= ${#names[@]}; i++)); do
		paste "$work/1" "$work/$i" | awk -v name="${names[i - 1]}" '
			{ value[NR] = $2; ratio[NR] = $2 / $1 }
			function median(a, n,   i, j, t) {
				for (i = 1; i <= n; i++)
					for (j = i + 1; j <= n; j++)
						if (a[j] < a[i]) {
							t = a[i]; a[i] = a[j]; a[j] = t
						}
				return n % 2 ? a[(n + 1) / 2] : (a[n / 2] + a[n / 2 + 1]) / 2
			}
			END { r = median(ratio, NR)
			      printf "  %-24s %8.2f ns   %5.2f  (%.2f-%.2f)\n", name,
				median(value, NR), r, ratio[1], ratio[NR] }'
	done
}

echo "$(nproc) processors: $(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo)$(
	grep -qw hypervisor /proc/cpuinfo && echo ', virtual'); $runs rounds"
for t in $threads; do
	[ "$t" -le "$(nproc)" ] || echo "$t threads share $(nproc) processors"
done

for t in $threads; do
	table "(a) publishing protected usage; three levels, claims in the middle, $t threads" \
		"only when it changes=$B/bench/today/counter publish $t" \
		"at every charge=$B/bench/always/counter publish $t"
done
for t in $threads; do
	table "(b) layout of a group; the same charges, $t threads" \
		"today=$B/bench/today/counter publish $t" \
		"usage alone=$B/bench/alone/counter publish $t" \
		"packed=$B/bench/packed/counter publish $t"
done
for t in $threads; do
	all=()
	for layout in today alone packed; do
		for batch in 64 1 32 128; do
			all+=("$layout, batch $batch=$B/bench/$layout/counter batch $t $batch")
		done
	done
	table "(c) batch and layout; pages one by one through the stock, $t threads" "${all[@]}"
done
table "a stock hit; charge and uncharge" \
	"two locked adds=$B/bench/today/counter add 1" \
	"stock hits=$B/bench/today/counter hit 1" \
	"three levels, no stock=$B/bench/today/counter walk 1"
for t in $threads; do
	all=()
	for lock in $LOCKS; do
		all+=("$lock=$B/bench/lock-$lock $t")
	done
	table "(d) the mapping table's lock, $t threads" "${all[@]}"
done
