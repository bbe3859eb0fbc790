#!/bin/sh
# A link to a real pai-helper: relays and workers are killed, nothing is lost.
# fast
# timeout 120
set -u
exec "$PAI_BUILD/tests/integration-link_worker" "$(realpath "$PAI_BUILD/pai-helper")"
