#!/bin/bash
# stress-ng's file system stressors on the mount; what it calls a failure or an error is one.
# timeout 200
# timeout-long 4500
. "$(dirname "$0")/lib.sh"
begin stress-ng
start default_permissions exec || { not_ok stress-ng "no mount"; exit 1; }
seconds=$(short_or_long 3 60)
mkdir "$MNT/stress"
# These five never touch the directory they are given.
names=$(stress-ng --class filesystem? 2>&1 | sed -n "s/^class 'filesystem' stressors: //p" |
	tr ' ' '\n' | grep -vxE 'bind-mount|binderfs|eventfd|ioprio|procfs')
[ "$(echo "$names" | wc -l)" -gt 30 ] || { not_ok stress-ng "it lists no stressors"; exit 1; }
# Four at a time, so that they meet each other too.
while read -r four; do
	log=$PAI_TMP/stress.log
	rm -f "$log"
	args=
	for name in $four; do args="$args --$name 1"; done
	# shellcheck disable=SC2086
	timeout $((seconds + 40)) stress-ng $args --timeout "${seconds}s" --temp-path "$MNT/stress" \
		--log-file "$log" >"$PAI_TMP/stress.out" 2>&1
	status=$?
	bad=$(grep -E 'stress-ng: (fail|error):' "$log" | grep -v 'unsuccessful' | head -5)
	# 3 and 4: a stressor had nothing to do here, and said so.
	if [ -n "$bad" ] || { [ $status != 0 ] && [ $status != 3 ] && [ $status != 4 ]; }; then
		tail -20 "$log"
		not_ok "stress-ng" "$four: exit $status: $(echo "$bad" | head -1)"
	else
		ok "stress-ng ($four)"
	fi
	if [ $status = 124 ]; then break; fi
done < <(echo "$names" | xargs -n4)
cd /
stop
exit $failed
