#!/usr/bin/env python3
"""What each side sees of the other over ssh: how long a push takes, a writer that never stops, bytes
that no stamp tells of, two daemons on one sandbox and the locks between them."""
# timeout 200
# timeout-long 900
import ctypes
import errno
import fcntl
import mmap
import os
import random
import select
import signal
import struct
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hold_world as w  # noqa: E402
from ssh_world import World  # noqa: E402

GRACE_S = 3
PUSH_MS = 50
w.begin("push-delay", "push-delay-between-mounts", "endless-writer", "content", "content-remount",
        "lock-readers", "lock-second-descriptor", "lock-acquires", "lock-lost-line",
        "lock-killed-daemon")
world = World(os.path.join(w.TMP, "host"), user="tester" if os.geteuid() == 0 else "").start()
OPTIONS = ["host=box", "root=boxes", f"config={world.config}", f"line_grace={GRACE_S}",
           "timeout=4s", "symlinks=raw"]


# --- the sandbox's side: a program there that does as it is told, one line at a time ---

ACTOR = r"""
import mmap, os, sys, time
maps = {}
def store(path, data):
    if path not in maps:
        fd = os.open(path, os.O_RDWR)
        maps[path] = mmap.mmap(fd, 0)
        os.close(fd)
    maps[path][:len(data)] = data
def same_stamps(path, data):
    before = os.stat(path)
    with open(path, "r+b") as f:
        f.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
def by_rename(path, data):
    before = os.stat(path)
    with open(path + ".new", "wb") as f:
        f.write(data)
    os.utime(path + ".new", ns=(before.st_atime_ns, before.st_mtime_ns))
    os.rename(path + ".new", path)
def by_new_link(path, data):
    os.link(path, "elsewhere/passing")
    same_stamps("elsewhere/passing", data)
    os.unlink("elsewhere/passing")
def changes(count, told):
    for i in range(count):
        time.sleep(0.02)
        at = time.monotonic_ns()
        if i % 3 == 0:
            with open("seen/data", "r+b") as f:
                f.write(b"%08d" % i)
        elif i % 3 == 1:
            open("seen/name-%d" % i, "x").close()
        else:
            os.truncate("seen/size", i)
        told.append(at)
        while not os.path.exists("ack-%d" % i): # the observer's, made in the workspace itself
            time.sleep(0.001)
print("ready", flush=True)
for line in sys.stdin:
    try:
        print(repr(eval(line)), flush=True)
    except Exception as e:
        print("wrong", repr(e), flush=True)
"""


