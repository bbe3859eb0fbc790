#!/bin/bash
# The conformance suites over `docker`, with an engine and an image of the test's own: as root for a
# made-up user, as that user himself, and with the files in the containers.
# timeout 300
set -u
here=$(cd "$(dirname "$0")" && pwd)
[ -n "${PAI_DOCKER_SOCKET:-}" ] || exec python3 "$here/docker_world.py" run "$0" "$@"
build=$(realpath "${PAI_BUILD:-build/debug}")
failed=0
options=socket=$PAI_DOCKER_SOCKET,image=$PAI_DOCKER_IMAGE

# suite NAME COMMAND...: each failed case is a failure, and a run without a passed one too.
suite() {
	local name=$1 out
	shift
	out=$("$@" docker 2>&1)
	if grep -qE '^# [1-9][0-9]* passed, 0 failed' <<<"$out"; then
		echo "ok $name ($(tail -1 <<<"$out" | cut -c3-))"
	else
		grep -A1 '^not ok' <<<"$out" | tr '\n' ' ' |
			sed "s|not ok [0-9]* - |\nnot ok $name |g" | grep '^not ok' ||
			echo "not ok $name: $(tail -1 <<<"$out")"
		failed=1
	fi
}
store=$PAI_TMP/store
mkdir -m 700 "$store" "$PAI_TMP/user"
chown "$PAI_DOCKER_USER" "$PAI_TMP/user"
as_user=(setpriv --reuid "$PAI_DOCKER_USER" --regid "$PAI_DOCKER_USER" --clear-groups
	env "HOME=$PAI_TMP/user" "XDG_STATE_HOME=$PAI_TMP/user" "$build/pai-conformance")
suite as-root "$build/pai-conformance" --suite provider \
	-o "$options,uid=$PAI_DOCKER_USER,root=$store" \
	--break "mv '$PAI_DOCKER_SOCKET' '$PAI_DOCKER_SOCKET.away'" \
	--mend "mv '$PAI_DOCKER_SOCKET.away' '$PAI_DOCKER_SOCKET'"
suite as-a-user "${as_user[@]}" --suite provider --filter 'binding/*' -o "$options"
# Files in the containers: the short form passes over what is the same code.
far='[ftk]*'
[ "${PAI_LONG:-0}" = 1 ] && far='*'
suite helper "${as_user[@]}" --suite provider --filter "$far" -o "$options,workspace=helper"
[ "${PAI_LONG:-0}" = 1 ] &&
	suite helper-sessions "${as_user[@]}" --suite session --timeout 10 -o "$options,workspace=helper"
suite sessions "${as_user[@]}" --suite session --timeout 10 -o "$options"

left=$(find "$store" "$PAI_TMP/user" -mindepth 1 -path '*/[0-9a-f]*' ! -name 'helper-*' |
	grep -E '/[0-9a-f]{20}(/|$)')
if [ -z "$left" ]; then
	echo "ok nothing-left-in-the-directories"
else
	echo "not ok nothing-left-in-the-directories:" $left
	failed=1
fi
exit $failed
