#!/bin/bash
# The conformance suite over `local`: with commands in both networks, without commands, and with a
# store that goes away and comes back.
# timeout 150
set -u
build=$(realpath "${PAI_BUILD:-build/debug}")
failed=0

# suite NAME ARGUMENT...: each failed case is a failure, and a run without a passed one too.
suite() {
	local name=$1 out
	shift
	out=$("$build/pai-conformance" "$@" local 2>&1)
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

suite network-none -o host_commands,root="$store"
suite network-full --network full --filter 'commands/*' -o host_commands,root="$store"
suite no-commands --filter 'commands/*' -o root="$store"
suite probe-of-a-lost-store --filter 'probe/*' -o root="$store" \
	--break "mv '$store' '$store.away' && touch '$store'" \
	--mend "rm '$store' && mv '$store.away' '$store'"
left=$(find "$store" -mindepth 1 ! -path "$store/keys")
if [ -z "$left" ]; then
	echo "ok nothing-left-in-the-store"
else
	echo "not ok nothing-left-in-the-store:" $left
	failed=1
fi
exit $failed
