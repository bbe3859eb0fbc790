#!/usr/bin/env python3
# timeout 200
# timeout-long 400
"""Over ssh, behind a relay that takes its time: for how many round trips a command, a tool's call and a
shell of pai run wait. Counted by two delays, so that whatever else takes time cancels out; that is
printed, beside what the same costs on this machine."""
import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hold_world as w  # noqa: E402
from hold_world import BUILD, LONG, TMP, Daemon, case, skip  # noqa: E402
from ssh_world import World, free_port, write  # noqa: E402

FAR_S = 0.4  # a round trip; the near one takes none of the relay's time
RUNS = 40 if LONG else 10  # near ones; the least counts
FAR_RUNS = 5 if LONG else 3
SHELLS = """
import subprocess, sys, time
for _ in range(int(sys.argv[1])):
    begun = time.perf_counter()
    subprocess.run(["/bin/sh", "-c", ":"], stdin=subprocess.DEVNULL, check=True)
    print(time.perf_counter() - begun)
"""


class Relay:
    """To the server's port, each byte half of `round_trip_s` later."""

    def __init__(self, to):
        self.to, self.port, self.round_trip_s = to, free_port(), 0
        self.listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listener.accept()
            far = socket.create_connection(("127.0.0.1", self.to))
            for a, b in ((near, far), (far, near)):
                a.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                line = queue.Queue()
                threading.Thread(target=self.take, args=(a, line), daemon=True).start()
                threading.Thread(target=self.give, args=(b, line), daemon=True).start()

    def take(self, sock, line):
        data = b"x"
        while data:
            try:
                data = sock.recv(1 << 18)
            except OSError:
                data = b""
            line.put((time.monotonic() + self.round_trip_s / 2, data))

    @staticmethod
    def give(sock, line):
        data = b"x"
        while data:
            due, data = line.get()
            time.sleep(max(0, due - time.monotonic()))
            try:
                if data:
                    sock.sendall(data)
                else:
                    sock.shutdown(socket.SHUT_WR)
            except OSError:
                return


class Line:
    """A daemon whose connection goes through a relay."""

    def __init__(self, world, name, mount):
        self.relay = Relay(world.port)
        with open(world.config, encoding="utf-8") as f:
            write(f"{TMP}/{name}.config", f.read().replace(f"Port {world.port}", f"Port {self.relay.port}"))
        with open(world.at("known_hosts"), "r+", encoding="utf-8") as f:
            line = f.readline()
            f.seek(0, os.SEEK_END)
            f.write(line.replace(str(world.port), str(self.relay.port)))
        self.daemon = Daemon("ssh", name, "host=box", f"root=boxes-{name}", f"config={TMP}/{name}.config", *(["git=guard"] if mount else []),
                             mount=mount)
        code, _, err, _ = self.daemon.run("sh", "-c", "echo small > small; mkdir many; cd many; seq 5000 | split -l 1 -a 4; "
                                          "echo needle > last")
        assert code == 0, err

    def end(self):
        subprocess.run([BUILD + "/pai", "-n", self.daemon.name, "kill", "k"], check=True, timeout=60)
        self.daemon.stop()

    def command(self, *argv):
        return lambda: once(self.daemon.run_argv(*argv))

    def tool(self, name, **fields):
        text = json.dumps({"reason": "r", **fields})
        return lambda: once([BUILD + "/pai", "-n", self.daemon.name, "tool", name, "-s", "k", "--input", text])

    def shells(self, count=1):
        out = subprocess.run([BUILD + "/pai", "-n", self.daemon.name, "run", "-s", "k", "--", sys.executable, "-c",
                              SHELLS, str(count)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True,
                             timeout=100).stdout
        return min(map(float, out.split()))


def once(argv):
    begun = time.perf_counter()
    r = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    assert r.returncode == 0, (argv, r)
    return time.perf_counter() - begun


def least(call, count):
    call()
    return min(call() for _ in range(count))


def counted(name, line, call, wanted, beside=None):
    """call gives seconds; `beside` what is to be compared with them, with a word for it."""
    def check():
        line.relay.round_trip_s = 0
        near = least(call, RUNS)
        line.relay.round_trip_s = FAR_S
        far = least(call, FAR_RUNS)
        line.relay.round_trip_s = 0
        trips = (far - near) / FAR_S
        more = f", {beside[0]} {1000 * beside[1]:.1f} ms" if beside else ""
        print(f"# {name}: {trips:.2f} round trips and {1000 * near:.1f} ms{more}", flush=True)
        # Half of one is what a loaded machine may take for itself.
        return None if wanted - 0.5 < trips < wanted + 0.5 else f"{trips:.2f} round trips, expected {wanted}"
    case("trips-" + name, check)


def of_tools(line, cat):
    counted("exec-true", line, line.command("true"), 1)
    counted("bash-true", line, line.tool("bash", command="true"), 1)
    counted("read", line, line.tool("read", path="/workspace/small"), 1, ("cat", cat))
    counted("listDirectory", line, line.tool("listDirectory", path="/workspace"), 1)
    engine = least(line.command("rg", "--sort=path", "-n", "needle", "many"), RUNS)
    counted("grep-of-5000", line, line.tool("grep", pattern="needle", path="/workspace/many"), 1, ("rg there", engine))
    # Whether there was a file before is asked before; an edit reads what it writes back.
    counted("write", line, line.tool("write", path="/workspace/w", content="x"), 2)
    number = [0]

    def edit():
        number[0] += 1
        return line.tool("edit", path="/workspace/small", oldString="small" if number[0] % 2 else "SMALL",
                         newString="SMALL" if number[0] % 2 else "small")()
    counted("edit", line, edit, 2)


def of_a_mount(line):
    """What a command has changed is told ahead of its exit: nothing is asked after it."""
    counted("mounted-exec-true", line, line.command("true"), 1)
    counted("mounted-read", line, line.tool("read", path="/workspace/small"), 1)
    here = least(lambda: once(["/bin/sh", "-c", ":"]), RUNS)
    counted("shell-of-pai-run", line, line.shells, 1, ("sh here", here))


def main():
    world = World(TMP + "/sshd").start()
    with open(TMP + "/small", "w", encoding="ascii") as f:
        f.write("small\n")
    line = Line(world, "trips", mount=False)
    of_tools(line, least(lambda: once(["cat", TMP + "/small"]), RUNS))
    line.end()
    if os.path.exists("/dev/fuse"):
        line = Line(world, "mounted", mount=True)
        of_a_mount(line)
        line.end()
    else:
        skip("trips of a mount", "no /dev/fuse here")
    world.stop()


main()
sys.exit(w.finish())
