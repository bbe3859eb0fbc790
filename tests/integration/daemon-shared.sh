#!/bin/bash
# control_uid=: a daemon of root's and one of a plain user's, used by another user whom they name and by
# one whom they don't; a socket that somebody else put in the place of a daemon's.
# timeout 60
. "$(dirname "$0")/lib.sh"
names=(shared-by-root shared-by-a-user)
begin "${names[@]}"
if [ "$(id -u)" != 0 ]; then
	for name in "${names[@]}"; do skip "$name" "needs root to become others"; done
	exit 0
fi
if [ -z "${PAI_SHARED_NS:-}" ]; then # /run and /tmp of this machine are left alone
	PAI_SHARED_NS=1 exec unshare --mount --propagation private "$0"
fi
mkdir "$PAI_TMP/bin" "$PAI_TMP/r" "$PAI_TMP/t"
cp "$PAI_BUILD"/{paifs,pai,pai-exec,pai-helper} "$PAI_TMP/bin"
chmod -R a+rX "$PAI_TMP/bin"
chmod a+x "$PAI_TMP" "$PAI_TMP/r"
chmod 1777 "$PAI_TMP/t"
mount --bind "$PAI_TMP/r" /run
case $PAI_TMP in /tmp/*) ;; *) mount --bind "$PAI_TMP/t" /tmp ;; esac
unset XDG_RUNTIME_DIR

# as UID CMD...: with nothing of root's environment
as() {
	local uid=$1
	shift
	mkdir -p "$PAI_TMP/t/home-$uid"
	chown "$uid:$uid" "$PAI_TMP/t/home-$uid"
	timeout 30 setpriv --reuid="$uid" --regid="$uid" --clear-groups env -i PATH="$PAI_TMP/bin:$PATH" \
		HOME="$PAI_TMP/t/home-$uid" "$@" 2>&1
}
# has NAME TEXT PATTERN
has() { if grep -q -- "$3" <<<"$2"; then ok "$1"; else not_ok "$1" "$2"; fi; }

TOP=$PAI_TMP/top
mkdir -p "$TOP"
"$PAI_TMP/bin/paifs" local "$TOP" -n "shared-$$" -o \
	host_commands,network=full,allow_other,control_uid=54321 -f >"$PAI_TMP/daemon.log" 2>&1 &
daemon_pid=$!
mounted=$TOP
wait_for 10 test -S "/run/paifs/shared-$$.sock" || { cat "$PAI_TMP/daemon.log"; exit 1; }
mkdir "$TOP/k"
cd "$TOP/k" || exit 1
is root-itself "$(pai-exec pwd)" /workspace
has shared-by-root "$(as 54321 pai-exec -c 'echo ran in "$PWD"')" '^ran in /workspace$'
has shared-by-root-by-name "$(cd / && as 54321 pai -n "shared-$$@root" status k)" '^session$'
has others-are-refused "$(as 54322 pai-exec true)" 'uid 54322 may not use this daemon'
(umask 077 && echo secret >private)
echo open >public
is others-read-what-is-theirs-to-read "$(cd / && as 54322 cat "$TOP/k/public")" open
has and-no-more "$(cd / && as 54322 cat "$TOP/k/private")" 'Permission denied'
printf '#!/bin/sh\nid -u >%s/as\necho "{}"\n' "$PAI_TMP/t" >"$PAI_TMP/t/prog"
chmod 755 "$PAI_TMP/t/prog"
has no-program-of-theirs "$(cd / && as 54321 pai -n "shared-$$@root" create p -o create="$PAI_TMP/t/prog")" \
	'only that user may'
is it-did-not-run "$(cat "$PAI_TMP/t/as" 2>&1 | grep -c ^0)" 0
is mode-of-the-directory "$(stat -c %a /run/paifs)" 711
stop
is the-socket-goes "$(ls /run/paifs)" "shared-$$.lock"

as 54322 paifs memory --no-mount -n "mine-$$" -o control_uid=54321 -f >"$PAI_TMP/daemon.log" 2>&1 &
daemon_pid=$!
wait_for 10 test -S "/tmp/paifs-54322/mine-$$.sock" || { cat "$PAI_TMP/daemon.log"; exit 1; }
has its-owner "$(as 54322 pai -n "mine-$$" create k)" 'made'
has shared-by-a-user "$(as 54321 pai -n "mine-$$@54322" status k)" '^session$'
has exec-there "$(as 54321 pai-exec -n "mine-$$@54322" -s k echo hello)" '^hello$'
has not-without-its-owners-name "$(as 54321 pai -n "mine-$$" status k)" 'no daemon named'
has others-are-refused-too "$(as 54323 pai -n "mine-$$@54322" status k)" 'uid 54323 may not use'
has none-of-that-user "$(as 54321 pai -n "mine-$$@54324" ls)" 'runs no daemon named'
has no-such-user "$(as 54321 pai -n "mine-$$@nosuchuser" ls)" "expected a user's name or number"
as 54323 python3 -c '
import os, socket
os.mkdir("/tmp/paifs-54325", 0o755)
s = socket.socket(socket.AF_UNIX); s.bind("/tmp/paifs-54325/x.sock"); s.listen()
os.chmod("/tmp/paifs-54325/x.sock", 0o777); s.accept()' &
false_pid=$!
wait_for 10 test -S /tmp/paifs-54325/x.sock
has a-false-daemon "$(as 54321 pai -n x@54325 ls)" 'served by uid 54323, not by uid 54325'
wait $false_pid
as 54322 pai -n "mine-$$" umount >/dev/null
wait_for 10 is_down $daemon_pid
daemon_pid=
rm -rf /tmp/paifs-5432[25]
exit $failed
