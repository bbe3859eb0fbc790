#!/bin/bash
# Nothing hangs with the workspace at the other end of a line.
# timeout 150
# timeout-long 300
export PAI_LOCAL_OPTS=workspace=helper
exec python3 "$(dirname "$0")/hold-hang.py"
