# shellcheck shell=bash
# lib: what the integration scripts share. Source it first, from anywhere.
#
#   begin NAME...      the tests that the script will report; skipped all where nothing can mount
#   start OPTION...    mounts; sets MNT (a session's directory), BOX (the same, as the sandbox has
#                      it) and TOP (the mount point)
#   sandbox CMD...     runs a command in the sandbox, its cwd mapped; "sandbox_words" is its text
#   sync_sides         returns when each side sees what the other has done
#   ok, not_ok, skip, check NAME CMD...    report
#
# PAI_LOCAL_OPTS, options that each mount of `local` gets too: workspace=helper, in line-*.sh.
# PAI_OVER says which way paifs goes to the directory: local (default); ssh, on a host that is this
# machine, as who runs it, in ssh-*.sh (as_user.sh: not as root); docker, in directories of this host,
# and docker-helper, in the containers, both in docker-*.sh, by `docker_world.py run`, as uid
# PAI_DOCKER_UID (default 0).
#
# PAI_ON says what is mounted: paifs (default); plain, the same directory twice, and passthrough,
# libfuse's example without caches, prove the scripts themselves.
set -u
# Run by make, as `make -s check` is: what is built in here is built as a user would.
unset MAKEFLAGS MFLAGS MAKELEVEL

lib_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root_dir=$(cd "$lib_dir/../.." && pwd)
PAI_ON=${PAI_ON:-paifs}
PAI_OVER=${PAI_OVER:-local}
PAI_BUILD=$(cd "$root_dir" && realpath "${PAI_BUILD:-build/debug}")
PAI_LONG=${PAI_LONG:-0}
own_tmp=
if [ -z "${PAI_TMP:-}" ]; then
	own_tmp=$(mktemp -d "${TMPDIR:-/tmp}/pai-XXXX")
	chmod 755 "$own_tmp"
	PAI_TMP=$own_tmp
	# As the runner has it: nothing of the person who runs it.
	mkdir -m 700 "$PAI_TMP/home" "$PAI_TMP/run"
	export CARGO_HOME="${CARGO_HOME:-$HOME/.cargo}" RUSTUP_HOME="${RUSTUP_HOME:-$HOME/.rustup}"
	export HOME=$PAI_TMP/home XDG_RUNTIME_DIR=$PAI_TMP/run XDG_STATE_HOME=$PAI_TMP/state
	export XDG_CONFIG_HOME=$PAI_TMP/config XDG_CACHE_HOME=$PAI_TMP/cache
fi
# What is slow to build is kept, by version, from run to run.
PAI_TEST_CACHE=${PAI_TEST_CACHE:-$(dirname "${CARGO_HOME:-$HOME/.cargo}")/.cache/paifs-tests}
PATH=$PAI_BUILD:$PATH
export PAI_ON PAI_OVER PAI_BUILD PAI_LONG PAI_TMP PATH
export GIT_CONFIG_GLOBAL=$PAI_TMP/gitconfig GIT_CONFIG_NOSYSTEM=1

failed=0
daemon_pid=
mounted=

ok() { printf 'ok %s\n' "$1"; }
# shellcheck disable=SC2034 # for the script that sources this
not_ok() {
	printf 'not ok %s: %s\n' "$1" "$2"
	failed=1
}
skip() { printf 'skip %s: %s\n' "$1" "$2"; }
# Runs a command; its output is shown only when it fails.
check() {
	local name=$1 out status
	shift
	out=$("$@" 2>&1)
	status=$?
	if [ $status = 0 ]; then
		ok "$name"
	else
		printf '%s\n' "$out" | tail -40
		not_ok "$name" "exit $status${out:+: $(printf '%s' "$out" | grep . | tail -1)}"
	fi
	return $status
}
long() { [ "$PAI_LONG" = 1 ]; }
# short_or_long SHORT LONG
short_or_long() { if long; then echo "$2"; else echo "$1"; fi; }

# Waits up to SECONDS for a command to succeed.
wait_for() {
	local deadline=$(($(date +%s%N) + $1 * 1000000000))
	shift
	until "$@"; do
		[ "$(date +%s%N)" -lt "$deadline" ] || return 1
		sleep 0.02
	done
}

