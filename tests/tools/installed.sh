#!/usr/bin/env bash
# make install puts it where it works from, and all that belongs to it.
. tests/tools/checks.bash
to=$work/root
make -s install DESTDIR="$to" PREFIX=/usr B="$B" >/dev/null 2>&1
check "installs" test -x "$to/usr/bin/memtally"
m=$to/usr/bin/memtally
cd / || exit 1
check "runs from there" equal "$("$m" run -s none -- echo yes)" yes
check "and counts" says '.processes_total == 1' cat <("$m" run -s json:/dev/stdout -- true)
for page in man1/memtally.1 man3/memtally.h.3 man5/memtally-segment.5 man7/memtally.7; do
	check "$page" test -s "$to/usr/share/man/$page"
done
completion=$to/usr/share/bash-completion/completions/memtally
check "completions: bash" bash -n "$completion"
complete() { # WORD...: what the last is completed to
	bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _memtally
		echo "${COMPREPLY[@]}"' - "$completion" memtally "$@"
}
check "completions: a verb" equal "$(complete eve)" events
check "completions: an option" equal "$(complete stat --va)" --value
check "completions: zsh" grep -q '#compdef memtally' "$to/usr/share/zsh/site-functions/_memtally"
check "completions: fish" grep -q 'complete -c memtally' \
	"$to/usr/share/fish/vendor_completions.d/memtally.fish"
check "completions: other" fails 2 "bash, zsh or fish" "$m" completions csh
printf '#include <memtally.h>\nint main(void) { return (int)memtally_group_get("x"); }\n' >"$work/p.c"
check "the header" gcc -I"$to/usr/include" "$work/p.c" -o "$work/p"
check "pkg-config" matches "$(PKG_CONFIG_PATH=$to/usr/share/pkgconfig \
	pkg-config --define-prefix --cflags memtally)" "include"
exit $bad
