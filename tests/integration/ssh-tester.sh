#!/bin/sh
# The two-sided tester over ssh.
# timeout 280
# timeout-long 7200
PAI_OVER=ssh exec "$(dirname "$0")/tester-mount.sh"
