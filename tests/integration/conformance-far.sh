#!/bin/bash
# The suites over a provider at the far end of streams (calls, commands), in one process: what the
# codec and both its ends are held to. `local` with commands, `memory` for what no directory has.
# timeout 240
set -u
build=$(realpath "${PAI_BUILD:-build/debug}")
export PAI_HELPER=$build/pai-helper
far=$build/tests/libfar.so
failed=0

# suite NAME ARGUMENT...: each failed case is a failure, and a run without a passed one too.
suite() {
	local name=$1 out
	shift
	out=$("$build/pai-conformance" "$@" "$far" 2>&1)
	if grep -qE '^# [1-9][0-9]* passed, 0 failed' <<<"$out"; then
		echo "ok $name ($(tail -1 <<<"$out" | cut -c3-))"
	else
		grep -A1 '^not ok' <<<"$out" | tr '\n' ' ' |
			sed "s|not ok [0-9]* - |\nnot ok $name |g" | grep '^not ok' ||
			echo "not ok $name: $(tail -1 <<<"$out")"
		failed=1
	fi
}
store=$PAI_TMP/store
mkdir -m 700 "$store"

suite far-local --suite provider -o host_commands,root="$store"
suite far-local-session --suite session --timeout 8 -o host_commands,root="$store"
suite far-memory --suite provider -o over=memory,files
left=$(find "$store" -mindepth 1 ! -path "$store/keys")
if [ -z "$left" ]; then
	echo "ok nothing-left-in-the-store"
else
	echo "not ok nothing-left-in-the-store:" $left
	failed=1
fi
exit $failed
