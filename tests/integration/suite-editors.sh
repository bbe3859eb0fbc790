#!/bin/bash
# Editors save by rename, by truncating, and by a hard link and a rename: each is exact, keeps mode
# and links as on a plain directory, and is seen in the sandbox at once.
# timeout 60
. "$(dirname "$0")/lib.sh"
begin editors
edit() { timeout 20 vim -u NONE -es -c "$2" -c "%s/old/new/" -c "$3" "$1" </dev/null; }
work() {
	local copy
	mkdir "$1" && cd "$1" || return 1
	for copy in yes no auto; do
		printf 'one\nold line\nthree\n' >"vim-$copy"
		chmod 640 "vim-$copy"
		edit "vim-$copy" "set backupcopy=$copy" "wq" || return 1
	done
	printf 'old\n' >linked && ln linked other
	edit linked "set backupcopy=auto" "wq" || return 1
	printf 'old\n' >target && ln -s target symlink
	edit symlink "set backupcopy=auto" "wq" || return 1
	printf 'old\n' >backed
	edit backed "set backup backupext=.orig" "wq" || return 1
	printf 'old\nold\n' >./sed && chmod 604 sed && ln sed sed-other
	sed -i 's/old/new/' sed || return 1
	sed -i.bak 's/new/newer/' sed || return 1
	perl -pi -e 's/newer/newest/' sed || return 1
	printf 'a\nb\n' >patched
	printf -- '--- patched\n+++ patched\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n' | patch -s patched || return 1
}
(work "$PAI_TMP/reference") || exit 1
start || { not_ok editors "no mount"; exit 1; }
check editors-run bash -c "$(declare -f edit work); work '$MNT/edited'"
same same-as-plain "$PAI_TMP/reference" "$MNT/edited"
same same-in-the-sandbox "$PAI_TMP/reference" "$BOX/edited"
# Back and forth: each side edits what the other has just saved.
cd "$MNT/edited" || exit 1
printf 'old\n' >turns
for i in $(seq 10); do
	edit turns "set backupcopy=$([ $((i % 2)) = 0 ] && echo yes || echo no)" wq
	sandbox sed -i "s/new/old $i/" turns
	[ "$(cat turns)" = "$(cat "$BOX/edited/turns")" ] || not_ok turns "the sides differ at $i"
	grep -q "old $i" turns || not_ok turns "the sandbox's edit $i isn't seen: $(cat turns)"
done
[ $failed = 1 ] || ok "turns"
cd /
stop
exit $failed
