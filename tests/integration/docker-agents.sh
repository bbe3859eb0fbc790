#!/bin/bash
# What coding agents ask of shells, over docker, and scripted agents; in CI each one way, under pai run.
# timeout 160
# timeout-long 600
. "$(dirname "$0")/docker_over.sh"
if [ "${PAI_LONG:-0}" = 1 ]; then
	for t in run shell links scripted; do
		both_ways "agents-$t.py"
	done
else
	over docker-helper agents-run.py
	over docker agents-scripted.py
fi
exit $failed
