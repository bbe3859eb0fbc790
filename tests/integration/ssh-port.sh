#!/bin/bash
# pai port to a host, also while the line to it is cut.
# timeout 120
export PAI_PORT_OVER=ssh
exec python3 "$(dirname "$0")/exec-port.py"
