#!/usr/bin/env python3
# fast
# timeout 120
"""The static helpers: what they are, that they run (the other architecture's under qemu-user), that
their codecs read the corpus, and that their supervisor starts commands and tells errors by name."""
import glob
import os
import platform
import shutil
import socket
import struct
import subprocess
import sys

BUILD = os.path.realpath(os.environ.get("PAI_BUILD", "build/debug"))
TMP = os.environ.get("PAI_TMP") or "."
HELPERS = os.path.join(os.path.dirname(BUILD), "helper")
SIZE_MAX = 1000 * 1000
HELLO, READY, START, STARTED, FAILED, STDOUT, EXIT = 1, 2, 0x10, 0x11, 0x12, 0x15, 0x1a
failed = False


def verdict(name, good, why=""):
    global failed
    failed = failed or not good
    print(f"ok {name}" if good else f"not ok {name}: {' '.join(str(why).split())[:400]}", flush=True)


def text(value):
    return struct.pack("<I", len(value)) + value


def texts(values):
    return struct.pack("<I", len(values)) + b"".join(text(v) for v in values)


class Line:
    """One line to a supervisor of its own."""

    def __init__(self, runner, helper, where):
        os.makedirs(where)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(where + "/sock")
        with open(where + "/nonce", "w") as f:
            f.write("me\n")
        nonce = os.open(where + "/nonce", os.O_RDONLY)
        ready, ready_to = os.pipe()
        fds = (listener.fileno(), nonce, ready_to)
        self.process = subprocess.Popen(
            runner + [helper, "supervise", "--socket-fd", str(fds[0]), "--nonce-fd", str(fds[1]),
                      "--ready-fd", str(fds[2]), "--workspace", where], pass_fds=fds)
        os.close(ready_to)
        self.is_ready = os.read(ready, 1) == b"R"
        os.close(ready)
        os.close(nonce)
        listener.close()
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(where + "/sock")
        self.came = b""

    def send(self, kind, request, payload):
        self.socket.sendall(struct.pack("<IBI", len(payload) + 5, kind, request) + payload)

    def receive(self):
        while len(self.came) < 4 or len(self.came) < 4 + struct.unpack_from("<I", self.came)[0]:
            more = self.socket.recv(65536)
            if not more:
                raise EOFError("the line ended")
            self.came += more
        length, kind, _ = struct.unpack_from("<IBI", self.came)
        payload, self.came = self.came[9:4 + length], self.came[4 + length:]
        return kind, payload

    def hello(self):
        self.send(HELLO, 0, struct.pack("<IHI", 0x4c494150, 1, 0) + text(b"test") +
                  struct.pack("<Q", 1))
        kind, payload = self.receive()
        return kind == READY and payload.endswith(text(b"me"))

    def run(self, *argv):
        """(kind of the end, its payload, output)"""
        self.send(START, 7, struct.pack("<I", 0) + texts(argv) + text(b"/workspace") +
                  texts([b"A=b"]) + struct.pack("<QQHH", 0, 0, 0, 0))
        output = b""
        while True:
            kind, payload = self.receive()
            output += payload if kind == STDOUT else b""
            if kind in (EXIT, FAILED):
                return kind, payload, output

    def end(self):
        self.socket.close()
        self.process.terminate()
        return self.process.wait(20)


def check_supervisor(name, runner, helper):
    line = Line(runner, helper, f"{TMP}/{name}")
    try:
        verdict(f"{name} supervises", line.is_ready and line.hello(), "no READY")
        kind, payload, output = line.run(b"/bin/sh", b"-c", b"echo $A; pwd; exit 3")
        good = kind == EXIT and payload[:5] == struct.pack("<BI", 0, 3)
        verdict(f"{name} runs a command", good and output == f"b\n{TMP}/{name}\n".encode(),
                (kind, payload, output))
        kind, payload, _ = line.run(b"/no/such")
        if runner:
            # qemu-user makes a copy of what shares memory: the failed exec's own word is lost.
            good = kind == EXIT and payload[:5] == struct.pack("<BI", 0, 127) or kind == FAILED
        else:
            good = kind == FAILED and payload[1:].startswith(text(b"ENOENT"))
        verdict(f"{name} tells what can't be run", good, (kind, payload))
    except (OSError, EOFError) as e:
        verdict(f"{name} supervises", False, e)
    finally:
        status = line.end()
    verdict(f"{name} ends when it is told to", status == 0, status)


def check(arch):
    name = "pai-helper-" + arch
    helper = f"{HELPERS}/{name}"
    emulator = shutil.which(f"qemu-{arch}-static")
    runner = [] if arch == platform.machine() else [emulator]
    if not os.path.exists(helper):
        print(f"skip {name}: not built: this machine has no compiler for it")
        return
    if runner == [None]:
        print(f"skip {name}: qemu-{arch}-static is not installed")
        return
    what = subprocess.run(["readelf", "-lhW", helper], capture_output=True, text=True).stdout
    verdict(f"{name} is static", "INTERP" not in what and "DYNAMIC" not in what and
            "RWE" not in what and ("AArch64" if arch == "aarch64" else "X86-64") in what, what)
    size = os.path.getsize(helper)
    verdict(f"{name} has {size} bytes", size < SIZE_MAX, f"over {SIZE_MAX}")
    got = subprocess.run(runner + [helper, "--version"], capture_output=True, text=True, timeout=20)
    verdict(f"{name} tells its version", got.returncode == 0 and
            got.stdout.split()[:1] == ["pai-helper"] and got.stdout.split()[-1] == arch, got)
    got = subprocess.run(runner + [helper, "--help"], capture_output=True, text=True, timeout=20)
    verdict(f"{name} has help", got.returncode == 0 and "usage" in got.stdout, got)
    replays = glob.glob(f"{HELPERS}/replay-*-{arch}")
    verdict(f"{name}'s codecs are there", len(replays) >= 4, replays)
    for replay in replays:
        corpus = "tests/fuzz/corpus/" + os.path.basename(replay)[len("replay-"):-len(arch) - 1]
        got = subprocess.run(runner + [replay, corpus], capture_output=True, text=True, timeout=60)
        verdict(f"{name} reads {corpus}", got.returncode == 0, got)
    check_supervisor(name, runner, helper)


for one in ("x86_64", "aarch64"):
    check(one)
sys.exit(failed)
