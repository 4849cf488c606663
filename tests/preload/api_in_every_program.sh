#!/usr/bin/env bash
# memtally.h in programs of every kind, with memtally and without.
. tests/tools/checks.bash
source=tests/preload/api_in_every_program.c
# shellcheck disable=SC2206 # may be several words
cc=(${CC:-gcc} -I. -Wall -Wextra -Werror -O1)

# program NAME OPTION...: built, and asked both ways.
program() {
	local name=$1
	shift
	"${cc[@]}" "$@" -o "$work/$name" || {
		echo "FAIL  $name: not built"
		bad=1
		return
	}
	check "$name, without" equal "$("$work/$name")" "not counted"
	check "$name, with" equal "$("$m" run -s none -- "$work/$name")" counted
}
program pie -std=c99 -fPIE -pie $source
program non-pie -std=c99 -fno-pie -no-pie $source
program debug -O0 -std=gnu11 $source
"${cc[@]}" -fPIC -shared -DLIBRARY $source -o "$work/libask.so"
echo 'int ask(void); int main(void) { return ask(); }' >"$work/main.c"
program library "$work/main.c" "$work/libask.so" "-Wl,-rpath,$work"
if command -v g++ >/dev/null; then
	cc=(g++ -I. -Wall -Wextra -Werror -O1 -x c++)
	program c++ -std=c++11 $source
fi
# shellcheck disable=SC2206 # may be several words
cc=(${CC:-gcc} -I. -Wall -Wextra -Werror -O1)
if "${cc[@]}" -static $source -o "$work/static" 2>/dev/null; then
	check "static" equal "$("$work/static")" "not counted"
fi
exit $bad
