#!/bin/bash
# The suites over ssh, on an sshd of the test's own, as root and as a plain user: the provider's as
# the user by libssh2, the session manager's as root by the ssh program; at full length
# both as both.
# timeout 300
# timeout-long 600
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$(realpath "${PAI_BUILD:-build/debug}")
failed=0

# suite NAME ARGUMENT...: each failed case is a failure, and a run without a passed one too.
suite() {
	local name=$1 out
	shift
	out=$("$build/pai-conformance" "$@" ssh 2>&1)
	if grep -qE '^# [1-9][0-9]* passed, 0 failed' <<<"$out"; then
		echo "ok $name ($(tail -1 <<<"$out" | cut -c3-))"
	else
		grep -A1 '^not ok' <<<"$out" | tr '\n' ' ' |
			sed "s|not ok [0-9]* - |\nnot ok $name |g" | grep '^not ok' ||
			echo "not ok $name: $(tail -1 <<<"$out")"
		return 1
	fi
}
# on USER: both suites; nothing is left of them on the host.
on() {
	local dir=$PAI_TMP/$1 way=libssh2 left status=0 SSH_CONFIG="" SSH_HOME=""
	[ "$1" != root ] || way=ssh
	eval "$(python3 -B "$here/ssh_world.py" start "$dir" --user "$1")"
	[ -n "$SSH_CONFIG" ] || {
		echo "not ok ssh-$1: no sshd"
		return 1
	}
	[ "$1 ${PAI_LONG:-0}" = "root 0" ] ||
		suite "ssh-$1" --suite provider -o "host=box,config=$SSH_CONFIG,root=boxes,line_grace=5,transport=$way" || status=1
	[ "$1 ${PAI_LONG:-0}" = "tester 0" ] ||
		suite "ssh-$1-session" --suite session --timeout 15 \
			-o "host=box,config=$SSH_CONFIG,root=boxes,line_grace=5,transport=$way" || status=1
	# A worker leaves when nothing has come for a second; after a case that was killed, with the grace.
	for _ in $(seq 60); do
		pgrep -f "^$dir/home/.*pai-helper.* serve" >/dev/null || break
		sleep 0.2
	done
	left=$(find "$SSH_HOME/boxes" -mindepth 1 ! -path "*/keys")
	if [ -z "$left" ]; then
		echo "ok ssh-$1-nothing-left"
	else
		echo "not ok ssh-$1-nothing-left:" $left
		status=1
	fi
	python3 -B "$here/ssh_world.py" stop "$dir"
	return $status
}
if [ "$(id -u)" = 0 ]; then
	on root >"$PAI_TMP/root.out" 2>&1 &
	on tester || failed=1
	wait $! || failed=1
	cat "$PAI_TMP/root.out"
else
	on "$(id -un)" || failed=1
fi
exit $failed
