# shellcheck shell=bash disable=SC2034 # used by those who source it
# tree.bash - what the tests of whole trees of processes share.  Sourced.
#
# $grow: the program whose arguments describe a tree (see its source).
. tests/tools/checks.bash

grow=${m%/*}/tests/preload/tree_grow
export grow
[ -x "$grow" ] || {
	echo "$grow: not built"
	exit 1
}

# said NAME: waits for step `say $work/NAME`; the pid is in $pid then, the MiB
# it holds in $mib.
said() {
	await test -e "$work/$1" || {
		echo "FAIL  $1 never came"
		bad=1
		return 1
	}
	read -r pid mib <"$work/$1"
}

# value KEY PID: pages of a process.
value() { "$m" stat --pid "$2" --value "$1"; }

# holds PID MIB: that much heap, and not much beside it.
holds() {
	local pages
	pages=$(value heap "$1") || return 1
	[ "$pages" -ge $(($2 * 256)) ] && [ "$pages" -le $(($2 * 256 + 640)) ] || {
		echo "$1 holds $pages pages, not $2 MiB"
		return 1
	}
}

# What every session must say of itself while nobody charges: jq's filter.
# The sum of the groups below "/" and of the rows is what "/" has.
sound='(.drift == 0) and
	(.groups[0].current >= .groups[0].charged) and
	([.processes[].charged] | add // 0) == .groups[0].charged and
	([.groups[1:][] | select(.path | test("^/[^/]*$")).charged] | add // 0)
		== .groups[0].charged'

# session NAME FILTER: the session satisfies it, and is sound.
session() {
	local json
	json=$("$m" stat --json "$1") || return 1
	jq -e "($sound) and ($2)" <<<"$json" >/dev/null || {
		jq -c '{s: .state, d: .drift, t: .processes_total,
			g: [.groups[] | [.path, .charged, .current]],
			p: [.processes[] | [.pid, .comm, .state, .charged]]}' \
			<<<"$json" | head -c 3000
		return 1
	}
}

# listed NAME STATE PROCESSES: what ls says.
listed() {
	local all
	all=$("$m" ls --json | jq -c --arg n "$1" '.sessions[] |
		select(.name == $n) | [.state, .processes, .current]')
	case $2 in
	dead) equal "$all" '["dead",0,0]' ;;
	*) matches "$all" "^\[\"$2\",$3," ;;
	esac
}

# removed NAME: gc takes the session away, with all that belongs to it.
removed() {
	"$m" gc | grep -qx -- "$1" || { echo "gc left $1"; return 1; }
	equal "$(find "$places" -name "$1*")" ""
}

# unprivileged COMMAND...: as nobody, who finds memtally and $grow in
# $work/open and has $work/nobody to write to and a place for sessions.
unprivileged() {
	if [ "$(id -u)" != 0 ]; then
		"$@"
		return
	fi
	if [ ! -d "$work/open" ]; then
		chmod 711 "$work" "$runtime"
		mkdir -p "$work/open/tests/preload" "$runtime/nobody/memtally"
		install -m 755 "$m" "$grow" "${m%/*}/libmemtally.so" "$work/open/"
		mkdir "$work/nobody"
		chown 65534 "$work/nobody" "$runtime/nobody" \
			"$runtime/nobody/memtally"
		chmod 700 "$runtime/nobody" "$runtime/nobody/memtally"
	fi
	XDG_RUNTIME_DIR=$runtime/nobody setpriv --reuid 65534 --clear-groups \
		"$@"
}
