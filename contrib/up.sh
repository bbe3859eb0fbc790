#!/bin/sh
# up.sh up|down BUILD MNT: mounts provider `local` and shows one file and one command; undoes it.
set -eu

action=$1
build=$(cd "$2" && pwd)
# As the mount table has it; of a mount whose daemon was killed nothing more can be asked.
mnt=$(realpath -m "$(dirname "$3")")/$(basename "$3")

is_mounted() {
	MNT="$(printf '%s' "$mnt" | sed 's/ /\\040/g')" \
		awk '$5 == ENVIRON["MNT"] { found = 1 } END { exit !found }' /proc/self/mountinfo
}
# A stat might be answered from what the kernel remembers.
answers() {
	is_mounted && ls "$mnt" >/dev/null 2>&1
}

# Whether the session holds what `up` has put there, and nothing else.
is_ours() {
	[ "$(ls -A "$mnt/demo" 2>/dev/null)" = hello.txt ] &&
		[ "$(cat "$mnt/demo/hello.txt")" = "$written" ]
}
written="written through the mount"

case $action in
up)
	if answers; then
		echo "$mnt is mounted already"
	else
		is_mounted || mkdir -p "$mnt"
		"$build/paifs" local "$mnt" -o host_commands
		answers || {
			echo "up.sh: paifs ended without an error, but $mnt is not mounted" >&2
			exit 1
		}
		echo "\$ paifs local $mnt -o host_commands"
	fi
	# A plain mkdir would do; this says why, where a sandbox can't be made.
	(cd "$mnt" && "$build/pai" create demo >/dev/null)
	echo "$written" >"$mnt/demo/hello.txt"
	echo "\$ cd $mnt/demo && pai-exec -c 'pwd; cat hello.txt'"
	# -q: of a demo that make down took away nothing need be said.
	(cd "$mnt/demo" && "$build/pai-exec" -q -c 'pwd; cat hello.txt')
	cat <<-END

		A session is a directory of $mnt: mkdir makes one, its files are the sandbox's /workspace.
		Try next:
		  export PATH=$build:\$PATH
		  cd $mnt/demo
		  pai-exec -c 'date > from-the-sandbox'
		  cat from-the-sandbox
		  pai status
		  pai kill demo     # ends the session and deletes its files
		make down unmounts it and takes the demo away, if you have put nothing into it.
	END
	;;
down)
	left=
	if is_mounted; then
		demo=
		left=$(ls -A "$mnt" 2>/dev/null || true)
		if is_ours; then
			demo=demo
			left=$(find "$mnt" -mindepth 1 -maxdepth 1 ! -name demo -printf '%f\n')
		fi
		fusermount3 -u "$mnt" || {
			echo "up.sh: $mnt is in use: leave it (cd), or see who is there: fuser -m $mnt" >&2
			exit 1
		}
		echo "$mnt is unmounted"
		if [ -n "$demo" ]; then
			"$build/paifs" local --no-mount -n "make-down-$$"
			"$build/pai" -n "make-down-$$" kill demo >/dev/null
			"$build/pai" -n "make-down-$$" umount >/dev/null
		fi
	fi
	if [ -d "$mnt" ]; then
		rmdir --ignore-fail-on-non-empty "$mnt"
	fi
	if [ -n "$left" ]; then
		echo "Sessions stay, with their files: $(echo "$left" | tr '\n' ' ')"
		echo "make up shows them again; pai kill KEY deletes one."
	fi
	;;
*)
	echo "up.sh: expected up or down, not '$action'" >&2
	exit 2
	;;
esac
