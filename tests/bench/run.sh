#!/usr/bin/env bash
# What memtally costs: each benchmark plain (glibc), with the same jemalloc
# preloaded without accounting, and under memtally; interleaved, in another
# order each round.  Medians, their ratios, and in brackets the lowest and
# highest ratio of a round.
#   BENCH=word: only those with that in their name.  BENCH_RUNS: 5.
set -u
export LC_ALL=C
B=${B:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
export B
micro=$B/tests/bench/micro

# in_seconds COMMAND...: how long it took.
in_seconds() {
	local start=$EPOCHREALTIME end

	"$@" >/dev/null 2>&1 || {
		echo "failed: $*" >&2
		return 1
	}
	end=$EPOCHREALTIME
	awk -v us=$((${end/./} - ${start/./})) 'BEGIN { print us / 1e6 }'
}

# shellcheck disable=SC2317 # called by name, as the next two are
b_python() {
	in_seconds /usr/bin/python3 -c 'for r in range(6):
    x = [{"a": [i, str(i)], "b": bytes(600)} for i in range(80000)]
    del x'
}

# shellcheck disable=SC2317
b_sqlite() {
	in_seconds sqlite3 :memory: \
		"create table t(a integer primary key, b text);
		with recursive n(i) as (select 1 union all select i + 1 from n
			where i < 600000)
		insert into t select i, hex(i * 7919 % 65537) from n;
		create index u on t(b);
		select b, count(*) from t group by b order by 2 limit 5;"
}

# shellcheck disable=SC2317
b_gcc() { in_seconds gcc -O2 -c "$work/large.c" -o "$work/large.o"; }

# Inside a variant: the measuring starts after its shell has.
if [ "${1:-}" = one ]; then
	case $2 in
	python | sqlite | gcc) "b_$2" ;;
	*) "$micro" "$2" ;;
	esac
	exit
fi

