#!/bin/bash
# pai-exec's table over ssh, where neither the daemon nor the login is root: in the mount, at full
# length also without one.
# timeout 240
export PAI_OVER=ssh
[ "${PAI_LONG:-0}" = 1 ] || export PAI_PASSES=mount
exec bash "$(dirname "$0")/as_user.sh" "$(dirname "$0")/exec-local.py"
