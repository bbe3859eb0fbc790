#!/bin/bash
# timeout 60
# timeout-long 1500
# The tester over `memory`: what the portable server promises. Its sandbox is no directory of this
# host, so that all three sides come through the mount, as three processes. Left out is what can't be
# had by the contract's calls alone (providers/workspace/portable.c):
#   open (and all h*)  writing replaces the file, and an open one doesn't outlive its name
#   falloc, setx, rmx  there is no command for them
#   flags              rename can't exchange
. "$(dirname "$0")/lib.sh"
begin tester-memory
[ "$PAI_ON" = paifs ] || { skip tester-memory "it is a provider of ours"; exit 0; }
mount_provider memory symlinks=raw || { not_ok tester-memory "no mount"; exit 1; }
for seed in $(short_or_long "1 2" "1 2 3 4"); do
	tester "tester-memory-seed-$seed" "$seed" "$(short_or_long 2000 25000)" \
		--without open,falloc,setx,rmx,flags --agent "'$PAI_BUILD/tests/tester-agent' '$MNT'"
	[ $? -le 1 ] || break
done
# The tester's own sides saw one kernel's cache: the sandbox has the same.
mkdir dir && printf 'here\n' >dir/file && mv dir/file dir/moved && chmod 751 dir/moved
is memory-command-sees-writes \
	"$(sandbox sh -c 'cat dir/moved; ls dir; stat -c %a dir/moved' | tr '\n' ' ')" "here moved 751 "
sandbox sh -c 'echo there >dir/moved; echo new >dir/new; rm dir/moved' || not_ok memory-command "it failed"
is memory-mount-sees-commands "$(ls dir) $(cat dir/new)" "new new"
# The sandbox goes while files are open and somebody stands in one of its directories.
timeout 60 python3 - "$TOP/work" <<'END' || failed=1
import errno, json, os, subprocess, sys

top, bad = sys.argv[1], []
pai = lambda *words: subprocess.run(["pai", "-n", "default", *words], check=True, capture_output=True).stdout


def run(cwd):
    r, w = os.pipe()
    code = subprocess.run(["pai-exec", "--status-fd", str(w), "true"], cwd=cwd, pass_fds=[w],
                          stderr=subprocess.DEVNULL).returncode
    os.close(w)
    return code, json.load(os.fdopen(r))["environmentReset"]


def stale(what, call):
    try:
        call()
        bad.append(f"{what} succeeded")
    except OSError as e:
        if e.errno != errno.ESTALE:
            bad.append(f"{what}: {e}")


session = lambda: json.loads(pai("status", "work", "--json"))["session"]["sandboxId"]
root, old = os.stat(top).st_ino, session()
os.chdir(top + "/dir")
here = os.open(".", os.O_RDONLY)
reading, writing = os.open("new", os.O_RDONLY), os.open("new", os.O_WRONLY)
pai("kill", "--sandbox", old)
stale("write", lambda: (os.write(writing, b"x"), os.fsync(writing)))
stale("read", lambda: os.pread(reading, 10, 0))
stale("mkdir", lambda: os.mkdir("sub", dir_fd=here))
told = run(None)
os.chdir("/")
again = run(top)
for what, got, want in (("who stands in it is told", told, (125, True)), ("the next one runs", again[0], 0),
                        ("another identity", session() != old, True), ("its files", os.listdir(top), []),
                        ("the same root", os.stat(top).st_ino, root)):
    if got != want:
        bad.append(f"{what}: {got}, expected {want}")
print("not ok memory-reset: " + "; ".join(bad) if bad else "ok memory-reset")
sys.exit(bool(bad))
END
cd /
stop
exit $failed