runs=${BENCH_RUNS:-5}
jemalloc=(/usr/lib/*/libjemalloc.so.2)
work=$(mktemp -d) || exit 1
scratch=$(mktemp -d /dev/shm/memtally-bench.XXXXXX) || exit 1
export work XDG_RUNTIME_DIR=$scratch
server='' idle='' session='' sessions=0
# shellcheck disable=SC2317,SC2086 # called by the trap; empty or one word
leave() {
	kill $server $idle 2>/dev/null
	rm -rf "$work" "$scratch"
}
trap leave EXIT

# A large file for gcc: 60 functions of loops.
seq 60 | awk '
	{ printf "static int f%d(int a, int *b)\n{\n", $1
	  for (i = 0; i < 6; i++)
		printf "\tfor (int i = 0; i < a; i++)\n\t\tb[i %% 7] += a * %d ^ b[(i + %d) %% 7];\n", i * 31 + $1, i
	  printf "\treturn b[0];\n}\n" }
	END { print "int f(int a, int *b)\n{\n\tint s = 0;"
	  for (i = 1; i <= 60; i++) printf "\ts += f%d(a, b);\n", i
	  print "\treturn s;\n}" }' >"$work/large.c"

# under VARIANT: what goes before a command, in $pre.
under() {
	case $1 in
	plain) pre=() ;;
	jemalloc) pre=(env "LD_PRELOAD=${jemalloc[0]}") ;;
	memtally)
		session=b$((sessions += 1))
		pre=("$B/memtally" run -s none -n "$session" --)
		;;
	esac
}

# Only the server is the variant; the client is the same plain one each time.
redis() {
	local s=$work/redis.sock status tries=0
	"${pre[@]}" redis-server --port 0 --unixsocket "$s" --save '' \
		--dir "$work" >/dev/null 2>&1 &
	server=$!
	until redis-cli -s "$s" ping >/dev/null 2>&1; do
		[ $((tries += 1)) -lt 100 ] || return 1
		sleep 0.05
	done
	in_seconds redis-benchmark -s "$s" -q -n 150000 -P 16 -d 500 \
		-r 50000 -t set,get,lpush >"$work/redis.time"
	status=$?
	redis-cli -s "$s" shutdown nosave >/dev/null 2>&1
	wait "$server" 2>/dev/null
	server=''
	cat "$work/redis.time"
	return $status
}

measure() { # VARIANT NAME
	under "$1"
	case $2 in
	redis) redis ;;
	*) "${pre[@]}" bash "$0" one "$2" ;;
	esac
}

# row NAME GOAL-TO-JEMALLOC GOAL-TO-PLAIN (0: none); files of one time a line.
row() {
	paste "$work/plain" "$work/jemalloc" "$work/memtally" |
	awk -v name="$1" -v goal_j="$2" -v goal_p="$3" '
	function sort(v, n,   i, k, t) {
		for (i = 2; i <= n; i++) {
			t = v[i]
			for (k = i; k > 1 && v[k - 1] > t; k--)
				v[k] = v[k - 1]
			v[k] = t
		}
	}
	function median(v, n) {
		sort(v, n)
		return (v[int((n + 1) / 2)] + v[int(n / 2) + 1]) / 2
	}
	{
		p[NR] = $1; j[NR] = $2; m[NR] = $3
		to_j[NR] = $3 / $2; to_p[NR] = $3 / $1
	}
	END {
		a = median(p, NR); b = median(j, NR); c = median(m, NR)
		sort(to_j, NR); sort(to_p, NR)
		over = ""
		if (goal_j && c / b > goal_j)
			over = over "  /jemalloc " goal_j
		if (goal_p && c / a > goal_p)
			over = over "  /plain " goal_p
		printf "%-11s %9.4g %9.4g %9.4g  %5.2f (%.2f-%.2f)  %5.2f (%.2f-%.2f)%s\n",
			name, a, b, c, c / b, to_j[1], to_j[NR],
			c / a, to_p[1], to_p[NR],
			over ? "  goal missed:" over : ""
	}'
}

bad=0
printf '%-11s %9s %9s %9s  %-18s %s\n' BENCHMARK plain jemalloc memtally \
	'    /jemalloc' '    /plain'
while read -r name goal_j goal_p; do
	[[ $name == *"${BENCH:-}"* ]] || continue
	rm -f "$work"/{plain,jemalloc,memtally}
	for ((i = 0; i < runs; i++)); do
		case $((i % 3)) in
		0) order='plain jemalloc memtally' ;;
		1) order='jemalloc memtally plain' ;;
		2) order='memtally plain jemalloc' ;;
		esac
		for v in $order; do
			measure "$v" "$name" >>"$work/$v" </dev/null ||
				{ bad=1 && break 2; }
		done
	done
	if [ "$i" -lt "$runs" ]; then
		echo "$name: $v failed"
	else
		row "$name" "$goal_j" "$goal_p"
	fi
done <<-'E'
	malloc_free	1.05	1.02
	churn_1		1.05	1.02
	churn_2		1.05	1.02
	mmap_1		0	1.15
	mmap_64		0	1.15
	mmap_1_many	0	1.10
	mprotect	0	1.10
	mprotect_many	0	1.10
	startup		1.00	1.60
	threads		0	1.02
	large		0	1.02
	forks		0	1.02
	python		1.02	1.02
	sqlite		1.02	1.02
	redis		1.02	1.02
	gcc		1.02	1.02
E
echo "(nanoseconds per operation down to forks, then seconds)"

# What a process that does nothing pays.  Clean private pages are the text of
# a library that no other process has mapped just now.
if [[ idle == *"${BENCH:-}"* ]]; then
	for v in plain memtally; do
		under "$v"
		"${pre[@]}" sleep 60 &
		idle=$!
		sleep 1
		pid=$(pgrep -P "$idle" -x sleep) || pid=$idle
		awk -v v="$v" '/^Private_Dirty/ { d = $2 } /^Private_Clean/ { c = $2 }
			END { print "idle process, private memory,", v ":", d, "kB dirty,", c, "kB clean" }' \
			"/proc/$pid/smaps_rollup"
		[ "$v" = plain ] || du -k "$scratch/memtally/$session"* |
			awk '{ s += $1 } END { print "its session:", s, "kB" }'
		{ kill "$pid" && wait "$idle"; } 2>/dev/null
		idle=''
	done
fi
du -k "$scratch"/memtally/* 2>/dev/null | sort -rn |
	awk 'NR == 1 { print "largest session:", $1, "kB" }'
exit $bad
