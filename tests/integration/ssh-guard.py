#!/usr/bin/env python3
"""What a sandbox over ssh can't do: become another session, come back from a copy unnoticed, or reach
this host, or other users of its own, through its files."""
# timeout 120
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hold_world as w  # noqa: E402
from ssh_world import World  # noqa: E402

OTHER = 23458  # another local user
w.begin("guard")
world = World(os.path.join(w.TMP, "host"), user="tester" if os.geteuid() == 0 else "").start()
OPTIONS = ["host=box", "root=boxes", f"config={world.config}", "line_grace=3"]
BOXES = world.home + "/boxes"


def box_of(key):
    with open(f"{BOXES}/keys/{key}", encoding="utf-8") as f:
        return f"{BOXES}/{f.read().strip()}"


# --- adoption ---

# All that stands beside a sandbox's files on the host, tried from inside by each name it may have.
IMPOSTOR = """
for dir in / .. /workspace/.. "$HOME" "$HOME/.." /tmp /tmp/.. /proc/1/root /proc/1/cwd /proc/1/cwd/.. \
		/proc/self/root {boxes} {box}; do
	for name in meta keys/bravo nonce ../meta ../keys/bravo; do
		cat /workspace/forged 2>/dev/null > "$dir/$name" && echo "wrote $dir/$name"
	done
done
for fd in /proc/[0-9]*/fd/*; do
	[ -d "$fd/" ] && [ -e "$fd/meta" ] && echo "reached $fd"
	case $(readlink "$fd") in */nonce*|*/meta*|*/keys/*) echo "held $fd" ;; esac
done
ls -d {boxes} {box} 2>/dev/null
true
"""


def adoption():
    """alpha has bravo's metadata, byte for byte, and tries to have it believed."""
    for key in ("alpha", "bravo"):
        os.mkdir(f"{d.top}/{key}")
        if d.run("true", key=key)[0]:
            return f"{key} does not start"
    w.put(d.top + "/bravo/secret", b"bravo's")
    alpha, bravo = box_of("alpha"), box_of("bravo")
    shutil.copy(bravo + "/meta", alpha + "/workspace/forged")
    os.chmod(alpha + "/workspace/forged", 0o644)
    code, out, err, _ = d.run("-c", IMPOSTOR.format(boxes=BOXES, box=alpha), key="alpha")
    wrote = [line for line in out.decode().splitlines() if "/workspace/" not in line]
    # What it may write is its own: /tmp, HOME, and what is seen there as the root.
    left = [line for line in wrote if line.startswith(("held", "reached"))]
    if code or left:
        return f"{code} {wrote} {err}"
    for path in (f"{alpha}/meta", f"{BOXES}/keys/bravo"):
        if w.get(path) == w.get(alpha + "/workspace/forged"):
            return f"it has written {path}"
    # A daemon that has never heard of either asks the host alone.
    os.environ["XDG_STATE_HOME"] = w.TMP + "/fresh-state"
    fresh = w.Daemon("ssh", "fresh", *OPTIONS)
    code, out, err, _ = fresh.run("cat", "secret", key="bravo")
    if (code, out) != (0, b"bravo's"):
        return f"bravo is another: {code} {out} {err}"
    w.put(fresh.top + "/bravo/more", b"for bravo alone")
    fresh.stop()
    os.environ["XDG_STATE_HOME"] = w.TMP + "/state"
    if os.path.exists(alpha + "/workspace/more"):
        return "alpha has bravo's file"
    return "" if w.get(bravo + "/workspace/more") == b"for bravo alone" else "nobody has it"


# --- a copy put back ---


def end_supervisor(box):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
            fds = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue
        if b"supervise" in words and any(box in fd for fd in fds):
            os.kill(int(pid), signal.SIGKILL)


