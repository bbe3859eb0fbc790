#!/bin/bash
# `make up` and `make down` in a copy of the tree, as root and as a plain user with fusermount3; there
# the exchange of the workspace's owner; mount(8) with a line of fstab, installed here and there.
# timeout 150
. "$(dirname "$0")/lib.sh"
begin up-root up-user fstab
if [ "$(id -u)" = 0 ] && [ -z "${PAI_UP_NS:-}" ]; then # /dev/fuse and /usr of this machine are left alone
	PAI_UP_NS=1 exec unshare --mount --propagation private "$0"
fi
uid=54321
TREE=$PAI_TMP/tree
mkdir -p "$TREE/build"
chmod a+x "$PAI_TMP"
tar -C "$root_dir" -c --exclude=./build --exclude=./.git . | tar -x -C "$TREE"
built=(build/debug)
[ ! -d "$root_dir/build/helper" ] || built+=(build/helper)
tar -C "$root_dir" -c --exclude=build/debug/tests "${built[@]}" | tar -x -C "$TREE"
# of the tests nothing is built by `make up`
has() { if grep -q -- "$3" <<<"$2"; then ok "$1"; else not_ok "$1" "$(tail -5 <<<"$2" | tr '\n' ' ')"; fi; }

# up_down NAME CMD...: CMD runs make as somebody, whose mount point is M
up_down() {
	local name=$1 out again
	shift
	out=$("$@" -C "$TREE" up MNT="$M" 2>&1)
	has "up-$name" "$out" '^written through the mount$'
	has "up-$name-in-the-sandbox" "$out" '^/workspace$'
	has "up-$name-says-what-next" "$out" 'pai kill demo'
	again=$("$@" -C "$TREE" up MNT="$M" 2>&1)
	has "up-$name-again" "$again" "$M is mounted already"
	is "up-$name-builds-nothing" "$(grep -cE '^ +(CC|LD|AR) ' <<<"$out$again")" 0
	is "up-$name-mounts-once" "$(grep -cF " ${M// /\\040} " /proc/self/mountinfo)" 1
}
down() {
	local name=$1 out
	shift
	out=$("$@" -C "$TREE" down MNT="$M" 2>&1)
	has "down-$name" "$out" "$M is unmounted"
	if [ -e "$M" ]; then not_ok "down-$name-takes-all" "$M is there"; else ok "down-$name-takes-all"; fi
	wait_for 5 no_daemon || not_ok "down-$name-takes-all" "paifs runs"
	is "down-$name-again" "$("$@" -s -C "$TREE" down MNT="$M" 2>&1)" ""
}
none_of() { ! pgrep -f "$1" >/dev/null; }
no_daemon() { none_of "^$TREE/build/debug/paifs local $M"; }

M="$PAI_TMP/up here"
up_down own make
kill -9 "$(pgrep -of "^$TREE/build/debug/paifs local $M")"
wait_for 5 no_daemon
has up-after-the-daemon-was-killed "$(make -C "$TREE" up MNT="$M" 2>&1)" '^written through the mount$'
kill -9 "$(pgrep -of "^$TREE/build/debug/paifs local $M")"
wait_for 5 no_daemon
has down-after-that "$(make -C "$TREE" down MNT="$M" 2>&1)" "$M is unmounted"
make -s -C "$TREE" up MNT="$M" >/dev/null
echo mine >"$M/demo/mine"
out=$(make -C "$TREE" down MNT="$M" 2>&1)
has down-keeps-what-is-yours "$out" 'Sessions stay, with their files: demo'
out=$(make -C "$TREE" up MNT="$M" 2>&1)
is up-shows-it-again "$(cat "$M/demo/mine")" mine
rm "$M/demo/mine"
cd "$M/demo" || exit 1
has down-while-in-use "$(make -C "$TREE" down MNT="$M" 2>&1)" 'is in use: leave it'
cd / || exit 1
make -s -C "$TREE" up MNT="$M" >/dev/null
down own make
is down-forgets-the-demo "$(find "$XDG_STATE_HOME/paifs/local" -mindepth 1 -maxdepth 1 ! -name keys)" ""
# As where the packages are missing: what tells the compiler of them comes with them.
mkdir "$PAI_TMP/late"
printf '#!/bin/sh\n[ ! -e "%s/here" ] || exec %s "$@"\nexit 1\n' "$PAI_TMP/late" "$(command -v pkg-config)" \
	>"$PAI_TMP/late/pkg-config"
chmod +x "$PAI_TMP/late/pkg-config"
cp "$TREE/contrib/deps.sh" "$PAI_TMP/late/deps"
printf '#!/bin/sh\n: >"%s/here"\n' "$PAI_TMP/late" >"$TREE/contrib/deps.sh"
touch "$TREE/fusefs/fs_io.c"
out=$(PATH=$PAI_TMP/late:$PATH make -C "$TREE" up MNT="$M" 2>&1)
has up-builds-with-what-it-has-installed "$out" '^written through the mount$'
cp "$PAI_TMP/late/deps" "$TREE/contrib/deps.sh"
make -s -C "$TREE" down MNT="$M" >/dev/null
for target in up down check check-fast check-long bench install; do
	has "help-$target" "$(make -C "$TREE" help)" "^  $target "
done
has no-such-variant "$(make -C "$TREE" VARIANT=nope 2>&1)" 'expected debug, asan, tsan, fuzz or coverage'

if [ "$(id -u)" != 0 ]; then
	skip up-user "needs root to become one; the above ran as one"
	skip fstab "needs root"
	exit $failed
fi

# --- a plain user ---
# fusermount3 wants to know its name
{ cat /etc/passwd && echo "pai-test:x:$uid:$uid::/:/bin/sh"; } >"$PAI_TMP/passwd"
mount --bind "$PAI_TMP/passwd" /etc/passwd
mknod -m 666 "$PAI_TMP/fuse" c 10 229 && mount --bind "$PAI_TMP/fuse" /dev/fuse
if ! setpriv --reuid=$uid --regid=$uid --clear-groups sh -c 'exec 3<>/dev/fuse' 2>/dev/null; then
	skip up-user "no device file works here"
else
	home=$PAI_TMP/user-home
	install -d -o $uid -g $uid "$home" "$home/run" "$PAI_TMP/user"
	chmod 700 "$home/run"
	chown -R $uid:$uid "$TREE"
	as_user() {
		timeout 60 setpriv --reuid=$uid --regid=$uid --clear-groups env -i PATH="$PATH" HOME="$home" \
			XDG_RUNTIME_DIR="$home/run" "$@"
	}
	M=$PAI_TMP/user/pai
	up_down user as_user make
	bin=$TREE/build/debug
	is user-files-are-its-own "$(as_user stat -c '%u %g' "$M/demo/hello.txt")" "$uid $uid"
	# Whose workspace is another's: here that owner is shown as the user, and the user as the owner.
	install -d -m 777 -o 54330 -g 54331 "$PAI_TMP/user/theirs"
	install -m 666 -o 54330 -g 54331 /dev/null "$PAI_TMP/user/theirs/a"
	install -m 666 -o 54332 -g 54333 /dev/null "$PAI_TMP/user/theirs/b"
	as_user sh -c "cd $M && $bin/pai create theirs -o template=$PAI_TMP/user/theirs" >/dev/null
	as_user sh -c "echo x >$M/theirs/c"
	is owner-is-shown-as-the-user "$(as_user stat -c '%u %g' "$M/theirs/a")" "$uid $uid"
	is others-stay-others "$(as_user stat -c '%u %g' "$M/theirs/b")" "54332 54333"
	is the-user-is-shown-as-the-owner "$(as_user stat -c '%u %g' "$M/theirs/c")" "54330 54331"
	is made-as-the-user "$(stat -c '%u %g' "$PAI_TMP/user/theirs/c")" "$uid $uid"
	is chown-goes-back "$(as_user chown 54330:54331 "$M/theirs/c" 2>&1 && stat -c '%u %g' \
		"$PAI_TMP/user/theirs/c")" "$uid $uid"
	is exec-as-the-user "$(as_user sh -c "cd $M/demo && $bin/pai-exec id -u")" $uid
	as_user sh -c "cd $M && $bin/pai kill theirs" >/dev/null
	down user as_user make
	as_user mkdir -p "$M"
	for option in suid dev symlinks=nofollow; do
		has "user-may-not-$option" "$(as_user "$bin/paifs" local "$M" -o "$option" 2>&1)" "^paifs: $option can be set by root only"
	done
	# Another user, whom it names, stands in its mount.
	echo user_allow_other >"$PAI_TMP/fuse.conf"
	mount --bind "$PAI_TMP/fuse.conf" /etc/fuse.conf
	other=54322 home2=$PAI_TMP/other-home
	install -d -o $other -g $other "$home2"
	as_other() {
		timeout 30 setpriv --reuid=$other --regid=$other --clear-groups env -i PATH="$bin:$PATH" HOME="$home2" "$@" 2>&1
	}
	as_user mkdir -p "$M"
	as_user "$bin/paifs" local "$M" -n lent -o "host_commands,allow_other,control_uid=$other"
	as_user mkdir "$M/k"
	as_user mkdir -m 777 "$M/k/dir"
	is other-user-in-the-mount "$(cd "$M/k/dir" && as_other pai-exec -n lent@$uid -c 'pwd; id -u')" "/workspace/dir
$uid"
	has other-user-must-say-whose "$(cd "$M/k/dir" && as_other pai-exec pwd)" 'lent@USER'
	as_user "$bin/pai" -n lent kill k >/dev/null
	as_user fusermount3 -u "$M"
	wait_for 5 no_daemon || not_ok other-user-in-the-mount "paifs runs"
	rm -rf "/tmp/paifs-$uid"
fi

# --- fstab ---
HOME=$PAI_TMP/home
mkdir "$PAI_TMP/srv"
fstab() {
	local name=$1 prefix=$2 dest=$PAI_TMP/dest-$1
	make -s -C "$TREE" install DESTDIR="$dest" PREFIX="$prefix" >"$PAI_TMP/log" 2>&1 || {
		not_ok "fstab-$name" "$(tail -3 "$PAI_TMP/log")"
		return
	}
	if [ "$prefix" = /usr/local ]; then
		mount --bind "$dest/usr/local" /usr/local
	else # where mount(8) looks; the programs stay in the folder beside it
		mount -t overlay overlay -o "lowerdir=$dest/usr/sbin:/usr/sbin" /usr/sbin &&
			mount -t overlay overlay -o "lowerdir=$dest/usr/bin:/usr/bin" /usr/bin || {
			skip "fstab-$name" "no overlay here"
			return
		}
	fi
	echo "local $PAI_TMP/srv fuse.paifs noauto,host_commands,network=full,name=fstab-$name 0 0" >"$PAI_TMP/fstab"
	PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin timeout 30 mount -T "$PAI_TMP/fstab" "$PAI_TMP/srv" >"$PAI_TMP/log" 2>&1
	is "fstab-$name" "$(findmnt -no FSTYPE,SOURCE "$PAI_TMP/srv" | tr -s ' ') $(cat "$PAI_TMP/log")" \
		"fuse.paifs paifs#fstab-$name "
	has "fstab-$name-is-nosuid-nodev" "$(findmnt -no OPTIONS "$PAI_TMP/srv")" 'nosuid,nodev,noexec'
	mkdir -p "$PAI_TMP/srv/$name"
	is "fstab-$name-exec" "$(cd "$PAI_TMP/srv/$name" && pai-exec pwd 2>&1)" /workspace
	(cd "$PAI_TMP/srv" && pai kill "$name" >/dev/null)
	umount "$PAI_TMP/srv"
	wait_for 5 none_of "name=fstab-$name" || not_ok "fstab-$name" "paifs runs after umount"
}
PATH=${PATH#"$PAI_BUILD":}
export PATH=/usr/local/bin:$PATH
fstab by-mount.fuse3 /usr/local
umount /usr/local
fstab by-its-own-helper /usr
exit $failed
