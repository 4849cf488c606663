# shellcheck shell=bash
# Under small limits, where the program alone gets by with them; README.md
# says how small they may be.
program=$1
bad=0

# under OPTION KB: that limit is enough.
under() {
	bash -c "ulimit $1 $2 && exec env -i '$program'" || return 0
	bash -c "ulimit $1 $2 && exec env -i XDG_RUNTIME_DIR='$scratch' \
		LD_PRELOAD='$SHIM' '$program'" && return
	echo "ulimit $1 $2: status $?"
	bad=1
}

scratch=$(mktemp -d /dev/shm/memtally-test.XXXXXX) || exit 1
trap 'rm -rf "$scratch"' EXIT
under -s 24
under -s 64
under -d 20480
under -d 32768
exit $bad
