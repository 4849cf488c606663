# shellcheck shell=bash
exec "$MEMTALLY" run -s none -m 64M -- "$1"