def snapshot():
    os.mkdir(d.top + "/snap")
    if d.run("-c", "echo old > f; sync", key="snap")[0]:
        return "it does not start"
    box = box_of("snap")
    subprocess.run(["cp", "-a", box, w.TMP + "/copy"], check=True)
    w.put(d.top + "/snap/f", b"new\n")
    fd = os.open(d.top + "/snap/f", os.O_RDONLY)
    end_supervisor(box)
    shutil.rmtree(box)
    subprocess.run(["cp", "-a", w.TMP + "/copy", box], check=True)
    try:
        code, out, err, told = d.run("cat", "f", key="snap")
        if code or out != b"old\n" or not told["environmentReset"]:
            return f"the command is not told: {code} {out} {err} {told}"
        try:
            os.pread(fd, 10, 0)
            return "a file of before can be read"
        except OSError as e:
            if e.errno != 116:  # ESTALE
                return str(e)
    finally:
        os.close(fd)
    code, _, _, told = d.run("true", key="snap")
    if code or told["environmentReset"]:
        return f"it is told twice: {code} {told}"
    return "" if w.in_child(w.get, d.top + "/snap/f") == b"old\n" else "the mount shows another"


# --- files ---


def escapes():
    os.mkdir(d.top + "/hostile")
    sock = "import socket; socket.socket(socket.AF_UNIX).bind('sock')"
    code, out, err, _ = d.run("-c", f"""
        ln -s /etc/shadow shadow; ln -s {w.TMP} up; ln -s ../../../../etc/passwd rel
        mkfifo fifo; mkdir sub; ln -s / sub/slash; python3 -c "{sock}"
        cp /usr/bin/id suid; chmod 6755 suid; ls -l suid | cut -c1-10
        mknod disk b 8 0 2>/dev/null && echo device
        mknod null c 1 3 2>/dev/null && echo device; true""", key="hostile")
    if code or out != b"-rwsr-sr-x\n":
        return f"set-up: {code} {out} {err}"
    top, box = d.top + "/hostile", box_of("hostile") + "/workspace"
    for name in ("shadow", "up/home", "rel", "sub/slash/etc/passwd"):
        if not w.errno_of(w.get, f"{top}/{name}")[0]:
            return f"'{name}' leads to a file of this host"
    for name, kind in (("fifo", stat.S_ISFIFO), ("sock", stat.S_ISSOCK)):
        mode = os.lstat(f"{top}/{name}").st_mode
        if not kind(mode) or stat.S_IMODE(mode):
            return f"{name}, which was not made here, can be opened: {oct(mode)}"
    flags = os.statvfs(top).f_flag
    if not (flags & os.ST_NOSUID and flags & os.ST_NODEV and flags & os.ST_NOEXEC):
        return "the mount honours set-user-id, devices or programs"
    if os.geteuid() != 0:
        return ""
    # (By a shell: setpriv itself still has root's rights when it looks for its program.)
    # Devices that somebody with the right put there; other users, on the directories behind.
    os.mknod(box + "/zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    if not w.errno_of(w.get, top + "/zero")[0]:
        return "a device can be read through the mount"
    for command in ([box + "/suid"], ["ls", box], ["cat", box_of("hostile") + "/nonce"],
                    [top + "/suid"]):
        r = subprocess.run(["setpriv", "--reuid", str(OTHER), "--regid", str(OTHER),
                            "--clear-groups", "sh", "-c", 'exec "$@"', "sh", *command], capture_output=True, check=False)
        if r.returncode == 0:
            return f"another user: {command}: {r.stdout}"
    return listener(top)


def listener(top):
    """A socket of the sandbox is nobody's to talk to from here."""
    s = socket.socket(socket.AF_UNIX)
    try:
        os.chdir(top)
        s.connect("sock")
        return "a socket of the sandbox answers here"
    except OSError:
        return ""
    finally:
        os.chdir("/")
        s.close()


def main():
    global d
    d = w.Daemon("ssh", "guard", *OPTIONS)
    try:
        w.case("a sandbox can't pass for another", adoption)
        w.case("a copy that is put back is a reset", snapshot)
        w.case("files lead out to nobody", escapes)
        for key in ("alpha", "bravo", "snap", "hostile"):
            d.pai("kill", key)
        left = [name for name in os.listdir(BOXES) if name != "keys" and not name.startswith(".work")]
        w.case("nothing is left", lambda: left)
    except Exception as e:  # whatever it is, the host is put away
        w.not_ok("the script", f"{type(e).__name__}: {e}")
    finally:
        os.chdir("/")
        w.finish()
        world.stop()
    return 1 if w.failed else 0


if __name__ == "__main__":
    sys.exit(main())
