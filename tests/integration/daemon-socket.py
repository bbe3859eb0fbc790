#!/usr/bin/env python3
# The control socket against what no client of ours would say.
# timeout 120
import json
import os
import pwd
import random
import socket
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from pai_ask import Client, frame, hello_frame, text  # noqa: E402
from pai_fake import (CREDIT, DATA, ERROR, EXEC, HELLO, REPLY, REQUEST, STARTED, STATUS,  # noqa: E402
                      STDIN)

BUILD = os.path.realpath(os.environ.get("PAI_BUILD", "build/debug"))
NAME = "socket"
failed = False


def start():
    tmp = os.environ.get("PAI_TMP") or tempfile.mkdtemp(prefix="pai-test-")
    os.environ.update(HOME=tmp, XDG_RUNTIME_DIR=tmp + "/run", XDG_STATE_HOME=tmp + "/state",
                      XDG_CONFIG_HOME=tmp + "/config")
    os.makedirs(tmp + "/run", mode=0o700, exist_ok=True)
    daemon = subprocess.Popen([BUILD + "/paifs", "memory", "--no-mount", "-n", NAME, "-f"])
    path = tmp + "/run/paifs/" + NAME + ".sock"
    for _ in range(500):
        if os.path.exists(path) or daemon.poll() is not None:
            break
        time.sleep(0.02)
    return daemon, path


def case(name, fn):
    global failed
    try:
        why = fn()
    except Exception as e:  # whatever it is, it fails this case alone
        why = f"{type(e).__name__}: {e}"
    if why:
        failed = True
    print(f"not ok {name}: {why}" if why else f"ok {name}", flush=True)


def ends(data, with_hello=True, read=True):
    """The daemon closes a connection that says this, and serves the next one."""
    client = Client(PATH)
    if with_hello:
        client.hello()
    client.sock.sendall(data)
    if read and not client.is_closed():
        return "the connection stayed open"
    client.sock.close()
    return alive()


def alive():
    client = Client(PATH)
    client.hello()
    good, answer = client.ask({"op": "status"})
    return "" if good and answer["name"] == NAME else f"status: {answer}"


def exec_frame(key="k", argv=("true",), flags=0, cwd="/workspace", ident=1):
    start_payload = struct.pack("<I", flags) + struct.pack("<I", len(argv))
    start_payload += b"".join(text(a) for a in argv)
    return frame(EXEC, text(key) + struct.pack("<BIQ", 0, 0, 0) + text("") + text("") + start_payload, ident)


def hello_says():
    client = Client(PATH)
    h = client.hello()
    return "" if (h["name"], h["provider"], h["mount"], h["pid"]) == (
        NAME, "memory", None, DAEMON.pid) else f"{h}"


def silence():
    client = Client(PATH)
    begun = time.monotonic()
    if not client.is_closed():
        return "a silent client was kept"
    took = time.monotonic() - begun
    return "" if 4 < took < 8 else f"after {took:.1f} s"


def other_version():
    client = Client(PATH)
    client.sock.sendall(hello_frame(version=99))
    kind, ident, payload = client.next()
    answer = json.loads(payload)
    if (kind, ident, answer["kind"]) != (ERROR, 0, "protocol"):
        return f"{kind} {ident} {answer}"
    return "" if client.is_closed() else "kept open"


def unknown_op():
    client = Client(PATH)
    client.hello()
    for request in ({"op": "frobnicate"}, {}, {"op": 7}, {"op": "status", "key": "\x01"},
                    {"op": "create", "key": ""}, {"op": "create", "key": "a" * 300},
                    {"op": "create", "key": "k", "options": {"tll": "1h"}},
                    {"op": "kill"}, {"op": "log", "limit": 0}, {"op": "ls", "keys": [3]}):
        good, answer = client.ask(request)
        if good or answer["kind"] != "input":
            return f"{request}: {answer}"
    return alive()


