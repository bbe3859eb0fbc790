#!/bin/bash
# The daemon's life: start, stop, kill -9, restart, two of one name, and what can be in its way.
# timeout 180
# shellcheck source=tests/integration/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

tests=(
	"paifs returns when the mount answers and the socket listens"
	"umount ends the daemon and removes its socket"
	"SIGTERM unmounts, removes the socket and exits 0"
	"the shutdown request does the same"
	"a second daemon of one name is refused and harms nothing"
	"kill -9: the next daemon repairs the mount and replaces the socket"
	"a daemon that can't start says so and exits 1"
	"a mount point that is missing"
	"a mount point that is not empty"
	"a mount point that is a file"
	"a mount point that is mounted already"
	"no /dev/fuse: the error names --no-mount"
	"no /dev/fuse: --no-mount serves"
	"no fusermount3: a clear error"
	"no XDG_RUNTIME_DIR: client and daemon meet all the same"
	"a damaged ledger is set aside and said once"
	"options from the file, the command line wins"
	"wrong options: one line, exit 2"
	"mount(8) starts it"
	"nothing is left behind"
	"no right to open /dev/fuse: one line, with both ways out"
	"of several of one name that start at once one serves, the others say so"
	"a socket that is found is listened to, also while a daemon starts"
	"clients that come at once start one daemon, and all are served"
)
begin "${tests[@]}"

M=$PAI_TMP/life
RUN=$XDG_RUNTIME_DIR/paifs
mkdir -p "$M"
pai_() { timeout 10 "$PAI_BUILD/pai" "$@"; }
paifs_() { timeout 20 "$PAI_BUILD/paifs" "$@"; }
pid_of() { pai_ status -n "$1" --json | sed -n 's/.*"pid":\([0-9]*\).*/\1/p'; }
# Ended with its last thread, though perhaps not yet waited for by its parent.
is_over() {
	[ ! -e "/proc/$1/stat" ] || { grep -q ') Z ' "/proc/$1/stat" &&
		[ "$(find "/proc/$1/task" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)" -le 1 ]; }
}
is_over_soon() { wait_for 10 is_over "$1"; }
# says TEXT STATUS CMD...: fails with that status, and one line that has TEXT.
says() {
	local text=$1 status=$2 out got
	shift 2
	out=$("$@" 2>&1 >/dev/null)
	got=$?
	[ $got = "$status" ] || { echo "exit $got, expected $status: $out"; return 1; }
	[ "$(printf '%s\n' "$out" | wc -l)" = 1 ] || { echo "more than one line: $out"; return 1; }
	case $out in
	*"$text"*) ;;
	*) echo "'$out' does not say '$text'"; return 1 ;;
	esac
}

starts() {
	paifs_ memory "$M" -n life && mountpoint -q "$M" && [ -S "$RUN/life.sock" ] &&
		pai_ status -n life >/dev/null && mkdir "$M/one" && [ -d "$M/one" ]
}
check "${tests[0]}" starts

umount_ends() {
	local pid
	pid=$(pid_of life)
	unmount "$M" && is_over_soon "$pid" && [ ! -e "$RUN/life.sock" ]
}
check "${tests[1]}" umount_ends

sigterm() {
	local pid
	"$PAI_BUILD/paifs" memory "$M" -n life -f &
	pid=$!
	wait_for 10 mountpoint -q "$M" && kill -TERM $pid && wait $pid && ! mountpoint -q "$M" &&
		[ ! -e "$RUN/life.sock" ]
}
check "${tests[2]}" sigterm

request() {
	local pid
	paifs_ memory "$M" -n life || return 1
	pid=$(pid_of life)
	timeout 10 python3 "$root_dir/tests/integration/pai_ask.py" "$RUN/life.sock" '{"op":"shutdown"}' &&
		is_over_soon "$pid" && ! mountpoint -q "$M"
}
check "${tests[3]}" request

second() {
	local pid
	paifs_ memory "$M" -n life || return 1
	pid=$(pid_of life)
	mkdir -p "$PAI_TMP/other"
	says "a daemon named 'life' is running already (pid $pid)" 1 paifs_ memory "$PAI_TMP/other" -n life &&
		[ "$(pid_of life)" = "$pid" ] && ls "$M" >/dev/null && ! mountpoint -q "$PAI_TMP/other"
}
check "${tests[4]}" second

killed() {
	local pid
	pid=$(pid_of life)
	# Known to the kernel, so that stat() goes on answering.
	mkdir -p "$M/kept" && stat "$M" >/dev/null && kill -9 "$pid" && is_over_soon "$pid" && [ -S "$RUN/life.sock" ] || return 1
	! ls "$M" 2>/dev/null || { echo "the mount still answers"; return 1; }
	paifs_ memory "$M" -n life && [ "$(pid_of life)" != "$pid" ] && [ -d "$M/kept" ] &&
		[ "$(grep -c " $M " /proc/self/mountinfo)" = 1 ]
}
check "${tests[5]}" killed
pid=$(pid_of life)
unmount "$M"
is_over_soon "$pid"