class Actor:
    def __init__(self, daemon):
        with open(box() + "/actor.py", "w", encoding="utf-8") as f:
            f.write(ACTOR)
        self.proc = subprocess.Popen(daemon.run_argv("python3", "-u", "actor.py"),
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.hear("ready")

    def hear(self, want=None, seconds=60):
        assert select.select([self.proc.stdout], [], [], seconds)[0], "the actor says nothing"
        line = self.proc.stdout.readline().strip()
        assert line and not line.startswith("wrong"), line
        assert want is None or line == want, line
        return line

    def tell(self, text):
        self.proc.stdin.write(text + "\n")
        self.proc.stdin.flush()

    def do(self, text):
        self.tell(text)
        return self.hear()

    def end(self):
        self.proc.stdin.close()
        self.proc.wait(20)


def box():
    """The workspace on the host; the sandbox is the one that isn't `keys`."""
    boxes = os.path.join(world.home, "boxes")
    found = [name for name in os.listdir(boxes) if os.path.isdir(f"{boxes}/{name}/workspace")]
    assert len(found) == 1, found
    return f"{boxes}/{found[0]}/workspace"


def own(path):
    """The sandbox's user's, as if made there."""
    os.chown(path, world.uid(), world.uid())


# --- how long it takes ---

def watch_plain(count, told):
    """The control: inotify on the directory itself, and a byte there and back through the same
    sshd, by the same clock and scheduler."""
    echo = subprocess.Popen(["ssh", "-F", world.config, "box", "cat"], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, bufsize=0)
    echo.stdin.write(b"x")
    echo.stdout.read(1)
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(os.O_CLOEXEC)
    assert libc.inotify_add_watch(fd, (box() + "/seen").encode(), 0x102) >= 0  # MODIFY, CREATE
    os.write(told, b"r")
    seen = []
    while len(seen) < count:
        os.read(fd, 65536)
        while len(seen) < count and is_done(box() + "/seen", len(seen)):
            echo.stdin.write(b"x")
            echo.stdout.read(1)
            seen.append(time.monotonic_ns())
    echo.stdin.close()
    echo.wait()
    return seen


def is_done(top, i):
    """Whether change i, or one after it, is to be seen there."""
    if i % 3 == 0:
        with open(top + "/data", "rb") as f:
            return int(f.read()) >= i
    if i % 3 == 1:
        return os.path.exists(f"{top}/name-{i}")
    return os.stat(top + "/size").st_size >= i


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def delays(count, top):
    """Milliseconds from the change in the sandbox until it is seen below `top`, and until the
    control has seen it."""
    for name in os.listdir(box() + "/seen") if os.path.isdir(box() + "/seen") else ():
        os.unlink(f"{box()}/seen/{name}")
    actor = Actor(one)
    actor.do("os.makedirs('seen', exist_ok=True)")
    actor.do("open('seen/data', 'wb').write(b'%08d' % -1)")
    actor.do("open('seen/size', 'wb').close()")
    barrier(one)
    for name in ("data", "size"):  # known to the kernel: what is asked for then is its cache
        w.get(f"{top}/seen/{name}")
        os.stat(f"{top}/seen/{name}")
    os.listdir(top + "/seen")
    reader, writer = os.pipe()
    control = w.Child(watch_plain, count, writer)
    assert os.read(reader, 1) == b"r"
    actor.do("exec('told = []') or globals().update(told=[])")
    actor.tell(f"changes({count}, told)")
    seen = []
    until = time.monotonic() + 60 + count / 5
    for i in range(count):
        if i % 3 == 1:
            os.path.exists(f"{top}/seen/name-{i}")  # that it is absent is cached
        while not is_done(top + "/seen", i):
            assert time.monotonic() < until, f"change {i} is not seen"
            time.sleep(0.0005)
        seen.append(time.monotonic_ns())
        ack = f"{box()}/ack-{i}"
        os.close(os.open(ack, os.O_CREAT | os.O_WRONLY))
    actor.hear()
    told = eval(actor.do("told"))
    actor.end()
    good, plain = control.wait(30)
    assert good, plain
    for i in range(count):
        os.unlink(f"{box()}/ack-{i}")
    return [(b - a) / 1e6 for a, b in zip(told, seen)], [(b - a) / 1e6 for a, b in zip(told, plain)]


def push_delay(top, count):
    """A machine under load may be late by itself: then so is the control, or the next time isn't."""
    for _ in range(3):
        ours, plain = delays(count, top)
        p99, control = percentile(ours, 0.99), percentile(plain, 0.99)
        print(f"# {count} changes: p50 {percentile(ours, 0.5):.1f} ms, p99 {p99:.1f} ms; inotify on "
              f"the plain directory and an echo over ssh: p50 {percentile(plain, 0.5):.1f} ms, "
              f"p99 {control:.1f} ms", flush=True)
        if p99 < PUSH_MS + control:
            return ""
    return f"p99 {p99:.1f} ms, the control's {control:.1f} ms"


def barrier(daemon):
    code, _, err, _ = daemon.run("true")
    assert code == 0, err


def endless_writer():
    code, out, err, _ = one.run("--detach", "sh", "-c",
                                "echo $$ > writer; while :; do touch f; done")
    assert code == 0, err
    w.wait_for(lambda: os.path.exists(box() + "/f") and os.path.getsize(box() + "/writer"), 20)
    longest = 0
    for i in range(w.short_or_long(10, 200)):
        begun = time.monotonic()
        code, out, err, _ = one.run("sh", "-c", f"cat in-{i - 1}; echo {i} > out; mv out out-{i}",
                                    timeout=30) if i else one.run("-c", "echo 0 > out-0")
        longest = max(longest, time.monotonic() - begun)
        if code != 0 or (i and out != b"%d\n" % (i - 1)):
            return f"command {i}: {code} {out} {err}"
        if w.get(f"{K}/out-{i}") != b"%d\n" % i:
            return f"command {i}: {w.get(f'{K}/out-{i}')}"
        w.put(f"{K}/in-{i}", b"%d\n" % i)
    print(f"# the longest command took {longest:.2f} s", flush=True)
    code, out, err, _ = one.run("-c", "kill $(cat writer); rm f")
    return "" if longest < 10 else f"{longest} s"


# --- bytes ---

FILES = [f"c{i}" for i in range(4)]
WAYS = ["store('{0}', {1})", "same_stamps('{0}', {1})", "same_stamps('elsewhere/{0}', {1})",
        "store('elsewhere/{0}', {1})", "by_rename('{0}', {1})", "by_new_link('{0}', {1})"]
SIZE = 10000


def content():
    actor = Actor(one)
    actor.do("os.mkdir('elsewhere')")
    want = {}
    for name in FILES:
        want[name] = bytes(SIZE)
        actor.do(f"open('{name}', 'wb').write(bytes({SIZE}))")
        actor.do(f"os.link('{name}', 'elsewhere/{name}')")
    barrier(one)
    opened = {name: os.open(f"{K}/{name}", os.O_RDONLY) for name in FILES}
    rng = random.Random(5)
    try:
        return rounds(actor, want, opened, rng)
    finally:
        for fd in opened.values():
            os.close(fd)
        actor.end()


def rounds(actor, want, opened, rng):
    replaced = set()
    for i in range(w.short_or_long(40, 1000)):
        name, way = rng.choice(FILES), WAYS[i % len(WAYS)]
        if "by_rename" in way and i < 24:
            way = WAYS[0]
        data = bytes([rng.randrange(256)]) * SIZE
        # Its other name, and a mapping made before, are the old file's from then on.
        if name in replaced and ("elsewhere/{" in way or way.startswith("store")):
            continue
        if "by_rename" in way:
            replaced.add(name)
        actor.do(way.format(name, f"bytes([{data[0]}]) * {SIZE}"))
        want[name] = data
        barrier(one)
        for other in FILES:
            if w.in_child(w.get, f"{K}/{other}") != want[other]:
                return f"round {i}, {way}: {other} is stale"
            if other not in replaced and os.pread(opened[other], SIZE, 0) != want[other]:
                return f"round {i}, {way}: {other}, opened before, is stale"
    return ""


def content_after_remount():
    top_file = f"{K}/{FILES[0]}"
    plain = f"{box()}/{FILES[0]}"
    for i in range(w.short_or_long(3, 20)):
        w.get(top_file)
        before = os.stat(plain)
        one.stop()
        data = bytes([65 + i]) * SIZE
        with open(plain, "r+b") as f:
            f.write(data)
        os.utime(plain, ns=(before.st_atime_ns, before.st_mtime_ns))
        one.start()
        if w.in_child(w.get, top_file) != data:
            return f"mount {i}: stale"
        actor = Actor(one)
        actor.do(f"store('{FILES[0]}', bytes([97]) * {SIZE})")
        barrier(one)
        if w.in_child(w.get, top_file) != bytes([97]) * SIZE:
            return f"mount {i}: a store through a mapping is not seen"
        actor.end()
    return ""


# --- locks between the two mounts ---

def is_taken(path, how, kind, flags=os.O_RDWR):
    fd = os.open(path, flags)
    try:
        how(fd, kind | fcntl.LOCK_NB)
    except OSError as e:
        if e.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        return True
    finally:
        os.close(fd)
    return False


def taken_there(how, kind, flags=os.O_RDWR, at=None):
    return w.in_child(is_taken, (at or K2) + "/lock", how, kind, flags)


def given_up(how):
    """By close(): flock's go with RELEASE, which the kernel sends and doesn't wait for."""
    if how is fcntl.flock:
        w.wait_for(lambda: not taken_there(how, fcntl.LOCK_EX), 5, "a lock's end")
    return not taken_there(how, fcntl.LOCK_EX)


def lock_readers():
    for how in (fcntl.flock, fcntl.lockf):
        fd = os.open(K + "/lock", os.O_RDONLY)
        try:
            how(fd, fcntl.LOCK_SH)
            if taken_there(how, fcntl.LOCK_SH, os.O_RDONLY):
                return f"{how.__name__}: two readers exclude each other"
            if not taken_there(how, fcntl.LOCK_EX):
                return f"{how.__name__}: a writer gets in between readers"
            if how is fcntl.lockf:
                try:
                    how(fd, fcntl.LOCK_EX)
                    return "a read-only descriptor takes a write lock"
                except OSError as e:
                    if e.errno != errno.EBADF:
                        return str(e)
        finally:
            os.close(fd)
        if not given_up(how):
            return f"{how.__name__}: closing does not give it up"
    return ""


def lock_second_descriptor():
    """As POSIX has it: any close of the file gives up fcntl's locks, none gives up flock's."""
    for flags in (os.O_RDWR, os.O_RDONLY):
        for how, kept in ((fcntl.flock, True), (fcntl.lockf, False)):
            fd = os.open(K + "/lock", os.O_RDWR)
            how(fd, fcntl.LOCK_EX)
            os.close(os.open(K + "/lock", flags))
            got = taken_there(how, fcntl.LOCK_EX)
            os.close(fd)
            if got != kept:
                return f"{how.__name__}, flags {flags}: {'kept' if got else 'given up'}"
            if not given_up(how):
                return f"{how.__name__}: it is never given up"
    return ""


def turns(path, which, count):
    """Each reads what the other wrote under the lock."""
    fd = os.open(path, os.O_RDWR)
    last = -1
    for _ in range(count):
        while True:
            fcntl.lockf(fd, fcntl.LOCK_EX)
            now, who, check = struct.unpack("<QQ16s", os.pread(fd, 32, 0))
            assert check == (b"%016d" % now), (now, check)
            assert now >= last, (now, last)
            if who != which:
                break
            last = now
            fcntl.lockf(fd, fcntl.LOCK_UN)
            time.sleep(0.001)
        last = now + 1
        os.pwrite(fd, struct.pack("<QQ16s", last, which, b"%016d" % last), 0)
        fcntl.lockf(fd, fcntl.LOCK_UN)
    os.close(fd)
    return last


def lock_acquires():
    count = w.short_or_long(50, 1000)
    w.put(K + "/turns", struct.pack("<QQ16s", 0, 1, b"%016d" % 0))
    barrier(two)
    kids = [w.Child(turns, f"{top}/turns", i, count) for i, top in enumerate((K, K2))]
    last = [kid.wait(60 + count) for kid in kids]
    return "" if sorted(map(str, last)) == sorted(map(str, [(True, 2 * count - 1), (True, 2 * count)])
                                                  ) else last


def workers():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm", encoding="utf-8") as f:
                name = f.read().strip()
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                line = f.read()
        except OSError:
            continue
        if name == "pai-worker" and world.dir.encode() in line:
            found.append(int(pid))
    return sorted(found)


def holds(top, report, go):
    """Takes both kinds of lock, says so, and tries the files when told to."""
    fd, other = os.open(top + "/lock", os.O_RDWR), os.open(top + "/lock2", os.O_RDWR)
    fcntl.lockf(fd, fcntl.LOCK_EX)
    fcntl.flock(other, fcntl.LOCK_EX)
    os.write(report, b"l")
    os.read(go, 1)
    wrong = []
    for f in (fd, other):
        for what in (lambda: os.pread(f, 1, 0), lambda: os.pwrite(f, b"y", 0)):
            try:
                what()
                wrong.append("ok")
            except OSError as e:
                wrong.append(errno.errorcode[e.errno])
    return wrong


def wait_lock(top, name, how):
    fd = os.open(f"{top}/{name}", os.O_RDWR)
    begun = time.monotonic()
    how(fd, fcntl.LOCK_EX)
    os.close(fd)
    return time.monotonic() - begun


def locked_child():
    w.put(K + "/lock2")
    barrier(two)
    said, saying = os.pipe()
    heard, hear = os.pipe()
    child = w.Child(holds, K, saying, heard)
    assert select.select([said], [], [], 30)[0] and os.read(said, 1) == b"l"
    assert taken_there(fcntl.lockf, fcntl.LOCK_EX)
    return child, hear


def lock_lost_line():
    """Its worker is killed, and the locks with it; whoever held one is told at the next use."""
    child, hear = locked_child()
    mine = [pid for pid in workers() if pid not in workers_of_two]
    assert len(mine) == 1, mine
    os.kill(mine[0], signal.SIGKILL)
    waits = [w.Child(wait_lock, K2, name, how) for name, how in
             (("lock", fcntl.lockf), ("lock2", fcntl.flock))]
    answers = [kid.wait(GRACE_S + 20) for kid in waits]
    if not all(a and a[0] for a in answers):
        return f"the other side doesn't get them: {answers}"
    barrier(one)
    os.write(hear, b"g")
    good, said = child.wait(30)
    if not good or said != ["EIO"] * 4:
        return f"{good} {said}"
    return "" if w.in_child(w.get, K + "/lock2") == b"x" else "it is written"


def lock_killed_daemon():
    child, _ = locked_child()
    one.proc.kill()
    one.proc.wait()
    waits = [w.Child(wait_lock, K2, name, how) for name, how in
             (("lock", fcntl.lockf), ("lock2", fcntl.flock))]
    answers = [kid.wait(GRACE_S + 20) for kid in waits]
    child.kill()
    w.unmount(one.top)
    one.start()
    if not all(a and a[0] for a in answers):
        return f"the other side doesn't get them: {answers}"
    return "" if w.in_child(w.get, K + "/lock2") == b"x" else "written"


def main():
    global one, two, K, K2, workers_of_two
    two = None
    one = w.Daemon("ssh", "one", *OPTIONS)
    K, K2 = one.top + "/k", w.TMP + "/two/k"
    os.mkdir(K)
    try:
        barrier(one)
        count = w.short_or_long(200, 2000)
        w.case("push-delay", lambda: push_delay(K, count))
        w.case("endless-writer", endless_writer)
        w.case("content", content)
        w.case("content-remount", content_after_remount)
        before = workers()
        two = w.Daemon("ssh", "two", *OPTIONS)
        barrier(two)
        workers_of_two = [pid for pid in workers() if pid not in before]
        w.put(K + "/lock")
        w.case("push-delay-between-mounts", lambda: push_delay(K2, count // 2))
        barrier(two)
        w.case("lock-readers", lock_readers)
        w.case("lock-second-descriptor", lock_second_descriptor)
        w.case("lock-acquires", lock_acquires)
        w.case("lock-lost-line", lock_lost_line)
        w.case("lock-killed-daemon", lock_killed_daemon)
        one.pai("kill", "k")
    except Exception as e:  # whatever it is, the host is put away
        w.not_ok("the script", f"{type(e).__name__}: {e}")
    finally:
        end()
    return 1 if w.failed else 0


def end():
    os.chdir("/")
    w.finish()
    try:
        w.wait_for(lambda: not workers(), GRACE_S + 20, "the end of the workers")
    except AssertionError as e:
        w.not_ok("workers", e)
    world.stop()


if __name__ == "__main__":
    sys.exit(main())
