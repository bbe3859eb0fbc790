#!/bin/bash
# pjdfstest with the workspace at the other end of a line.
# timeout 120
# timeout-long 600
export PAI_LOCAL_OPTS=workspace=helper
exec "$(dirname "$0")/suite-pjdfstest.sh"
