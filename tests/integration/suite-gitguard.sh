#!/bin/bash
# A host git runs nothing that a workspace's configuration names: it finds that the repository has
# another owner, in every shape in which it takes a directory for one. `pai trust` lifts it at once.
# timeout 120
. "$(dirname "$0")/lib.sh"
begin gitguard
if [ "$PAI_ON" != paifs ]; then
	skip gitguard "only paifs has it"
	exit 0
fi
command -v git >/dev/null || { skip gitguard "no git here"; exit 0; }
ran=$PAI_TMP/ran
mkdir -m 777 "$ran"
# hostile CONFIG SHAPE: what git runs by itself, and what it runs when it is asked for.
hostile() {
	git config -f "$1" core.fsmonitor "touch $ran/$2; false"
	git config -f "$1" alias.st "!touch $ran/$2"
	git config -f "$1" core.bare false
	git config -f "$1" core.worktree "$3"
}
# Every shape is a directory that git is started in.
shapes="plain plain/below bare . split file wt"
box=$PAI_TMP/box
plant() {
	rm -rf "$box"
	git init -q "$box/plain"
	mkdir "$box/plain/below"
	hostile "$box/plain/.git/config" plain ..
	git init -q --bare "$box/bare"
	hostile "$box/bare/config" bare .
	# The session's own directory.
	git init -q --bare "$box/top.git"
	mv "$box/top.git"/* "$box"
	rmdir "$box/top.git"
	hostile "$box/config" top .
	# Objects, refs and configuration lie elsewhere.
	git init -q --bare "$box/common"
	hostile "$box/common/config" split .
	mkdir "$box/split"
	echo "ref: refs/heads/master" >"$box/split/HEAD"
	echo ../common >"$box/split/commondir"
	# .git is a file that names a directory of any name.
	git init -q --bare "$box/elsewhere"
	hostile "$box/elsewhere/config" file ../file
	mkdir "$box/file"
	echo "gitdir: ../elsewhere" >"$box/file/.git"
	# A work tree beside its repository.
	git init -q "$box/main"
	mkdir -p "$box/wt" "$box/main/.git/worktrees/wt"
	echo ../.. >"$box/main/.git/worktrees/wt/commondir"
	echo "ref: refs/heads/wt" >"$box/main/.git/worktrees/wt/HEAD"
	echo "gitdir: ../main/.git/worktrees/wt" >"$box/wt/.git"
	hostile "$box/main/.git/config" wt ../../../wt
}
# refused WHO COMMAND...: in each shape, nothing runs, and git says why (of an alias and of diff it
# only says that there is no repository).
refused() {
	local who=$1 wrong="" out shape command
	shift
	for shape in $shapes; do
		out=$(cd "$MNT/$shape" && timeout 20 "$@" git status 2>&1)
		[[ $out == *"dubious ownership"* ]] || wrong+="$shape: git status: ${out:0:200}; "
		for command in st diff log; do
			(cd "$MNT/$shape" && timeout 20 "$@" git "$command") >/dev/null 2>&1
		done
	done
	[ -z "$(ls "$ran")" ] || wrong+="ran: $(ls "$ran" | tr '\n' ' ')"
	rm -f "$ran"/*
	is "gitguard-$who" "$wrong" ""
}
# runs WHO COMMAND...: the same shapes do run what they name, or nothing above is proven.
runs() {
	local who=$1 shape command
	shift
	for shape in $shapes; do
		for command in status st; do
			(cd "$MNT/$shape" && timeout 20 "$@" git $command) >/dev/null 2>&1
		done
	done
	is "gitguard-$who" "$(ls "$ran" | tr '\n' ' ')" "bare file plain split top wt "
	rm -f "$ran"/*
}
pai() { timeout 20 "$PAI_BUILD/pai" -n default "$@" >/dev/null || not_ok gitguard "pai $*"; }

plant
options=git=guard
user=()
if [ "$(id -u)" = 0 ]; then
	# Somebody for whom root mounts, and who owns the workspace.
	user=(setpriv --reuid=54321 --regid=54321 --clear-groups env HOME="$PAI_TMP")
	options+=,allow_other
fi
start "$options" || { not_ok gitguard "no mount"; exit 1; }
cd /
refused owner
pai trust "$KEY"
runs trusted-at-once
pai trust "$KEY" --off
refused trusted-no-more
# What is below .git is hidden from nobody, and what is beside it keeps its owner.
is gitguard-beside-it "$(stat -c %u "$MNT/plain/below" "$MNT/plain" | tr '\n' ' ')" "$(stat -c %u "$box/plain/below" "$box/plain" | tr '\n' ' ')"
if [ ${#user[@]} -gt 0 ]; then
	chown -R 54321:54321 "$box"
	sync_sides 2>/dev/null
	refused another-user "${user[@]}"
	pai trust "$KEY"
	runs another-user-trusted "${user[@]}"
	pai trust "$KEY" --off
fi
stop
start git=trust || { not_ok gitguard "no mount"; exit 1; }
cd /
chown -R "$(id -u)" "$box"
runs option-trust
stop
exit $failed
