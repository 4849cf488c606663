#!/usr/bin/env bash
# Runs the unit tests alone.
. tests/lib.sh
run_units
summary
