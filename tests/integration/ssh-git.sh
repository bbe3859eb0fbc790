#!/bin/sh
# git over ssh, from both sides.
# timeout 240
PAI_OVER=ssh exec "$(dirname "$0")/suite-git.sh"
