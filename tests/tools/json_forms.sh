#!/usr/bin/env bash
# The JSON that scripts rely on: keys and their types, by one description.
# shellcheck disable=SC2016 # for the shells that are started
. tests/tools/tree.bash

# A form is an object of the same shape: "number", "string", "boolean", "bytes"
# (an integer), "limit" (the same, or null); a list of one form; "?" as a key:
# any other keys are allowed, which they are anyway.
cat >"$work/form.jq" <<'END'
def matches($form; $path):
	. as $value |
	if ($form | type) == "object" then
		if type != "object" then "\($path): no object"
		else $form | to_entries[] | .key as $key | .value as $sub |
			if ($value | has($key)) then
				$value[$key] | matches($sub; "\($path).\($key)")
			else "\($path).\($key): missing" end
		end
	elif ($form | type) == "array" then
		if type != "array" then "\($path): no list"
		else range(length) as $i |
			.[$i] | matches($form[0]; "\($path)[\($i)]")
		end
	elif $form == "bytes" then
		if type == "number" and . == floor then empty
		else "\($path): \(.) is no integer" end
	elif $form == "limit" then
		if type == "null" or (type == "number" and . == floor) then empty
		else "\($path): \(.) is no limit" end
	elif type == $form then empty
	else "\($path): \(.) is no \($form)" end;
matches($form; "")
END
conforms() { # FORM FILE: every value in it
	local wrong
	[ -s "$2" ] || { echo "nothing"; return 1; }
	wrong=$(jq -r --argjson form "$1" -f "$work/form.jq" "$2")
	[ -z "$wrong" ] || { echo "$wrong"; false; }
}

events='{"low":"bytes","high":"bytes","max":"bytes","oom":"bytes","oom_kill":"bytes","oom_group_kill":"bytes","dirty":"bytes"}'
stat='{"session":"string","state":"string","page_size":"bytes","time":"number",
"groups":[{"path":"string","current":"bytes","charged":"bytes","peak":"bytes",
	"min":"limit","low":"limit","high":"limit","max":"limit","emin":"limit","elow":"limit",
	"kinds":{"heap":"bytes","anon":"bytes","file":"bytes","shmem":"bytes","brk":"bytes","external":"bytes"},
	"tracked":{"reserved":"bytes","file_mapped":"bytes","shared":"bytes","stack":"bytes"},
	"events":'$events',"events_local":'$events',
	"stall_us":"bytes","stall_avg":{"10":"number","60":"number","300":"number"},"repairs":"bytes"}],
"processes_total":"bytes","drift":"bytes",
"processes":[{"pid":"bytes","comm":"string","group":"string","state":"string","charged":"bytes","peak":"bytes","threads":"bytes"}]}'
ls='{"sessions":[{"name":"string","state":"string","uid":"bytes","processes":"bytes","current":"bytes","peak":"bytes","max":"limit"}]}'
plan='{"nodes":[{"name":"string","emin":"bytes","elow":"bytes","min_usage":"bytes","low_usage":"bytes","children_min_usage":"bytes","children_low_usage":"bytes"}],"order":["string"]}'
explain='{"processes":[{"pid":"bytes","rss":"bytes","coverage":"number","categories":[{"name":"string","resident":"bytes","charged":"bytes"}]}]}'
event='{"number":"bytes","time":"number","event":"string","group":"string","pid":"bytes","tid":"bytes","comm":"string","bytes":"limit","current":"bytes","limit":"limit",
"largest":[{"group":"string","bytes":"bytes"}],"stack":[{"module":"string","build_id":"string","offset":"bytes"}]}'

"$m" run -n live -m 50M -s "json:$work/end" -g '/a:low=max,max=20M' -- sh -c '
	MEMTALLY_GROUP=/a "$0" hold 5 say "$1/a" wait "$1/stop" &
	"${0%/*}/limit_hog" 60; : >"$1/hog"; wait' "$grow" "$work" >/dev/null &
said a
await test -e "$work/hog"
"$m" stat --json live >"$work/stat"
"$m" ls --json >"$work/ls"
"$m" explain --json >"$work/explain"
"$m" events --json live >"$work/events"
echo '{"nodes":[{"name":"a","usage":5,"low":null}]}' | "$m" plan --json - >"$work/plan"
: >"$work/stop"
wait
check "stat" conforms "$stat" "$work/stat"
check "the summary" conforms "$stat" "$work/end"
check "ls" conforms "$ls" "$work/ls"
check "plan" conforms "$plan" "$work/plan"
check "explain" conforms "$explain" "$work/explain"
check "events" conforms "$event" "$work/events"
check "kinds add up" jq -e 'all(.groups[]; .charged == (.kinds | add))' "$work/stat"
check "parents come first" jq -e '[.groups[].path] | . as $p |
	all(range(1; length); ($p[.] | sub("/[^/]*$"; "") | if . == "" then "/"
		else . end) as $up | $p[:.] | index($up) != null)' "$work/stat"
conforms "$ls" "$work/stat" >/dev/null && bad=1 && echo "FAIL  this can fail"
exit $bad
