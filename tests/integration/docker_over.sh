# shellcheck shell=bash
# shellcheck disable=SC2034 # failed is for the script that sources this
# docker_over: runs the other scripts over docker. Source it first; not a test by itself.
#
#   over WAY SCRIPT [VARIABLE=VALUE...]   WAY: docker or docker-helper, as PAI_OVER; its tests are
#                                         reported with WAY in front of their names
#   both_ways SCRIPT [VARIABLE=VALUE...]  both, at once
#
# All of them have one engine, and a scratch directory each.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ -n "${PAI_DOCKER_SOCKET:-}" ] || exec python3 -B "$here/docker_world.py" run "$0" "$@"
failed=0
over() {
	local way=$1 script=$2
	shift 2
	env -u PAI_TMP TMPDIR="${PAI_TMP:-${TMPDIR:-/tmp}}" PAI_OVER="$way" "$@" "$here/$script" 2>&1 |
		sed -u -E "s/^(ok|not ok|skip) /&$way /"
	[ "${PIPESTATUS[0]}" = 0 ] || failed=1
	return $failed
}
both_ways() {
	local first
	over docker "$@" &
	first=$!
	over docker-helper "$@"
	wait $first || failed=1
}