def nonsense_files():
    client = Client(PATH)
    client.hello()
    base = {"key": "files", "path": "/workspace/a"}
    for request in ({"op": "read", "key": "files"}, {"op": "read", "path": "/workspace/a"},
                    {**base, "op": "read", "maxBytes": -1}, {**base, "op": "read", "maxBytes": "1"},
                    {**base, "op": "read", "maxBytes": (50 << 20) + 1},
                    {**base, "op": "read", "key": "\x01"}, {**base, "op": "read", "path": ""},
                    {**base, "op": "list", "offset": -1}, {**base, "op": "list", "limit": 1 << 40},
                    {**base, "op": "write", "token": "zz"}, {**base, "op": "write", "token": 7},
                    {**base, "op": "write", "token": "12ab"}, {"op": "release", "token": "1"},
                    {"op": "release"}, {"op": "exclusive"}, {"op": "exclusive", "key": ""}):
        good, answer = client.ask(request)
        if good or answer["kind"] != "input":
            return f"{request}: {answer}"
    return alive()


def files_roundtrip():
    client = Client(PATH)
    client.hello()
    at = {"key": "files", "path": "/workspace/d/bytes"}
    big = bytes(range(256)) * (3 << 12)  # 3 MiB, more than one frame and more than a socket's buffer
    for data, existed in ((b"", False), (b"x", True), (big, True)):
        good, answer, _ = client.ask_files({"op": "write", **at}, data)
        if not good or answer["existed"] != existed or answer["size"] != len(data):
            return f"write {len(data)}: {answer}"
        good, answer, got = client.ask_files({"op": "read", **at})
        if not good or got != data or not answer["found"] or answer["environmentReset"]:
            return f"read {len(data)}: {len(got)} {answer}"
    good, answer, got = client.ask_files({"op": "read", **at, "maxBytes": 10})
    if good or got or answer["kind"] != "file-too-large" or answer["limitBytes"] != 10:
        return f"over maxBytes: {answer}"
    good, answer, _ = client.ask_files({"op": "read", "key": "files", "path": "/workspace/none"})
    if not good or answer["found"]:
        return f"nothing there: {answer}"
    return ""


def pages():
    client = Client(PATH)
    client.hello()
    names = sorted(["b", "a", "\u00e9", "z" * 255, "with\nnewline", "-x"] + [f"n{i}" for i in range(30)],
                   key=lambda n: n.encode())
    for name in names:
        client.ask_files({"op": "write", "key": "files", "path": "/workspace/list/" + name}, b"1")
    client.ask_files({"op": "write", "key": "files", "path": "/workspace/list/m/x"}, b"1")
    wanted = sorted([(n.encode(), 0) for n in names if len(n.encode()) < 256] + [(b"m", 1)])
    seen, offset = [], 0
    while True:
        good, answer, got = client.ask_files({"op": "list", "key": "files", "path": "/workspace/list",
                                              "offset": offset, "limit": 7})
        if not good or not answer["found"] or answer["total"] != len(wanted):
            return f"{answer}"
        at = 0
        while at < len(got):
            kind, size = struct.unpack_from("<BI", got, at)
            seen.append((got[at + 5:at + 5 + size], kind))
            at += 5 + size
        offset = len(seen)
        if not answer["more"]:
            break
    if seen != wanted:
        return f"{seen[:9]}"
    good, answer, got = client.ask_files({"op": "list", "key": "files", "path": "/workspace/no"})
    return "" if good and not answer["found"] and not got else f"{answer}"


def slow_reader():
    """A file larger than all buffers on the way waits for its reader, who is not cut off."""
    client = Client(PATH, timeout=30)
    client.hello()
    data = os.urandom(1 << 20) * 40
    good, answer, _ = client.ask_files({"op": "write", "key": "files", "path": "/workspace/big"}, data)
    if not good:
        return f"{answer}"
    client.sock.sendall(frame(REQUEST, json.dumps(
        {"op": "read", "key": "files", "path": "/workspace/big"}).encode()))
    other = Client(PATH)
    other.hello()
    for _ in range(50):  # meanwhile others are answered
        if not other.ask({"op": "status"})[0]:
            return "another client was not answered"
    got = []
    while True:
        kind, _, payload = client.next()
        if kind != DATA:
            return "" if kind == REPLY and b"".join(got) == data else f"{kind}"
        got.append(payload)


