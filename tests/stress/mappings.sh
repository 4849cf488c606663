#!/usr/bin/env bash
# A million random mapping calls on one thread and on four, all in one group and
# in several, against the kernel's own account.
. tests/lib.sh
echo "map_random: 4 x $((${ROUNDS:-1000} * 1000)) calls"
"$MEMTALLY" run -s none -- "$B/tests/preload/map_random" 4711 1 \
	"${ROUNDS:-1000}" 1000 && echo "map_random: ok"
