#!/bin/sh
# pai-exec's table over ssh.
# timeout 240
PAI_OVER=ssh exec "$(dirname "$0")/exec-local.py"
