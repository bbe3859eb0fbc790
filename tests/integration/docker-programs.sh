#!/bin/bash
# git, tar, sqlite3, make, editors and rsync over docker, the files on this host and in the containers.
# timeout 280
# timeout-long 900
. "$(dirname "$0")/docker_over.sh"
for suite in git tar sqlite make editors rsync; do
	both_ways "suite-$suite.sh"
done
exit $failed
