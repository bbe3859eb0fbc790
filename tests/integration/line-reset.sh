#!/bin/bash
# A sandbox that is killed at random moments with the workspace at the other end of a line.
# timeout 240
# timeout-long 1200
export PAI_LOCAL_OPTS=workspace=helper
exec "$(dirname "$0")/suite-reset.sh"
