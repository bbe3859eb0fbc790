#!/bin/bash
# The two-sided tester with its agent in a container, the files on this host and in the container.
# Both sides are root, of whom the container's has no capability: what needs one is not played.
# timeout 240
# timeout-long 14400
. "$(dirname "$0")/docker_over.sh"
seeds=
[ "${PAI_LONG:-0}" = 1 ] || seeds=${PAI_SEEDS:-31}
both_ways tester-mount.sh PAI_SEEDS="$seeds"
exit $failed
