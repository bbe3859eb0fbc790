#!/bin/bash
# The recorded calls of the seven tools over docker; in CI by one engine each way.
# timeout 240
# timeout-long 1200
. "$(dirname "$0")/docker_over.sh"
if [ "${PAI_LONG:-0}" = 1 ]; then
	both_ways tools-recorded.py
else
	over docker tools-recorded.py PAI_ENGINES=busybox
	over docker-helper tools-recorded.py PAI_ENGINES=gnu
fi
exit $failed
