#!/usr/bin/env bash
# What the command finds: environment, limits, pid; and what run refuses to
# start.
# shellcheck disable=SC2016 # for the shells that are started
. tests/tools/checks.bash

preload() { "$@" sh -c 'echo "$LD_PRELOAD"'; }
lib=$(preload "$m" run -s none --)
check "the library is preloaded" matches "$lib" '^/.*/libmemtally\.so$'
check "in front of others" equal \
	"$(LD_PRELOAD=libm.so.6 preload "$m" run -s none --)" "$lib:libm.so.6"
check "never twice" equal "$(LD_PRELOAD=libm.so.6:$lib preload \
	env MEMTALLY_DISABLE=1 "$m" run -s none -- env -u MEMTALLY_DISABLE)" \
	"$lib:libm.so.6"

mkdir "$work/with space"
cp "$m" "$lib" "$work/with space/"
odd=$(preload "$work/with space/memtally" run -s none --)
check "a path with a space goes through a link" \
	matches "$odd" "^$places/libmemtally@"
check "that leads there" equal "$(realpath "$odd")" \
	"$(realpath "$work/with space/libmemtally.so")"
check "and isn't a session" equal "$("$m" ls | grep -c libmemtally)" 0
"$m" gc >/dev/null
check "gc leaves it alone" test -L "$odd"

check "a group of a session that is gone is forgotten" equal "$(
	MEMTALLY_SESSION=/gone MEMTALLY_GROUP=/x "$m" run -s none -- \
		sh -c 'echo "${MEMTALLY_GROUP-none}"')" none
check "a group chosen by hand is kept" equal "$(
	MEMTALLY_GROUP=/x "$m" run -s none -- \
		sh -c 'echo "${MEMTALLY_GROUP-none}"')" /x
check "the limit on descriptors is the command's own" equal "$(
	ulimit -Sn 77
	"$m" run -s none -- sh -c 'ulimit -Sn')" 77
check "--exec keeps the pid" equal "$(sh -c \
	'echo $$; exec "$0" run -x -- sh -c "echo \$\$"' "$m" | uniq | wc -l)" 1

"$m" run -n outer -s none -- "$m" run -n inner -m 50M -- sh -c \
	'"$0" stat --json outer >"$1/nested.json"' "$m" "$work"
check "inside a session run makes a group" jq -e \
	'[.groups[] | select(.path == "/inner" and .max == 52428800)] |
	length == 1' "$work/nested.json"
check "and no session" test ! -e "$places/inner"

# refused NAME TEXT COMMAND...: 125 and one line with TEXT.
refused() {
	local name=$1 text=$2 out
	shift 2
	out=$("$@" 2>&1 >/dev/null)
	check "$name: 125" equal $? 125
	check "$name: one line" equal "$(grep -c "^memtally: .*$text" <<<"$out")" \
		"$(wc -l <<<"$out")"
}
refused "--property, wrong" "MemoryMost=1G: --property takes" "$m" run \
	-p MemoryMost=1G true
refused "--property without a size" "12Q: not a size" "$m" run \
	-p MemoryMax=12Q true
refused "--on-max, wrong" "--on-max takes" "$m" run --on-max wait=x true
check "the limits of a session" says '.groups[0] | .min == 1048576 and
	.low == 2097152 and .high == 3221225472 and .max == 4294967296' \
	bash -c '"$1" run -s json:/dev/stdout -m 4G -p MemoryHigh=3G --low 2M \
		--min 1M true' - "$m"
refused "an unknown option" "unrecognized option '--frob'" "$m" run --frob true
mkdir "$work/broken"
cp "$m" "$work/broken/"
refused "no library" 'not found' "$work/broken/memtally" run true
echo x >"$work/broken/libmemtally.so"
refused "a broken library" 'not a shared library' \
	"$work/broken/memtally" run true
refused "no place for the summary" 'No such file' \
	"$m" run -s "json:$work/no/where" -- touch "$work/started"
check "and the command wasn't started" test ! -e "$work/started"

# Another ELF class: a byte decides.
cp /bin/true "$work/elf32"
printf '\001' | dd of="$work/elf32" bs=1 seek=4 conv=notrunc 2>/dev/null
refused "another ELF class" 'not covered: of another machine' \
	"$m" run "$work/elf32"
printf '#!%s\n' "$work/elf32" >"$work/script"
chmod +x "$work/script"
refused "a script for it" 'not covered: of another machine' \
	"$m" run "$work/script"

# A link in place of the directory leads nobody anywhere.
mkdir "$work/trap"
rm -rf "$places"
ln -s "$work/trap" "$places"
"$m" run -n "linked.$$" -s none -- true 2>/dev/null
check "a planted link is not followed" equal "$(ls "$work/trap")" ""
rm -f "/dev/shm/memtally-$(id -u)/linked.$$"
exit $bad
