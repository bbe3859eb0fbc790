#!/usr/bin/env python3
"""kill -9 of the helper's worker, its supervisor, sshd's processes and the daemon, under a mount that
is in use: nobody hangs, what was written is there, no reset is told, and what remains is what should."""
# timeout 150
# timeout-long 600
import errno
import os
import random
import signal
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hold_world as w  # noqa: E402
from ssh_world import World  # noqa: E402

GRACE_S = 3
w.begin("kill9")
world = World(os.path.join(w.TMP, "host"), user="tester" if os.geteuid() == 0 else "").start()
BOXES = world.home + "/boxes"
rng = random.Random(int(os.environ.get("PAI_SEED", "1")))


def processes():
    """{pid: (kind, words)} of ours on the host: worker, supervisor, command; and here: daemon."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
            with open(f"/proc/{pid}/comm", encoding="utf-8") as f:
                name = f.read().strip()
            fds = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue
        if name == "pai-worker" and world.dir.encode() in b" ".join(words):
            found[int(pid)] = ("worker", words)
        elif b"supervise" in words and any(world.dir in fd for fd in fds):
            found[int(pid)] = ("supervisor", words)
        elif b"1000.875" in words and b"pai-exec" not in words[0]:
            found[int(pid)] = ("command", words)
        elif words[0].endswith(b"/paifs") and w.TMP.encode() in b" ".join(words):
            found[int(pid)] = ("daemon", words)
    return found


def of_kind(kind):
    return [pid for pid, (what, _) in processes().items() if what == kind]


def kinds():
    return sorted({what for what, _ in processes().values()})


def work(i):
    """Until the mount dies, or time is over: what it was told is written, by number."""
    written = 0
    until = time.monotonic() + 60
    while time.monotonic() < until and not os.path.exists(f"{w.TMP}/enough"):
        name = f"w{i}-{written}"
        try:
            w.put(f"{K}/{name}.new", b"%d\n" % written)
            os.rename(f"{K}/{name}.new", f"{K}/{name}")
            written += 1
        except OSError as e:
            if e.errno in (errno.ENOTCONN, errno.ECONNABORTED):
                break
            if e.errno not in (errno.EIO, errno.ENOENT, errno.ETIMEDOUT, errno.EHOSTUNREACH):
                raise
    return written


def under_load(strike):
    """Strikes at random moments while four callers write; none is stuck, and all of it is there."""
    if os.path.exists(w.TMP + "/enough"):
        os.unlink(w.TMP + "/enough")
    kids = [w.Child(work, i) for i in range(4)]
    for _ in range(w.short_or_long(2, 10)):
        time.sleep(rng.uniform(0.2, 0.8))
        strike()
    w.put(w.TMP + "/enough")
    counts = []
    for kid in kids:
        answer = kid.wait(30)
        if not answer or not answer[0]:
            return f"a caller: {answer}"
        counts.append(answer[1])
    code, out, err, told = d.run("-c", "ls | wc -l", timeout=60)
    if code or told["environmentReset"]:
        return f"{code} {err} {told}"
    for i, count in enumerate(counts):
        for n in range(count):
            if w.get(f"{box}/w{i}-{n}") != b"%d\n" % n:
                return f"w{i}-{n} of {count} is not as it was written"
    for name in os.listdir(box):
        os.unlink(f"{box}/{name}") if name.startswith("w") else None
    return "" if sum(counts) else "nobody wrote anything"


def kill_all(kind):
    for pid in of_kind(kind):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def supervisor_and_files():
    """Commands run by another from then on; files do not know of it."""
    fd = os.open(K + "/kept", os.O_RDWR)
    try:
        kill_all("supervisor")
        if os.pread(fd, 10, 0) != b"kept":
            return "an open file is lost"
        os.pwrite(fd, b"KEPT", 0)
    finally:
        os.close(fd)
    code, out, err, told = d.run("cat", "kept", timeout=60)
    return "" if (code, out) == (0, b"KEPT") and not told["environmentReset"] else f"{code} {err}"


def daemon_killed():
    """Its callers end, what it ran too; another one has the mount and the same sandbox."""
    detached = d.run("--detach", "sleep", "1000.875")
    kids = [w.Child(work, i) for i in range(4)]
    time.sleep(0.3)
    d.proc.kill()
    d.proc.wait()
    for kid in kids:
        answer = kid.wait(20)
        if not answer or not answer[0]:
            return f"a caller: {answer}"
    d.start()
    code, out, err, told = d.run("cat", "kept", timeout=60)
    if (code, out) != (0, b"KEPT") or told["environmentReset"] or detached[0]:
        return f"{code} {out} {err} {told} {detached}"
    return "" if of_kind("command") else "what was detached is dead"


def after_umount():
    if d.stop() != 0:
        return "the daemon failed"
    w.wait_for(lambda: kinds() == ["command", "supervisor"], GRACE_S + 15,
               f"command and supervisor alone, not {kinds()}")
    left = [name for name in os.listdir(BOXES) if name[0] == "."]
    return left if w.is_mounted(d.top) or left else ""


def after_kill():
    d.start()
    if d.pai("kill", "k").returncode:
        return "pai kill failed"
    d.stop()
    w.wait_for(lambda: not kinds(), GRACE_S + 15, f"nothing, not {kinds()}")
    return [name for name in os.listdir(BOXES) if name != "keys"] + os.listdir(BOXES + "/keys")


def main():
    global d, K, box
    d = w.Daemon("ssh", "nine", "host=box", "root=boxes", f"config={world.config}",
                 f"line_grace={GRACE_S}", "timeout=4s")
    K = d.top + "/k"
    try:
        os.mkdir(K)
        assert d.run("-c", "printf kept > kept")[0] == 0
        box = [f"{BOXES}/{name}/workspace" for name in os.listdir(BOXES)
               if os.path.isdir(f"{BOXES}/{name}/workspace")][0]
        w.case("kill -9 of the worker", under_load, lambda: kill_all("worker"))
        w.case("kill -9 of sshd's processes", under_load, world.cut)
        w.case("kill -9 of the supervisor", under_load, lambda: kill_all("supervisor"))
        w.case("kill -9 of the supervisor: open files", supervisor_and_files)
        w.case("kill -9 of the daemon", daemon_killed)
        w.case("after umount what was left to run remains", after_umount)
        w.case("after pai kill nothing remains", after_kill)
    except Exception as e:  # whatever it is, the host is put away
        w.not_ok("the script", f"{type(e).__name__}: {e}")
    finally:
        os.chdir("/")
        w.finish()
        for kind in ("worker", "supervisor", "command"):
            kill_all(kind)
        world.stop()
    return 1 if w.failed else 0


if __name__ == "__main__":
    sys.exit(main())
