#!/bin/bash
# Commands with the workspace at the other end of a line.
# timeout 240
# timeout-long 600
export PAI_LOCAL_OPTS=workspace=helper
exec python3 "$(dirname "$0")/exec-local.py"
