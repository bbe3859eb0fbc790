#!/bin/bash
# fsx on the mount: every read is what was written, mappings, holes and copies included.
# timeout 280
# timeout-long 3600
. "$(dirname "$0")/lib.sh"
begin fsx
program=$(mended_fsx) || { not_ok fsx "cargo can't build it"; exit 1; }
ops=$(short_or_long 50000 1000000)
[ "$PAI_OVER" = local ] || ops=$(short_or_long 10000 1000000) # four seeds share two processors
ops=${PAI_OPS:-$ops}
cat >"$PAI_TMP/fsx.toml" <<-END
	[weights]
	close_open = 1
	read = 10
	write = 10
	mapread = 10
	mapwrite = 10
	invalidate = 1
	truncate = 5
	fsync = 1
	fdatasync = 1
	posix_fallocate = 1
	punch_hole = 2
	sendfile = 1
	posix_fadvise = 1
	copy_file_range = 2
END
# In memory: half of the operations would otherwise wait for the disk.
memory=$(mktemp -d /dev/shm/pai-test-XXXXXX)
BOX=$memory
trap 'clean_up; rm -rf "$memory"' EXIT
start || { not_ok fsx "no mount"; exit 1; }
for seed in 1 2 3 4; do
	(timeout "$(short_or_long 240 3000)" "$program" -f "$PAI_TMP/fsx.toml" -N "$ops" -S $seed -q \
		-P "$PAI_TMP" "$MNT/fsx-$seed" >"$PAI_TMP/log-$seed" 2>&1
		echo "exit $?" >>"$PAI_TMP/log-$seed") &
	jobs[seed]=$!
done
wait "${jobs[@]}"
for seed in 1 2 3 4; do
	if [ "$(tail -1 "$PAI_TMP/log-$seed")" = "exit 0" ]; then
		ok "fsx-seed-$seed ($ops operations)"
	else
		tail -30 "$PAI_TMP/log-$seed"
		not_ok "fsx-seed-$seed" "$(tail -1 "$PAI_TMP/log-$seed")"
	fi
done
cd /
stop
exit $failed
