#!/bin/bash
# Our own changes, as they come back, with the workspace at the other end of a line.
# timeout 90
# timeout-long 90
export PAI_LOCAL_OPTS=workspace=helper
exec "$(dirname "$0")/coherence-echo.sh"
