#!/usr/bin/env bash
# memtally top: as text, and on a screen of tmux's, driven by its keys.
# shellcheck disable=SC2016 # for the shells that are started
. tests/tools/tree.bash
export LC_ALL=C.UTF-8

"$m" run -n live -s none -m 128M -g '/web:low=20M' -g '/cache:max=26M' -- sh -c '
	for i in 1 2 3; do
		MEMTALLY_GROUP=/web/w$i "$0" hold $((i * 10)) say "$1/w$i" \
			wait "$1/stop" &
	done
	MEMTALLY_GROUP=/cache "$0" hold 25 say "$1/c" wait "$1/stop" & wait' \
	"$grow" "$work" &
run=$!
for i in w1 w2 w3 c; do said $i; done

once=$("$m" top -1 live)
line() { grep -E -- "$1" <<<"$once" >/dev/null || { echo "$once" && false; }; }
check "as text: the tree" line '^│  ├─ w2  .* 20\.[0-9]M '
check "as text: limits" line '^├─ cache  .* 25\.[0-9]M +25\.[0-9]M +- +- +26\.0M +9[67] '
check "as text: the root" line '^/ .* 128\.0M +6[67] '
check "ASCII" grep -qE '^\|  `- w1 ' <("$m" top -1 -U live)
check "more than once" equal "$("$m" top -b -n 3 -d 0.1 live | grep -c '^GROUP')" 3
check "no session" fails 1 "no such session" "$m" top -1 none
check "no number" fails 2 "not a number" "$m" top -d x
check "no count" fails 2 "not a count" "$m" top -n 0
check "two sessions" fails 2 "one session" "$m" top a b
check "no terminal" fails 1 "not a terminal" "$m" top live </dev/null
head -c 50000 /dev/urandom >"$places/junk" && chmod 600 "$places/junk"
check "garbage" fails 3 "not a session" "$m" top -1 junk
rm "$places/junk"

finish() {
	: >"$work/stop"
	wait $run
	exit $bad
}
command -v tmux >/dev/null || { echo "no tmux: the screen isn't tested"; finish; }

# A server of its own for each: one that is about to end takes no more.
server=1
tmux() { command tmux -S "$work/tmux$server" -f /dev/null "$@"; }
trap 'tmux kill-server 2>/dev/null; rm -rf "$work" "$runtime"' EXIT
tmux new-session -d -x 80 -y 24 \
	"LC_ALL=C.UTF-8 '$m' top live; echo status \$?; sleep 60"
screen() { tmux capture-pane -p | sed 's/ *$//'; }
shows() { screen | grep -qE -- "$1"; } # a line that matches
sees() { await shows "$1" || { screen && false; }; }
key() { tmux send-keys "$@"; }

check "screen: title" sees '^memtally top - live \([0-9]+ processes\)  up 00:'
check "screen: a bar" sees '^Total \[\|+ +M\] 8[5-9].* max 128\.0M  peak '
check "screen: rows" sees '^│  └─ w1 '
check "screen: keys" sees '^F1Help .*F10Quit'
check "screen: no line too many" equal "$(screen | wc -l)" 24
key Down -
check "fold" sees '^├\+ web '
! shows '└─ w1' || { bad=1 && echo "FAIL  folded is gone"; }
key +
check "unfold" sees '^│  └─ w1 '
key F4 cache Enter
check "filter" sees '^/cache '
key F4 BSpace BSpace BSpace BSpace BSpace Enter
check "no filter" sees '^├─ web '
key '>'
check "sort" sees '^sorted by PEAK'
key p
check "processes" sees '^[0-9]+ tree_grow +30\.'
key p Home F9
check "limit: what there is" sees 'max 128\.0M\.  KEY=SIZE: _'
key max=200M Enter
check "limit: done" sees '^Total .* max 200\.0M'
check "limit: really" equal "$("$m" get live:/ max)" $((200 << 20))
key F9 max=12Q Enter
check "limit: refused" sees '12Q: not a size'
tmux resize-window -x 140 -y 24
key c y Enter
check "coverage" sees '^memtally top - live .*  coverage (99\.[0-9]|100\.0)%$'
tmux resize-window -x 80 -y 24
key h
check "help" sees '^Keys'
key q
check "help: back" sees '^F1Help'
key / w3 Enter
check "search" sees '^F1Help'
tmux resize-window -x 200 -y 60
check "wide" sees ' HEAP +ANON +FILE +SHMEM +NET/s +STALL +EVENTS$'
tmux resize-window -x 30 -y 6
check "small" sees '^too small a window'
tmux resize-window -x 80 -y 24
check "and back" sees '^│  └─ w1 '
: >"$work/stop"
wait $run
check "when it has ended" sees 'ended, begun before'
"$m" gc >/dev/null
check "when it has been removed" sees 'has been removed'
key q
check "leaves" sees '^status 0'

# Only to be looked at, and without colours.
"$m" run -n other -s none -- sh -c 'sleep 60' &
run=$!
await "$m" stat other
tmux kill-server
server=2
tmux new-session -d -x 80 -y 24 \
	"NO_COLOR=1 LC_ALL=C '$m' top -R other; echo status \$?; sleep 60"
check "read only: no key for limits" sees '^F1Help F3Search F4Filter F5Tree F6Sort F10Quit'
key l
check "read only" sees 'read only'
key q
check "leaves, too" sees '^status 0'
tmux kill-server
server=3
tmux new-session -d "TERM=nonsense '$m' top other; echo status \$?; sleep 60"
check "unknown terminal" sees 'nonsense: unknown terminal'
kill $run
wait $run 2>/dev/null
exit $bad
