#!/bin/bash
# What coding agents ask of shells, over docker, and scripted agents; in CI each one way, under pai run.
# And of a container that has nothing but busybox.
# timeout 160
# timeout-long 600
. "$(dirname "$0")/docker_over.sh"
busybox="PAI_SHELL=/bin/sh PAI_DOCKER_HOST_IMAGE=$PAI_DOCKER_IMAGE PAI_DOCKER_HOST_RUNTIME=runc"
if [ "${PAI_LONG:-0}" = 1 ]; then
	for t in run shell links scripted; do
		both_ways "agents-$t.py"
	done
	chmod 666 "$PAI_DOCKER_SOCKET"
	both_ways agents-user.sh
	# shellcheck disable=SC2086 # words
	both_ways agents-run.py $busybox
else
	over docker-helper agents-run.py
	over docker agents-scripted.py
fi
# shellcheck disable=SC2086
over docker agents-shell.py $busybox
exit $failed
