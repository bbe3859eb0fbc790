#!/usr/bin/env python3
# timeout 240
"""Nothing hangs while dockerd is stopped (SIGSTOP), with the files on this host, which do not ask it,
and with the files in the containers, which are reached through it."""
import errno
import os
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hold_world as w  # noqa: E402
import docker_world  # noqa: E402

TIMEOUT_S, CREATE_S = 2, 4
AT_ONCE_S = 0.1
TRIES = 5  # the machine may be busy: the best of these counts
SLACK_S = 4
engine = None


def at_once(d):
    for name, fn in (("ls", lambda: os.listdir(d.top)), ("df", lambda: os.statvfs(d.top).f_bsize),
                     ("pai status", lambda: d.pai("status").check_returncode()),
                     ("pai status KEY", lambda: d.pai("status", "k").check_returncode()),
                     ("pai ls", lambda: d.pai("ls").check_returncode())):
        best = 9e9
        for _ in range(TRIES):
            begun = time.monotonic()
            w.in_child(fn, seconds=10) if not name.startswith("pai") else fn()
            best = min(best, time.monotonic() - begun)
            if best < AT_ONCE_S:
                break
        else:
            return f"{name}: {best * 1000:.0f} ms"
    return ""


def fresh(d):
    """A session that has no container: who uses it waits for create_timeout, who looks does not."""
    os.mkdir(d.top + "/fresh")
    begun = time.monotonic()
    if os.listdir(d.top + "/fresh") or time.monotonic() - begun > 1:
        return f"a look took {time.monotonic() - begun:.1f} s"
    name, took = w.errno_of(os.mkdir, d.top + "/fresh/d")
    if name != "ETIMEDOUT" or took > CREATE_S + SLACK_S:
        return f"mkdir: {name or 'success'} after {took:.1f} s"
    begun = time.monotonic()
    code, _, err, status = d.run("true", key="fresh")
    took = time.monotonic() - begun
    return "" if code == 125 and took < CREATE_S + SLACK_S and status["outcome"] == "not-started" \
        else f"pai-exec: {code} {err} {status} after {took:.1f} s"


def files_go_on(d):
    k = d.top + "/k"

    def use():
        begun = time.monotonic()
        w.put(k + "/f", b"data")
        os.makedirs(k + "/d", exist_ok=True)
        os.rename(k + "/f", k + "/d/f")
        assert w.get(k + "/d/f") == b"data"
        return time.monotonic() - begun
    took = w.in_child(use)
    if took > 1:
        return f"files took {took:.2f} s"
    begun = time.monotonic()
    code, out, err, _ = d.run("cat", "d/f")
    took = time.monotonic() - begun
    return "" if (code, out) == (0, b"data") and took < CREATE_S + SLACK_S else \
        f"a command: {code} {out} {err} after {took:.1f} s"


def walk(d):
    """(seconds, errors of 40)"""
    begun, errors = time.monotonic(), 0
    for i in range(40):
        try:
            w.get(f"{d.top}/k/not read yet {i}")
        except OSError:
            errors += 1
    return time.monotonic() - begun, errors


def one_deadline(d, limit):
    took, errors = w.in_child(walk, d, seconds=60)
    return "" if errors == 40 and took < limit else f"{errors} errors in {took:.2f} s"


def calls_end(d, handle):
    k = d.top + "/k"
    calls = {
        "open": lambda: os.open(k + "/not read yet 1", os.O_RDONLY),
        "create": lambda: os.open(k + "/new", os.O_CREAT | os.O_WRONLY),
        "mkdir": lambda: os.mkdir(k + "/new dir"),
        "rename": lambda: os.rename(k + "/open", k + "/g"),
        "chmod": lambda: os.chmod(k + "/open", 0o600),
        "write": lambda: os.pwrite(handle, b"y", 0),
        "fsync": lambda: os.fsync(handle),
    }
    begun = time.monotonic()
    running = {name: w.Child(fn) for name, fn in calls.items()}
    for name, child in running.items():
        answer = child.wait(max(0.1, TIMEOUT_S + SLACK_S - (time.monotonic() - begun)))
        if answer is None or answer[0] or answer[1][0] != errno.ETIMEDOUT:
            return f"{name}: {answer}"
    return ""


def killed(d):
    kids = [w.Child(lambda i=i: os.stat(f"{d.top}/k/none{i}")) for i in range(10)]
    for kid in kids:
        if not kid.over:
            kid.kill(TIMEOUT_S + SLACK_S)
    return ""


def served_again(d, handle):
    """The same line: what was open is open."""
    w.wait_for(lambda: w.errno_of(os.stat, d.top + "/k/anything")[0] == "ENOENT", 20, "an answer")
    w.in_child(os.pwrite, handle, b"z", 0)
    code, out, err, status = d.run("cat", "open")
    return "" if (code, out) == (0, b"z") and not status["environmentReset"] else \
        f"{code} {out} {err} {status}"


def umounts(d):
    kids = [w.Child(lambda i=i: os.stat(f"{d.top}/k/more{i}")) for i in range(5)]
    begun = time.monotonic()
    subprocess.run(["umount", "-l", d.top], check=True, timeout=10)
    took = time.monotonic() - begun
    if took > 1:
        return f"umount took {took:.2f} s"
    for kid in kids:
        if kid.wait(TIMEOUT_S + SLACK_S) is None:
            return "a caller hangs"
    return "" if d.proc.wait(30) == 0 else f"exit {d.proc.returncode}"


def main():
    w.begin("docker-hang")
    why = docker_world.why_not()
    if why:
        w.skip("docker-hang", why)
        return 0
    global engine
    with docker_world.Engine() as engine:
        for name, more in (("host", f"root={w.TMP}/root"), ("helper", "workspace=helper")):
            d = w.Daemon("docker", name, *engine.options.split(","), more, f"timeout={TIMEOUT_S}s",
                         f"create_timeout={CREATE_S}s")
            os.mkdir(d.top + "/k")
            script = "for i in $(seq 0 39); do echo $i > \"not read yet $i\"; done; printf x > open"
            code, _, err, _ = d.run("sh", "-c", script)
            if code:
                w.not_ok(name, err)
                continue
            handle = os.open(d.top + "/k/open", os.O_RDWR)
            stopped = engine.process.pid
            os.kill(stopped, signal.SIGSTOP)
            try:
                w.case(f"{name}: the root, df, status and ls answer at once", at_once, d)
                if name == "host":
                    w.case(f"{name}: files and commands go on", files_go_on, d)
                else:
                    w.case(f"{name}: a walk costs one deadline, not one a file", one_deadline, d,
                           TIMEOUT_S + SLACK_S)
                    w.case(f"{name}: a second walk costs nothing", one_deadline, d, 1)
                    w.case(f"{name}: every other call ends", calls_end, d, handle)
                    w.case(f"{name}: SIGKILL of blocked callers works", killed, d)
                w.case(f"{name}: a session without a container", fresh, d)
                w.case(f"{name}: at once all the while", at_once, d)
            finally:
                os.kill(stopped, signal.SIGCONT)
            w.case(f"{name}: served again", served_again, d, handle)
            os.close(handle)
            os.kill(stopped, signal.SIGSTOP)
            try:
                w.case(f"{name}: umount answers at once and the daemon ends", umounts, d)
            finally:
                os.kill(stopped, signal.SIGCONT)
            d.start()
            d.pai("kill", "k")
            d.stop()
        return w.finish()


sys.exit(main())
