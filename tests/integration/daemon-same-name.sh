#!/bin/bash
# Daemons of one name, each of another runtime directory, that mount at the same moment: the end of
# one is the end of its own mount alone.
# timeout 60
. "$(dirname "$0")/lib.sh"
begin same-name-same-moment
[ "$PAI_ON" = paifs ] || { skip same-name-same-moment "it takes daemons of ours"; exit 0; }
count=8
pids=()
trap 'for i in $(seq $count); do unmount "$PAI_TMP/m$i"; done; wait "${pids[@]}"; clean_up' EXIT
for i in $(seq $count); do
	mkdir -m 700 "$PAI_TMP/m$i" "$PAI_TMP/r$i"
	XDG_RUNTIME_DIR=$PAI_TMP/r$i XDG_STATE_HOME=$PAI_TMP/s$i \
		"$PAI_BUILD/paifs" memory "$PAI_TMP/m$i" -f -n same >"$PAI_TMP/log$i" 2>&1 &
	pids+=($!)
done
for i in $(seq $count); do
	wait_for 20 test -S "$PAI_TMP/r$i/paifs/same.sock" || { cat "$PAI_TMP/log$i"; not_ok "mounts-$i" "no socket"; }
done
# Every second one ends.
for i in $(seq 2 2 $count); do
	timeout 10 umount "$PAI_TMP/m$i" || timeout 10 fusermount3 -u "$PAI_TMP/m$i"
	wait "${pids[i - 1]}"
done
dead=
for i in $(seq 1 2 $count); do
	timeout 5 mkdir "$PAI_TMP/m$i/key" && timeout 5 ls "$PAI_TMP/m$i/key" || dead="$dead $i"
done
is same-name-same-moment "$dead" ""
exit $failed
