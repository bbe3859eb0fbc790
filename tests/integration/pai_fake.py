"""A daemon's side of the control socket, scripted frame by frame: for what a real daemon doesn't
do on demand (garbage, silence, death in mid-stream). Not a test by itself."""
import json
import os
import socket
import struct
import threading

MAGIC, VERSION = 0x43494150, 1
(START, STARTED, FAILED, STDIN, STDIN_EOF, STDOUT, STDERR, CREDIT, SIGNAL, RESIZE, EXIT,
 CANCEL) = range(0x10, 0x1c)
HELLO, REQUEST, REPLY, ERROR, EXEC, STATUS, NOTICE, DATA = range(0x20, 0x28)


class Gone(Exception):
    """The client closed the connection."""


class Conn:
    def __init__(self, sock):
        self.sock, self.lock = sock, threading.Lock()

    def read(self, size):
        data = b""
        while len(data) < size:
            try:
                more = self.sock.recv(size - len(data))
            except ConnectionError:
                more = b""
            if not more:
                raise Gone
            data += more
        return data

    def frame(self):
        """(type, id, payload) of the next frame."""
        length, kind, ident = struct.unpack("<IBI", self.read(9))
        return kind, ident, self.read(length - 5)

    def send(self, kind, payload=b"", ident=1):
        with self.lock:
            self.sock.sendall(struct.pack("<IBI", len(payload) + 5, kind, ident) + payload)

    def hello(self, **fields):
        kind, _, payload = self.frame()
        assert kind == HELLO and payload[:4] == struct.pack("<I", MAGIC), payload
        body = {"name": "fake", "provider": "fake", "mount": None, "dev": None, "pid": os.getpid(),
                "version": "0", **fields}
        self.send(HELLO, struct.pack("<IH", MAGIC, VERSION) + json.dumps(body).encode(), 0)

    def exec(self):
        """What the client asks to run."""
        kind, ident, payload = self.frame()
        assert (kind, ident) == (EXEC, 1), kind
        return parse_exec(payload)

    def started(self, pid=77, credit=1 << 20):
        self.send(STARTED, struct.pack("<II", pid, credit))

    def exit(self, kind=0, value=0, out=0, err=0, taken=0):
        self.send(EXIT, struct.pack("<BiQQQB", kind, value, out, err, taken, 0))

    def status(self, **fields):
        self.send(STATUS, json.dumps({"source": "command", "lostWrites": [], **fields}).encode())


def parse_exec(data):
    at = 0

    def take(fmt):
        nonlocal at
        values = struct.unpack_from("<" + fmt, data, at)
        at += struct.calcsize("<" + fmt)
        return values[0]

    def text():
        nonlocal at
        size = take("I")
        value = data[at:at + size].decode("utf-8", "surrogateescape")
        at += size
        return value

    got = {"key": text(), "marks": take("B"), "sid": take("I"), "sid_started": take("Q"),
           "environment": text(), "run": text(), "flags": take("I")}
    got["argv"] = [text() for _ in range(take("I"))]
    got["cwd"] = text()
    got["env"] = [text() for _ in range(take("I"))]
    got["timeout_ms"], got["max_output"] = take("Q"), take("Q")
    got["rows"], got["columns"] = take("H"), take("H")
    assert at == len(data)
    return got


class Daemon:
    """Serves every connection with script(conn), each on a thread of its own, under the name
    `fake` in the runtime directory. `errors` is what scripts raised."""

    def __init__(self, script, name="fake"):
        self.script, self.errors, self.threads = script, [], []
        directory = os.path.join(os.environ["XDG_RUNTIME_DIR"], "paifs")
        os.makedirs(directory, mode=0o700, exist_ok=True)
        self.path = os.path.join(directory, name + ".sock")

    def __enter__(self):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(8)
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self.serve, args=(sock,), daemon=True)
            self.threads.append(thread)
            thread.start()

    def serve(self, sock):
        try:
            self.script(Conn(sock))
        except (Gone, ConnectionError):
            pass
        except Exception as e:  # shown by the test
            self.errors.append(repr(e))
        finally:
            sock.close()

    def __exit__(self, *_):
        self.listener.close()
        os.unlink(self.path)
        for thread in self.threads:
            thread.join(5)
        assert not self.errors, self.errors
