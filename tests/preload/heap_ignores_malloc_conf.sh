#!/usr/bin/env bash
out=$(MALLOC_CONF=stats_print:true,abort_conf:true,nonsense:1 \
	"$MEMTALLY" run -s none -- "$1" 2>&1) || exit 1
[ "$out" = quiet ] || { echo "said: $out"; exit 1; }
