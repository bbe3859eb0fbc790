#!/bin/bash
# pjdfstest over ssh, where neither the daemon nor the login is root: verdicts as on the plain
# directory for that user.
# timeout 240
. "$(dirname "$0")/lib.sh"
crate pjdfstest 0.2.2 >/dev/null # a user can't build where root keeps its programs
PAI_OVER=ssh exec bash "$(dirname "$0")/as_user.sh" "$(dirname "$0")/suite-pjdfstest.sh"
