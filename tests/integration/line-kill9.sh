#!/bin/bash
# kill -9 of the daemon at random moments with the workspace at the other end of a line.
# timeout 150
# timeout-long 600
export PAI_LOCAL_OPTS=workspace=helper
exec python3 "$(dirname "$0")/hold-kill9.py"
