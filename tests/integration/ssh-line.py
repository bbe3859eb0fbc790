#!/usr/bin/env python3
"""A line to a host that is cut, stopped and lost: what comes back goes on where it was, what doesn't
is told, and nothing is left on the host."""
# timeout 200
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from ssh_world import World  # noqa: E402

BUILD = os.path.realpath(os.environ.get("PAI_BUILD", "build/debug"))
OWN_TMP = None if os.environ.get("PAI_TMP") else tempfile.mkdtemp(prefix="pai-ssh-")
TMP = os.environ.get("PAI_TMP") or OWN_TMP
os.environ.update(HOME=TMP + "/home", XDG_RUNTIME_DIR=TMP + "/run", XDG_STATE_HOME=TMP + "/state",
                  XDG_CONFIG_HOME=TMP + "/config", XDG_CACHE_HOME=TMP + "/cache")
for directory in ("home", "run"):
    os.makedirs(f"{TMP}/{directory}", mode=0o700, exist_ok=True)
WAIT_S = 60
GRACE_S = 4
failures = []


def report(name, wrong):
    if wrong:
        failures.append(name)
    print(f"not ok {name}: {' '.join(str(wrong).split())[:600]}" if wrong else f"ok {name}",
          flush=True)


def wait_for(what, done, seconds=20):
    until = time.monotonic() + seconds
    while not done():
        if time.monotonic() > until:
            raise AssertionError(f"{what}: not after {seconds} s")
        time.sleep(0.02)


