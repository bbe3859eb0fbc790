#!/bin/sh
# fsx over ssh.
# timeout 280
# timeout-long 3600
PAI_OVER=ssh exec "$(dirname "$0")/suite-fsx.sh"
