#!/bin/bash
# fsx over ssh, where neither the daemon nor the login is root.
# timeout 280
# timeout-long 3600
. "$(dirname "$0")/lib.sh"
mended_fsx >/dev/null
export PAI_OVER=ssh
[ "$PAI_LONG" = 1 ] || export PAI_OPS=2000
exec bash "$(dirname "$0")/as_user.sh" "$(dirname "$0")/suite-fsx.sh"
