"""What the hold-* scripts share: daemons on a scratch directory, children that report, cases.
Not a test by itself.

Every call on a mount that may block runs in a child process (in_child), so that the script itself
never waits for what it tests.
"""
import errno
import json
import os
import pickle
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from pai_ask import Client  # noqa: E402

BUILD = os.path.realpath(os.environ.get("PAI_BUILD", "build/debug"))
LONG = os.environ.get("PAI_LONG") == "1"
OWN_TMP = None if os.environ.get("PAI_TMP") else tempfile.mkdtemp(prefix="pai-test-")
TMP = os.environ.get("PAI_TMP") or OWN_TMP
RUN = TMP + "/run"
os.environ.update(HOME=TMP + "/home", XDG_RUNTIME_DIR=RUN, XDG_STATE_HOME=TMP + "/state",
                  XDG_CONFIG_HOME=TMP + "/config", XDG_CACHE_HOME=TMP + "/cache")
for directory in ("home", "run"):
    os.makedirs(f"{TMP}/{directory}", mode=0o700, exist_ok=True)

failed = False
daemons = []


def short_or_long(short, long):
    return long if LONG else short


def ok(name):
    print("ok " + name, flush=True)


def not_ok(name, why):
    global failed
    failed = True
    print(f"not ok {name}: {' '.join(str(why).split())[:600]}", flush=True)


def skip(name, why):
    print(f"skip {name}: {why}", flush=True)


def case(name, fn, *args):
    """fn returns what is wrong, or nothing."""
    try:
        why = fn(*args)
    except Exception as e:  # whatever it is, it fails this case alone
        traceback.print_exc(file=sys.stdout)
        why = f"{type(e).__name__}: {e}"
    if why:
        not_ok(name, why)
    else:
        ok(name)


def begin(*names):
    """Ends the script where nothing can mount."""
    if not os.path.exists("/dev/fuse"):
        for name in names:
            skip(name, "no /dev/fuse here")
        sys.exit(0)


def wait_for(fn, seconds=10, what="it"):
    until = time.monotonic() + seconds
    while True:
        value = fn()
        if value:
            return value
        if time.monotonic() > until:
            raise AssertionError(f"{what} did not come to pass in {seconds} s")
        time.sleep(0.01)


