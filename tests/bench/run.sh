#!/usr/bin/env bash
# What memtally costs: each benchmark plain (glibc), with the same jemalloc
# preloaded without accounting, and under memtally; interleaved, medians.
#   BENCH=word: only those with that in their name.  BENCH_RUNS: 5.
set -u
B=${B:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
runs=${BENCH_RUNS:-5}
jemalloc=$(ls /usr/lib/*/libjemalloc.so.2 2>/dev/null | head -n 1)
work=$(mktemp -d) || exit 1
scratch=$(mktemp -d /dev/shm/memtally-bench.XXXXXX) || exit 1
trap 'rm -rf "$work" "$scratch"' EXIT
export XDG_RUNTIME_DIR=$scratch
seq 150 | awk '
	{ printf "static int f%d(int a, int *b)\n{\n", $1
	  for (i = 0; i < 40; i++)
		printf "\tfor (int i = 0; i < a; i++)\n\t\tb[i %% 7] += a * %d ^ b[(i + %d) %% 7];\n", i * 31 + $1, i
	  printf "\treturn b[0];\n}\n" }
	END { print "int f(int a, int *b)\n{\n\tint s = 0;"
	  for (i = 1; i <= 150; i++) printf "\ts += f%d(a, b);\n", i
	  print "\treturn s;\n}" }' >"$work/large.c"

# in_seconds COMMAND...: how long it took.
in_seconds() {
	local start
	start=$(date +%s%N)
	"$@" >/dev/null 2>&1 || echo "failed: $*" >&2
	echo $((($(date +%s%N) - start) / 1000)) | awk '{ print $1 / 1e6 }'
}

b_malloc_free() { "$B/tests/bench/micro" malloc_free; }
b_churn_1() { "$B/tests/bench/micro" churn_1; }
b_churn_2() { "$B/tests/bench/micro" churn_2; }
b_mmap_1() { "$B/tests/bench/micro" mmap_1; }
b_mmap_64() { "$B/tests/bench/micro" mmap_64; }
b_startup() { "$B/tests/bench/micro" startup; }
b_threads() { "$B/tests/bench/micro" threads; }
b_large() { "$B/tests/bench/micro" large; }
b_forks() { "$B/tests/bench/micro" forks; }
b_python() {
	in_seconds /usr/bin/python3 -c 'for r in range(6):
    x = [{"a": [i, str(i)], "b": bytes(600)} for i in range(80000)]
    del x'
}
b_sqlite() {
	in_seconds sqlite3 :memory: \
		"create table t(a integer primary key, b text);
		with recursive n(i) as (select 1 union all select i + 1 from n
			where i < 400000)
		insert into t select i, hex(i * 7919 % 65537) from n;
		create index u on t(b);
		select b, count(*) from t group by b order by 2 limit 5;"
}
b_gcc() { in_seconds gcc -O2 -c "$work/large.c" -o "$work/large.o"; }
b_redis() {
	local s=$work/redis.sock
	redis-server --port 0 --unixsocket "$s" --save '' --dir "$work" \
		>/dev/null 2>&1 &
	local server=$!
	until redis-cli -s "$s" ping >/dev/null 2>&1; do sleep 0.05; done
	# The client is the same plain one each time.
	LD_PRELOAD='' in_seconds redis-benchmark -s "$s" -q -n 150000 -P 16 \
		-d 500 -r 50000 -t set,get,lpush
	kill $server
	wait $server 2>/dev/null
}

if [ "${1:-}" = one ]; then
	"b_$2"
	exit
fi

with() { # VARIANT NAME
	case $1 in
	plain) B=$B bash "$0" one "$2" ;;
	jemalloc) LD_PRELOAD=$jemalloc B=$B bash "$0" one "$2" ;;
	memtally) "$B/memtally" run -s none -n "b$RANDOM$RANDOM" -- \
		bash "$0" one "$2" ;;
	esac
}

median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

printf '%-12s %11s %11s %11s   %10s %10s\n' BENCHMARK plain jemalloc \
	memtally /jemalloc /plain
for name in malloc_free churn_1 churn_2 mmap_1 mmap_64 startup threads large \
	forks python sqlite redis gcc; do
	[[ $name == *"${BENCH:-}"* ]] || continue
	rm -f "$work"/v.*
	for _ in $(seq "$runs"); do
		for v in plain jemalloc memtally; do
			with $v $name >>"$work/v.$v"
		done
	done
	p=$(median <"$work/v.plain") j=$(median <"$work/v.jemalloc")
	m=$(median <"$work/v.memtally")
	awk -v n=$name -v p="$p" -v j="$j" -v m="$m" 'BEGIN {
		printf "%-12s %11.4g %11.4g %11.4g   %10.3f %10.3f\n",
			n, p, j, m, m / j, m / p }'
done
echo "(ns per operation for the first nine, seconds for the rest)"

# What a process that does nothing pays: pages of its own, written to.  (Text
# is shared by all processes under memtally.)
for v in plain memtally; do
	case $v in plain) sleep 30 & ;; *) "$B/memtally" run -s none -- sleep 30 & ;; esac
	sleep 0.5
	pid=$!
	[ $v = plain ] || pid=$(pgrep -P $!)
	awk -v v=$v '/^Private_Dirty/ { s += $2 }
		END { print "idle process, private memory,", v ":", s, "kB" }' \
		"/proc/$pid/smaps_rollup"
	kill "$pid"
	wait
done 2>/dev/null
du -k "$scratch"/* 2>/dev/null | sort -rn |
	awk 'NR == 1 { print "largest segment:", $1, "kB" }'
