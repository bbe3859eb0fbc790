#!/bin/bash
# Databases, on both sides, with the workspace at the other end of a line.
# timeout 200
# timeout-long 600
export PAI_LOCAL_OPTS=workspace=helper
exec "$(dirname "$0")/suite-sqlite.sh"