# A FUSE mount that doesn't answer is cut off, so that nobody who waits on it waits for ever.
abort_mount() {
	local dev ctl=/sys/fs/fuse/connections
	dev=$(awk -v m="$1" '$5 == m {print $3}' /proc/self/mountinfo | tail -1)
	[ -n "$dev" ] || return 0
	mountpoint -q $ctl || mount -t fusectl none $ctl 2>/dev/null
	if [ -w "$ctl/${dev#*:}/abort" ]; then
		echo 1 >"$ctl/${dev#*:}/abort"
	fi
}
is_down() { ! kill -0 "$1" 2>/dev/null; }
unmount() {
	mountpoint -q "$1" || return 0
	timeout 10 fusermount3 -u "$1" 2>/dev/null || timeout 10 umount "$1" 2>/dev/null || {
		abort_mount "$1"
		timeout 10 umount -l "$1"
	}
}
stop() {
	cd / || return
	# The containers of one engine are everybody's who uses it.
	if [ -n "$mounted" ] && [ "${over_provider:-}" = docker ]; then
		for key in "$TOP"/*; do
			timeout 20 "$PAI_BUILD/pai" -n default kill "${key##*/}" >/dev/null 2>&1
		done
	fi
	[ -z "$mounted" ] || unmount "$mounted"
	mounted=
	if [ -n "$daemon_pid" ]; then
		wait_for 5 is_down "$daemon_pid" || kill -9 "$daemon_pid" 2>/dev/null
		wait "$daemon_pid" 2>/dev/null
	fi
	daemon_pid=
}
# The host's worker leaves when its daemon has.
no_worker() { ! pgrep -f "^$PAI_TMP/sshd/home/.*pai-helper.* serve" >/dev/null; }
clean_up() {
	stop
	if [ -e "$PAI_TMP/sshd/state" ]; then
		wait_for 10 no_worker
		python3 -B "$lib_dir/ssh_world.py" stop "$PAI_TMP/sshd"
	fi
	[ -z "$own_tmp" ] || rm -rf "$own_tmp"
}
trap clean_up EXIT
trap 'exit 143' TERM INT HUP

begin() {
	if [ "$PAI_ON" = paifs ] && [ ! -x "$PAI_BUILD/paifs" ]; then
		not_ok "$1" "no paifs in $PAI_BUILD"
		exit 1
	fi
	if [ "$PAI_ON" != plain ] && [ ! -e /dev/fuse ]; then
		for name in "$@"; do skip "$name" "no /dev/fuse here"; done
		exit 0
	fi
}

passthrough_build() {
	local src=/usr/share/doc/libfuse3-dev/examples/passthrough_ll.c out=$PAI_TEST_CACHE/passthrough_ll
	[ -x "$out" ] && return
	mkdir -p "$PAI_TEST_CACHE"
	# shellcheck disable=SC2046
	if [ -e "$src.gz" ]; then gzip -dc "$src.gz"; else cat "$src"; fi |
		gcc -O2 -D_FILE_OFFSET_BITS=64 -x c - -o "$out.$$" -I"$(dirname "$src")" \
			$(pkg-config --cflags --libs fuse3) && mv "$out.$$" "$out"
}
# passthrough SOURCE MNT OPTIONS: in the foreground of a background job.
passthrough() {
	passthrough_build || return 1
	"$PAI_TEST_CACHE/passthrough_ll" -f -o "source=$1,$3" "$2" &
	daemon_pid=$!
	mounted=$2
	wait_for 10 mountpoint -q "$2"
}

# session KEY DIR: a session whose workspace is DIR itself; a template that is a directory is that.
session() {
	timeout 20 "$PAI_BUILD/pai" -n default create "$1" -o "template=$2" >"$PAI_TMP/create.log" 2>&1 || {
		cat "$PAI_TMP/create.log" "$PAI_TMP/daemon.log"
		return 1
	}
}
# Resident memory of the daemon, KiB: `rss` now, which also begins a new peak, and the peak since.
rss() {
	echo 5 >"/proc/$daemon_pid/clear_refs"
	awk '/^VmRSS/ {print $2}' "/proc/$daemon_pid/status"
}
peak_rss() { awk '/^VmHWM/ {print $2}' "/proc/$daemon_pid/status"; }

