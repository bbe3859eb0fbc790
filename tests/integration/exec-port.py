#!/usr/bin/env python3
# timeout 120
"""pai port, over local and (ssh-port.sh) over ssh: a server in a sandbox without a network is reached through it and not from the
host; bytes, half-closes and cuts pass as on a direct connection; its end leaves nothing behind."""
import hashlib
import http.client
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
import hold_world  # noqa: E402
from hold_world import BUILD, TMP, case, is_over, skip, wait_for  # noqa: E402
from ssh_world import World  # noqa: E402

MIB = 1 << 20
NAME = "port"
OVER = os.environ.get("PAI_PORT_OVER", "local")  # or ssh
OPTIONS = "host_commands,isolation=" + os.environ.get("PAI_ISOLATION", "auto")
if os.environ.get("PAI_LOCAL_OPTS"):  # as lib.sh
    OPTIONS += "," + os.environ["PAI_LOCAL_OPTS"]
# Each connection begins with a line that says what is to be done with it.
SERVER = r"""
import hashlib, os, socket, struct, sys, threading, time
def serve(c):
    f = c.makefile("rb")
    what = f.readline().split()
    if what[0] == b"echo":
        while data := f.read1(65536):
            c.sendall(data)
    elif what[0] == b"hash":            # says nothing before it has everything
        h = hashlib.sha256()
        while data := f.read1(65536):
            h.update(data)
        c.sendall(h.hexdigest().encode())
    elif what[0] == b"pour":            # ends its own direction first, and goes on reading
        block = bytes(range(256)) * 256
        for _ in range(int(what[1]) // len(block)):
            c.sendall(block)
        c.shutdown(socket.SHUT_WR)
        with open("heard.new", "wb") as out:
            out.write(f.read())
        os.rename("heard.new", "heard")
    elif what[0] == b"cut":             # a reset, behind some bytes
        c.sendall(b"half")
        time.sleep(0.3)
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif what[0] == b"watch":           # writes down how its client went
        c.sendall(b"ready")
        try:
            said = "end" if f.read() == b"" else "bytes"
        except OSError as e:
            said = e.__class__.__name__
        with open("went.new", "w") as out:
            out.write(said)
        os.rename("went.new", "went")
    f.close()
    c.close()
host, port = sys.argv[1:]
s = socket.create_server((host, int(port)), backlog=300, family=socket.AF_INET6 if ":" in host else socket.AF_INET)
open("up-" + port, "w").close()
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""


def run(*argv, timeout=60, **kw):
    return subprocess.run(argv, capture_output=True, text=True, timeout=timeout, **kw)


def pai(*args):
    return run(f"{BUILD}/pai", "-n", NAME, *args)


def sandbox(script, key="k", **kw):
    got = run(f"{BUILD}/pai-exec", "-n", NAME, "-s", key, "-c", script, **kw)
    assert got.returncode == 0, got
    return got.stdout


def detach(*argv, key="k"):
    got = run(f"{BUILD}/pai-exec", "-n", NAME, "-s", key, "--detach", *argv)
    assert got.returncode == 0, got


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


class Forward:
    """A `pai port` that runs, and what it has printed."""

    def __init__(self, *args):
        self.process = subprocess.Popen([f"{BUILD}/pai", "-n", NAME, "port", *args], text=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)
        self.line = self.process.stdout.readline()
        if self.line.startswith("{"):
            told = json.loads(self.line)
            self.at = (told["address"], told["port"])
        elif self.line:
            host, port = self.line.split()[0].rsplit(":", 1)
            self.at = (host.strip("[]"), int(port))

    def connect(self, first=b""):
        c = socket.create_connection(self.at, timeout=30)
        if first:
            c.sendall(first)
        return c

    def end(self, signo=signal.SIGTERM):
        """Its status and what it said on stderr."""
        self.process.send_signal(signo)
        _, err = self.process.communicate(timeout=10)
        return self.process.returncode, err

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def read_exactly(c, size):
    got = b""
    while len(got) < size and (data := c.recv(size - len(got))):
        got += data
    return got


def read_all(c):
    parts = []
    while data := c.recv(MIB):
        parts.append(data)
    return b"".join(parts)


def is_reset(c):
    """Whether what is left of the connection ends in a reset."""
    try:
        read_all(c)
    except ConnectionError:
        return True
    return False


def streams_left(key="k"):
    """Processes in the sandbox that carry a connection."""
    return int(sandbox("cat /proc/[0-9]*/comm 2>/dev/null | grep -c '^pai-port$' || true", key))


def http_server(port):
    if IS_ISOLATED:
        try:
            socket.create_connection(("127.0.0.1", port), 2).close()
            return "the sandbox's server can be reached from the host"
        except ConnectionRefusedError:
            pass
    # Not the same number on both sides: that would be the server itself where nothing isolates it.
    with Forward("k", str(port), "--listen", "0") as f:
        for _ in range(3):
            c = http.client.HTTPConnection(*f.at, timeout=30)
            c.request("GET", "/hello")
            reply = c.getresponse()
            body = reply.read()
            c.close()
            if (reply.status, body) != (200, b"from the sandbox\n"):
                return f"{reply.status} {body}"
        status, err = f.end(signal.SIGINT)
        return (status, err) != (-signal.SIGINT, "") and f"status {status}, {err}"


def one_exchange(f, size, results):
    data = os.urandom(size)
    with f.connect(b"echo\n") as c:
        def send():
            c.sendall(data)
            c.shutdown(socket.SHUT_WR)
        sender = threading.Thread(target=send)
        sender.start()
        results.append(read_all(c) == data)
        sender.join()


def many_at_once():
    with Forward("k", PORT, "--listen", "0") as f:
        results = []
        threads = [threading.Thread(target=one_exchange, args=(f, 10 * MIB, results)) for _ in range(8)]
        begun = time.monotonic()
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        took = time.monotonic() - begun
        print(f"# 8 connections, 10 MiB each way: {160 / took:.0f} MiB/s", flush=True)
        if results != [True] * 8:
            return results
        wait_for(lambda: streams_left() == 0, 10, "the end of all streams")
        return f.end()[1]


def more_than_the_bound():
    """300 stand open: 256 are served at once, the others as soon as one of those ends."""
    with Forward("k", PORT, "--listen", "0") as f:
        conns = [f.connect(b"watch\n") for _ in range(300)]
        for c in conns[:256]:
            if read_exactly(c, 5) != b"ready":
                return "no answer within the bound"
        conns[256].settimeout(0.5)
        try:
            return f"one past the bound was answered: {conns[256].recv(5)}"
        except TimeoutError:
            pass
        for c in conns[:100]:
            c.close()
        for c in conns[256:]:
            c.settimeout(30)
            if read_exactly(c, 5) != b"ready":
                return "one that waited was not answered"
        for c in conns:
            c.close()
        wait_for(lambda: streams_left() == 0, 20, "the end of all streams")
        return f.end()[1]


def half_closes():
    with Forward("k", PORT, "--listen", "0") as f:
        data = os.urandom(3 * MIB)
        with f.connect(b"hash\n" + data) as c:
            c.shutdown(socket.SHUT_WR)
            if read_all(c).decode() != hashlib.sha256(data).hexdigest():
                return "the client's half-close"
        with f.connect(b"pour 4194304\n") as c:
            if read_all(c) != bytes(range(256)) * (4 * MIB // 256):  # ends while ours is open
                return "the server's half-close"
            c.sendall(b"and still heard")
            c.shutdown(socket.SHUT_WR)
            heard = wait_for(lambda: sandbox("cat heard 2>/dev/null || true"))
            return heard != "and still heard" and heard


def a_reader_that_stops():
    """Its stream waits; nothing else does, and nothing is lost."""
    with Forward("k", PORT, "--listen", "0") as f, f.connect(b"pour 67108864\n") as slow:
        time.sleep(0.5)
        results = []
        one_exchange(f, MIB, results)
        with open(f"/proc/{f.process.pid}/status") as s:
            kib = int(next(l for l in s if l.startswith("VmRSS")).split()[1])
        total = sum(len(data) for data in iter(lambda: slow.recv(MIB), b""))
        return (results != [True] or total != 64 * MIB or kib > 32 * 1024) and (results, total, kib)


def cuts():
    with Forward("k", PORT, "--listen", "0") as f:
        with f.connect(b"cut\n") as c:
            if read_exactly(c, 4) != b"half" or not is_reset(c):
                return "the server's reset came as an end"
        sandbox("rm -f went")
        with f.connect(b"watch\n") as c:
            read_exactly(c, 5)
            c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        went = wait_for(lambda: sandbox("cat went 2>/dev/null || true"))
        if went != "ConnectionResetError":
            return f"the client's reset came as {went}"
        sandbox("rm -f went")
        with f.connect(b"watch\n") as c:
            read_exactly(c, 5)
        went = wait_for(lambda: sandbox("cat went 2>/dev/null || true"))
        wait_for(lambda: streams_left() == 0, 10, "the end of all streams")
        return went != "end" and went


def refused():
    nobody = str(free_port())
    with Forward("k", nobody, "--listen", "0") as f:
        with f.connect() as c:
            if not is_reset(c):
                return "no reset"
        with f.connect() as c:
            is_reset(c)
        err = f.end()[1]
        return (err.count("\n") != 2 or f"port {nobody} of 'k'" not in err or
                "nothing listens" not in err) and err


def over_cuts(world):
    """The line is cut under streams that stand: they go on where they were."""
    with Forward("k", PORT, "--listen", "0") as f, f.connect(b"pour 67108864\n") as slow, \
            f.connect(b"echo\n") as c:
        for _ in range(3):
            said = os.urandom(100000)
            c.sendall(said)
            if read_exactly(slow, 1000 * 256) != bytes(range(256)) * 1000:
                return "what came before a cut"
            world.cut()
            if read_exactly(c, len(said)) != said:
                return "what was said before a cut"
        rest = read_all(slow)
        return rest != bytes(range(256)) * (64 * MIB // 256 - 3000) and len(rest) or f.end()[1]


def killed_itself():
    for signo in (signal.SIGTERM, signal.SIGKILL):
        with Forward("k", PORT, "--listen", "0") as f, f.connect(b"pour 67108864\n") as c:
            c.recv(100)
            wait_for(lambda: streams_left() == 1)
            status, err = f.end(signo)
            if (status, err) != (-signo, "") or not is_reset(c):
                return f"{signo}: {status} {err}"
            wait_for(lambda: streams_left() == 0, 10, "the end of the stream")
    return None


def killed_sandbox():
    detach("python3", "server.py", "127.0.0.1", PORT, key="gone")
    wait_for(lambda: sandbox(f"ls up-{PORT} 2>/dev/null || true", "gone"))
    with Forward("gone", PORT, "--listen", "0") as f, f.connect(b"watch\n") as c:
        read_exactly(c, 5)
        got = pai("kill", "gone")
        if got.returncode or not is_reset(c):
            return f"no reset, {got}"
        err = f.end()[1]
        return err.count("\n") != 1 and err


def ways_to_listen():
    taken = socket.create_server(("127.0.0.1", 0))
    number = str(taken.getsockname()[1])
    with Forward("k", number) as f:
        if f.at[1] == int(number) or "is taken" not in f.line or f.line.count("\n") != 1:
            return f.line
    got = pai("port", "k", PORT, "--listen", number)
    if got.returncode != 1 or "in use" not in got.stderr or got.stderr.count("\n") != 1:
        return got
    taken.close()
    with Forward("-s", "k", number) as f:
        if f.line != f"127.0.0.1:{number} leads to port {number} of k\n":
            return f.line
    with Forward("k", PORT, "--listen", "127.0.0.2:0", "--json") as f:
        told = json.loads(f.line)
        if told != {"address": "127.0.0.2", "port": f.at[1], "key": "k", "sandboxPort": int(PORT)}:
            return told
        results = []
        one_exchange(f, 1000, results)
        if results != [True]:
            return "127.0.0.2"
    if not os.path.exists("/proc/net/if_inet6"):
        skip("over IPv6", "this kernel has none")
        return None
    detach("python3", "server.py", "::1", PORT6)
    wait_for(lambda: sandbox(f"ls up-{PORT6} 2>/dev/null || true"))
    with Forward("k", PORT6, "--listen", "[::1]:0") as f:
        results = []
        one_exchange(f, 1000, results)
        return results != [True] and "::1 on both sides"


def bad_words():
    for args, said in ((["k"], "which port"), (["k", "0"], "which port"), (["k", "65536"], "which port"),
                       (["k", "+80"], "which port"), (["nobody", "80"], "no session 'nobody'"),
                       (["80"], "which session"), (["k", "80", "--listen", "x:1"], "--listen 'x:1'"),
                       (["k", "80", "--listen", "::1:1"], "--listen '::1:1'"),
                       (["k", "80", "--listen", "[127.0.0.1]:1"], "--listen"),
                       (["k", "80", "--listen", ""], "--listen ''"),
                       (["k", "80", "90"], "one word too many")):
        got = pai("port", *args)
        if got.returncode not in (1, 2) or said not in got.stderr or got.stderr.count("\n") != 1:
            return args, got
    if "nobody" in pai("ls").stdout:
        return "a session was made"
    got = pai("port", "--help")
    return (got.returncode or "example: " not in got.stdout) and got


def makes_nothing_before():
    """Of a session without a sandbox: the first connection makes it, listening doesn't."""
    if pai("create", "later").returncode or pai("reset", "later").returncode:
        return "create and reset"
    before = json.loads(pai("ls", "--json", "later").stdout)["sessions"][0]
    with Forward("later", PORT, "--listen", "0") as f:
        again = json.loads(pai("ls", "--json", "later").stdout)["sessions"][0]
        if again != before or before["state"] == "live":
            return before, again
        with f.connect() as c:
            is_reset(c)
        state = json.loads(pai("ls", "--json", "later").stdout)["sessions"][0]["state"]
        return state != "live" and state


