#!/bin/bash
# git on the mount: clone, commit, rebase, gc, fsck, from both sides, with the same result as on a
# plain directory; and a status on one side makes the other re-read nothing.
# timeout 150
. "$(dirname "$0")/lib.sh"
begin git
cat >"$GIT_CONFIG_GLOBAL" <<-END
	[user]
	name = A
	email = a@example
	[init]
	defaultBranch = main
	[gc]
	auto = 0
	[safe]
	directory = *
END
export GIT_AUTHOR_DATE="2026-01-01T00:00:00Z" GIT_COMMITTER_DATE="2026-01-01T00:00:00Z"

make_origin() (
	set -e
	git init -q "$1"
	cd "$1"
	for i in $(seq 300); do
		mkdir -p "dir$((i % 17))"
		seq "$i" $((i + 200)) >"dir$((i % 17))/file $i.txt"
	done
	ln -s "dir1/file 1.txt" link
	printf '#!/bin/sh\necho hello\n' >run && chmod +x run
	git add -A
	git commit -qm first
	for i in $(seq 8); do
		echo "change $i" >>"dir$i/file $i.txt"
		git commit -qam "change $i"
	done
)
# The same work on any directory.
work() (
	set -e
	git clone -q "$PAI_TMP/origin" "$1"
	cd "$1"
	git checkout -qb topic HEAD~4
	for i in 11 12 13; do
		echo "topic $i" >>"dir$i/file $i.txt"
		git mv "dir$i/file $((i + 17)).txt" "moved $i.txt"
		git commit -qam "topic $i"
	done
	git rebase -q main
	git stash list
	git gc -q
	git fsck --strict --no-dangling
	git merge -q --no-ff --no-edit topic
	git status --porcelain
)
what() { (cd "$1" && git log --format='%H %s' --all && git ls-tree -r HEAD && git status --porcelain); }

make_origin "$PAI_TMP/origin" || exit 1
work "$PAI_TMP/reference" >"$PAI_TMP/reference.log" 2>&1 || { cat "$PAI_TMP/reference.log"; exit 1; }
start exec || { not_ok git "no mount"; exit 1; }
check clone-commit-rebase-gc-fsck timeout 60 bash -c "$(declare -f work); work '$MNT/repo'"
is same-history "$(what "$MNT/repo")" "$(what "$PAI_TMP/reference")"
same same-work-tree "$MNT/repo" "$PAI_TMP/reference" '\./\.git'

cd "$MNT/repo" || exit 1
# The sandbox has none of our configuration: it owns the same files, that is enough.
check fsck-in-the-sandbox sandbox git fsck --strict --no-dangling
is clean-in-the-sandbox "$(sandbox git status --porcelain 2>&1)" ""
sandbox sh -c 'echo "from the sandbox" >new.txt && git add new.txt &&
	git -c user.name=B -c user.email=b@example commit -qm sandbox' || not_ok git "no commit in the sandbox"
is commit-of-the-sandbox-is-seen "$(git log -1 --format=%s) $(cat new.txt) $(git status --porcelain)" \
	"sandbox from the sandbox "
echo "from the mount" >>new.txt
git commit -qam mount
is commit-of-the-mount-is-seen "$(sandbox sh -c 'git log -1 --format=%s; git status --porcelain')" mount

# Opened work files are re-read files: git trusts the index where the stamps are equal.
opened() { grep -c 'openat(.*\.txt"' "$1"; }
git status >/dev/null
sandbox git status >/dev/null
sleep 1.1
# Files as new as the index are re-read by any git: let one more write settle that.
git update-index -q --really-refresh
for turn in 1 2 3; do
	strace -f -qq -e trace=openat -o "$PAI_TMP/here" git status --porcelain
	is "status-on-the-mount-re-reads-nothing-$turn" "$(opened "$PAI_TMP/here")" 0
	sandbox strace -f -qq -e trace=openat -o .git/trace git status --porcelain || not_ok git "no strace there"
	is "status-in-the-sandbox-re-reads-nothing-$turn" "$(opened .git/trace)" 0
done
# The count can be wrong: a touched file is re-read.
touch "dir1/file 1.txt"
strace -f -qq -e trace=openat -o "$PAI_TMP/here" git status --porcelain
is touched-file-is-re-read "$(opened "$PAI_TMP/here")" 1
cd /
stop
exit $failed