cannot() {
	says "expected" 1 env XDG_STATE_HOME=/dev/null/x "$PAI_BUILD/paifs" memory "$M" -n life ||
		says "state directory" 1 env XDG_STATE_HOME=/dev/null/x "$PAI_BUILD/paifs" memory "$M" -n life
}
check "${tests[6]}" cannot

check "${tests[7]}" says "make it first (mkdir -p): No such file or directory" 1 paifs_ memory "$PAI_TMP/nowhere"
mkdir -p "$PAI_TMP/full" && : >"$PAI_TMP/full/file"
check "${tests[8]}" says "not empty" 1 paifs_ memory "$PAI_TMP/full"
check "${tests[9]}" says "Not a directory" 1 paifs_ memory "$PAI_TMP/full/file"
already() {
	paifs_ memory "$M" -n first || return 1
	says "mounted" 1 paifs_ memory "$M" -n again && mountpoint -q "$M"
	local status=$? pid
	pid=$(pid_of first)
	unmount "$M"
	is_over_soon "$pid" && return $status
}
check "${tests[10]}" already

if command -v bwrap >/dev/null && bwrap --dev-bind / / --dev /dev true 2>/dev/null; then
	check "${tests[11]}" says "--no-mount" 1 \
		bwrap --dev-bind / / --dev /dev timeout 20 "$PAI_BUILD/paifs" memory "$M"
	no_fuse() {
		bwrap --dev-bind / / --dev /dev sh -c '
			[ ! -e /dev/fuse ] && "$0/paifs" memory --no-mount -n nofuse && "$0/pai" status -n nofuse' "$PAI_BUILD" &&
			kill -TERM "$(pid_of nofuse)"
	}
	check "${tests[12]}" no_fuse
	no_fusermount() {
		local user=() hide=$PAI_TMP/not-there
		printf '' >"$hide"
		[ "$(id -u)" != 0 ] || user=(setpriv --reuid=54321 --regid=54321 --clear-groups)
		mkdir -p "$PAI_TMP/plain"
		chmod 777 "$PAI_TMP/plain"
		mkdir -p "$PAI_TMP/plain/mnt" && chmod 777 "$PAI_TMP/plain/mnt"
		says "fusermount3" 1 bwrap --dev-bind / / --bind "$hide" "$(command -v fusermount3)" \
			"${user[@]}" env HOME="$PAI_TMP/plain" XDG_RUNTIME_DIR= XDG_STATE_HOME= \
			timeout 20 "$PAI_BUILD/paifs" memory "$PAI_TMP/plain/mnt"
	}
	closed_fuse() {
		local user=() closed=$PAI_TMP/closed
		install -m 000 /dev/null "$closed"
		[ "$(id -u)" != 0 ] || user=(setpriv --reuid=54321 --regid=54321 --clear-groups)
		says "(chmod 666 /dev/fuse), and \`paifs --no-mount\`" 1 \
			bwrap --dev-bind / / --bind "$closed" /dev/fuse \
			"${user[@]}" env HOME="$PAI_TMP/plain" XDG_RUNTIME_DIR= XDG_STATE_HOME= \
			timeout 20 "$PAI_BUILD/paifs" memory "$PAI_TMP/plain/mnt"
	}
	if [ -x "$PAI_BUILD/paifs" ] && { [ "$(id -u)" != 0 ] ||
		setpriv --reuid=54321 --regid=54321 --clear-groups test -x "$PAI_BUILD/paifs"; }; then
		check "${tests[13]}" no_fusermount
		check "${tests[20]}" closed_fuse
	else
		for i in 13 20; do skip "${tests[i]}" "another user can't reach the build directory"; done
	fi
else
	for i in 11 12 13 20; do skip "${tests[i]}" "no bwrap here"; done
fi

no_runtime() {
	(
		unset XDG_RUNTIME_DIR
		paifs_ memory --no-mount -n "noxdg-$$" && pid=$(pid_of "noxdg-$$") && [ -n "$pid" ] &&
			kill -TERM "$pid" && is_over_soon "$pid"
	)
}
check "${tests[14]}" no_runtime

damaged() {
	local out
	rm -f "$XDG_STATE_HOME"/paifs/ledger.db*
	head -c 20000 /dev/urandom >"$XDG_STATE_HOME/paifs/ledger.db"
	out=$(paifs_ memory --no-mount -n hurt 2>&1) || { echo "$out"; return 1; }
	kill -TERM "$(pid_of hurt)"
	[ "$(printf '%s\n' "$out" | grep -c 'set aside')" = 1 ] || { echo "said: $out"; return 1; }
	ls "$XDG_STATE_HOME"/paifs/ledger.db.damaged-* || return 1
	wait_for 10 test ! -e "$RUN/hurt.sock"
	out=$(paifs_ memory --no-mount -n hurt 2>&1)
	kill -TERM "$(pid_of hurt)"
	[ -z "$out" ] || { echo "said again: $out"; return 1; }
}
check "${tests[15]}" damaged

