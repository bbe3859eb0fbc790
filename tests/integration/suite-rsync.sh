#!/bin/bash
# rsync -aHAX into the mount and out of it, twice each: the second time nothing is transferred.
# timeout 60
. "$(dirname "$0")/lib.sh"
begin rsync
make_tree() (
	set -e
	mkdir -p "$1/a/b/c" && cd "$1"
	for i in $(seq 300); do seq "$i" >"a/b/c/$i"; done
	for i in $(seq 100); do ln "a/b/c/$i" "a/link $i"; done
	ln -s b/c/1 a/symlink
	setfattr -n user.note -v kept a/b/c/7
	truncate -s 5M a/hole
	chmod 2750 a/b && chmod 0444 a/b/c/9
	# In a container nobody may give a file away.
	if [ "$(id -u) $PAI_OVER" != "0 docker-helper" ] && [ "$(id -u)" = 0 ]; then chown -h 1:2 a/b/c/8 a/symlink; fi
)
# second NAME FROM TO
second() {
	local out
	out=$(timeout 30 rsync -aHAX --itemize-changes "$2/" "$3/" 2>&1)
	is "$1" "$? $out" "0 "
}
make_tree "$PAI_TMP/tree" || exit 1
start allow_other || { not_ok rsync "no mount"; exit 1; }
check first-into-the-mount timeout 30 rsync -aHAX "$PAI_TMP/tree/" "$MNT/in/"
second second-into-the-mount "$PAI_TMP/tree" "$MNT/in"
out=$(rsync -aHAXc --itemize-changes "$PAI_TMP/tree/" "$MNT/in/" 2>&1)
is second-by-checksum-is-empty "$out" ""
check first-out-of-the-mount timeout 30 rsync -aHAX "$MNT/in/" "$PAI_TMP/out/"
second second-out-of-the-mount "$MNT/in" "$PAI_TMP/out"
same same-after-the-round-trip "$PAI_TMP/tree" "$PAI_TMP/out"
sandbox sh -c 'echo changed >in/a/b/c/205; touch -d "2030-01-01" in/a/b/c/205'
out=$(rsync -aHAX --itemize-changes "$MNT/in/" "$PAI_TMP/out/" 2>&1 | cut -c1-4,12-)
is only-the-sandbox-change-moves "$(echo "$out" | grep '^>f')" ">f.s a/b/c/205"
cd /
stop
exit $failed
