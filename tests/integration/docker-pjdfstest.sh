#!/bin/bash
# pjdfstest over docker: as root, with the verdicts of the plain directory; as the sandbox's user,
# with those of the same run inside the sandbox.
# timeout 240
# timeout-long 600
. "$(dirname "$0")/docker_over.sh"
over docker suite-pjdfstest.sh
both_ways suite-pjdfstest.sh PAI_PJDFSTEST_USER="$PAI_DOCKER_USER" PAI_DOCKER_UID="$PAI_DOCKER_USER"
exit $failed
