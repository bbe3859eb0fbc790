#!/bin/bash
# What the two sides see, by the tester, with the workspace at the other end of a line.
# timeout 280
# timeout-long 7200
export PAI_LOCAL_OPTS=workspace=helper PAI_SEEDS="${PAI_SEEDS:-9 10}"
exec "$(dirname "$0")/tester-mount.sh"
