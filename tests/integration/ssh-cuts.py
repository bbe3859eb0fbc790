#!/usr/bin/env python3
"""The line of a mount is cut before every frame of a recorded run, and stalled, half opened and slowed
before a frame of each kind: nothing is lost, done twice or told wrongly, and everybody has an answer.

Between the daemon and the host stands a proxy that knows frames: the daemon's `ssh` is a program
that hands its stdio to this one. Behind it is the host's shell, at full length a real ssh and sshd.
"""
# timeout 240
# timeout-long 3600
import array
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hold_world as w  # noqa: E402
from ssh_world import World  # noqa: E402

GRACE_S = 25  # a silent line is given up after ten
FRAMES_MAX = 60
SLOW_BYTES = w.short_or_long(128, 4096)
SLOW_S = 0.01
NAMES = {0x40: "ATTACH", 0x41: "ATTACHED", 0x42: "OPEN", 0x43: "OPENED", 0x44: "DATA",
         0x45: "CREDIT", 0x46: "END", 0x47: "BYE", 0x48: "ACK", 0x49: "PING", 0x4a: "PONG"}
w.begin("cuts")

# It hands everything over and waits for the status.
SSH = """#!/usr/bin/env python3
import array, json, os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(os.environ["PAI_CUTS"])
s.sendmsg([json.dumps(sys.argv[1:]).encode()],
          [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
for fd in (0, 1):
    os.close(fd)
sys.exit(int(s.recv(10) or b"255"))
"""


class Direction:
    """Bytes of one direction of a transport, from where frames begin."""

    def __init__(self, mark):
        self.mark, self.data, self.found = mark, b"", False

    def take(self, data):
        """[(frame's type or None, its bytes)]; the rest stays."""
        self.data += data
        out = []
        if not self.found:
            at = self.data.find(self.mark)
            if at < 4:
                # The mark may be on its way: what can't be a part of it goes through.
                keep = len(self.mark) + 4
                out.append((None, self.data[:-keep] if len(self.data) > keep else b""))
                self.data = self.data[-keep:]
                if not self.mark[:1] in self.data:
                    out.append((None, self.data))
                    self.data = b""
                return out
            self.found = True
            out.append((None, self.data[:at - 4]))
            self.data = self.data[at - 4:]
        while len(self.data) >= 9:
            length = 4 + struct.unpack_from("<I", self.data)[0]
            if len(self.data) < length:
                break
            out.append((self.data[4], self.data[:length]))
            self.data = self.data[length:]
        return out


class Transport:
    """One `ssh`: the daemon's descriptor, and the process that it gets to."""

    def __init__(self, line, conn, stdio, argv):
        self.line, self.conn, self.daemon = line, conn, socket.socket(fileno=stdio)
        self.proc = subprocess.Popen(line.command(argv), stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
                                     env=line.host_env(), start_new_session=True)
        self.stalled = self.swallows = None
        self.slow = [0, 0]
        self.over = False
        self.pumps = [threading.Thread(target=self.up, daemon=True),
                      threading.Thread(target=self.down, daemon=True)]
        for pump in self.pumps:
            pump.start()

    def cut(self):
        """Nobody hears any more of it."""
        if self.over:
            return
        self.over = True
        for end in (lambda: self.daemon.shutdown(socket.SHUT_RDWR), self.proc.kill):
            try:
                end()
            except OSError:
                pass
        if self.stalled:
            self.stalled.set()
        try:
            self.proc.stdin.close()
        except OSError:
            pass
        self.proc.wait()
        try:
            self.conn.sendall(b"255")
        except OSError:
            pass
        self.conn.close()

    def up(self):
        self.pump(0, lambda: self.daemon.recv(65536), self.write_up, Direction(b"\x40\0\0\0\0PAIK"))
        self.cut()

    def down(self):
        self.pump(1, lambda: os.read(self.proc.stdout.fileno(), 65536), self.daemon.sendall,
                  Direction(b"\x41\0\0\0\0PAIK"))
        self.cut()

    def write_up(self, data):
        while data:
            data = data[os.write(self.proc.stdin.fileno(), data):]

    def pump(self, which, read, write, frames):
        try:
            while not self.over:
                data = read()
                if not data:
                    return
                for kind, part in frames.take(data):
                    if kind is not None and not self.line.on_frame(self, which, kind):
                        return
                    if self.stalled and not self.line.wait_released(self):
                        return
                    if self.swallows == which:
                        continue
                    self.pass_on(which, write, part)
        except (OSError, ValueError):
            pass

    def pass_on(self, which, write, part):
        while part and self.slow[which] > 0:
            write(part[:1])
            part = part[1:]
            self.slow[which] -= 1
            time.sleep(SLOW_S)
        if part:
            write(part)


