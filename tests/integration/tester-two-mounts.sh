#!/bin/bash
# Two daemons over one provider: what is done through one mount is seen through the other after a
# barrier there, locks exclude between them, and a lock that is granted shows what was done under it.
# timeout 100
# timeout-long 1500
. "$(dirname "$0")/lib.sh"
begin tester-two-mounts
[ "$PAI_ON" = paifs ] || { skip tester-two-mounts "it takes two daemons of ours"; exit 0; }
start || { not_ok tester-two-mounts "no mount"; exit 1; }
other=$PAI_TMP/other
mkdir "$other" "$PAI_TMP/started" && cd "$PAI_TMP/started" || exit 1
"$PAI_BUILD/paifs" "$over_provider" "$other" -f -n other -o "$over_options" >"$PAI_TMP/other.log" 2>&1 &
other_pid=$!
trap 'cd /; unmount "$other"; wait $other_pid; clean_up' EXIT
wait_for 10 mountpoint -q "$other" || { cat "$PAI_TMP/other.log"; not_ok tester-two-mounts "no second mount"; exit 1; }
there=$other/$KEY
cd "$MNT" || exit 1
check key-is-known-there ls "$there"
on() { echo "$PAI_BUILD/pai-exec -n $1 -s $KEY -- true"; }
echo one >first
wait_for 2 test -e "$there/first" # a push away
is same-workspace "$(cat "$there/first") $(echo two >"$there/second" && sandbox cat second)" "one two"
# They outlive a daemon, and would keep busy what it was started in.
"$PAI_BUILD/pai-exec" -n other -s alone -- true
is only-the-daemon-stands-there "$(readlink /proc/[0-9]*/cwd | grep -cFx "$PAI_TMP/started")" 1

cat >"$PAI_TMP/locks.py" <<'END'
import fcntl, os, sys
wrong = []
paths = [d + "/locked" for d in sys.argv[1:3]]
files = []
for path in paths:
    files.append(os.open(path, os.O_RDWR | os.O_CREAT))

def taken(how, fd):
    try:
        how(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True

for how in (fcntl.flock, fcntl.lockf):
    for mine, theirs in (files, files[::-1]):
        how(mine, fcntl.LOCK_EX)
        if taken(how, theirs):
            wrong.append(how.__name__ + " doesn't exclude")
        how(mine, fcntl.LOCK_UN)
        if not taken(how, theirs):
            wrong.append(how.__name__ + " isn't given up")
        how(theirs, fcntl.LOCK_UN)
    for i in range(100):  # in turn: each reads what the other wrote under the lock
        mine = files[i % 2]
        how(mine, fcntl.LOCK_EX)
        if i and os.pread(mine, 8, 0) != b"%08d" % (i - 1):
            wrong.append("%s: turn %d reads %r" % (how.__name__, i, os.pread(mine, 8, 0)))
        os.pwrite(mine, b"%08d" % i, 0)
        how(mine, fcntl.LOCK_UN)
print(len(wrong), *wrong[:3])
END
is locks "$(python3 "$PAI_TMP/locks.py" "$MNT" "$there")" 0

# Operations through one mount and in the workspace itself, compared through both: the barrier of the
# mount that stores through mappings comes first, the other's sees what that wrote back.
workspace=$BOX
# play SEED MOUNT NAME MOUNT NAME
play() {
	BOX=$4 MNT=$2
	tester "tester-two-mounts-seed-$1" "$1" "$(short_or_long 3000 50000)" \
		--agent "'$PAI_BUILD/tests/tester-agent' '$workspace'" \
		--background "'$PAI_BUILD/tests/tester-agent' '$workspace'" \
		--barrier "sh -c '$(on "$3") && $(on "$5")'"
}
mine=$MNT
for seed in ${PAI_SEEDS:-$(short_or_long 1 "1 3 5 7")}; do
	play "$seed" "$mine" default "$there" other
	[ $? -le 1 ] || break
	[ "$PAI_OVER $PAI_LONG" != "docker 0" ] || continue # the other way is the same
	play $((seed + 1)) "$there" other "$mine" default
	[ $? -le 1 ] || break
done
cd /
stop
exit $failed
