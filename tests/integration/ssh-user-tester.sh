#!/bin/bash
# The two-sided tester over ssh, where neither the daemon nor the login is root.
# timeout 280
# timeout-long 7200
export PAI_OVER=ssh PAI_OPS=1500 PAI_SEEDS="${PAI_SEEDS:-11}"
[ "${PAI_LONG:-0}" != 1 ] || PAI_OPS=100000
exec bash "$(dirname "$0")/as_user.sh" "$(dirname "$0")/tester-mount.sh"
