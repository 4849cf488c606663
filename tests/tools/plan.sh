#!/usr/bin/env bash
# memtally plan: effective protection and order of reclaim on paper.
# shellcheck disable=SC2016 # programs of other languages
. tests/tools/tree.bash

plan() { "$m" plan --json "$@"; }

# Every published example, through the tool.
cat >"$work/vectors.py" <<'END'
import json, re, subprocess, sys

keys = ("name parent usage min low emin elow min_usage low_usage "
        "children_min_usage children_low_usage").split()
text = open("tests/unit/protection.def").read().replace("MAX", str(2**51 - 1))
vectors = re.findall(r"VECTOR\((\w+), (\d), (\d+),(.*?)\)\n\n", text + "\n", re.S)
for name, recursive, target, body in vectors:
    nodes = [dict(zip(keys, json.loads("[" + row + "]")))
             for row in re.findall(r"NODE\((.*?)\)", body, re.S)]
    tree = {"recursive": recursive == "1",
            "reclaim_root": nodes[int(target)]["name"],
            "nodes": [{"name": n["name"], "parent": nodes[n["parent"]]["name"],
                       "usage": n["usage"], "min": n["min"], "low": n["low"]}
                      for n in nodes[1:]]}
    out = json.loads(subprocess.run([sys.argv[1], "plan", "--json", "-"],
                                    input=json.dumps(tree), text=True,
                                    stdout=subprocess.PIPE, check=True).stdout)
    for n, got in zip(nodes, out["nodes"], strict=True):
        want = {k: n[k] for k in ["name"] + keys[5:]}
        assert got == want, (name, got, want)
print(len(vectors))
END
check "the published examples" equal \
	"$(/usr/bin/python3 "$work/vectors.py" "$m" 2>&1 | tail -n 1)" 41

# Who goes first: above low by the most; then in spite of low; min never.
cat >"$work/tree" <<'END'
{"nodes": [
	{"name": "kept", "parent": "root", "usage": 50, "min": null},
	{"name": "low1", "parent": "root", "usage": 100, "low": "max"},
	{"name": "low2", "parent": "root", "usage": 300, "low": 300, "min": 250},
	{"name": "some", "parent": "root", "usage": 400, "low": 350},
	{"name": "much", "parent": "root", "usage": 900, "low": 100},
	{"name": "leaf", "parent": "much", "usage": 700},
	{"name": "bare", "usage": 60}
]}
END
check "the order of reclaim" equal "$(plan "$work/tree" | jq -c .order)" \
	'["leaf","much","bare","some","low1","low2"]'
check "a table" grep -q '^  much .* 3.5M ' <("$m" plan "$work/tree")
check "and the order, in words" grep -q 'in spite of low:' \
	<("$m" plan - <"$work/tree")
check "an empty tree" equal "$(plan - <<<'{"nodes":[]}' | jq -c .order)" '[]'

# A directory as cgroup v2 has it.
page=$(getconf PAGESIZE)
group() { # PATH PAGES MIN LOW
	mkdir -p "$work/cg/$1"
	echo $(($2 * page)) >"$work/cg/$1/memory.current"
	echo "$3" >"$work/cg/$1/memory.min"
	echo "$4" >"$work/cg/$1/memory.low"
}
group a 1000 0 $((500 * page))
group a/b 600 0 $((400 * page))
group a/c 400 0 max
group "d e" 10 max 0
mkdir "$work/cg/bare"
group bare/f 70 0 0
cgroup='[.nodes[] | [.name, .emin, .elow, .low_usage]]'
check "a cgroup directory" equal \
	"$(plan --cgroup "$work/cg" | jq -c "$cgroup")" \
	'[["root",0,0,0],["a",0,500,500],["a/b",0,250,400],["a/c",0,250,400],["bare/f",0,0,0],["d e",2251799813685247,0,0]]'
rm "$work/cg/a/c/memory.min"
check "without the older files" equal \
	"$(plan --cgroup "$work/cg" | jq -c '.nodes | length')" 6
