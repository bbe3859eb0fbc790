#!/bin/sh
# clang-format is the judge of layout; the version is Debian's, others disagree in details.
# fast
# timeout 600
set -u
version=$(clang-format --version | sed 's/.*version \([0-9]*\).*/\1/')
if [ "$version" != 14 ]; then
	echo "skip format: clang-format $version here, 14 judges"
	exit 0
fi
if git ls-files '*.c' '*.h' | xargs clang-format --dry-run -Werror; then
	echo "ok format"
else
	echo "not ok format: run make format"
	exit 1
fi
