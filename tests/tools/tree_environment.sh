#!/usr/bin/env bash
# The session goes on whatever the environment says, and where it can't, it
# does so again below.
# shellcheck disable=SC2016 # for the shells that are started
. tests/tools/tree.bash
lib=$("$m" run -s none -- sh -c 'echo "$LD_PRELOAD"')

# tree NAME [OPTION...] -- STEP...: until $work/stop; the last to say is asked.
tree() {
	local options=()
	rm -f "$work/ready" "$work/stop"
	while [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	shift
	"$m" run "${options[@]}" -n env -s none -- "$@" &
	run=$!
	said ready
}
over() {
	: >"$work/stop"
	wait $run
	check "$1: its status" equal $? 0
	check "$1: nothing is left" removed env
}
ready=(say "$work/ready" wait "$work/stop")
of() { tr '\0' '\n' <"/proc/$pid/environ" | sed -n "s/^$1=//p"; }

tree -- "$grow" hold 1 exec_by env -i "$grow" hold 7 "${ready[@]}"
check "env -i: counted" holds "$pid" 7
check "env -i: the library alone" equal "$(of LD_PRELOAD)" "$lib"
over "env -i"

# Generations that set LD_PRELOAD anew, each in its own way.
for list in libm.so.6:libdl.so.2 "libm.so.6:$lib:libdl.so.2" "$lib" ""; do
	generations=()
	for _ in {1..17}; do
		generations+=(env LD_PRELOAD "$list" exec fork exec vfork)
	done
	tree -- "$grow" hold 2 "${generations[@]}" hold 7 "${ready[@]}"
	check "LD_PRELOAD=$list: counted after 51 generations" holds "$pid" 7
	case $list in
	*"$lib"*) want=$list ;;
	"") want=$lib ;;
	*) want=$lib:$list ;;
	esac
	check "LD_PRELOAD=$list: merged, in order, not doubled" \
		equal "$(of LD_PRELOAD)" "$want"
	check "LD_PRELOAD=$list: its session" equal \
		"$(of MEMTALLY_SESSION)" "$places/env"
	over "LD_PRELOAD=$list"
done

# A child that only forks is the same program; what it executes is another.
tree --no-follow -- "$grow" hold 5 fork hold 6 say "$work/forked" \
	spawn hold 7 "${ready[@]}"
check "--no-follow: what was started isn't counted" equal \
	"$(value charged "$pid" 2>&1)" "memtally: $pid: in no session"
check "--no-follow: it has no library" equal "$(of LD_PRELOAD)" ""
check "--no-follow: the program is" session env '(.processes | length) == 2 and
	([.processes[].charged / 1048576 | floor] | sort) == [5, 6]'
over "--no-follow"
tree --no-follow -- "$grow" hold 5 system hold 7 "${ready[@]}"
check "--no-follow: system() neither" session env '(.processes | length) == 1'
over "--no-follow"
tree --no-follow -- sh -c 'exec "$@"' sh "$grow" hold 5 "${ready[@]}"
check "--no-follow: what the first becomes is counted" holds "$pid" 5
over "--no-follow"

# A static program can't be counted; what it starts is.
cat >"$work/static.c" <<'END'
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	int status = 0;
	if (fork() == 0)
		execv(argv[argc > 1], argv + 1);
	wait(&status);
	return WEXITSTATUS(status);
}
END
if ${CC:-gcc} -static "$work/static.c" -o "$work/static" 2>/dev/null; then
	tree -- "$grow" hold 5 fork exec_by "$work/static" "$grow" hold 7 "${ready[@]}"
	check "below a static program: counted" holds "$pid" 7
	check "below a static program: the tree" session env \
		'([.processes[].charged / 1048576 | floor] | sort) == [5, 7]'
	over "below a static program"

	# In place of a counted one: the old image's pages go at once.
	cat >"$work/waits.c" <<'END'
#include <unistd.h>
int main(int argc, char **argv)
{
	while (access(argv[argc - 1], F_OK))
		usleep(20000);
	return 0;
}
END
	${CC:-gcc} -static "$work/waits.c" -o "$work/waits"
	tree -- "$grow" hold 5 fork hold 7 say "$work/ready" \
		exec_by "$work/waits" "$work/stop"
	check "exec of a static program: the old pages go" await session env \
		'(.processes | length) == 1 and
		 (.processes[0].charged / 1048576 | floor) == 5'
	over "exec of a static program"
	chmod -x "$work/waits"
	tree -- "$grow" hold 5 try_exec "$work/waits" hold 6 "${ready[@]}"
	check "exec that fails: nothing is lost" holds "$pid" 11
	over "exec that fails"
else
	echo "skip  a static program: can't be built here"
fi

# Nor can one with more rights than its user.
if [ "$(id -u)" = 0 ] && unprivileged "$work/open/memtally" run -s none true
then
	cp "$grow" "$work/open/privileged"
	chmod 4755 "$work/open/privileged"
	out=$(unprivileged "$work/open/memtally" run -- \
		"$work/open/privileged" hold 1 2>&1)
	check "set-user-ID: not started" equal $? 125
	check "set-user-ID: why" equal "$out" "memtally: \
$work/open/privileged: not covered: set-user-ID or privileged"
	out=$(unprivileged "$work/open/memtally" run -s "json:$work/nobody/end" \
		-- "$work/open/tree_grow" hold 5 fork exec_by \
		"$work/open/privileged" hold 7 status 6 2>&1)
	check "set-user-ID as a child: its status" equal $? 6
	check "set-user-ID as a child: nothing said" equal "$out" ""
	check "set-user-ID as a child: not counted" jq -e \
		'.groups[0].peak / 1048576 | floor == 5' "$work/nobody/end"
else
	echo "skip  a set-user-ID program: only root can make one"
fi
exit $bad
