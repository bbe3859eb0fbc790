#!/bin/sh
# up.sh up|down BUILD MNT: mounts provider `local` and shows one file and one command; undoes it.
set -eu

action=$1
build=$(cd "$2" && pwd)
mnt=$3

case $action in
up)
	mkdir -p "$mnt"
	if ! mountpoint -q "$mnt"; then
		"$build/paifs" local "$mnt" -o host_commands
		mountpoint -q "$mnt" || {
			echo "up.sh: paifs ended without an error, but $mnt is not mounted" >&2
			exit 1
		}
	fi
	mkdir -p "$mnt/demo"
	echo "written through the mount" >"$mnt/demo/hello.txt"
	echo "\$ cd $mnt/demo && pai-exec -- sh -c 'pwd; cat hello.txt'"
	(cd "$mnt/demo" && "$build/pai-exec" -- sh -c 'pwd; cat hello.txt')
	cat <<-END

		A session is a directory of $mnt: mkdir makes one, its files are the sandbox's /workspace.
		Try next:
		  export PATH=$build:\$PATH
		  cd $mnt/demo
		  pai-exec -- sh -c 'date > from-the-sandbox'
		  cat from-the-sandbox
		  pai status
		  pai kill demo     # ends the session and deletes its files
		make down unmounts it.
	END
	;;
down)
	if mountpoint -q "$mnt"; then
		fusermount3 -u "$mnt"
	fi
	if [ -d "$mnt" ]; then
		rmdir --ignore-fail-on-non-empty "$mnt"
	fi
	;;
*)
	echo "up.sh: expected up or down, not '$action'" >&2
	exit 2
	;;
esac