echo junk >"$work/cg/a/c/memory.low"
check "no number in one" fails 1 "a/c/memory.low: no number" \
	"$m" plan --cgroup "$work/cg"

# What is wrong is said in one line, whatever it is.
refused() { # WHY JSON
	local why=$1
	shift
	check "refused: $why" fails 1 "$why" "$m" plan - <<<"$1"
}
refused 'no JSON: wrong at byte' '{"nodes": ['
refused 'no JSON: more at byte' '{"nodes": []} {}'
refused 'not the description of a tree' '[]'
refused 'not the description of a tree' '{"nodes": 3}'
refused 'node 1 has no name' '{"nodes": [{"usage": 1}]}'
refused 'node "a": no usage' '{"nodes": [{"name": "a"}]}'
refused 'node "a": usage is no number of pages' \
	'{"nodes": [{"name": "a", "usage": -1}]}'
refused 'node "a": usage is no number of pages' \
	'{"nodes": [{"name": "a", "usage": "max"}]}'
refused 'node "a": min is no number of pages' \
	'{"nodes": [{"name": "a", "usage": 1, "min": 0.5}]}'
refused 'node "a": usage is too large' \
	'{"nodes": [{"name": "a", "usage": 1e300}]}'
refused 'no parent "b"' '{"nodes": [{"name": "a", "usage": 1, "parent": "b"}]}'
refused 'two nodes are called "root"' '{"nodes": [{"name": "root", "usage": 1}]}'
refused 'below itself' '{"nodes": [
	{"name": "a", "usage": 1, "parent": "b"},
	{"name": "b", "usage": 1, "parent": "a"}]}'
refused 'below itself' '{"nodes": [{"name": "a", "usage": 1, "parent": "a"}]}'
refused 'no node "x"' '{"nodes": [], "reclaim_root": "x"}'
refused 'neither true nor false' '{"nodes": [], "recursive": 1}'
check "refused: nothing at all" fails 1 "empty" "$m" plan /dev/null
check "refused: a directory" fails 1 "Is a directory" "$m" plan /
check "refused: no such file" fails 1 "No such file" "$m" plan "$work/none"
mkdir "$work/empty"
check "refused: no cgroup" fails 1 "no memory.current" \
	"$m" plan --cgroup "$work/empty"
check "usage: none" fails 2 "which file" "$m" plan
check "usage: two" fails 2 "one file" "$m" plan a b
check "usage: both" fails 2 "not both" "$m" plan --cgroup / a

# A living tree's are in its numbers: b claims 3/4 of what a has.
"$m" run -n live -s none -g '/a:low=30M' -g '/a/b:low=30M' -g '/a/c:low=10M' \
	-- sh -c 'for g in b c; do
		MEMTALLY_GROUP=/a/$g "$0" hold 50 say "$1/$g" wait "$1/stop" &
	done; wait' "$grow" "$work" &
await test -s "$work/b" -a -s "$work/c"
"$m" stat --json live >"$work/live"
: >"$work/stop"
wait
low() { jq ".groups[] | select(.path == \"$1\").elow" "$work/live"; }
check "stat: a's own" equal "$(low /a)" $((30 << 20))
check "stat: the larger claim" equal "$(low /a/b)" $(((30 << 20) * 3 / 4))
check "stat: the smaller" equal "$(low /a/c)" $(((30 << 20) / 4))

# Deep and wide.
/usr/bin/python3 -c '
import json
n = [{"name": "n%d" % i, "parent": "n%d" % (i - 1) if i % 20000 else "root",
      "usage": 100, "low": 100} for i in range(100000)]
print(json.dumps({"nodes": n}))' >"$work/big"
check "100,000 nodes" equal "$(plan "$work/big" | jq -c '.nodes | length')" \
	100001
/usr/bin/python3 -c 'print("[" * 100000)' >"$work/deep"
check "deep nonsense" fails 1 "no JSON" "$m" plan "$work/deep"
exit $bad
