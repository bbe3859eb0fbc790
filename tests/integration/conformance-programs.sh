#!/bin/bash
# pai-conformance itself: memory passes, a shared object is loaded by its path, wrong ones and wrong
# arguments are refused in one line, recipes can be replaced.
# timeout 120
set -u
build=$(realpath "${PAI_BUILD:-build/debug}")
suite=$build/pai-conformance
abi=$(sed -n 's/^#define PAI_PROVIDER_ABI //p' "$(dirname "$0")/../../providers/provider_ops.h")
failed=0

# expect NAME STATUS PATTERN COMMAND...: the exit status, and a line of the output.
expect() {
	local name=$1 status=$2 pattern=$3 out got
	shift 3
	out=$("$@" 2>&1)
	got=$?
	if [ "$got" = "$status" ] && grep -qE -- "$pattern" <<<"$out"; then
		echo "ok $name"
	else
		echo "not ok $name: exit $got, expected $status and '$pattern':" \
			"$(grep '^not ok' <<<"$out" | head -3; tail -1 <<<"$out")" | tr '\n' ' '
		echo
		failed=1
	fi
}
names=$("$suite" --list --filter 'files/*' | wc -l)

expect memory 0 '^# [0-9]+ passed, 0 failed' "$suite" memory
expect plugin-by-path 0 '^# [1-9][0-9]* passed, 0 failed' \
	"$suite" --filter 'lifecycle/*' "$build/tests/libmine.so"
cd "$build/tests" || exit 1
expect plugin-by-relative-path 0 '^# 2 passed, 0 failed' \
	"$suite" --filter 'kill/twice*' ./libmine.so
expect json 0 '^\{"suite":"provider","case":"kill/twice_is_fine","result":"pass","ms":[0-9]+\}$' \
	"$suite" --json --filter 'kill/twice*' memory
expect recipe-replaced 1 "^#   stdout is 'bye" \
	"$suite" --filter commands/stdout_and_exit_0 --command helloStdout='echo bye' memory
expect every-case-is-in-the-plan 0 "^1\.\.$((names + 1))\$" "$suite" --filter 'files/*' memory

expect unknown-provider 2 "no provider 'memroy': expected docker, local, memory" "$suite" memroy
expect no-such-object 2 "can't load './nosuch.so'" "$suite" ./nosuch.so
expect no-plugin 2 "exports no 'pai_provider_plugin'" "$suite" /lib/x86_64-linux-gnu/libm.so.6
expect wrong-interface 2 "was built for provider interface $((abi + 41)), this program has $abi" \
	"$suite" ./wrong_abi.so
expect unknown-option 2 "no option 'scrip': expected script" "$suite" -o scrip=x memory
expect unknown-case 2 "no case matches 'nosuch" "$suite" --filter 'nosuch*' memory
expect unknown-suite 2 'no such suite' "$suite" --suite nosuch memory
expect no-provider 2 'exactly one provider' "$suite"
expect help 0 '^usage: pai-conformance' "$suite" --help
exit $failed
