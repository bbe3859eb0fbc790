#!/bin/bash
# The seed's section, a case a sentence, over docker: in CI a part of it each way.
# timeout 240
# timeout-long 900
. "$(dirname "$0")/docker_over.sh"
if [ "${PAI_LONG:-0}" = 1 ]; then
	both_ways seed-table.py
else
	over docker seed-table.py PAI_SEED_CASES="each-source new-to-the-process failed-write hostile"
	over docker-helper seed-table.py PAI_SEED_CASES="each-source stored-files-docker the-mount failed-write many"
fi
exit $failed
