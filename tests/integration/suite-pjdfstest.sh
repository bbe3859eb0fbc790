#!/bin/bash
# pjdfstest on the mount: each verdict is what the same run has on the plain file system below. As a
# user it skips what only root may do. PAI_PJDFSTEST_USER: root runs it as that user, and the verdicts
# are those of the sandbox.
# timeout 240
. "$(dirname "$0")/lib.sh"
begin pjdfstest
program=$(crate pjdfstest 0.2.2) || { not_ok pjdfstest "cargo install failed"; exit 1; }
cat >"$PAI_TMP/config.toml" <<-END
	[features]
	posix_fallocate = {}
	rename_ctime = {}
	utime_now = {}
	utimensat = {}
	[settings]
	naptime = 0.01
	allow_remount = false
	[dummy_auth]
	entries = [ ["nobody", "nogroup"], ["daemon", "daemon"], ["bin", "bin"] ]
END
user=${PAI_PJDFSTEST_USER:-}
# run DIR LIST [COMMAND...]: its tests with their verdicts, sorted. The words go before the program,
# which is one that the sandbox has too where there is a user.
run() {
	local dir=$1 list=$2
	shift 2
	mkdir -m 777 "$dir" && (cd "$dir" && timeout 100 "$@" "$program" -c "$config" -p .) >"$list.log" 2>&1
	echo "exit $?" >>"$list.log"
	# glibc tells the limit of links by the type of the file system, and knows none of FUSE's.
	sed -n '/^link::link_count_max /d; s/^\([a-z_0-9:]*\) *\(ok\|skipped\|FAILED\|failed\)$/\2 \1/p' "$list.log" | sort >"$list"
	grep '^Summary' "$list.log"
}
chmod 755 "$PAI_TMP"
config=$PAI_TMP/config.toml
[ -n "$user" ] || run "$PAI_TMP/plain" "$PAI_TMP/want"
rights=allow_other,suid,dev
[ "$(id -u)" = 0 ] || rights=special=full # what fusermount3 gives a user
start $rights default_permissions exec special=full symlinks=raw ||
	{ not_ok pjdfstest "no mount"; exit 1; }
if [ -z "$user" ]; then
	run "$MNT/p" "$PAI_TMP/got"
else
	cp "$program" pjdfstest && cp "$config" config.toml && chmod 755 pjdfstest || exit 1
	program=../pjdfstest config=../config.toml
	run "$MNT/plain" "$PAI_TMP/want" "$PAI_BUILD/pai-exec" --
	run "$MNT/p" "$PAI_TMP/got" setpriv --reuid "$user" --regid "$user" --clear-groups
fi
grep -q '^ok ' "$PAI_TMP/want" || { tail -20 "$PAI_TMP/want.log"; not_ok pjdfstest "it doesn't run"; exit 1; }
skip link::link_count_max "pathconf() has no limit of links to tell on any FUSE mount"
if diff "$PAI_TMP/want" "$PAI_TMP/got" >"$PAI_TMP/diff" &&
	[ "$(tail -1 "$PAI_TMP/want.log")" = "$(tail -1 "$PAI_TMP/got.log")" ]; then
	ok "pjdfstest ($(grep -c '^ok' "$PAI_TMP/got") passed, $(grep -c '^skip' "$PAI_TMP/got") skipped, as on the plain directory)"
else
	grep -A3 -w FAILED "$PAI_TMP/got.log" | head -60
	cat "$PAI_TMP/diff" | head -60
	not_ok pjdfstest "$(grep -c '^>' "$PAI_TMP/diff") verdicts differ; $(grep '^Summary' "$PAI_TMP/got.log"), $(tail -1 "$PAI_TMP/got.log")"
fi
cd /
stop
exit $failed