class Line:
    """A daemon with its proxy and its host. `arm` says what happens before which frame."""

    def __init__(self, name, timeout=40):
        self.name, self.lock = name, threading.Lock()
        self.home = f"{w.TMP}/host-{name}"
        os.makedirs(self.home, mode=0o700, exist_ok=True)
        self.transports, self.seen, self.events = [], [], []
        self.plan = None
        self.released = threading.Event()
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(f"{w.TMP}/{name}.cuts")
        self.server.listen(16)
        threading.Thread(target=self.accept, daemon=True).start()
        self.daemon = w.Daemon("ssh", name, "host=box", "root=boxes", "transport=ssh",
                               f"line_grace={GRACE_S}", f"timeout={timeout}s", "symlinks=raw",
                               *([f"config={world.config}"] if world else []),
                               before=["env", f"PATH={w.TMP}/bin:{os.environ['PATH']}",
                                       f"PAI_CUTS={w.TMP}/{name}.cuts"])

    def command(self, argv):
        return ["/usr/bin/ssh", *argv] if world else ["sh", "-c", argv[-1]]

    def host_env(self):
        return {"PATH": "/usr/bin:/bin", "HOME": self.home}

    def boxes(self):
        return f"{world.home if world else self.home}/boxes"

    def accept(self):
        while True:
            try:
                conn, _ = self.server.accept()
                data, control, _, _ = conn.recvmsg(65536, socket.CMSG_SPACE(12))
            except OSError:
                return
            fds = array.array("i", control[0][2][:12])
            os.close(fds[1])
            os.close(fds[2])
            transport = Transport(self, conn, fds[0], json.loads(data))
            with self.lock:
                self.transports.append(transport)

    # --- what is done to it ---

    def arm(self, how, wants):
        """wants(n, which, kind): whether it is this frame, the n-th from now on."""
        with self.lock:
            self.seen, self.events = [], []
            self.plan = (how, wants) if how else None
            self.released.clear()

    def on_frame(self, transport, which, kind):
        """False: it is cut."""
        with self.lock:
            n = len(self.seen)
            self.seen.append((which, kind))
            if not self.plan or not self.plan[1](n, which, kind):
                # What was held back comes late, when there is another line.
                if kind == 0x41 and any(t.stalled for t in self.transports if t is not transport):
                    self.released.set()
                return True
            how, self.plan = self.plan[0], None
            self.events.append((how, which, kind))
        if how == "drop":
            transport.cut()
            return False
        if how == "stall":
            transport.stalled = threading.Event()
        elif how == "half-open":
            transport.swallows = which
        elif how == "slow":
            transport.slow[which] = SLOW_BYTES
        return True

    def wait_released(self, transport):
        """A stalled line says what it held when there is another one beside it."""
        while not self.released.wait(0.05):
            if transport.over:
                return False
        time.sleep(0.02)
        transport.stalled = None
        return True

    def end(self):
        self.arm(None, None)
        self.released.set()
        self.daemon.stop()
        for transport in self.transports:
            transport.cut()
        self.server.close()


# --- the recorded run ---

BULK = bytes(range(256)) * 1200


def files(top):
    """Each of them once, and told as it is."""
    fd = os.open(top + "/a", os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_WRONLY)
    os.write(fd, b"one")
    os.write(fd, b"+two")
    os.close(fd)
    os.rename(top + "/a", top + "/b")
    return w.get(top + "/b")


