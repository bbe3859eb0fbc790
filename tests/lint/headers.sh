#!/bin/sh
# Every header compiles alone, with each compiler.
# fast
# timeout 600
set -u
status=0
flags="-std=gnu17 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DFUSE_USE_VERSION=314 -I.
	$(pkg-config --cflags fuse3) -Wall -Wextra -Werror -fsyntax-only -x c"
count=$(git ls-files '*.h' | wc -l)
for cc in gcc clang; do
	# shellcheck disable=SC2016,SC2086
	if [ "$count" -gt 0 ] && git ls-files '*.h' | xargs -P "$(nproc)" -I {} sh -c '
		header=$1 && shift
		"$@" -include "$header" /dev/null || { echo "not ok headers: $1: $header"; exit 1; }
	' sh {} $cc $flags; then
		echo "ok headers $cc ($count)"
	else
		status=1
	fi
done
exit $status
