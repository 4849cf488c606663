#!/usr/bin/env bash
# memtally doctor: what it says is so, and nothing is left behind.
. tests/tools/checks.bash

doctor() { "$m" doctor "$@"; }
says_line() { # PATTERN ARG...: a line of it
	local pattern=$1 out
	shift
	out=$(doctor "$@" 2>&1)
	grep -qE "$pattern" <<<"$out" || { echo "$out" && false; }
}

check "here" doctor
check "a session was made, and counted" says_line '^ok    a trial: '
check "and is gone" equal "$(ls "$places")" ""
check "a program" says_line '^ok    .*/sh: will be counted' sh
check "by its path" says_line '^ok    /bin/cat: will be counted' /bin/cat
check "none" says_line '^FAIL  no-such-command: command not found' no-such-command
doctor no-such-command >/dev/null 2>&1
check "which fails" equal $? 1

printf 'int main(void) { return 0; }\n' >"$work/p.c"
if gcc -static "$work/p.c" -o "$work/static" 2>/dev/null; then
	check "a static one" says_line '^FAIL  .*/static: statically linked' \
		"$work/static"
fi
printf '#include <stddef.h>\nvoid *malloc(size_t n) { (void)n; return 0; }\nint main(void) { return 0; }\n' >"$work/q.c"
gcc -fno-builtin -rdynamic "$work/q.c" -o "$work/own" &&
	check "one with a malloc" says_line '^note  .*/own: has a malloc' "$work/own"
: >"$work/plain"
check "no program" says_line '^FAIL  .*/plain: Permission denied' "$work/plain"
cp "$work/p.c" "$work/odd" && chmod +x "$work/odd"
check "odd content" says_line 'odd: will be counted' "$work/odd"

check "limits" bash -c 'ulimit -f 100; "$m" doctor | grep -q "^FAIL  ulimit -f"'
check "a tool in the way" bash -c \
	'LD_AUDIT=/none.so "$m" doctor 2>/dev/null | grep -q "^FAIL  LD_AUDIT"'
exit $bad