def is_over(pid):
    """The last thread, that is: the main one may end before the others."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            ended = f.read().rsplit(")", 1)[1].split()[0] in "ZX"
        return ended and len(os.listdir(f"/proc/{pid}/task")) == 1
    except OSError:
        return True


def is_mounted(path):
    with open("/proc/self/mountinfo", "rb") as f:
        return any(line.split()[4] == path.encode() for line in f)


def abort(path):
    """Cuts a mount off, so that nobody who waits on it waits for ever."""
    ctl = "/sys/fs/fuse/connections"
    if not os.path.ismount(ctl):
        subprocess.run(["mount", "-t", "fusectl", "none", ctl], stderr=subprocess.DEVNULL)
    with open("/proc/self/mountinfo") as f:
        devs = [line.split()[2] for line in f if line.split()[4] == path]
    for dev in devs:
        try:
            with open(f"{ctl}/{dev.split(':')[1]}/abort", "w") as f:
                f.write("1")
        except OSError:
            pass


def unmount(path):
    if not is_mounted(path):
        return
    try:
        if subprocess.run(["fusermount3", "-u", path], timeout=10,
                          stderr=subprocess.DEVNULL).returncode == 0:
            return
    except subprocess.TimeoutExpired:
        pass
    abort(path)
    subprocess.run(["umount", "-l", path], timeout=10)


class Daemon:
    """A daemon; `top` is its mount point, None without one."""

    def __init__(self, provider, name, *options, mount=True, argv=(), before=()):
        self.name, self.top = name, f"{TMP}/{name}" if mount else None
        self.options = [*options]
        if provider == "local":
            self.options = ["host_commands", f"root={TMP}/root-{name}", *options]
            if any(o.startswith("root=") for o in options):
                self.options.remove(f"root={TMP}/root-{name}")
            if os.environ.get("PAI_LOCAL_OPTS"):  # as lib.sh
                self.options.append(os.environ["PAI_LOCAL_OPTS"])
        if mount:
            os.makedirs(self.top, exist_ok=True)
        self.argv = [*before, BUILD + "/paifs", provider, *([self.top] if mount else ["--no-mount"]),
                     "-n", name, "-f", *argv]
        if self.options:
            self.argv += ["-o", ",".join(self.options)]
        self.log = f"{TMP}/{name}.log"
        daemons.append(self)
        self.start()

    def start(self):
        self.proc = subprocess.Popen(self.argv, stdout=open(self.log, "ab"), stderr=subprocess.STDOUT,
                                     stdin=subprocess.DEVNULL)
        try:
            wait_for(self.is_up, 20, self.name)
        except AssertionError as e:
            with open(self.log, errors="replace") as f:
                raise AssertionError(f"{e}: {f.read()[-500:]}") from None
        return self

    def is_up(self):
        assert self.proc.poll() is None, f"{self.name} ended: {self.proc.returncode}"
        try:
            c = Client(f"{RUN}/paifs/{self.name}.sock", timeout=5)
            up = c.hello()["pid"] == self.proc.pid  # the socket of one that was killed stays
            c.sock.close()
            return up
        except (OSError, EOFError):
            return False

    def client(self, timeout=30):
        c = Client(f"{RUN}/paifs/{self.name}.sock", timeout=timeout)
        c.hello()
        return c

    def ask(self, op, **fields):
        c = self.client()
        try:
            good, answer = c.ask({"op": op, **fields})
        finally:
            c.sock.close()
        assert good, answer
        return answer

    def provider_calls(self):
        return self.ask("counters")["provider"]

    def session(self, key="k"):
        found = [s for s in self.ask("ls")["sessions"] if s["key"] == key]
        return found[0] if found else None

    def pai(self, *args, **kw):
        kw.setdefault("timeout", 30)
        return subprocess.run([BUILD + "/pai", "-n", self.name, *args], capture_output=True,
                              stdin=subprocess.DEVNULL, **kw)

    def run_argv(self, *args, key="k"):
        return [BUILD + "/pai-exec", "-n", self.name, "-s", key, *args]

    def run(self, *args, key="k", **kw):
        """(exit status, stdout, stderr, status object)"""
        kw.setdefault("stdin", subprocess.DEVNULL)
        reader, writer = os.pipe()
        with os.fdopen(reader) as status:
            try:
                r = subprocess.run(self.run_argv("--status-fd", str(writer), *args, key=key),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   pass_fds=[writer], timeout=kw.pop("timeout", 40), **kw)
            finally:
                os.close(writer)
            return r.returncode, r.stdout, r.stderr, json.loads(status.read() or "null")

    def stop(self):
        if self.top:
            unmount(self.top)
        elif self.proc.poll() is None:
            self.proc.terminate()
        try:
            return self.proc.wait(20)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            return self.proc.wait(10)


children = []


class Child:
    """fn(report) in a process of its own; its result, or its exception, comes back."""

    def __init__(self, fn, *args):
        self.reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.reader)
            try:
                answer = (True, fn(*args))
            except OSError as e:
                answer = (False, (e.errno, str(e)))
            except BaseException as e:
                answer = (False, (None, f"{type(e).__name__}: {e}"))
            try:
                with os.fdopen(writer, "wb") as f:
                    f.write(pickle.dumps(answer))
            finally:
                os._exit(0)
        os.close(writer)
        children.append(self)
        self.over = False

    def wait(self, seconds=30):
        """(True, result), (False, (errno, text)); None when it is not done, or was killed."""
        data, until, poll = b"", time.monotonic() + seconds, select.poll()
        poll.register(self.reader, select.POLLIN)
        while True:
            left = until - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                return None
            more = os.read(self.reader, 1 << 16)
            if not more:
                break
            data += more
        os.waitpid(self.pid, 0)
        os.close(self.reader)
        self.over = True
        return pickle.loads(data) if data else None

    def kill(self, seconds=10):
        """Seconds until it was gone."""
        begun = time.monotonic()
        os.kill(self.pid, signal.SIGKILL)
        wait_for(lambda: is_over(self.pid), seconds, "the end of a killed caller")
        os.waitpid(self.pid, 0)
        self.over = True
        return time.monotonic() - begun


def in_child(fn, *args, seconds=30):
    """fn's result; raises what it raised."""
    child = Child(fn, *args)
    answer = child.wait(seconds)
    if answer is None:
        os.kill(child.pid, signal.SIGKILL)
        raise AssertionError(f"no answer in {seconds} s")
    if not answer[0]:
        number, text = answer[1]
        raise OSError(number, text) if number else AssertionError(text)
    return answer[1]


def errno_of(fn, *args, seconds=30):
    """(name of the errno or "" for success, seconds it took), in a child."""
    begun = time.monotonic()
    try:
        in_child(fn, *args, seconds=seconds)
        name = ""
    except OSError as e:
        name = errno.errorcode.get(e.errno, str(e.errno))
    return name, time.monotonic() - begun


def put(path, data=b"x"):
    with open(path, "wb", buffering=0) as f:
        f.write(data)


def get(path):
    with open(path, "rb", buffering=0) as f:
        return f.read()


def finish():
    """Ends everything; the script's exit status."""
    os.chdir("/")
    for child in children:
        if not child.over:
            try:
                os.kill(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    for daemon in reversed(daemons):
        if daemon.proc.poll() is None or (daemon.top and is_mounted(daemon.top)):
            daemon.stop()
    if OWN_TMP:
        shutil.rmtree(OWN_TMP, ignore_errors=True)
    return 1 if failed else 0
