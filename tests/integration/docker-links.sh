#!/bin/bash
# No host file by any link that a container made.
# timeout 240
# timeout-long 1900
. "$(dirname "$0")/docker_over.sh"
over docker suite-links.sh
over docker-helper suite-links.sh
exit $failed
