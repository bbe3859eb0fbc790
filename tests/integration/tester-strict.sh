#!/bin/bash
# coherence=strict: nothing is cached, so that what the sandbox's side did is seen without a barrier
# too, and the two-sided tester has nothing to say.
# timeout 100
# timeout-long 3000
. "$(dirname "$0")/lib.sh"
begin tester-strict
[ "$PAI_ON" = paifs ] || { skip tester-strict "it is an option of ours"; exit 0; }
start coherence=strict || { not_ok tester-strict "no mount"; exit 1; }
wrong=0
echo 000 >seen
for i in $(seq 101 300); do
	cat seen >/dev/null
	! [ -e "new-$i" ] || wrong=$((wrong + 1))
	# By nobody that the daemon knows of, and of the same size.
	echo "$i" >"$BOX/seen"
	touch "$BOX/new-$i"
	[ "$(cat seen)" = "$i" ] && [ -e "new-$i" ] || wrong=$((wrong + 1))
	rm "$BOX/new-$i"
	! [ -e "new-$i" ] || wrong=$((wrong + 1))
done
is strict-sees-at-once "$wrong" 0
for seed in ${PAI_SEEDS:-$(short_or_long 1 "1 2 3 4")}; do
	tester "tester-strict-seed-$seed" "$seed" "$(short_or_long 6000 100000)"
	[ $? -le 1 ] || break
done
cd /
stop
exit $failed
