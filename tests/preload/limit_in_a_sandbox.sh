#!/usr/bin/env bash
# Runs the program beside it at a limit, with each way to install a filter.
. tests/tools/checks.bash

check "prctl" "$m" run -s none -m 50M -- "$1"
check "seccomp" "$m" run -s none -m 50M -- "$1" seccomp
exit $bad