def play(line, key):
    """What went wrong."""
    top = f"{line.daemon.top}/{key}"
    os.mkdir(top)
    read = w.in_child(files, top, seconds=90)
    if read != b"one+two":
        return f"read {read}"
    code, out, err, told = line.daemon.run(
        "-c", "echo ran >> runs; cat >> log; cat b; exit 7", key=key, timeout=90,
        stdin=None, input=BULK)
    if (code, out) == (7, b"one+two"):
        runs = b"ran\n"
    elif code == 125 and told and told["outcome"] == "unknown":
        runs = None
    else:
        return f"the command: {code} {out[:50]} {err} {told}"
    boxes = [f"{line.boxes()}/{name}/workspace" for name in os.listdir(line.boxes())
             if os.path.isdir(f"{line.boxes()}/{name}/workspace")]
    if len(boxes) != 1:
        return f"{len(boxes)} sandboxes"
    wrong = inspect(boxes[0], runs)
    killed = line.daemon.pai("kill", key, timeout=90)
    if killed.returncode != 0:
        return f"pai kill: {killed.stderr}"
    left = [name for name in os.listdir(line.boxes()) if name != "keys" and name[0] != "."]
    return wrong or (f"left: {left}" if left else "")


def inspect(box, runs):
    """On the host itself."""
    if os.path.exists(box + "/a") or w.get(box + "/b") != b"one+two":
        return f"there is {os.listdir(box)}"
    if runs is None:
        return "" if not os.path.exists(box + "/runs") or w.get(box + "/runs") == b"ran\n" else "twice"
    if w.get(box + "/runs") != runs:
        return f"it ran as often: {w.get(box + '/runs')}"
    return "" if w.get(box + "/log") == BULK else "its input is another"


def names(seen):
    return [("<>"[which == 0]) + NAMES.get(kind, hex(kind)) for which, kind in seen]


def record(line):
    line.arm(None, None)
    wrong = play(line, "recorded")
    assert not wrong, wrong
    return list(line.seen)


def cut_each(line, numbers, wrong, done):
    for n in numbers:
        line.arm("drop", lambda i, which, kind, n=n: i == n)
        try:
            why = play(line, f"cut-{n}")
        except Exception as e:  # pylint: disable=broad-except
            why = f"{type(e).__name__}: {e}"
        if why:
            wrong.append(f"frame {n} {line.events}: {why}")
        if line.events:
            done.append(n)


