# shellcheck shell=bash
# as_user.sh COMMAND...: under root, runs it as a user whom no password file but its own knows, in a
# mount namespace of its own, with the scratch directory's `user` for PAI_TMP; as anybody else, as
# it is. An sshd that the command starts (ssh_world.py) is that user's too, and so is the login.
set -eu
[ "$(id -u)" = 0 ] || exec "$@"
uid=23457
PAI_BUILD=$(realpath "${PAI_BUILD:-build/debug}")
PAI_TMP=${PAI_TMP:-$(mktemp -d "${TMPDIR:-/tmp}/pai-test-XXXXXX")}
# Downloads of tests that build what they run.
cargo=${CARGO_HOME:-$HOME/.cargo}
export PAI_TEST_CACHE="${PAI_TEST_CACHE:-$(dirname "$cargo")/.cache/paifs-tests}"
mkdir -p "$PAI_TEST_CACHE"
unset TMPDIR # it may be closed to users
own=$PAI_TMP/user
chmod 755 "$PAI_TMP"
mkdir -p "$own/home" "$own/run" "$own/sshd/home" "$own/cache"
chmod 700 "$own/home" "$own/run" "$own/sshd/home"
chown -R $uid:$uid "$own"
# The login's home is the server's (ssh_world.py).
{ echo "someone:x:$uid:$uid::$own/sshd/home:/bin/sh"; cat /etc/passwd; } >"$own/passwd"
{ echo "someone:x:$uid:"; cat /etc/group; } >"$own/group"
mknod "$own/fuse" c 10 229 2>/dev/null && chmod 666 "$own/fuse" # as on any system with users
export PAI_BUILD PAI_TMP="$own" HOME="$own/home" XDG_RUNTIME_DIR="$own/run"
export XDG_STATE_HOME="$own/state" XDG_CONFIG_HOME="$own/config" XDG_CACHE_HOME="$own/cache"
kept=$PAI_TEST_CACHE
export PAI_TEST_CACHE="$own/cache"
exec unshare -m --propagation private sh -c '
	mount --bind "$PAI_TMP/passwd" /etc/passwd && mount --bind "$PAI_TMP/group" /etc/group || exit 1
	! [ -e "$PAI_TMP/fuse" ] || mount --bind "$PAI_TMP/fuse" /dev/fuse || exit 1
	uid=$1
	mount --bind "$2" "$PAI_TEST_CACHE" || exit 1 # its own path may be closed to users
	shift 2
	exec setpriv --reuid "$uid" --regid "$uid" --clear-groups "$@"' sh $uid "$kept" "$@"
