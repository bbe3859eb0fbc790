#!/bin/sh
# Every script parses and may be executed.
# fast
set -u
status=0
count=0
for script in $(git ls-files '*.sh' '*.py' .ci/run tests/run tests/bench/run); do
	count=$((count + 1))
	case $script:$(head -1 "$script") in
	*.py:* | *python3) python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$script" ;;
	*bash) bash -n "$script" ;;
	*) sh -n "$script" ;;
	esac || {
		echo "not ok scripts: $script does not parse"
		status=1
	}
	if head -1 "$script" | grep -q '^#!' && [ ! -x "$script" ]; then
		echo "not ok scripts: $script is not executable"
		status=1
	fi
done
[ $status = 0 ] && echo "ok scripts ($count)"
exit $status
