#!/bin/bash
# The tester finds what it is there to find: on a mount that is known to cache what it may not, it
# says so; on the same program without caches, and on a plain directory, it says nothing.
# timeout 100
. "$(dirname "$0")/lib.sh"
PAI_ON=passthrough
begin tester-can-fail
tester=$PAI_BUILD/tests/tester-main
box=$PAI_TMP/box top=$PAI_TMP/top
mkdir "$box" "$top"
# Kernel 6.18 and libfuse's example: neither rename's flags nor fallocate are there to be tested.
common="--sandbox $box --save $PAI_TMP/failed.ops --ops 3000"

# shellcheck disable=SC2086
check plain-directory-passes timeout 30 "$tester" --mount "$box" $common

passthrough "$box" "$top" cache=never,timeout=0,xattr || exit 1
# shellcheck disable=SC2086
check uncached-mount-passes timeout 60 "$tester" --mount "$top" $common \
	--without flags,falloc,hmap,hstore,hload
stop

# expect_wrong NAME OPTIONS WITHOUT: and the list it leaves fails again and shrinks.
expect_wrong() {
	local name=$1 out before after
	passthrough "$box" "$top" "$2" || exit 1
	# shellcheck disable=SC2086
	out=$(timeout 60 "$tester" --mount "$top" $common --without "$3")
	if [ $? != 1 ] || [[ $out != *WRONG* ]]; then
		not_ok "$name" "the tester was content: $(echo "$out" | tail -1)"
		stop
		return
	fi
	before=$(wc -l <"$PAI_TMP/failed.ops")
	# shellcheck disable=SC2086
	out=$(timeout 60 "$tester" --mount "$top" $common --without "$3" --shrink "$PAI_TMP/failed.ops" 2>&1)
	if [ $? != 1 ]; then
		not_ok "$name" "the list doesn't fail again: $(echo "$out" | tail -1)"
	else
		after=$(wc -l <"$PAI_TMP/failed.ops")
		if [ "$after" -le "$before" ] && [ "$after" -le 12 ]; then
			ok "$name ($before operations, shrunk to $after)"
		else
			not_ok "$name" "shrunk only from $before to $after operations"
		fi
	fi
	stop
}
expect_wrong stale-names-are-found cache=never,timeout=3600,xattr flags,falloc,hmap,hstore,hload
# The kernel drops pages when it sees another size or mtime: here neither changes.
expect_wrong same-size-changes-are-found cache=always,timeout=0,xattr \
	flags,falloc,hmap,hstore,hload
expect_wrong lost-stores-are-found cache=auto,timeout=0,xattr flags,falloc
exit $failed
