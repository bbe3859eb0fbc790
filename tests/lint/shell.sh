#!/bin/bash
# Shell scripts: not one warning of shellcheck.
# fast
# timeout 600
mapfile -t scripts < <(git ls-files '*.sh' .ci/run)
if printf '%s\0' "${scripts[@]}" | xargs -0 -n 8 -P "$(nproc)" shellcheck -x -P SCRIPTDIR -S warning; then
	echo "ok shell (${#scripts[@]})"
else
	echo "not ok shell: see above"
	exit 1
fi
