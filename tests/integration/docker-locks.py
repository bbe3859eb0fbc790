#!/usr/bin/env python3
# timeout 240
"""Locks between the mount and the container: they exclude both ways, who waits is woken, and who gets
one sees what was written under it; with the files on this host and in the containers."""
import fcntl
import os
import signal
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hold_world as w  # noqa: E402
import docker_world  # noqa: E402

HOW = {"flock": fcntl.flock, "fcntl": fcntl.lockf}
# holder.py PATH HOW SH|EX WAIT|NOW: says "held" and what it read, or "refused"; writes the line that
# it is given, and lets go.
HOLDER = b"""
import fcntl, os, sys
path, how, kind, wait = sys.argv[1:5]
fd = os.open(path, os.O_RDWR)
how = {"flock": fcntl.flock, "fcntl": fcntl.lockf}[how]
try:
    how(fd, getattr(fcntl, "LOCK_" + kind) | (fcntl.LOCK_NB if wait == "NOW" else 0))
except OSError:
    print("refused", flush=True)
    sys.exit()
print("held", os.pread(fd, 100, 0).decode(), flush=True)
line = sys.stdin.readline().strip()
if line:
    os.pwrite(fd, line.encode(), 0)
how(fd, fcntl.LOCK_UN)
print("free", flush=True)
"""


class Holder:
    """One in the sandbox."""

    def __init__(self, d, how, kind="EX", wait="NOW"):
        self.process = subprocess.Popen(
            d.run_argv("python3", "holder.py", "locked", how, kind, wait), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def says(self):
        return self.process.stdout.readline().strip()

    def let_go(self, text=""):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        answer = self.says()
        self.process.wait(20)
        return answer


def once(d, how, kind="EX"):
    """What one in the sandbox gets that does not wait."""
    h = Holder(d, how, kind)
    said = h.says()
    if said != "refused":
        h.let_go()
    h.process.wait(20)
    return said


def here(d, how, kind=fcntl.LOCK_EX):
    """The same on the mount."""
    def take():
        with open(d.top + "/k/locked", "r+b", buffering=0) as f:
            HOW[how](f, kind | fcntl.LOCK_NB)
            return "held " + os.pread(f.fileno(), 100, 0).decode()
    try:
        return w.in_child(take)
    except OSError:
        return "refused"


def excludes(d, how):
    with open(d.top + "/k/locked", "r+b", buffering=0) as f:
        os.pread(f.fileno(), 100, 0)  # cached
        h = Holder(d, how)
        if not h.says().startswith("held"):
            return "the sandbox does not get it"
        if here(d, how) != "refused":
            return "the sandbox's excludes nobody here"
        h.let_go("by the sandbox")
        got = here(d, how)
        if got != "held by the sandbox":
            return f"after the sandbox: {got}"
        HOW[how](f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.pwrite(f.fileno(), b"by the mount..", 0)
        if once(d, how) != "refused":
            return "the mount's excludes nobody there"
        HOW[how](f, fcntl.LOCK_UN)
        got = once(d, how)
        return None if got == "held by the mount.." else f"after the mount: {got}"


def shares(d, how):
    with open(d.top + "/k/locked", "rb", buffering=0) as f:  # a reader may share
        HOW[how](f, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if not once(d, how, "SH").startswith("held"):
            return "the sandbox can not share it"
        if once(d, how) != "refused":
            return "shared, it excludes nobody"
    return None if once(d, how).startswith("held") else "closed, it is still held"


def waits(d, how):
    def wait():
        with open(d.top + "/k/locked", "r+b", buffering=0) as f:
            HOW[how](f, fcntl.LOCK_EX)
            return os.pread(f.fileno(), 100, 0)
    h = Holder(d, how)
    h.says()
    child = w.Child(wait)
    if child.wait(0.5):
        return "it did not wait"
    h.let_go("for who waits.")
    answer = child.wait(20)
    if answer != (True, b"for who waits."):
        return f"who waited here: {answer}"
    with open(d.top + "/k/locked", "r+b", buffering=0) as f:
        HOW[how](f, fcntl.LOCK_EX)
        h = Holder(d, how, wait="WAIT")
        os.pwrite(f.fileno(), b"for who waits!", 0)
        HOW[how](f, fcntl.LOCK_UN)
        got = h.says()
        h.let_go()
    return None if got == "held for who waits!" else f"who waited there: {got}"


def dead_let_go(d, how):
    def hold():
        f = os.open(d.top + "/k/locked", os.O_RDWR)
        HOW[how](f, fcntl.LOCK_EX)
        signal.pause()
    child = w.Child(hold)
    w.wait_for(lambda: once(d, how) == "refused", 10, "the lock of a child")
    child.kill()
    w.wait_for(lambda: once(d, how).startswith("held"), 10, "the lock of a dead process here")
    h = Holder(d, how)
    h.says()
    h.process.kill()
    w.wait_for(lambda: here(d, how).startswith("held"), 10, "the lock of a dead process there")
    return None


def second_descriptor(d):
    """POSIX: closing any descriptor of a file lets go of the process's locks on it."""
    first, second = (os.open(d.top + "/k/locked", os.O_RDWR) for _ in range(2))
    fcntl.lockf(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
    before = once(d, "fcntl")
    os.close(second)
    after = once(d, "fcntl")
    os.close(first)
    return None if before == "refused" and after.startswith("held") else f"{before}, {after}"


def machine_off(d, engine, far):
    """What was locked when its container ended is locked no more; over a line the file is lost."""
    fd = os.open(d.top + "/k/locked", os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for c in engine.containers():
        engine.ask("POST", f"/v1.41/containers/{c['Id']}/kill")
    got = once(d, "flock")
    name, _ = w.errno_of(os.pread, fd, 1, 0)
    os.close(fd)
    if far:
        return None if got.startswith("held") and name == "EIO" else f"{got}, the file: {name}"
    return None if got == "refused" and not name else f"{got}, the file: {name}"


def daemon_killed(d):
    fd = os.open(d.top + "/k/locked", os.O_RDWR)
    for how in HOW.values():
        how(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    d.proc.kill()
    d.proc.wait()
    try:
        os.close(fd)
    except OSError:
        pass
    subprocess.run(["umount", "-l", d.top], check=False, timeout=20)
    d.start()
    for how in HOW:
        w.wait_for(lambda how=how: once(d, how).startswith("held"), 20, f"{how} of a dead daemon")
    return None


def main():
    w.begin("docker-locks")
    why = docker_world.why_not()
    if why:
        w.skip("docker-locks", why)
        return 0
    with docker_world.Engine() as engine:
        options = [f"socket={engine.socket}", f"image={engine.host_image}",
                   f"runtime={engine.host_runtime}", "uid=0"]
        for name, more in (("host", [f"root={w.TMP}/root"]),
                           ("helper", ["workspace=helper", "line_grace=3"])):
            d = w.Daemon("docker", name, *options, *more)
            os.mkdir(d.top + "/k")
            w.put(d.top + "/k/holder.py", HOLDER)
            w.put(d.top + "/k/locked", b"at the beginning")
            for how in HOW:
                w.put(d.top + "/k/locked", b"14 bytes, all.")
                for fn in (excludes, shares, waits, dead_let_go):
                    w.case(f"{name}: {how} {fn.__name__}".replace("_", " "), fn, d, how)
            w.case(f"{name}: closing a second descriptor", second_descriptor, d)
            w.case(f"{name}: a container that is switched off", machine_off, d, engine, name != "host")
            w.case(f"{name}: a daemon that is killed", daemon_killed, d)
            d.pai("kill", "k")
            d.stop()
        return w.finish()


sys.exit(main())
