#!/bin/bash
# pai-exec's table over docker.
# timeout 280
# timeout-long 600
. "$(dirname "$0")/docker_over.sh"
both_ways exec-local.py PAI_PASSES=mount
exit $failed
