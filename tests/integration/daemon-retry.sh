#!/bin/bash
# Retry once (DESIGN 5): the sandbox is killed behind the daemon's back, by another daemon, in every
# state that a command can be in.
# timeout 180
# shellcheck source=tests/integration/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

tests=(
	"lost before the start: run in the new one, and said"
	"lost after a silent start: started again, and said"
	"... with the stdin that was sent before anything took it"
	"lost after output: unknown, not started again"
	"lost after stdin was taken: unknown"
	"lost with a terminal: unknown"
	"lost with --no-retry: unknown"
	"reset while it runs: unknown, not started again, no sandbox made"
	"kill while it runs: unknown, and the key stays killed"
	"a cwd that the new environment lacks is an error, with the reset"
	"the reset is told once to each caller"
	"tar into a sandbox that is killed in the middle is no success"
	"commands refused: the option is named"
	"write-through: a command sees what was written before it"
)
begin "${tests[@]}"

M=$PAI_TMP/m
ROOT=$PAI_TMP/root
mkdir -p "$M"
pai_() { timeout 20 "$PAI_BUILD/pai" "$@"; }
# run ARGS...: pai-exec on the session; STATUS holds the object, CODE the exit status, OUT, ERR.
run() {
	timeout 40 "$PAI_BUILD/pai-exec" -n retry -s k --status-fd 9 "$@" \
		9>"$PAI_TMP/status" >"$PAI_TMP/out" 2>"$PAI_TMP/err"
	CODE=$?
	STATUS=$(cat "$PAI_TMP/status")
	OUT=$(cat "$PAI_TMP/out")
	ERR=$(cat "$PAI_TMP/err")
}
field() { printf '%s' "$STATUS" | python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin)[sys.argv[1]]))' "$1"; }
# has CODE FIELD=VALUE...
has() {
	local want
	[ "$CODE" = "$1" ] || { echo "exit $CODE, expected $1: $STATUS $ERR"; return 1; }
	shift
	for want in "$@"; do
		[ "$(field "${want%%=*}")" = "${want#*=}" ] || { echo "expected $want: $STATUS"; return 1; }
	done
}
sandbox_id() { pai_ ls -n retry --json | sed -n 's/.*"sandboxId":"\([^"]*\)".*/\1/p'; }
# Behind its back: the other daemon has the same sandboxes, and kills by the provider alone.
lose() { pai_ kill -n other --sandbox "$1" >/dev/null; }
# fresh: a live sandbox whose last reset has been told.
fresh() {
	run true
	run true
	[ $CODE = 0 ]
}
# in_the_middle FILE CMD...: runs it, loses the sandbox once FILE is in the workspace.
in_the_middle() {
	local file=$1 id
	shift
	id=$(sandbox_id)
	(wait_for 20 test -e "$M/k/$file" && lose "$id") &
	local killer=$!
	run "$@"
	wait $killer
}

"$PAI_BUILD/paifs" local "$M" -n retry -o "host_commands,root=$ROOT" || {
	not_ok "${tests[0]}" "no mount"
	exit 1
}
"$PAI_BUILD/paifs" local --no-mount -n other -o "root=$ROOT" || {
	not_ok "${tests[0]}" "no second daemon"
	exit 1
}
end() {
	for name in retry other; do
		pid=$(pai_ status -n $name --json | sed -n 's/.*"pid":\([0-9]*\).*/\1/p')
		for id in $(pai_ ls -n $name --json | grep -o '"sandboxId":"[^"]*"' | cut -d'"' -f4); do
			pai_ kill -n $name --sandbox "$id" >/dev/null
		done
		[ -z "$pid" ] || kill -TERM "$pid"
	done
	unmount "$M"
	wait_for 10 sh -c "! ls '$XDG_RUNTIME_DIR'/paifs/*.sock 2>/dev/null" >/dev/null
	clean_up
}
trap end EXIT
mkdir "$M/k"

before() {
	fresh || return 1
	lose "$(sandbox_id)" || return 1
	run echo hi
	has 0 environmentReset=true 'outcome="exited"' && [ "$OUT" = hi ] &&
		case $ERR in *reset*) ;; *) echo "not told: $ERR"; return 1 ;; esac
}
check "${tests[0]}" before

silent() {
	fresh || return 1
	in_the_middle begun sh -c '[ "$(cat gen 2>/dev/null)" ] || : >begun; sleep 2; echo done'
	has 0 attempts=2 environmentReset=true 'outcome="exited"' && [ "$OUT" = "done" ]
}
check "${tests[1]}" silent

untouched() {
	fresh || return 1
	printf 'line\n' >"$PAI_TMP/in"
	local id
	id=$(sandbox_id)
	# The start is lost as well: nothing can have taken it.
	lose "$id"
	timeout 40 "$PAI_BUILD/pai-exec" -n retry -s k cat <"$PAI_TMP/in" >"$PAI_TMP/out" 2>/dev/null &&
		cmp "$PAI_TMP/in" "$PAI_TMP/out"
}
check "${tests[2]}" untouched