class Daemon:
    """paifs without a mount: commands alone."""

    def __init__(self, world, name="line", grace=GRACE_S):
        self.name = name
        self.log = f"{TMP}/{name}.log"
        self.start(world, grace)

    def start(self, world, grace):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [f"{BUILD}/paifs", "ssh", "box:boxes", "--no-mount", "-f", "-n", self.name, "-o",
                 f"config={world.config},line_grace={grace},timeout=2s"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_for("the daemon", lambda: self.pai("ls").returncode == 0)

    def pai(self, *args):
        return subprocess.run([f"{BUILD}/pai", "-n", self.name, *args], capture_output=True,
                              text=True, timeout=WAIT_S, check=False)

    def argv(self, *args):
        return [f"{BUILD}/pai-exec", "-n", self.name, "-s", "key", *args]

    def run(self, *args, **kw):
        return subprocess.run(self.argv(*args), capture_output=True, timeout=WAIT_S, check=False,
                              **kw)

    def status(self, *args):
        reader, writer = os.pipe()
        done = self.run("--status-fd", str(writer), *args, pass_fds=[writer],
                        stdin=subprocess.DEVNULL)
        os.close(writer)
        with os.fdopen(reader, "rb") as f:
            return done, json.loads(f.read() or "{}")

    def members(self):
        return json.loads(self.pai("status", "--json").stdout)

    def end(self):
        if self.process.poll() is None:
            self.pai("umount")
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def on_host(world, *words):
    """Processes of the host with all of these in their command line."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                line = f.read().replace(b"\0", b" ").decode(errors="replace")
            with open(f"/proc/{pid}/status", encoding="utf-8") as f:
                name = f.readline().split()[1]
        except OSError:
            continue
        if all(word in line or word == name for word in words) and world.dir in line:
            found.append(int(pid))
    return found


def workers(world):
    return on_host(world, "pai-worker")


COUNT = 'i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo $i; sleep 0.1; done; exit 7'
COUNTED = "".join(f"{i}\n" for i in range(1, 41)).encode()


def during(daemon, act, *args):
    """Runs a command and `act` in its middle."""
    process = subprocess.Popen(daemon.argv(*args), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    timer = threading.Timer(1, act)
    timer.start()
    try:
        out, err = process.communicate(timeout=WAIT_S)
    finally:
        timer.join()
        process.kill()
    return process.returncode, out, err


def cut_in_the_middle(world, daemon):
    before = len(workers(world))

    def twice():
        world.cut()
        time.sleep(1)
        world.cut()

    status, out, err = during(daemon, twice, "-c", COUNT)
    report("a command goes on over two cuts",
           "" if (status, out) == (7, COUNTED) else f"{status} {out!r} {err!r}")
    report("by the same worker", "" if len(workers(world)) == before == 1 else workers(world))
    report("pai status counts the logins",
           "" if "so far: 3" in daemon.members().get("line", "") else daemon.members())


def input_over_a_cut(world, daemon):
    data = os.urandom(1 << 20) * 24
    result = {}

    def feed():
        result["done"] = daemon.run("-c", "sleep 1; sha256sum", input=data)

    thread = threading.Thread(target=feed)
    thread.start()
    for _ in range(3):
        time.sleep(0.7)
        world.cut()
    thread.join()
    done = result["done"]
    want = hashlib.sha256(data).hexdigest()
    report("24 MiB of input arrive over cuts as they are",
           "" if done.returncode == 0 and done.stdout.decode().startswith(want)
           else f"{done.returncode} {done.stdout!r} {done.stderr!r}")


def restart(world, daemon):
    def away():
        world.stop()
        time.sleep(2.5)  # longer than timeout=, within the grace
        world.launch()

    status, out, err = during(daemon, away, "-c", COUNT)
    report("a command goes on when sshd was away for longer than the timeout",
           "" if (status, out) == (7, COUNTED) else f"{status} {out!r} {err!r}")


def lost(world, daemon):
    """Away for longer than the grace."""
    def away():
        world.stop()
        time.sleep(GRACE_S + 3)
        world.launch()

    process = subprocess.Popen(daemon.argv("--status-fd", "1", "sleep", "1000.25"),
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    time.sleep(1)
    began = time.monotonic()
    away()
    out, err = process.communicate(timeout=WAIT_S)
    took = time.monotonic() - began
    told = json.loads(out or b"{}")
    report("a line that stays away is told, and the outcome not guessed",
           "" if process.returncode == 125 and told.get("outcome") == "unknown"
           else f"{process.returncode} {out!r} {err!r}")
    report("within the grace and a little", "" if took < GRACE_S + 12 else took)
    wait_for("the end of what ran there", lambda: not alive("1000.25"), 30)
    report("what ran there is dead", "")
    done = daemon.run("cat", "kept", stdin=subprocess.DEVNULL)
    report("the next command has the same sandbox",
           "" if (done.returncode, done.stdout) == (0, b"kept\n") else done)


def alive(word):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        if word.encode() in words and b"pai-exec" not in words[0]:
            found.append(int(pid))
    return found


def killed(world, daemon):
    """kill -9 of the worker, then of the supervisor: unknown, and the next command runs."""
    for name, victims in (("worker", lambda: workers(world)),
                          ("supervisor", lambda: on_host(world, "supervise") or supervisors())):
        process = subprocess.Popen(daemon.argv("--status-fd", "1", "sleep", "1000.5"),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        wait_for("its start", lambda: alive("1000.5"))
        found = victims()
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        out, err = process.communicate(timeout=WAIT_S)
        told = json.loads(out or b"{}")
        report(f"kill -9 of the {name}: the outcome is unknown",
               "" if found and process.returncode == 125 and told.get("outcome") == "unknown"
               else f"{found} {process.returncode} {out!r} {err!r}")
        wait_for(f"the end of what ran there, {name}", lambda: not alive("1000.5"), 30)
        done = daemon.run("cat", "kept", stdin=subprocess.DEVNULL)
        report(f"kill -9 of the {name}: the next command runs",
               "" if (done.returncode, done.stdout) == (0, b"kept\n") else done)


def supervisors():
    """In its namespaces it is known by its descriptor alone; its parents are bubblewrap's."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
            fds = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue
        if b"supervise" in words and any(TMP in fd for fd in fds):
            found.append(int(pid))
    return found


def remains(world, daemon):
    detached = daemon.run("--detach", "sleep", "1000.75", stdin=subprocess.DEVNULL)
    daemon.end()
    wait_for("the end of the worker", lambda: not workers(world), 10)
    report("after the daemon's end the worker has gone", "")
    report("and what was detached runs on",
           "" if detached.returncode == 0 and alive("1000.75") else detached)
    again = Daemon(world, "again")
    report("another daemon finds the sandbox",
           "" if again.run("cat", "kept", stdin=subprocess.DEVNULL).stdout == b"kept\n"
           else again.pai("ls").stdout)
    killed_key = again.pai("kill", "key")
    again.end()
    wait_for("the end of all", lambda: not alive("1000.75") and not workers(world)
             and not supervisors(), 20)
    boxes = os.path.join(world.home, "boxes")
    left = [name for name in os.listdir(boxes) if name != "keys"]
    report("after pai kill nothing is left", "" if not left and killed_key.returncode == 0
           else f"{left} {killed_key}")


def dead_daemon(world, worker_too):
    """kill -9 of the daemon: after the grace the host is as if it had never been, save the box."""
    daemon = Daemon(world, "dies", 2)
    process = subprocess.Popen(daemon.argv("sleep", "1000.125"), stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for("its start", lambda: alive("1000.125"))
    daemon.process.kill()
    daemon.process.wait()
    if worker_too:
        for pid in workers(world):
            os.kill(pid, signal.SIGKILL)
    process.wait(timeout=WAIT_S)
    wait_for("the end of what a dead daemon ran", lambda: not alive("1000.125"), 30)
    wait_for("the end of its worker", lambda: not workers(world), 30)
    name = "the daemon and its worker" if worker_too else "the daemon"
    report(f"after kill -9 of {name} its commands end with the grace", "")
    again = Daemon(world, "dies", 2)
    again.pai("kill", "key")
    again.end()
    wait_for("the end of the worker", lambda: not workers(world), 10)
    left = [left for left in os.listdir(os.path.join(world.home, "boxes")) if left != "keys"]
    report(f"... and the next one leaves nothing of {name}", left)


def old_helpers(world):
    """What lies where helpers are kept: of a build that nobody has used for long, and of another."""
    cache = os.path.join(world.home, ".cache/paifs")
    os.makedirs(cache, mode=0o700)
    for name, days in (("pai-helper-long-ago", 200), ("pai-helper-lately", 20)):
        with open(f"{cache}/{name}", "wb"):
            pass
        then = time.time() - days * 86400
        os.utime(f"{cache}/{name}", (then, then))
    for path in (os.path.dirname(cache), cache):
        os.chown(path, world.uid(), world.uid())
        os.chmod(path, 0o700)
    return cache


def main():
    world = World(os.path.join(TMP, "host"), user="tester" if os.geteuid() == 0 else "").start()
    cache = old_helpers(world)
    daemon = Daemon(world)
    try:
        done = daemon.run("-c", "echo kept > kept", stdin=subprocess.DEVNULL)
        report("a command runs", "" if done.returncode == 0 else done)
        cut_in_the_middle(world, daemon)
        input_over_a_cut(world, daemon)
        restart(world, daemon)
        lost(world, daemon)
        killed(world, daemon)
        remains(world, daemon)
        dead_daemon(world, False)
        dead_daemon(world, True)
        left = sorted(os.listdir(cache))
        report("helpers of other builds go when they are old",
               "" if len(left) == 2 and left[1] == "pai-helper-lately" else left)
    except Exception as e:  # whatever it is, the host is put away
        report("the script", f"{type(e).__name__}: {e}")
    finally:
        daemon.end()
        world.stop()
        for pid in workers(world):
            os.kill(pid, signal.SIGKILL)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