def drops(count):
    """On several daemons at once: what takes time is waiting."""
    lines = [first] + [Line(f"drops-{i}") for i in range(1, 4)]
    wrong, done = [], []
    threads = [threading.Thread(target=cut_each, args=(line, range(i, count, len(lines)), wrong, done))
               for i, line in enumerate(lines)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for line in lines[1:]:
        line.end()
    print(f"# cut before {len(done)} of {count} frames", flush=True)
    if len(done) < count * 3 // 4:
        wrong.append(f"only {len(done)} of {count} were cut")
    return "; ".join(wrong)


def one_mode(how, which, kind, wrong):
    line = None
    name = f"{how} before {names([(which, kind)])[0]}"
    try:
        line = Line(f"{how}-{which}-{kind:x}")
        line.arm(how, lambda _n, a, b: (a, b) == (which, kind))
        begun = time.monotonic()
        why = play(line, line.name)
        if not line.events:
            why = why or "it never came"
        elif how in ("stall", "half-open") and len(line.transports) < 2:
            why = why or "there was one line alone"
        if time.monotonic() - begun > 90:
            why = why or f"it took {time.monotonic() - begun:.0f} s"
    except Exception as e:  # pylint: disable=broad-except
        why = f"{type(e).__name__}: {e}"
    if line:
        line.end()
    if why:
        wrong.append(f"{name}: {why}")


def modes(kinds):
    wrong = []
    todo = [(how, which, kind) for how in ("stall", "half-open", "slow") for which, kind in kinds]
    while todo:
        batch, todo = todo[:12], todo[12:]  # most of it is waiting
        threads = [threading.Thread(target=one_mode, args=(*each, wrong)) for each in batch]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(f"# {len(kinds)} kinds of frames, stalled, half open and slow", flush=True)
    return "; ".join(wrong)


def attaches():
    """The line is cut, and the next one before the first frame of it, each way."""
    for kind in (0x40, 0x41):
        first.arm("drop", lambda n, which, b: which == 0 and b == 0x44 and n > 10)
        original = first.on_frame

        def twice(transport, which, seen, kind=kind, original=original):
            good = original(transport, which, seen)
            if not good and first.plan is None and len(first.events) == 1:
                first.plan = ("drop", lambda _n, _which, b: b == kind)
            return good

        first.on_frame = twice
        why = play(first, f"attach-{kind:x}")
        first.on_frame = original
        if why or len(first.events) != 2:
            return f"{NAMES[kind]}: {why} {first.events}"
    return ""


def pings():
    """An idle line asks; it is cut before that, and before the answer."""
    for kind in (0x49, 0x4a):
        os.mkdir(f"{first.daemon.top}/ping-{kind:x}")
        process = subprocess.Popen(first.daemon.run_argv("-c", "read line; echo $line",
                                                         key=f"ping-{kind:x}"),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        first.arm("drop", lambda _n, _which, b, kind=kind: b == kind)
        try:
            w.wait_for(lambda: first.events, 40, NAMES[kind])
            out, _ = process.communicate(b"word\n", timeout=60)
        finally:
            process.kill()
        first.daemon.pai("kill", f"ping-{kind:x}")
        if (process.returncode, out) != (0, b"word\n"):
            return f"{NAMES[kind]}: {process.returncode} {out}"
    return ""


def bye():
    """The daemon's last word doesn't arrive: it ends all the same."""
    first.arm("drop", lambda _n, _which, kind: kind == 0x47)
    begun = time.monotonic()
    status = first.daemon.stop()
    took = time.monotonic() - begun
    if not first.events:
        return "it never came"
    return "" if status == 0 and took < 10 else f"{status} after {took:.1f} s"


def deadline():
    """Nothing comes back: whoever asks is answered when the session's time is over."""
    line = Line("deadline", timeout=2)
    try:
        os.mkdir(line.daemon.top + "/k")
        w.in_child(w.put, line.daemon.top + "/k/f")
        line.arm("stall", lambda _n, which, kind: which == 0 and kind == 0x44)
        name, took = w.errno_of(w.put, line.daemon.top + "/k/g", seconds=30)
        if name != "ETIMEDOUT" or took > 10:
            return f"{name} after {took:.1f} s"
        line.released.set()
        w.wait_for(lambda: not w.errno_of(os.stat, line.daemon.top + "/k/f")[0], 30, "the line")
        return "" if w.in_child(w.get, line.daemon.top + "/k/f") == b"x" else "another file"
    finally:
        line.end()


def main():
    global first, world
    world = None
    if w.LONG:
        world = World(os.path.join(w.TMP, "host"), user="tester" if os.geteuid() == 0 else "").start()
    os.mkdir(w.TMP + "/bin")
    with open(w.TMP + "/bin/ssh", "w", encoding="utf-8") as f:
        f.write(SSH)
    os.chmod(w.TMP + "/bin/ssh", 0o755)
    try:
        first = Line("first")
        seen = record(first)
        print(f"# {len(seen)} frames: {' '.join(names(seen))}", flush=True)
        count = len(seen) if w.LONG else min(len(seen), FRAMES_MAX)
        kinds = sorted(set(seen))
        w.case("cut-before-every-frame", drops, count)
        w.case("cut-while-attaching", attaches)
        w.case("cut-at-pings", pings)
        w.case("other-modes", modes, kinds)
        w.case("deadline", deadline)
        w.case("cut-at-goodbye", bye)
    except Exception as e:  # pylint: disable=broad-except
        w.not_ok("the script", f"{type(e).__name__}: {e}")
    finally:
        end()
    return 1 if w.failed else 0


def workers():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        if b"serve" in words and words[0].startswith(w.TMP.encode() + b"/host"):
            found.append(int(pid))
    return found


def end():
    os.chdir("/")
    w.finish()
    for pid in workers():  # of those who could not say goodbye
        os.kill(pid, signal.SIGKILL)
    if world:
        world.stop()


if __name__ == "__main__":
    sys.exit(main())