output() {
	fresh || return 1
	in_the_middle begun sh -c 'echo first; : >begun; sleep 5; echo second'
	has 125 attempts=1 'outcome="unknown"' 'source="pai"' && [ "$OUT" = first ]
}
check "${tests[3]}" output

taken() {
	fresh || return 1
	echo x >"$PAI_TMP/in"
	in_the_middle begun sh -c 'read x; : >begun; sleep 5' <"$PAI_TMP/in"
	has 125 attempts=1 'outcome="unknown"'
}
check "${tests[4]}" taken

terminal() {
	local id
	fresh || return 1
	id=$(sandbox_id)
	(wait_for 20 test -e "$M/k/begun" && lose "$id") &
	local killer=$!
	timeout 40 script -qec "'$PAI_BUILD/pai-exec' -n retry -s k -t --status-fd 9 sh -c ': >begun; sleep 5' 9>'$PAI_TMP/status'" /dev/null >/dev/null </dev/null
	CODE=$?
	STATUS=$(cat "$PAI_TMP/status")
	wait $killer
	has 125 attempts=1 'outcome="unknown"'
}
check "${tests[5]}" terminal

no_retry() {
	fresh || return 1
	in_the_middle begun --no-retry sh -c ': >begun; sleep 5'
	has 125 attempts=1 'outcome="unknown"'
}
check "${tests[6]}" no_retry

reset() {
	local generation
	fresh || return 1
	generation=$(field generation)
	(wait_for 20 test -e "$M/k/begun" && pai_ reset -n retry k >/dev/null) &
	local killer=$!
	run sh -c ': >begun; sleep 5; echo done'
	wait $killer
	has 125 'outcome="unknown"' && [ -z "$OUT" ] || return 1
	pai_ status -n retry k --json | grep -q "\"state\":\"live\"" && { echo "made one"; return 1; }
	run true
	has 0 environmentReset=true "generation=$((generation + 1))"
}
check "${tests[7]}" reset

killed() {
	fresh || return 1
	(wait_for 20 test -e "$M/k/begun" && pai_ kill -n retry k >/dev/null) &
	local killer=$!
	run sh -c ': >begun; sleep 5; echo done'
	wait $killer
	has 125 'outcome="unknown"' && [ -z "$OUT" ] || return 1
	[ ! -e "$M/k" ] || { echo "the session is shown"; return 1; }
	run true
	has 0
}
check "${tests[8]}" killed

cwd() {
	fresh && mkdir "$M/k/sub" && run -C /workspace/sub pwd && [ "$OUT" = /workspace/sub ] || return 1
	lose "$(sandbox_id)"
	run -C /workspace/sub pwd
	has 125 environmentReset=true 'source="pai"' && [ -z "$OUT" ]
}
check "${tests[9]}" cwd

told() {
	fresh || return 1
	lose "$(sandbox_id)"
	run true
	has 0 environmentReset=true || return 1
	run true
	has 0 environmentReset=false || return 1
	# Another POSIX session, which has never been told anything of this key.
	lose "$(sandbox_id)"
	setsid -w timeout 40 "$PAI_BUILD/pai-exec" -n retry -s k --status-fd 1 true >"$PAI_TMP/status" 2>/dev/null
	CODE=$?
	STATUS=$(cat "$PAI_TMP/status")
	has 0 environmentReset=true || return 1
	run true
	has 0 environmentReset=true
}
check "${tests[10]}" told

tar_() {
	local id
	fresh || return 1
	mkdir -p "$PAI_TMP/tree"
	head -c 60000000 /dev/urandom >"$PAI_TMP/tree/big"
	id=$(sandbox_id)
	(wait_for 20 test -e "$M/k/big" && lose "$id") &
	local killer=$!
	# Slowly enough to be in the middle.
	(cd "$PAI_TMP/tree" && tar c . | (head -c 1000000; sleep 2; cat)) |
		timeout 40 "$PAI_BUILD/pai-exec" -n retry -s k --status-fd 9 tar x 9>"$PAI_TMP/status" 2>/dev/null
	CODE=$?
	STATUS=$(cat "$PAI_TMP/status")
	wait $killer
	has 125 'outcome="unknown"'
}
check "${tests[11]}" tar_

refused() {
	timeout 20 "$PAI_BUILD/pai-exec" -n other -s z true 2>"$PAI_TMP/err"
	CODE=$?
	[ $CODE = 125 ] && grep -q host_commands "$PAI_TMP/err"
}
check "${tests[12]}" refused

through() {
	local i
	fresh || return 1
	for i in $(seq 50); do
		echo "$i" >"$M/k/f"
		run sh -c 'read x <f; echo "$x" >g; echo "$x"'
		[ "$OUT" = "$i" ] && [ "$(cat "$M/k/g")" = "$i" ] || { echo "$i: $OUT $(cat "$M/k/g")"; return 1; }
	done
}
check "${tests[13]}" through
exit $failed
