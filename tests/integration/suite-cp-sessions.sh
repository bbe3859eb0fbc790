#!/bin/bash
# Two sessions whose files have equal inode numbers, as those made from one template have: host
# programs that compare (device, inode) must not take them for the same file.
# timeout 60
. "$(dirname "$0")/lib.sh"
begin cp-sessions
if [ "$(id -u)" != 0 ] || [ "$PAI_ON" = passthrough ]; then
	skip cp-sessions "it mounts two equal file systems: root, and sessions, only"
	exit 0
fi
drop() {
	cd /
	stop
	umount "$PAI_TMP/fs-a" "$PAI_TMP/fs-b" 2>/dev/null
	clean_up
}
trap drop EXIT
for key in a b; do
	mkdir -p "$PAI_TMP/fs-$key"
	mount -t tmpfs none "$PAI_TMP/fs-$key" || exit 1
	echo "text of $key" >"$PAI_TMP/fs-$key/x"
	mkdir "$PAI_TMP/fs-$key/dir" && echo "in $key" >"$PAI_TMP/fs-$key/dir/y"
done
number() { stat -c %i "$1"; }
is the-numbers-are-equal-below "$(number "$PAI_TMP/fs-a/x")" "$(number "$PAI_TMP/fs-b/x")"
start || { not_ok cp-sessions "no mount"; exit 1; }
A=$PAI_TMP/fs-a B=$PAI_TMP/fs-b
if [ "$PAI_ON" = paifs ]; then
	session a "$A" && session b "$B" || exit 1
	A=$TOP/a B=$TOP/b
	for path in x dir dir/y; do
		[ "$(number "$A/$path")" != "$(number "$B/$path")" ] || not_ok cp-sessions "$path: equal numbers"
		[ $(($(number "$A/$path") & 0xffffffff)) = $(($(number "$PAI_TMP/fs-a/$path") & 0xffffffff)) ] ||
			not_ok cp-sessions "$path: its low half isn't the sandbox's own"
	done
fi
is diff-sees-the-difference "$(diff -q "$A/x" "$B/x" >/dev/null; echo $?)" 1
check cp cp "$A/x" "$B/x"
is cp-arrived "$(cat "$PAI_TMP/fs-b/x")" "text of a"
check cp-tree cp -r "$A/dir/." "$B/dir"
is cp-tree-arrived "$(cat "$PAI_TMP/fs-b/dir/y")" "in a"
check mv mv "$A/x" "$B/moved"
is mv-arrived "$(cat "$PAI_TMP/fs-b/moved"; ls "$PAI_TMP/fs-a")" "text of a
dir"
check rsync rsync -a "$A/" "$B/"
is hard-link-across-is-refused "$(ln "$A/dir/y" "$B/link" 2>/dev/null; echo $?)" 1
cd /
exit $failed
