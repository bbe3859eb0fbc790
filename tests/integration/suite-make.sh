#!/bin/bash
# make of a real C project, this one, from both sides: what one side has built the other takes as
# built, and a change on either side rebuilds what hangs on it and nothing else.
# timeout 170
. "$(dirname "$0")/lib.sh"
begin make
start exec || { not_ok make "no mount"; exit 1; }
mkdir "$MNT/project"
(cd "$root_dir" && git ls-files -z -- Makefile providers ledger | tar -c --null -T -) | tar -xC "$MNT/project" ||
	{ not_ok make "no copy of the sources"; exit 1; }
cd "$MNT/project" || exit 1
goal="build/debug/libpai-base.a build/debug/libpai-wire.a"
objects=$(ls providers/base/*.c providers/wire/*.c | wc -l)
# built SIDE-COMMAND...: how many files it compiled; what was wrong on failure.
built() {
	# shellcheck disable=SC2086
	if "$@" make -j2 $goal >"$PAI_TMP/make.log" 2>&1; then
		grep -c ' CC ' "$PAI_TMP/make.log"
	else
		tail -5 "$PAI_TMP/make.log"
	fi
}
is whole-from-the-mount "$(built env)" "$objects"
is nothing-in-the-sandbox "$(built sandbox)" 0
is nothing-on-the-mount "$(built env)" 0
sandbox touch providers/base/clock.c
is one-touched-in-the-sandbox "$(built env)" 1
touch providers/base/path.c
is one-touched-on-the-mount "$(built sandbox)" 1
echo '/* one more line */' >>providers/wire/frame.h
users=$(grep -l 'wire/frame.h' build/debug/providers/base/*.d build/debug/providers/wire/*.d | wc -l)
is users-of-a-header "$(built sandbox)" "$users"
sandbox rm -r build
is whole-in-the-sandbox "$(built sandbox)" "$objects"
is nothing-on-the-mount-again "$(built env)" 0
is archive-is-whole "$(ar t build/debug/libpai-base.a | wc -l)" "$(sandbox ar t build/debug/libpai-base.a | wc -l)"
cd /
stop
exit $failed