config() {
	local status
	mkdir -p "$XDG_CONFIG_HOME/paifs"
	printf '# ours\nprovider = memory\ncoherence=strict\nnetwork=none\n' >"$XDG_CONFIG_HOME/paifs/conf.conf"
	paifs_ --no-mount -n conf || return 1
	status=$(pai_ status -n conf --json)
	kill -TERM "$(pid_of conf)"
	wait_for 10 test ! -e "$RUN/conf.sock"
	case $status in *'"coherence":"strict"'*) ;; *) echo "$status"; return 1 ;; esac
	paifs_ --no-mount -n conf -o coherence=push || return 1
	status=$(pai_ status -n conf --json)
	kill -TERM "$(pid_of conf)"
	case $status in *'"coherence":"push"'*) ;; *) echo "$status"; return 1 ;; esac
	printf 'provider=memory\ncoherenc=push\n' >"$XDG_CONFIG_HOME/paifs/bad.conf"
	says "bad.conf:2: unknown option 'coherenc': did you mean 'coherence'?" 2 paifs_ --no-mount -n bad
}
check "${tests[16]}" config

wrong() {
	says "did you mean 'symlinks'?" 2 paifs_ memory "$M" -o symlink=raw &&
		says "expected guarded, raw or nofollow" 2 paifs_ memory "$M" -o symlinks=all &&
		says "expected a duration" 2 paifs_ memory "$M" -o timeout=10 &&
		says "unknown provider 'memroy'" 2 paifs_ memroy "$M" &&
		says "expected PROVIDER MOUNTPOINT" 2 paifs_ memory &&
		says "'--frob'" 2 paifs_ --frob memory "$M" &&
		says "host_commands" 2 paifs_ local "$M" -o host_commands=maybe && ! mountpoint -q "$M"
}
check "${tests[17]}" wrong

by_mount() {
	local options pid
	mount -t fuse "$PAI_BUILD/paifs#memory" "$M" -o "rw,_netdev,x-test=1,name=fstab,timeout=5s" || return 1
	options=$(awk -v m="$M" '$5 == m {print $6}' /proc/self/mountinfo)
	pid=$(pid_of fstab)
	unmount "$M"
	is_over_soon "$pid" || return 1
	case $options in
	*nosuid*nodev*noexec*) ;;
	*) echo "options: $options"; return 1 ;;
	esac
}
if [ "$(id -u)" = 0 ] && [ -x /sbin/mount.fuse3 ]; then
	check "${tests[18]}" by_mount
else
	skip "${tests[18]}" "needs root and mount.fuse3"
fi

race() {
	local i pid started status=0
	for _ in 1 2 3 4 5; do
		local pids=()
		started=0
		for i in 1 2 3 4; do
			paifs_ memory --no-mount -n race >/dev/null 2>"$PAI_TMP/race.$i" &
			pids+=($!)
		done
		for i in 1 2 3 4; do
			if wait "${pids[i - 1]}"; then
				started=$((started + 1))
			else
				grep -q "a daemon named 'race' is running already" "$PAI_TMP/race.$i" || status=1
			fi
		done
		pid=$(pid_of race)
		kill -TERM "$pid" && is_over_soon "$pid" || status=1
		[ $started = 1 ] && [ $status = 0 ] || { echo "$started started"; cat "$PAI_TMP"/race.*; return 1; }
	done
}
check "${tests[21]}" race

found() {
	local watcher pid status
	python3 - "$RUN/gap.sock" <<-'END' &
		import socket, sys, time
		seen = absent = 0
		until = time.monotonic() + 10
		while seen < 5 and time.monotonic() < until:
		    s = socket.socket(socket.AF_UNIX)
		    try:
		        s.connect(sys.argv[1])
		        seen += absent
		        absent = 0
		    except FileNotFoundError:
		        absent = 1
		    except ConnectionRefusedError:
		        # Only while the one before is going.
		        if absent:
		            sys.exit("refused by a socket that has just appeared")
		    s.close()
		sys.exit(0 if seen >= 5 else "it was not restarted")
	END
	watcher=$!
	while kill -0 $watcher 2>/dev/null; do
		paifs_ memory --no-mount -n gap || return 1
		pid=$(pid_of gap)
		kill -TERM "$pid" && is_over_soon "$pid" || return 1
	done
	wait $watcher
}
check "${tests[22]}" found

together() {
	local pids=() pid status=0
	mkdir -p "$XDG_CONFIG_HOME/paifs"
	printf 'provider = memory\n' >"$XDG_CONFIG_HOME/paifs/cold.conf"
	for _ in $(seq 12); do
		timeout 20 "$PAI_BUILD/pai-exec" -n cold -s k true &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do wait "$pid" || status=1; done
	kill -TERM "$(pid_of cold)"
	return $status
}
check "${tests[23]}" together

left() {
	wait_for 10 sh -c "! ls '$RUN'/*.sock 2>/dev/null" && ! grep " $PAI_TMP" /proc/self/mountinfo
}
check "${tests[19]}" left
exit $failed
