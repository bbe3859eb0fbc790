#!/bin/bash
# The two-sided tester on the mount: what the model says, after every barrier, on both sides.
# timeout 280
# timeout-long 7200
. "$(dirname "$0")/lib.sh"
begin tester-mount
ops=$(short_or_long 12500 100000)
without=
[ "$PAI_ON" != passthrough ] || without=flags,falloc,hmap,hstore,hload
start || { not_ok tester-mount "no mount"; exit 1; }
agent=$(sandbox_words)
# The sandbox sees its workspace and the system, not the build.
mkdir -p .tester && cp "$PAI_BUILD/tests/tester-agent" .tester/
for seed in 1 2 3 4 5 6 7 8; do
	name=tester-seed-$seed
	out=$(timeout "$(short_or_long 60 1200)" "$PAI_BUILD/tests/tester-main" --mount "$MNT" \
		--sandbox "$BOX" --agent "$agent ./.tester/tester-agent ." --barrier "$agent true" \
		--without "$without" --seed $seed --ops "$ops" --save "$PAI_TMP/failed.ops" 2>&1)
	status=$?
	if [ $status = 0 ]; then
		ok "$name ($(echo "$out" | grep -o '[0-9]* barriers'), $ops operations)"
		continue
	fi
	echo "$out" | cut -c1-500
	not_ok "$name" "exit $status; replay: tester-main --replay $seed --ops $ops"
	# The list outlives the scratch directory.
	! [ -e "$PAI_TMP/failed.ops" ] || cp "$PAI_TMP/failed.ops" "$PAI_BUILD/tester-seed-$seed.ops"
	[ $status -le 1 ] || break
done
cd /
stop
exit $failed
