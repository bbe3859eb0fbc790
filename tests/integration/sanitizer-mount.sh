#!/bin/bash
# A mount under a sanitizer (PAI_BUILD is such a build): mixed work from both sides, sandboxes lost
# and killed under open files, all at once, the end. No report, and the daemon exits 0.
# timeout 240
. "$(dirname "$0")/lib.sh"
begin sanitizer-mount
[ "$PAI_ON" = paifs ] || { skip sanitizer-mount "only our own programs are built with sanitizers"; exit 0; }
# The runner's, or our own: reports of processes that nobody waits for are found in files.
export ASAN_OPTIONS="${ASAN_OPTIONS:-log_path=$PAI_TMP/sanitizer}"
export TSAN_OPTIONS="${TSAN_OPTIONS:-log_path=$PAI_TMP/sanitizer}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1:log_path=$PAI_TMP/sanitizer}"
start || { not_ok sanitizer-mount "no mount"; exit 1; }
tester tester-sanitized 1 2000

repository() {
	git init -q "$PAI_TMP/repo" && cd "$PAI_TMP/repo" || return 1
	mkdir -p a/b && for i in $(seq 200); do echo "$i" >"a/b/$i"; done
	ln -s a/b/1 link
	git add . && git -c user.name=a -c user.email=a@example.org commit -qm first
}
git_on_mount() {
	timeout 60 git clone -q "$PAI_TMP/repo" "$MNT/clone" && cd "$MNT/clone" &&
		timeout 30 git fsck && test -z "$(timeout 30 git status --porcelain)" &&
		sandbox sh -c 'test "$(ls a/b | wc -l)" = 200' && rm -r "$MNT/clone"
}
check git-repository repository
check git git_on_mount

commands() {
	local i
	for i in $(seq 15); do
		echo "$i" >"$MNT/n"
		[ "$(sandbox cat n)" = "$i" ] || return 1
	done
	head -c 3000000 /dev/urandom >"$PAI_TMP/bytes"
	timeout 20 "$PAI_BUILD/pai-exec" -- cat <"$PAI_TMP/bytes" | cmp - "$PAI_TMP/bytes"
}
cd "$MNT" && check commands commands

field() { python3 -c 'import json,sys;print(json.load(sys.stdin)["sessions"][0][sys.argv[1]])' "$1"; }
lost_and_killed() {
	local id status
	timeout 20 "$PAI_BUILD/pai" -n default create two >/dev/null || return 1
	mkdir -p "$TOP/two/d" && echo kept >"$TOP/two/d/f" && exec 5<"$TOP/two/d/f" || return 1
	timeout 20 "$PAI_BUILD/pai-exec" -s two -n default -- sh -c 'echo begun; sleep 15' &
	sleep 0.3
	id=$(timeout 10 "$PAI_BUILD/pai" -n default ls --json two | field sandboxId) || return 1
	timeout 20 "$PAI_BUILD/pai" -n default kill --sandbox "$id" || return 1
	wait $!
	status=$?
	[ $status = 125 ] || { echo "the command of a killed sandbox: exit $status"; return 1; }
	cat <&5 2>&1 | grep -q Stale || { echo "an open file of a killed sandbox was read"; return 1; }
	exec 5<&-
	timeout 20 "$PAI_BUILD/pai-exec" -s two -n default -- true || return 1
	timeout 20 "$PAI_BUILD/pai" -n default kill two || return 1
	timeout 20 "$PAI_BUILD/pai" -n default log --all >/dev/null && ls "$TOP" >/dev/null
}
check lost-and-killed lost_and_killed

# Each until the time is over. What they do may fail, of a session that is reset meanwhile it must:
# the programs under test are what is watched.
names() {
	local i=0
	mkdir -p "$MNT/names" && cd "$MNT/names" || return
	while [ $SECONDS -lt $end ]; do
		i=$(((i + 1) % 20))
		echo "$i" >"$1-$i" && ln -f "$1-$i" "$1-link" && mv "$1-$i" "$1-moved"
		head -c 9000 /dev/zero >>"$1-moved"
		ls -l >/dev/null
		rm -f "$1-moved"
	done
}
look() { while [ $SECONDS -lt $end ]; do find "$TOP" -type f -exec cat {} +; done; }
behind() {
	while [ $SECONDS -lt $end ]; do
		mkdir -p "$BOX/behind" && seq 500 >"$BOX/behind/f" && seq 9 >>"$BOX/names/a-moved"
		mv "$BOX/behind" "$BOX/behind-2"
		rm -rf "$BOX/behind-2"
	done
}
barriers() { while [ $SECONDS -lt $end ]; do (cd "$MNT" && sandbox sh -c 'date >names/b'); done; }
locks() { while [ $SECONDS -lt $end ]; do flock "$MNT/lock" true; done; }
resets() {
	while [ $SECONDS -lt $end ]; do
		mkdir -p "$TOP/three/d"
		seq 99 >"$TOP/three/d/f"
		timeout 10 "$PAI_BUILD/pai-exec" -n default -s three -- cat d/f
		timeout 10 "$PAI_BUILD/pai" -n default reset three
	done
}
clients() {
	while [ $SECONDS -lt $end ]; do
		for op in ls "status three" "log --all"; do
			# shellcheck disable=SC2086
			timeout 10 "$PAI_BUILD/pai" -n default $op
		done
	done
}
end=$((SECONDS + $(short_or_long 8 120)))
pids=
for turn in "names a" "names b" look behind barriers locks resets clients; do
	$turn >/dev/null 2>&1 &
	pids="$pids $!"
done
# shellcheck disable=SC2086
wait $pids
cd "$MNT" && check agrees sandbox true

cd / || exit 1
check umount timeout 10 umount "$TOP"
mounted=
wait_for 30 is_down "$daemon_pid" || { kill -9 "$daemon_pid"; not_ok asan-end "the daemon goes on"; }
wait "$daemon_pid"
status=$?
daemon_pid=
[ "$status" = 0 ] || cat "$PAI_TMP/daemon.log"
is daemon-exit "$status" 0
reports=$(cat "$PAI_TMP"/sanitizer.* 2>/dev/null)
[ -z "$reports" ] || printf '%s\n' "$reports"
is reports "${reports:+reports}" ""
exit $failed
