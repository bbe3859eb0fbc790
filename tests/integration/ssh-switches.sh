#!/bin/sh
# What one request wakes over ssh, on both hosts.
# timeout 60
PAI_OVER=ssh exec "$(dirname "$0")/line-switches.sh"
