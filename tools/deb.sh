#!/bin/sh
# Makes a Debian package of what has been installed below $B/deb.
set -eu
root=$B/deb
arch=$(dpkg --print-architecture)
package=$B/memtally_${VERSION}_$arch.deb

# Libraries that the program needs, by the packages that have them.
depends=$(ldd "$root/usr/bin/memtally" | awk '$3 ~ /^\// { print $3 }' |
	while read -r file; do
		dpkg -S "$(readlink -f "$file")" "/usr$file" "$file" 2>/dev/null |
			sed -n '1s/:.*//p'
	done | grep -E '^(libc6|libcjson1|libdw1|libelf1|libncursesw6|libtinfo6)$' |
	sort -u | paste -s -d, - | sed 's/,/, /g')
find "$root/usr/share/man" -type f ! -name '*.gz' -exec gzip -9nf {} +
mkdir -p "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<END
Package: memtally
Version: $VERSION
Architecture: $arch
Section: utils
Priority: optional
Maintainer: The memtally developers <memtally@localhost>
Installed-Size: $(du -sk "$root/usr" | cut -f1)
Depends: $(echo "$depends" | sed 's,libc6,libc6 (>= 2.34),')
Recommends: libunwind8
Description: charge the memory of a process tree, limit it and watch it
 memtally rebuilds the Linux memory controller in user space: a preloaded
 library charges every page of a program's heap and mappings to a tree of
 groups with the kernel's limits, protection and events. No root, no cgroup
 delegation, no recompilation.
END
dpkg-deb --root-owner-group --build "$root" "$package" >/dev/null
echo "$package"
