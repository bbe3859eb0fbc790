#!/bin/sh
# Two daemons and one sandbox over ssh.
# timeout 200
# timeout-long 3000
PAI_OVER=ssh exec "$(dirname "$0")/tester-two-mounts.sh"
