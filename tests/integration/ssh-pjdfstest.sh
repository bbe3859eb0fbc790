#!/bin/sh
# pjdfstest over ssh, as root there: verdicts as on the plain directory.
# timeout 240
PAI_OVER=ssh exec "$(dirname "$0")/suite-pjdfstest.sh"