def turns():
    """One holder at a time, in order; its own token passes; its end is its turn's."""
    first, second = Client(PATH), Client(PATH)
    first.hello()
    second.hello()
    good, held, _ = first.ask_files({"op": "exclusive", "key": "turns"})
    if not good:
        return f"{held}"
    at = {"op": "write", "key": "turns", "path": "/workspace/f"}
    second.sock.sendall(frame(REQUEST, json.dumps({**at, "size": 3}).encode()) + frame(DATA, b"two"))
    good, answer, _ = first.ask_files({**at, "token": held["token"]}, b"one")
    if not good:
        return f"with its token: {answer}"
    good, answer, got = first.ask_files({"op": "read", "key": "turns", "path": "/workspace/f"})
    if got != b"one":
        return f"the second one did not wait: {got}"
    first.sock.close()
    kind, _, payload = second.next()
    if kind != REPLY or not json.loads(payload)["existed"]:
        return f"after the first had gone: {kind} {payload}"
    good, answer, _ = second.ask_files({**at, "token": held["token"]}, b"x")
    if good or answer["kind"] != "input":
        return f"an old token: {answer}"
    good, held, _ = second.ask_files({"op": "exclusive", "key": "turns"})
    good, answer, _ = second.ask_files({"op": "release", "token": held["token"]})
    good, answer, _ = second.ask_files(at, b"three")
    return "" if good else f"after release: {answer}"


def pinned():
    """Calls that belong together are not made on two environments."""
    client = Client(PATH)
    client.hello()
    base = {"key": "pinned", "path": "/workspace/f", "sid": 4242, "sidStarted": 1}
    good, answer, _ = client.ask_files({"op": "write", **base}, b"1")
    tag = answer["environment"]
    good, answer, got = client.ask_files({"op": "read", **base, "environment": tag})
    if not good or got != b"1":
        return f"{answer}"
    client.ask({"op": "reset", "key": "pinned"})
    good, answer, got = client.ask_files({"op": "read", **base, "environment": tag})
    if good or answer["kind"] != "reset" or not answer["environmentReset"]:
        return f"after a reset: {answer}"
    good, answer, got = client.ask_files({"op": "read", **base})
    if not good or answer["found"] or answer["environmentReset"]:
        return f"told twice: {answer}"
    client.ask({"op": "reset", "key": "pinned"})
    good, answer, got = client.ask_files({"op": "read", **base})
    return "" if good and answer["environmentReset"] else f"not told: {answer}"


