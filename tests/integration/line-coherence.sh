#!/bin/bash
# Each case of coherence with the workspace at the other end of a line.
# timeout 90
# timeout-long 300
export PAI_LOCAL_OPTS=workspace=helper
exec "$(dirname "$0")/coherence-cases.sh"