# The session that `start` makes.
KEY=work
# daemon PROVIDER OPTION...: mounts it at TOP; at least one option.
daemon() {
	local IFS=, provider=$1 more=
	shift
	MNT=$TOP/$KEY
	[ "$provider" != local ] || more=${PAI_LOCAL_OPTS:+,$PAI_LOCAL_OPTS}
	"$PAI_BUILD/paifs" "$provider" "$TOP" -f -n default -o "$*$more" >"$PAI_TMP/daemon.log" 2>&1 &
	daemon_pid=$!
	mounted=$TOP
	if ! wait_for 10 mountpoint -q "$TOP"; then
		cat "$PAI_TMP/daemon.log"
		return 1
	fi
}
# mount_provider PROVIDER OPTION...: as `start`, where the sandbox is no directory of this host.
mount_provider() {
	TOP=$PAI_TMP/top
	mkdir -p "$TOP"
	daemon "$@" && mkdir "$MNT" && cd "$MNT" || return 1
	BOX=$MNT
}
# Sets over_provider, over_options and over_root (where the sandboxes lie), by the way that PAI_OVER
# names; makes the host that it leads to.
# shellcheck disable=SC2034 # over_root is for the script that sources this
over() {
	local SSH_CONFIG="" SSH_HOME=""
	over_root=${XDG_STATE_HOME:-}/paifs/local
	case $PAI_OVER in
	local) over_provider=local over_options=host_commands ;;
	ssh)
		if [ ! -e "$PAI_TMP/sshd/state" ]; then
			python3 -B "$lib_dir/ssh_world.py" start "$PAI_TMP/sshd" >"$PAI_TMP/sshd.env" || return 1
		fi
		# shellcheck disable=SC1091 # made above
		. "$PAI_TMP/sshd.env"
		# Links as local shows them: the suites were written for that.
		over_root=$SSH_HOME/boxes
		over_provider=ssh
		over_options=host=box,root=boxes,line_grace=5,symlinks=raw,config=$SSH_CONFIG
		;;
	docker | docker-helper)
		: "${PAI_DOCKER_SOCKET:?run it by docker_world.py run}"
		over_provider=docker
		over_options=socket=$PAI_DOCKER_SOCKET,image=$PAI_DOCKER_HOST_IMAGE,runtime=$PAI_DOCKER_HOST_RUNTIME
		over_options+=,uid=${PAI_DOCKER_UID:-0},symlinks=raw,git=trust
		over_root=$BOX/boxes
		if [ "$PAI_OVER" = docker ]; then
			[ -d "$over_root" ] || mkdir -m 700 "$over_root"
			over_options+=,root=$over_root,reserve=0
		else
			over_options+=,workspace=helper
		fi
		;;
	*)
		echo "lib: PAI_OVER=$PAI_OVER: expected local, ssh, docker or docker-helper" >&2
		return 1
		;;
	esac
}
# The session's container, and as BOX its workspace, as root sees it from this host.
docker_box() {
	mkdir "$MNT" && "$PAI_BUILD/pai-exec" -n default -s "$KEY" -- true || {
		cat "$PAI_TMP/daemon.log"
		return 1
	}
	BOX=$(python3 -B "$lib_dir/docker_world.py" workspace "$TOP" "$KEY")
}
start() {
	local IFS=,
	TOP=$PAI_TMP/top BOX=${BOX:-$PAI_TMP/box}
	mkdir -p "$TOP" "$BOX"
	case $PAI_ON in
	plain) MNT=$BOX ;;
	passthrough)
		MNT=$TOP
		passthrough "$BOX" "$TOP" cache=never,timeout=0,xattr,allow_other || return 1
		;;
	paifs)
		over && daemon "$over_provider" "$over_options" "$@" || return 1
		case $over_provider in
		docker) docker_box || return 1 ;;
		*) session "$KEY" "$BOX" || return 1 ;;
		esac
		;;
	*)
		echo "lib: PAI_ON=$PAI_ON: expected paifs, plain or passthrough" >&2
		return 1
		;;
	esac
	cd "$MNT" || return 1
}
sandbox() {
	case $PAI_ON in
	plain) "$@" ;;
	passthrough) (cd "$BOX/${PWD#"$MNT"}" && "$@") ;;
	paifs) "$PAI_BUILD/pai-exec" -- "$@" ;;
	esac
}
sync_sides() { sandbox true; }
# The same for a program that starts commands itself, from the session's top directory.
sandbox_words() {
	case $PAI_ON in
	paifs) echo "$PAI_BUILD/pai-exec -n default -s $KEY --" ;;
	*) echo "env -C $BOX" ;;
	esac
}

