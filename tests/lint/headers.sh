#!/bin/sh
# Every header compiles alone, with each compiler.
# fast
set -u
status=0
fuse="$(pkg-config --cflags fuse3) -DFUSE_USE_VERSION=314"
for cc in gcc clang; do
	bad=0
	count=0
	for header in $(git ls-files '*.h'); do
		count=$((count + 1))
		# shellcheck disable=SC2086
		$cc -std=gnu17 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -I. $fuse -Wall -Wextra -Werror \
			-fsyntax-only -x c -include "$header" /dev/null || {
			echo "not ok headers: $cc: $header"
			bad=1
		}
	done
	if [ $bad = 0 ] && [ $count -gt 0 ]; then
		echo "ok headers $cc ($count)"
	fi
	[ $bad = 0 ] || status=1
done
exit $status