def acquired():
    """Acquiring alone: what is done on, and whether what was begun may be begun again."""
    client = Client(PATH)
    client.hello()
    base = {"key": "acquired", "sid": 4243, "sidStarted": 1}
    good, first, _ = client.ask_files({"op": "acquire", **base, "verify": True})
    if not good or len(first["environment"]) != 64 or first["environmentReset"]:
        return f"{first}"
    # Gone behind the daemon's back: another answers, and work that was begun may begin there.
    sandbox = client.ask({"op": "status", "key": "acquired"})[1]["session"]["sandboxId"]
    other = Client(PATH)
    other.hello()
    other.ask({"op": "kill", "sandboxId": sandbox})
    good, answer, _ = client.ask_files({"op": "acquire", **base, "environment": first["environment"]})
    if good or answer["kind"] != "reset":
        return f"pinned to what is gone: {answer}"
    good, second, _ = client.ask_files({"op": "acquire", **base, "mark": first["mark"]})
    if not good or second["environment"] == first["environment"]:
        return f"begun again: {second}"
    # By somebody's word: it may not.
    for op in ("reset", "kill"):
        good, held, _ = client.ask_files({"op": "acquire", **base})
        if not good:
            return f"before a {op}: {held}"
        other.ask({"op": op, "key": "acquired"})
        for fields in ({"mark": held["mark"]}, {"environment": held["environment"]}):
            good, answer, _ = client.ask_files({"op": "acquire", **base, **fields})
            if good or answer["kind"] != "reset":
                return f"after a {op}, {fields}: {answer}"
    # ... not even once the key is in use again.
    client.ask_files({"op": "acquire", **base})
    good, answer, _ = client.ask_files({"op": "acquire", **base, "mark": held["mark"]})
    if good or answer["kind"] != "reset":
        return f"begun again in the next life: {answer}"
    for mark in (7, "", "x", "1", "1.", {}):
        good, answer, _ = client.ask_files({"op": "acquire", **base, "mark": mark})
        if good or answer["kind"] != "input":
            return f"mark {mark!r}: {answer}"
    return ""


def many_at_once():
    client = Client(PATH)
    client.hello()
    client.sock.sendall(b"".join(frame(REQUEST, b'{"op":"status"}', i) for i in range(500)))
    seen = set()
    for _ in range(500):
        kind, ident, _ = client.next()
        if kind != REPLY:
            return f"type {kind}"
        seen.add(ident)
    return "" if seen == set(range(500)) else "an answer is missing"


def no_reader():
    """Answers that nobody reads stay bounded and delay nobody."""
    client = Client(PATH, timeout=1)
    client.hello()
    request = frame(REQUEST, json.dumps({"op": "status", "pad": "x" * 1000}).encode())
    try:
        for _ in range(60000):
            client.sock.sendall(request)
    except (socket.timeout, BrokenPipeError, ConnectionResetError):
        pass
    why = alive()
    rss = int(open(f"/proc/{DAEMON.pid}/statm").read().split()[1]) * 4096
    client.sock.close()
    limit = (1000 if "asan" in BUILD else 200) << 20  # its quarantine keeps what was freed
    return why or ("" if rss < limit else f"{rss >> 20} MiB")


def garbage():
    rng = random.Random(7)
    for i in range(300):
        client = Client(PATH)
        if i % 3:
            client.sock.sendall(hello_frame())
        if i % 2:
            body = bytes(rng.randrange(256) for _ in range(rng.randrange(200)))
            data = frame(rng.randrange(256), body, rng.randrange(3))
        else:
            data = bytes(rng.randrange(256) for _ in range(rng.randrange(400)))
        try:
            client.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass
        client.sock.close()
    return alive()


def many_clients():
    clients = [Client(PATH) for _ in range(400)]
    for client in clients:
        client.hello()
    return alive()


def foreign():
    """Where the file modes let another user through, the daemon itself refuses."""
    directory = os.path.dirname(PATH)
    uid = 54321
    try:
        pwd.getpwuid(uid)
        return "uid 54321 is somebody here"
    except KeyError:
        pass
    probe = ("import sys; sys.path.insert(0, sys.argv[1]); from pai_ask import Client; import json\n"
             "c = Client(sys.argv[2]); k, i, p = c.next(); print(k, i, json.loads(p)['kind'])")
    argv = ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", "python3", "-B",
            "-c", probe, os.path.dirname(os.path.abspath(__file__)), PATH]
    closed = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    if closed.returncode == 0:
        return "the socket is open to everybody"
    at, opened = directory, []
    while at != "/" and os.stat(at).st_uid == os.geteuid():
        opened.append((at, os.stat(at).st_mode & 0o7777))
        os.chmod(at, opened[-1][1] | 0o011)
        at = os.path.dirname(at)
    os.chmod(PATH, 0o666)
    try:
        out = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    finally:
        os.chmod(PATH, 0o600)
        for path, mode in opened:
            os.chmod(path, mode)
    if out.stdout.split() != [str(ERROR), "0", "policy-mismatch"]:
        return f"{out.stdout} {out.stderr[-200:]}"
    return alive()


