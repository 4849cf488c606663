#!/usr/bin/env bash
# A copy of core as it might have been, for comparison.
#   variant.sh NAME FOLDER
#	today	as it is
#	always	protected usage is published at every charge
#	packed	usage and limits on one line, what is written on the next
#	alone	usage alone on its line; claims and limits share the others
# An edit that finds nothing to change fails: nothing is compared with itself.
set -eu
name=$1 to=$2
rm -rf "$to"
mkdir -p "$to"
cp -r core "$to/core"

# The fields of struct mt_group in the order of $order: names of blocks.
reorder() {
	awk -v order="$1" '
		/^struct mt_group \{/ { inside = 1; print; next }
		!inside { print; next }
		/MT_CACHELINE.*int64_t usage;/ { block = "usage" }
		/Protected usage, published/ { block = "claims" }
		/MT_CACHELINE.*int64_t min;/ { block = "limits" }
		/MT_CACHELINE.*events\[8\]/ { block = "rest" }
		block == "rest" {
			n = split(order, names, " ")
			for (i = 1; i <= n; i++)
				printf "%s", text[names[i]]
			inside = 0
			print
			next
		}
		{ if (block != "usage") sub(/_Alignas\(MT_CACHELINE\) /, "")
		  text[block] = text[block] $0 "\n" }
	' core/layout.h |
		sed "$2; "'/^_Static_assert.*struct mt_group/d' >"$to/core/layout.h"
}

case $name in
today)
	exit 0
	;;
always)
	sed -z 's/\tif (load_relaxed(own) == want)\n\t\treturn;\n//' \
		core/counter.c >"$to/core/counter.c"
	;;
packed)
	reorder "usage limits claims" ''
	;;
alone)
	# The parent, which every charge reads, beside claims that are written.
	reorder "usage limits claims" '/_Atomic int64_t min;/{
		s/^/\t_Alignas(MT_CACHELINE) uint64_t spacer[4];\n/
	}'
	;;
*)
	echo "$name: no such variant" >&2
	exit 1
	;;
esac
! diff -rq core "$to/core" >/dev/null || {
	echo "variant.sh: $name changes nothing any more" >&2
	exit 1
}
