#!/bin/bash
# What requests cost with the workspace at the other end of a line.
# timeout 90
# timeout-long 90
export PAI_LOCAL_OPTS=workspace=helper
exec "$(dirname "$0")/suite-counts.sh"
