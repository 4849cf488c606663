#!/usr/bin/env bash
# Runs the program beside it at a limit that its handlers always meet.
. tests/tools/checks.bash

check "on the same stack" timeout 60 "$m" run -s none -m 40M -- "$1"
check "on its own stack" timeout 60 "$m" run -s none -m 40M -- "$1" own
exit $bad