DAEMON, PATH = start()
case("hello tells who answers", hello_says)
case("a client that says nothing is closed after 5 s", silence)
case("another version of the protocol is told so", other_version)
case("no HELLO first", lambda: ends(frame(REQUEST, b'{"op":"ls"}'), with_hello=False))
case("a HELLO of another program", lambda: ends(hello_frame(magic=1), with_hello=False))
case("a second HELLO", lambda: ends(hello_frame()))
case("a length of 4 GiB", lambda: ends(struct.pack("<IBI", 0xffffffff, REQUEST, 1)))
case("a length over the cap", lambda: ends(struct.pack("<IBI", (1 << 20) + 1, REQUEST, 1)))
case("a length too short for a header", lambda: ends(struct.pack("<IB", 1, REQUEST)))
case("JSON that is none", lambda: ends(frame(REQUEST, b'{"op":')))
case("JSON that is no object", lambda: ends(frame(REQUEST, b'["ls"]')))
case("JSON nested 10,000 deep", lambda: ends(frame(REQUEST, b'{"op":' + b"[" * 10000)))
case("JSON with a NUL", lambda: ends(frame(REQUEST, b'{"op":"l\\u0000s"}')))
case("a frame cut off by the client's end", lambda: ends(frame(REQUEST, b"x" * 99)[:50], read=False))
case("STDIN without an EXEC", lambda: ends(frame(STDIN, b"x")))
case("an EXEC that is cut off inside", lambda: ends(frame(EXEC, text("k") + b"\0")))
case("DATA that nobody announced", lambda: ends(frame(DATA, b"x")))
WRITE = frame(REQUEST, b'{"op":"write","key":"files","path":"/workspace/a","size":3}')
case("DATA beyond what was announced", lambda: ends(WRITE + frame(DATA, b"1234")))
case("empty DATA", lambda: ends(WRITE + frame(DATA, b"")))
case("DATA of another request", lambda: ends(WRITE + frame(DATA, b"123", 9)))
case("a request in place of DATA", lambda: ends(WRITE + frame(REQUEST, b'{"op":"status"}')))
case("an upload that ends early", lambda: ends(WRITE + frame(DATA, b"1"), read=False))
case("an upload over the cap", lambda: ends(frame(REQUEST, b'{"op":"write","size":52428801}')))
case("an upload of a negative size", lambda: ends(frame(REQUEST, b'{"op":"write","size":-1}')))
case("a DATA frame over 256 KiB", lambda: ends(frame(
    REQUEST, b'{"op":"write","size":400000}') + frame(DATA, b"x" * 400000)))
case("file requests that ask for nonsense get INPUT", nonsense_files)
case("write and read bytes of every size", files_roundtrip)
case("a directory in pages", pages)
case("a slow reader gets its file and delays nobody", slow_reader)
case("exclusive turns", turns)
case("calls pinned to an environment", pinned)
case("acquiring, and beginning again", acquired)
case("a type nobody knows", lambda: ends(frame(0xee, b"")))
case("a daemon's frame from a client", lambda: ends(frame(STATUS, b"{}")))
case("requests that ask for nonsense get INPUT", unknown_op)
case("500 requests at once are all answered", many_at_once)
case("a client that doesn't read harms nobody", no_reader)
case("300 connections of garbage", garbage)
case("400 clients at once", many_clients)
if os.geteuid() == 0:
    case("another user is refused", foreign)
else:
    print("skip another user is refused: needs root to become one")
DAEMON.terminate()
case("SIGTERM ends it with 0", lambda: "" if DAEMON.wait(20) == 0 else f"exit {DAEMON.returncode}")
case("its socket is gone", lambda: "still there" if os.path.exists(PATH) else "")
sys.exit(1 if failed else 0)
