#!/bin/bash
# Two daemons over one container: changes and locks between the mounts.
# timeout 240
# timeout-long 3100
. "$(dirname "$0")/docker_over.sh"
both_ways tester-two-mounts.sh
exit $failed
