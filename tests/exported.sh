#!/bin/sh
# The symbols that the given objects mean to export: defined, global and not
# hidden.  One a line, sorted.
readelf -sW "$@" | awk '
	$5 == "GLOBAL" && $6 == "DEFAULT" && $7 != "UND" { print $8 }' |
	LC_ALL=C sort -u
