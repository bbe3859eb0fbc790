#!/bin/bash
# A link to a real pai-helper: relays and workers are killed, nothing is lost; files that hang.
# fast
# timeout 120
# shellcheck source=tests/integration/lib.sh
. "$(dirname "$0")/lib.sh"
program=$PAI_BUILD/tests/integration-link_worker
helper=$(realpath "$PAI_BUILD/pai-helper")
status=0
"$program" "$helper" || status=1
if [ ! -e /dev/fuse ]; then
	skip link-worker "no /dev/fuse here: no file system that hangs"
	exit $status
fi
mkdir "$PAI_TMP/served" "$PAI_TMP/fuse"
passthrough "$PAI_TMP/served" "$PAI_TMP/fuse" cache=never,timeout=0,xattr || exit 1
"$program" "$helper" "$PAI_TMP/fuse" "$daemon_pid" || status=1
kill -CONT "$daemon_pid"
umount "$PAI_TMP/fuse" || fusermount3 -u "$PAI_TMP/fuse"
wait "$daemon_pid"
exit $status