# tester NAME SEED OPS [OPTION...]: one run of the two-sided tester as a test; a failing list outlives
# the scratch directory. 2 and above: there is no point in going on.
tester() {
	local name=$1 seed=$2 ops=$3 agent out status
	shift 3
	agent=$(sandbox_words)
	# The sandbox sees its workspace and the system, not the build.
	mkdir -p "$MNT/.tester" &&
		cp "$PAI_BUILD/tests/tester-agent" "$MNT/.tester/tester-agent"
	out=$(timeout "$(short_or_long 100 1200)" "$PAI_BUILD/tests/tester-main" --mount "$MNT" \
		--sandbox "$BOX" --agent "$agent ./.tester/tester-agent ." --barrier "$agent true" \
		--seed "$seed" --ops "$ops" --save "$PAI_TMP/failed.ops" "$@" 2>&1)
	status=$?
	if [ $status = 0 ]; then
		ok "$name ($(echo "$out" | grep -o '[0-9]* barriers'), $ops operations)"
		return 0
	fi
	echo "$out" | cut -c1-500
	not_ok "$name" "exit $status; replay: tester-main --replay $seed --ops $ops $*"
	! [ -e "$PAI_TMP/failed.ops" ] || mv "$PAI_TMP/failed.ops" "$PAI_BUILD/$name.ops"
	return $status
}

# What a tree is, for comparing two of them: kinds, modes, link counts, sizes, link texts, bytes.
fingerprint() {
	(
		cd "$1" || exit 1
		find . -type d -printf '%y %m %p\n' -o -printf '%y %m %n %s %l %p\n' | LC_ALL=C sort
		find . -type f -print0 | LC_ALL=C sort -z | xargs -0r sha256sum
	)
}
# same NAME DIR DIR [EXPRESSION]: lines that match are left out.
same() {
	if diff <(fingerprint "$2" | grep -av "${4:-^$}") <(fingerprint "$3" | grep -av "${4:-^$}") \
		>"$PAI_TMP/diff"; then
		ok "$1"
	else
		head -20 "$PAI_TMP/diff"
		not_ok "$1" "$(wc -l <"$PAI_TMP/diff") lines differ"
	fi
}
# is NAME GOT WANT
is() {
	if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1" "got '$2', expected '$3'"; fi
}

# crate NAME VERSION: path of its program, built when missing.
crate() {
	local at=$PAI_TEST_CACHE/$1-$2
	if [ ! -x "$at/bin/$1" ]; then
		command -v cargo >/dev/null || PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
		mkdir -p "$PAI_TEST_CACHE"
		(cd "$PAI_TEST_CACHE" && cargo install --quiet --root "$at" "$1" --version "$2") >&2 || return 1
	fi
	echo "$at/bin/$1"
}
# mended_fsx: path of fsx, built when missing. Two faults of the crate end a long run on any file
# system. It never unmaps what it reads through a mapping: it grows slower with every operation, and
# after some 300,000 no process may map more. And it asks for a fallocate of no bytes, which is
# EINVAL. A line for each puts that right.
mended_fsx() {
	local at=$PAI_TEST_CACHE/fsx-0.3.2-mended src=$PAI_TMP/fsx main=$PAI_TMP/fsx/crates/fsx/src/main.rs
	echo "$at/bin/fsx"
	[ ! -x "$at/bin/fsx" ] || return 0
	command -v cargo >/dev/null || PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
	mkdir -p "$PAI_TEST_CACHE" "$src/src" && echo 'fn main() {}' >"$src/src/main.rs" &&
		printf '[package]\nname = "fetch"\n[dependencies]\nfsx = "=0.3.2"\n' >"$src/Cargo.toml" &&
		(cd "$src" && cargo --quiet vendor crates >/dev/null) &&
		sed -i -e '/fn domapread/,/fn domapwrite/s/self.check_eofpage(.*/&\nmunmap(p, map_size).unwrap();/' \
			-e '/fn posix_fallocate(&mut self,/a if len == 0 { return; }' "$main" &&
		[ "$(grep -cE '^ *munmap\(p, |^if len == 0 ' "$main")" = 4 ] &&
		cargo install --quiet --locked --root "$at" --path "$src/crates/fsx" >&2
}
