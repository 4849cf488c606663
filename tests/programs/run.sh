#!/usr/bin/env bash
# Real programs, plain and under memtally: the same results, and numbers that
# add up.  T=word runs those whose name contains it.  Each is a run of this
# script by itself, with a time limit, a folder and sessions of its own.
# shellcheck disable=SC2317 # the tests are called by name
set -u
. tests/lib.sh
export LIMIT=300
all='bash perl python_tests sqlite git make_gcc redis limits memcached nginx node java
	postgres stress'
if [ "${1:-}" != one ]; then
	for t in $all; do
		run_test "programs/$t" bash "$0" one "$t"
	done
	summary
	exit
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/memtally-programs.XXXXXX") || exit 1
chmod 755 "$work"
export work
runner=

# A server that a failed test leaves behind: run hands the signal on to it.
leave() {
	[ -z "$runner" ] || { kill "$runner" && wait "$runner"; } 2>/dev/null
	rm -rf "$work" "$scratch"
}
trap leave EXIT

skip() {
	echo "$1"
	exit 77
}

# counted FILE: the summary says that something was charged, that nothing is
# left and that the sums were exact.
counted() {
	jq -e '.processes_total > 0 and .groups[0].peak > 0 and
		.groups[0].current == 0 and .drift == 0 and
		([.groups[].repairs] | add) == 0' "$1" >/dev/null || {
		echo "the numbers don't add up:"
		jq -c '{processes_total, drift, root: .groups[0]}' "$1"
		return 1
	}
}

# live NAME N: while it runs, stat shows N processes or more that hold memory.
live() {
	"$MEMTALLY" stat --json "$1" | jq -e --argjson n "$2" '.drift == 0 and
		.groups[0].charged > 0 and ([.processes[] |
		select(.state == "live" and .charged > 0)] | length >= $n)' \
		>/dev/null || {
		echo "what stat shows of the living:"
		"$MEMTALLY" stat --json "$1" |
			jq -c '{drift, processes, root: .groups[0]}'
		return 1
	}
}

# under NAME COMMAND...: the command under memtally, its numbers checked.
under() {
	local name=$1 status
	shift
	"$MEMTALLY" run -n "$name" -s "json:$work/$name.json" -- "$@"
	status=$?
	counted "$work/$name.json" || return 99
	return $status
}

# same NAME COMMAND...: output and status are those of a plain run.
same() {
	local name=$1 plain status
	shift
	"$@" >"$work/$name.plain" 2>"$work/$name.plain.err" </dev/null
	plain=$?
	under "$name" "$@" >"$work/$name.out" 2>"$work/$name.err" </dev/null
	status=$?
	if [ $status -ne $plain ]; then
		echo "status $status instead of $plain"
		tail -n 5 "$work/$name.err" "$work/$name.out"
		return 1
	fi
	cmp "$work/$name.plain" "$work/$name.out" &&
		cmp "$work/$name.plain.err" "$work/$name.err"
}

t_bash() {
	# shellcheck disable=SC2016 # for the shell that is started
	same bash bash -c 'for i in {1..200}; do x=$(echo $i | tr 0-9 a-j);
		printf "%s " "$x"; done; seq 20000 | sort -rn | tail -3'
}

t_perl() {
	# shellcheck disable=SC2016 # perl's own variables
	same perl perl -e 'my %h; $h{$_ x 3} = [1 .. 50] for 1 .. 20000;
		print scalar(keys %h), " ", length(join ",", sort keys %h), "\n"'
}

t_python_tests() {
	local py=/usr/bin/python3
	"$py" -c 'import test.test_dict' 2>/dev/null ||
		skip "no test modules of python3"
	under python "$py" -m test -q test_dict test_list test_threading \
		test_subprocess test_mmap >"$work/python.log" 2>&1 || {
		# What fails without memtally, too, proves nothing.
		grep -oE '^    test_[a-z]+' "$work/python.log" >"$work/bad"
		"$py" -m test -q test_dict test_list test_threading \
			test_subprocess test_mmap >"$work/python.plain" 2>&1
		grep -oE '^    test_[a-z]+' "$work/python.plain" |
			cmp - "$work/bad" && return 0
		tail -n 30 "$work/python.log"
		return 1
	}
}

t_sqlite() {
	same sqlite sqlite3 :memory: \
		"create table t(a integer primary key, b text);
		with recursive n(i) as (select 1 union all select i + 1 from n
			where i < 200000)
		insert into t select i, hex(i * 7919 % 65537) from n;
		create index u on t(b);
		select count(*), sum(length(b)), max(b) from t;
		select b, count(*) from t group by b order by 2 desc, 1 limit 5;"
}

t_git() {
	local repo=$work/repo
	git init -q "$repo" && (
		cd "$repo" || exit 1
		git config user.email a@example.org
		git config user.name a
		for i in $(seq 40); do
			seq "$i" $((i * 90)) >"f$((i % 7))"
			git add . && git commit -q -m "$i"
		done
	) || return 1
	under gitclone git clone -q "$repo" "$work/clone" &&
		under gitfsck git -C "$work/clone" fsck --full --strict &&
		under gitgc git -C "$work/clone" gc -q --aggressive &&
		cmp <(git -C "$repo" log --format=%H) \
			<(git -C "$work/clone" log --format=%H)
}

