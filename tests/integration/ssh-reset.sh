#!/bin/sh
# Sandboxes that are killed on the host behind the daemon.
# timeout 240
# timeout-long 1200
PAI_OVER=ssh exec "$(dirname "$0")/suite-reset.sh"