def is_no_command():
    before = sandbox("echo"), pai("log", "k", "--json").stdout
    with Forward("k", PORT, "--listen", "0") as f:
        results = []
        one_exchange(f, 1000, results)
    entries = json.loads(pai("log", "k", "--json").stdout)["entries"]
    return any(e.get("command") == "tcp" for e in entries) and (before, entries)


def main():
    global PORT, PORT6, IS_ISOLATED
    PORT, PORT6, http_port = str(free_port()), str(free_port()), free_port()
    world = None
    where = ["local", "-o", OPTIONS]
    if OVER == "ssh":
        world = World(os.path.join(TMP, "host"), user="tester" if os.geteuid() == 0 else "").start()
        where = ["ssh", "box:boxes", "-o", f"config={world.config}"]
    try:
        subprocess.run([f"{BUILD}/paifs", *where, "--no-mount", "-n", NAME], check=True, timeout=60)
        IS_ISOLATED = json.loads(pai("status", "--json").stdout)["network"] == "none"
        print(f"# isolated: {IS_ISOLATED}", flush=True)
        for key in ("k", "gone"):
            sandbox("cat >server.py; echo from the sandbox >hello", key, input=SERVER)
        detach("python3", "-m", "http.server", "--bind", "127.0.0.1", str(http_port))
        detach("python3", "server.py", "127.0.0.1", PORT)
        sandbox(f"until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {http_port}))' "
                f"2>/dev/null && test -e up-{PORT}; do sleep 0.1; done")
        case("a server that the host can't reach is reached through pai port", http_server, http_port)
        for fn in (many_at_once, more_than_the_bound, half_closes, a_reader_that_stops, cuts, refused,
                   killed_itself, killed_sandbox, ways_to_listen, bad_words, makes_nothing_before,
                   is_no_command):
            case(fn.__name__.replace("_", " "), fn)
        if world:
            case("over cuts", over_cuts, world)
            # A narrow line is what makes commands wait for room in it, and be woken.
            for i in range(4):
                case(f"many at once, again {i + 1}", many_at_once)
    finally:
        pai("kill", "k", "gone", "later")
        daemon = json.loads(pai("status", "--json").stdout or '{"pid": 0}')["pid"]
        pai("umount")
        wait_for(lambda: not daemon or is_over(daemon), 20, "the daemon's end")
        if world:
            world.stop()
    return hold_world.failed


sys.exit(main())
