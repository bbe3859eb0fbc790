#!/bin/bash
# Containers that are killed behind the daemon.
# timeout 240
# timeout-long 2400
. "$(dirname "$0")/docker_over.sh"
both_ways suite-reset.sh
exit $failed
