#!/bin/bash
# The sandbox is killed behind the daemon's back, by a second daemon, at random moments: every open
# handle says so, commands end as the retry rules say, the next look shows another environment, and
# no call that began after the kill had returned succeeds on what is gone.
# timeout 240
# timeout-long 1200
. "$(dirname "$0")/lib.sh"
begin reset
[ "$PAI_ON" = paifs ] || { skip reset "only our own mount has sandboxes"; exit 0; }
start || { not_ok reset "no mount"; exit 1; }
"$PAI_BUILD/paifs" "$over_provider" --no-mount -f -n other -o "$over_options" \
	>"$PAI_TMP/other.log" 2>&1 &
other=$!
trap 'kill $other; wait $other 2>/dev/null; clean_up' EXIT
wait_for 10 test -S "$XDG_RUNTIME_DIR/paifs/other.sock" || { cat "$PAI_TMP/other.log"; exit 1; }
cd /
kills=$(short_or_long 200 1000)
case $PAI_OVER in docker*) kills=$(short_or_long 12 1000) ;; esac
PAI_RESET_ROOT=$over_root timeout "$(short_or_long 200 1100)" python3 "$lib_dir/reset.py" "$TOP" "$PAI_BUILD" "$kills"
status=$?
[ $status = 0 ] || [ $status = 1 ] || not_ok reset "exit $status"
[ $status = 0 ] || failed=1
exit $failed
