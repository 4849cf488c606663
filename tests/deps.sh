#!/bin/sh
# Installs the Debian packages that kinds of targets need: as root by
# apt-get, otherwise it says the line to run and fails.
#   deps.sh base|programs|bench|tidy|format...

set -u
missing=

need() { # PACKAGE TEST...: the package is there if the test succeeds
	package=$1
	shift
	"$@" >/dev/null 2>&1 && return
	case "$missing " in
	*" $package "*) ;;
	*) missing="$missing $package" ;;
	esac
}

has() { command -v "$1"; }

# As the compiler finds it: folders of other libraries have headers of that name.
header() { echo "#include <$1>" | ${CC:-gcc} -E -; }

for kind; do
case $kind in
base)
	case ${CC:=gcc} in
	*clang*) need clang has "${CC%% *}" ;;
	*) need gcc has "${CC%% *}" ;;
	esac
	need libc6-dev header stdio.h
	need binutils has objcopy
	need libjemalloc-dev ls /usr/lib/*/libjemalloc_pic.a
	need check header check.h
	need libcjson-dev header cjson/cJSON.h
	need libdw-dev header elfutils/libdwfl.h
	need libncurses-dev header ncursesw/curses.h
	need libunwind8 ls /usr/lib/*/libunwind.so.8
	need pkg-config has pkg-config
	need python3 test -x /usr/bin/python3
	need jq has jq
	;;
programs)
	need redis-server has redis-server
	need redis-tools has redis-benchmark
	need memcached has memcached
	need sqlite3 has sqlite3
	need git has git
	need nginx-light test -x /usr/sbin/nginx
	need nodejs has node
	need postgresql ls /usr/lib/postgresql/*/bin/initdb
	need stress-ng has stress-ng
	need perl has perl
	need default-jdk-headless has java
	need curl has curl
	need libpython3.11-testsuite ls /usr/lib/python3*/test/test_dict.py
	;;
bench)
	need redis-server has redis-server
	need redis-tools has redis-benchmark
	need sqlite3 has sqlite3
	need libjemalloc2 ls /usr/lib/*/libjemalloc.so.2
	;;
tidy)
	need clang has clang
	need libclang-rt-14-dev ls /usr/lib/llvm-14/lib/clang/*/lib/linux/libclang_rt.fuzzer-x86_64.a
	need clang-format has clang-format
	need clang-tidy has clang-tidy
	need cppcheck has cppcheck
	need shellcheck has shellcheck
	need mandoc has mandoc
	need tmux has tmux
	;;
man)
	need mandoc has mandoc
	;;
format)
	need clang-format has clang-format
	;;
*)
	echo "deps.sh: $kind: no such kind" >&2
	exit 1
	;;
esac
done

[ -z "$missing" ] && exit 0
if [ "$(id -u)" != 0 ]; then
	echo "memtally: needs packages: apt-get install -y$missing" >&2
	exit 1
fi
echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # a list of words
apt-get update -qq >/dev/null &&
	apt-get install -y -qq --no-install-recommends $missing >/dev/null
