#!/bin/bash
# A tar round trip with links, holes, nanosecond times, extended attributes and odd names: what
# comes out of the mount is, bit for bit, what went in.
# timeout 60
. "$(dirname "$0")/lib.sh"
begin tar
make_tree() (
	set -e
	mkdir -p "$1/sub dir/deep" "$1/empty"
	cd "$1"
	head -c 100000 /dev/urandom >random
	truncate -s 20M sparse
	printf middle | dd of=sparse bs=1 seek=9000000 conv=notrunc status=none
	printf end | dd of=sparse bs=1 seek=20971000 conv=notrunc status=none
	ln random "sub dir/second name"
	ln random "sub dir/deep/third"
	ln -s ../random "sub dir/up"
	ln -s "no where" dangling
	ln -s "$(printf 'l%.0s' $(seq 200))" long-link
	: >"$(printf 'n%.0s' $(seq 255))"
	: >"$(printf 'new\nline')" && : >"$(printf '\377\376')" && : >-rf && : >"100%"
	mkfifo fifo
	for i in $(seq 200); do echo "$i" >"sub dir/deep/$i"; done
	setfattr -n user.plain -v value random
	setfattr -n user.binary -v 0x00ff0a00 "sub dir"
	chmod 4755 "sub dir/deep/1" && chmod 1777 empty && chmod 0400 "sub dir/deep/2"
	find . -exec touch -h -d '2001-02-03 04:05:06.123456789' {} +
)
# atime and ctime are nobody's to keep.
pack() {
	tar --create --sort=name --format=posix --pax-option=delete=atime,delete=ctime,exthdr.name=x \
		--sparse --sparse-version=0.0 --hole-detection=seek --xattrs "--xattrs-include=user.*" --numeric-owner \
		--directory "$1" .
}
unpack() { tar --extract --xattrs "--xattrs-include=user.*" --preserve-permissions --directory "$1"; }

make_tree "$PAI_TMP/tree" || exit 1
pack "$PAI_TMP/tree" >"$PAI_TMP/want.tar" || exit 1
start special=full suid || { not_ok tar "no mount"; exit 1; }
mkdir "$MNT/tree"
check extract unpack "$MNT/tree" <"$PAI_TMP/want.tar"
# sum FILE-OR-STDIN
sum() { sha256sum | cut -c1-16; }
want=$(sum <"$PAI_TMP/want.tar")
is packed-from-the-mount "$(pack "$MNT/tree" | sum)" "$want"
is packed-in-the-sandbox "$(sandbox bash -c "$(declare -f pack); pack tree" | sum)" "$want"
sandbox bash -c "$(declare -f pack unpack); mkdir copy && pack tree | unpack copy" || not_ok tar "copy"
is extracted-in-the-sandbox "$(pack "$MNT/copy" | sum)" "$want"
is holes-are-kept "$(($(stat -c %b "$MNT/tree/sparse") * 512 < 1000000))" 1
same same-tree "$PAI_TMP/tree" "$MNT/tree"
cd /
stop
exit $failed
