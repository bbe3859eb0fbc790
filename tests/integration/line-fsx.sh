#!/bin/bash
# fsx with the workspace at the other end of a line.
# timeout 280
# timeout-long 3000
export PAI_LOCAL_OPTS=workspace=helper
exec "$(dirname "$0")/suite-fsx.sh"