t_make_gcc() {
	make -s -j2 "B=$work/plain" "$work/plain/memtally" &&
		under build make -s -j2 "B=$work/shim" "$work/shim/memtally" ||
		return 1
	local o
	for o in "$work"/plain/{core,tools}/*.o; do
		cmp "$o" "$work/shim/${o#"$work/plain/"}" || return 1
	done
	jq -e '.processes_total > 30' "$work/build.json" >/dev/null
}

wait_for() { # COMMAND...: until it succeeds, for ten seconds
	for _ in $(seq 100); do
		"$@" >/dev/null 2>&1 && return 0
		sleep 0.1
	done
	echo "gave up waiting for: $*"
	return 1
}

t_redis() {
	local socket=$work/redis.sock pid heap rss active
	"$MEMTALLY" run -n redis -s "json:$work/redis.json" -- redis-server \
		--port 0 --unixsocket "$socket" --save '' --dir "$work" \
		>"$work/redis.log" 2>&1 &
	runner=$!
	wait_for redis-cli -s "$socket" ping || return 1
	redis-benchmark -s "$socket" -q -n 20000 -d 2000 -r 20000 \
		-t set,get,lpush >"$work/bench.log" || return 1
	redis-cli -s "$socket" --no-auth-warning info memory |
		tr -d '\r' >"$work/info"
	pid=$(redis-cli -s "$socket" info server | tr -d '\r' |
		sed -n 's/^process_id://p')
	live redis 1 || return 1
	heap=$("$MEMTALLY" stat --pid "$pid" --value heap)
	rss=$(sed -n 's/^used_memory_rss://p' "$work/info")
	active=$(sed -n 's/^allocator_active://p' "$work/info")
	# A snapshot in a forked child, under the eyes of the parent.
	redis-cli -s "$socket" bgsave >/dev/null
	wait_for sh -c "redis-cli -s $socket info persistence |
		grep -q bgsave_in_progress:0" || return 1
	redis-cli -s "$socket" shutdown nosave
	wait $runner || return 1
	# The pages that have objects in them lie inside what was charged,
	# which is close to what is resident.
	if [ $((heap * 4096)) -lt "$active" ] ||
		[ $((heap * 4096)) -gt $((rss * 5 / 4)) ]; then
		echo "heap $((heap * 4096)), active $active, resident $rss"
		return 1
	fi
	counted "$work/redis.json"
}

# At a limit: redis refuses writes by its own, lower one, and goes on; python
# raises its own error, and goes on.
t_limits() {
	local socket=$work/redis.sock
	"$MEMTALLY" run -n redis -m 100M -s "json:$work/redis.json" -- \
		redis-server --port 0 --unixsocket "$socket" --save '' \
		--maxmemory 40mb --dir "$work" >"$work/redis.log" 2>&1 &
	runner=$!
	wait_for redis-cli -s "$socket" ping || return 1
	seq 40000 | awk '{ printf "SET k%d ", $1
		for (i = 0; i < 100; i++) printf "0123456789"; print "" }' |
		redis-cli -s "$socket" >"$work/set.log"
	grep -q '^OK' "$work/set.log" &&
		grep -q '^OOM command not allowed' "$work/set.log" &&
		[ "$(redis-cli -s "$socket" get k1 | wc -c)" -eq 1001 ] || return 1
	redis-cli -s "$socket" shutdown nosave
	wait $runner || return 1
	counted "$work/redis.json" || return 1
	"$MEMTALLY" run -n python -m 64M -s "json:$work/python.json" -- \
		/usr/bin/python3 -c '
x = []
try:
    while True:
        x.append(bytearray(100000))
except MemoryError:
    n = len(x)
    x = None
y = [bytearray(100000) for _ in range(n // 2)]
print("refused at", n, "and goes on", len(y) > 100)' >"$work/python.log" &&
		grep -q '^refused at [56]..* and goes on True$' "$work/python.log" &&
		jq -e '.groups[0] | .peak <= 67108864 and .events.oom >= 1' \
			"$work/python.json" >/dev/null
}

t_memcached() {
	local socket=$work/memcached.sock
	"$MEMTALLY" run -n memcached -s "json:$work/memcached.json" -- \
		memcached -u root -s "$socket" -m 64 &
	runner=$!
	wait_for test -S "$socket" || return 1
	/usr/bin/python3 - "$socket" <<-'P' || return 1
		import socket, sys
		s = socket.socket(socket.AF_UNIX)
		s.connect(sys.argv[1])
		f = s.makefile("rwb")
		for i in range(5000):
		    f.write(b"set k%d 0 0 1000\r\n%s\r\n" % (i, b"x" * 1000))
		    f.flush()
		    assert f.readline() == b"STORED\r\n"
		f.write(b"get k4711\r\n")
		f.flush()
		assert f.readline().startswith(b"VALUE k4711")
		assert len(f.readline()) == 1002
	P
	live memcached 1 || return 1
	kill $runner # which hands it on
	wait $runner || return 1
	counted "$work/memcached.json"
}

t_nginx() {
	local socket=$work/nginx.sock
	mkdir -p "$work/www" "$work/ngx"
	seq 50000 >"$work/www/file"
	cat >"$work/nginx.conf" <<-C
		daemon off; worker_processes 2; pid $work/ngx/pid;
		error_log $work/ngx/error.log;
		events { worker_connections 64; }
		http {
			access_log off; client_body_temp_path $work/ngx/a;
			proxy_temp_path $work/ngx/b;
			fastcgi_temp_path $work/ngx/c;
			uwsgi_temp_path $work/ngx/d; scgi_temp_path $work/ngx/e;
			gzip on; gzip_types *;
			server { listen unix:$socket; root $work/www; }
		}
	C
	chmod 755 "$work/www"
	"$MEMTALLY" run -n nginx -s "json:$work/nginx.json" -- \
		/usr/sbin/nginx -c "$work/nginx.conf" -p "$work" \
		>"$work/nginx.log" 2>&1 &
	runner=$!
	wait_for curl -s --unix-socket "$socket" http://x/file || return 1
	for _ in $(seq 100); do
		curl -s --compressed --unix-socket "$socket" http://x/file |
			cmp - "$work/www/file" || return 1
	done
	kill -HUP "$(cat "$work/ngx/pid")"
	sleep 0.5
	curl -s --unix-socket "$socket" http://x/file |
		cmp - "$work/www/file" || return 1
	live nginx 3 || return 1
	kill -QUIT "$(cat "$work/ngx/pid")"
	wait $runner || return 1
	counted "$work/nginx.json"
}

t_node() {
	local node
	node=$(command -v node) || skip "no node"
	same node "$node" -e 'let a = []; for (let i = 0; i < 300000; i++)
		a.push({ i, s: "x" + i }); const b = Buffer.alloc(50 << 20, 7);
		console.log(a.length, a[777].s, b[49 << 20])'
}

t_java() {
	command -v java >/dev/null || skip "no java"
	cat >"$work/Small.java" <<-'J'
		public class Small {
			public static void main(String[] a) {
				var l = new java.util.ArrayList<byte[]>();
				for (int i = 0; i < 2000; i++)
					l.add(new byte[10000]);
				long n = l.stream().mapToLong(x -> x.length).sum();
				System.out.println(n);
			}
		}
	J
	same javaversion java -version && same java java -Xmx256m "$work/Small.java"
}

t_postgres() {
	local bin user=postgres
	for bin in /usr/lib/postgresql/*/bin; do :; done
	[ -x "$bin/initdb" ] || skip "no postgres"
	if [ "$(id -u)" != 0 ] || ! id $user >/dev/null 2>&1; then
		skip "only root can become the user postgres"
	fi
	local d=$work/pg
	mkdir -p "$d" && cp "$MEMTALLY" "$SHIM" "$d/" && chmod 755 "$d"/* &&
		mkdir "$d/data" "$d/run" && chmod 700 "$d/run" &&
		chown -R $user "$d" || return 1
	cat >"$d/all.sh" <<-S
		set -e
		export XDG_RUNTIME_DIR=/dev/shm/memtally-pg.\$\$
		mkdir -m 700 \$XDG_RUNTIME_DIR
		trap 'rm -rf \$XDG_RUNTIME_DIR' EXIT
		run="$d/memtally run -s none --"
		\$run $bin/initdb -D $d/data -A trust -N >$d/initdb.log 2>&1
		$d/memtally run -n pg -s json:$d/pg.json -- $bin/postgres -D $d/data \
			-k $d/run -c listen_addresses= -c fsync=off \
			>$d/pg.log 2>&1 &
		server=\$!
		for i in \$(seq 100); do
			$bin/pg_isready -q -h $d/run && break
			sleep 0.1
		done
		$bin/pgbench -h $d/run -i -s 2 -q postgres >$d/bench.log 2>&1
		$bin/pgbench -h $d/run -c 8 -j 2 -T 10 postgres \
			>>$d/bench.log 2>&1
		$d/memtally stat --json pg >$d/live.json
		kill -INT \$(head -n 1 $d/data/postmaster.pid)
		wait \$server
	S
	setpriv --reuid=$user --regid=$user --clear-groups bash "$d/all.sh" || {
		tail -n 5 "$d"/*.log
		return 1
	}
	grep -q 'number of failed transactions: 0' "$d/bench.log" || return 1
	jq -e '[.processes[] | select(.charged > 0)] | length > 5' \
		"$d/live.json" >/dev/null && counted "$d/pg.json"
}

t_stress() {
	local what
	for what in malloc mmap mremap mprotect madvise brk shm shm-sysv \
		stack fork vfork mlock munmap memfd; do
		under "stress_$what" stress-ng "--$what" 2 -t 1 --verify -q || {
			echo "stress-ng --$what"
			return 1
		}
	done
}

"t_$2"
