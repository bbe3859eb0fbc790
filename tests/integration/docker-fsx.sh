#!/bin/bash
# fsx over docker.
# timeout 280
# timeout-long 7200
. "$(dirname "$0")/docker_over.sh"
over docker suite-fsx.sh
over docker-helper suite-fsx.sh
exit $failed
