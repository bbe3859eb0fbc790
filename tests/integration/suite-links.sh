#!/bin/bash
# No host file is reached through a link that a sandbox made: random graphs, opened by host programs
# while they are moved about.
# timeout 120
# timeout-long 900
. "$(dirname "$0")/lib.sh"
begin links
# What must not be reached lies in every directory above, and in another session.
plant() {
	echo OUTSIDE >"$1/secret"
	mkdir -p "$1/secret-dir" "$1/canary"
	echo OUTSIDE >"$1/secret-dir/file"
	touch "$1/secret-dir/canary"
}
mkdir -p "$PAI_TMP/other"
plant "$PAI_TMP"
plant "$PAI_TMP/other"
seconds=$(short_or_long 8 120)
[ "$PAI_OVER" = local ] || seconds=$(short_or_long 3 120)
for mode in guarded nofollow raw; do
	rm -rf "$PAI_TMP/box"
	BOX=$PAI_TMP/box
	start "symlinks=$mode" || { not_ok links "no mount"; exit 1; }
	if [ "$PAI_ON $over_provider" = "paifs local" ]; then
		session secret-dir "$PAI_TMP/other" || exit 1
	fi
	cd /
	# Half of it before anything moves, all of it then, and the programs that were begun last.
	out=$(PAI_SEED=$((${PAI_SEED:-0} + 1)) timeout -k 10 $((seconds * 9 / 4 + 60)) \
		python3 "$lib_dir/links.py" "$MNT" "$BOX" "$PAI_TMP" "$seconds" "$mode" 2>&1)
	status=$?
	counts=$(echo "$out" | tail -1)
	if [ $mode = raw ]; then
		# Where everything is followed, the walk must find its way out: else it proves nothing.
		if [[ $out == *escape* ]]; then ok "links-raw-shows-that-it-can-fail"
		else not_ok links-raw-shows-that-it-can-fail "no way out was found: $counts"; fi
	elif [ $status = 0 ] && [[ $counts == *" faults 0" ]]; then
		ok "links-$mode ($counts)"
	else
		echo "$out" | head -25
		not_ok "links-$mode" "exit $status: $counts"
	fi
	stop
done
exit $failed
