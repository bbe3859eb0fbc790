#!/bin/bash
# fsx on the mount: every read is what was written, mappings, holes and copies included.
# timeout 280
# timeout-long 3600
. "$(dirname "$0")/lib.sh"
begin fsx
# Two faults of the crate end a long run on any file system. It never unmaps what it reads through a
# mapping: it grows slower with every operation, and after some 300,000 no process may map more. And
# it asks for a fallocate of no bytes, which is EINVAL. A line for each puts that right.
mended_fsx() {
	local at=$PAI_TEST_CACHE/fsx-0.3.2-mended src=$PAI_TMP/fsx main=$PAI_TMP/fsx/crates/fsx/src/main.rs
	[ ! -x "$at/bin/fsx" ] || return 0
	command -v cargo >/dev/null || PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
	mkdir -p "$PAI_TEST_CACHE" "$src/src" && echo 'fn main() {}' >"$src/src/main.rs" &&
		printf '[package]\nname = "fetch"\n[dependencies]\nfsx = "=0.3.2"\n' >"$src/Cargo.toml" &&
		(cd "$src" && cargo --quiet vendor crates >/dev/null) &&
		sed -i -e '/fn domapread/,/fn domapwrite/s/self.check_eofpage(.*/&\nmunmap(p, map_size).unwrap();/' \
			-e '/fn posix_fallocate(&mut self,/a if len == 0 { return; }' "$main" &&
		[ "$(grep -cE '^ *munmap\(p, |^if len == 0 ' "$main")" = 4 ] &&
		cargo install --quiet --locked --root "$at" --path "$src/crates/fsx"
}
program=$PAI_TEST_CACHE/fsx-0.3.2-mended/bin/fsx
mended_fsx >&2 || { not_ok fsx "cargo can't build it"; exit 1; }
ops=$(short_or_long 50000 1000000)
[ "$PAI_OVER" = local ] || ops=$(short_or_long 10000 1000000) # four seeds share two processors
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
BOX=$(mktemp -d /dev/shm/pai-test-XXXXXX)
trap 'clean_up; rm -rf "$BOX"' EXIT
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
