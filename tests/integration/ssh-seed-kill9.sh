#!/bin/bash
# kill -9 of the helper on the other host at random points of a check for seeds.
# timeout 120
# timeout-long 600
PAI_OVER=ssh exec "$(dirname "$0")/seed-kill9.py"
