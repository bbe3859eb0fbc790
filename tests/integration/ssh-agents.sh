#!/bin/bash
# What coding agents ask of shells, over ssh, and scripted agents; in CI under pai run, as root.
# timeout 160
# timeout-long 400
here=$(dirname "$0")
failed=0
export PAI_OVER=ssh
of() {
	env -u PAI_TMP TMPDIR="${PAI_TMP:-${TMPDIR:-/tmp}}" "$@" || failed=1
}
of "$here/agents-run.py"
of "$here/agents-scripted.py"
if [ "${PAI_LONG:-0}" = 1 ]; then
	of "$here/agents-shell.py"
	of "$here/agents-links.py"
	of "$here/agents-user.sh"
fi
exit $failed
