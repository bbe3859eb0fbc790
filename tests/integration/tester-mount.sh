#!/bin/bash
# The two-sided tester on the mount: what the model says, after every barrier, on both sides.
# PAI_SEEDS: others than these eight; PAI_OPS: so many operations each.
# timeout 280
# timeout-long 7200
. "$(dirname "$0")/lib.sh"
begin tester-mount
ops=$(short_or_long 12500 100000)
seeds="1 2 3 4 5 6 7 8"
[ "$PAI_OVER" = local ] || ops=$(short_or_long 5000 100000) seeds=$(short_or_long "1 2 3" "$seeds")
ops=${PAI_OPS:-$ops}
without=
[ "$PAI_ON" != passthrough ] || without=flags,falloc,hmap,hstore,hload
start || { not_ok tester-mount "no mount"; exit 1; }
for seed in ${PAI_SEEDS:-$seeds}; do
	tester "tester-seed-$seed" "$seed" "$ops" --without "$without"
	[ $? -le 1 ] || break
done
cd /
stop
exit $failed
