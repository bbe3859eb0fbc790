#!/bin/bash
# timeout 240
# pai run where neither the daemon nor the agent is root: by a namespace of users.
exec bash "$(dirname "$0")/as_user.sh" "$(dirname "$0")/agents-run.py"
