#!/usr/bin/env python3
# timeout 120
"""kill -9, and worse, of the process that serves a workspace at the other end of a line: what is
open is lost and says so, what is asked next works, and nothing hangs."""
import errno
import fcntl
import os
import signal
import subprocess
import time

import hold_world as w

os.environ["PAI_LOCAL_OPTS"] = "workspace=helper"
names = [
    "an open file is EIO after its helper was killed, and closes",
    "... a new one works, and what was written is there",
    "... whoever held a lock finds its file lost, and another gets the lock",
    "... what the sandbox did meanwhile is seen",
    "callers that go on while helpers are killed end with EIO or not at all",
    "a helper that is stopped fails its own session alone, in time",
    "... ls -l of the mount's root waits a second at most",
    "... and is asked again when it goes on",
    "after pai kill no helper remains",
]
w.begin(*names)
d = w.Daemon("local", "line", "timeout=3s", "create_timeout=10s")
K, OTHER = d.top + "/k", d.top + "/other"


def helpers():
    """The processes that serve files for this daemon, newest last."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                line = f.read().split(b"\0")
            root = os.readlink(f"/proc/{pid}/fd/3")
        except OSError:
            continue
        if b"files" in line and b"--root-fd" in line and root.startswith(w.TMP + "/root-line"):
            found.append((int(pid), root))
    return found


def helper_of(box):
    return [pid for pid, root in helpers() if root == box][-1]


def end(pid):
    os.kill(pid, signal.SIGKILL)
    w.wait_for(lambda: w.is_over(pid), 5, "the end of a helper")


def set_up():
    os.mkdir(K)
    w.in_child(w.put, K + "/first", b"one")
    return [root for _, root in helpers()][0]


BOX = set_up()
fd = os.open(K + "/first", os.O_RDWR)
held = os.open(K + "/lock", os.O_RDWR | os.O_CREAT)
fcntl.flock(held, fcntl.LOCK_EX)
os.pwrite(held, b"mine", 0)


def is_lost():
    end(helper_of(BOX))
    name, took = w.errno_of(lambda: os.pread(fd, 10, 0))
    # The kernel may have the page; the server is asked by a write.
    name, took = w.errno_of(lambda: os.pwrite(fd, b"x", 0))
    if name != "EIO" or took > 2:
        return f"{name} after {took:.1f} s"
    os.close(fd)
    return ""


def works():
    w.in_child(w.put, K + "/second", b"two")
    got = w.in_child(w.get, K + "/first"), w.in_child(w.get, K + "/second")
    return "" if got == (b"one", b"two") else repr(got)


def lock_is_lost():
    name, _ = w.errno_of(lambda: os.pwrite(held, b"not any more", 0))
    if name != "EIO":
        return f"the holder: {name or 'written'}"

    def take():
        with open(K + "/lock", "r+b", buffering=0) as f:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return f.read()

    got = w.in_child(take)
    os.close(held)
    return "" if got == b"mine" else repr(got)


def is_seen():
    w.in_child(lambda: os.stat(K + "/first").st_size)
    end(helper_of(BOX))
    w.put(BOX + "/first", b"another length")
    w.put(BOX + "/third", b"three")
    size = w.in_child(lambda: os.stat(K + "/first").st_size)
    got = w.in_child(w.get, K + "/first"), w.in_child(w.get, K + "/third")
    return "" if (size, *got) == (14, b"another length", b"three") else f"{size} {got}"


def work(i, until):
    """How often it was told that its file is lost."""
    lost = n = 0
    os.makedirs(f"{K}/w{i}", exist_ok=True)
    while time.monotonic() < until:
        n += 1
        try:
            with open(f"{K}/w{i}/f{n % 20}", "wb", buffering=0) as f:
                f.write(b"%d" % n)
            os.rename(f"{K}/w{i}/f{n % 20}", f"{K}/w{i}/g{n % 20}")
            os.listdir(f"{K}/w{i}")
        except OSError as e:
            if e.errno not in (errno.EIO, errno.ENOENT):
                raise
            lost += 1
    return lost


def goes_on():
    until = time.monotonic() + w.short_or_long(4, 30)
    kids = [w.Child(work, i, until) for i in range(4)]
    killed = 0
    while time.monotonic() < until - 1:
        time.sleep(0.2)
        for pid, root in helpers():
            if root == BOX:
                end(pid)
                killed += 1
    for kid in kids:
        answer = kid.wait(15)
        if not answer or not answer[0]:
            return f"a caller: {answer}"
    if killed < 3:
        return f"only {killed} were killed"
    code, out, err, _ = d.run("ls")
    return "" if code == 0 and b"first" in out else f"{code} {out} {err}"


def stopped():
    global stopped_pid
    os.mkdir(OTHER)
    w.in_child(w.put, OTHER + "/x")
    stopped_pid = helper_of(BOX)
    os.kill(stopped_pid, signal.SIGSTOP)
    name, took = w.errno_of(lambda: w.put(K + "/while-stopped"))
    other, other_took = w.errno_of(lambda: w.put(OTHER + "/while-stopped"))
    if name != "ETIMEDOUT" or not 2 < took < 6:
        return f"{name} after {took:.1f} s"
    return "" if not other and other_took < 1 else f"the other: {other} after {other_took:.1f} s"


def root_answers():
    begun = time.monotonic()
    r = subprocess.run(["ls", "-l", d.top], capture_output=True, timeout=10)
    took = time.monotonic() - begun
    return "" if r.returncode == 0 and took < 1.5 else f"{r} {took:.1f} s"


def asked_again():
    os.kill(stopped_pid, signal.SIGCONT)
    w.wait_for(lambda: not w.errno_of(lambda: os.stat(K + "/first"))[0], 10, "an answer")
    return "" if w.in_child(w.get, K + "/first") == b"another length" else "another file"


def none_remains():
    for key in ("k", "other"):
        r = d.pai("kill", key)
        if r.returncode != 0:
            return r.stderr.decode()
    w.wait_for(lambda: not helpers(), 10, "the end of the helpers")
    return ""


for case, fn in zip(names, (is_lost, works, lock_is_lost, is_seen, goes_on, stopped, root_answers,
                            asked_again, none_remains)):
    w.case(case, fn)
raise SystemExit(w.finish())
