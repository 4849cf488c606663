#!/usr/bin/env bash
# The bytes charged to the one group named "cache".
export READ_CACHE="$MEMTALLY stat --json groups.\$PPID |
	jq '[.groups[] | select(.path | endswith(\"/cache\")).charged] | add'"
READ_CACHE=${READ_CACHE//\$PPID/$$}
exec "$MEMTALLY" run -n "groups.$$" -s none -- "$1"
