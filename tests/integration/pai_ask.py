"""Asks a daemon one thing: pai_ask.py SOCKET JSON prints its answer. Also the client's side of the
control socket for tests that say what no client of ours does. Not a test by itself."""
import json
import socket
import struct
import sys

from pai_fake import DATA, EXEC, HELLO, MAGIC, REPLY, REQUEST, VERSION


def frame(kind, payload=b"", ident=1):
    return struct.pack("<IBI", len(payload) + 5, kind, ident) + payload


def hello_frame(version=VERSION, magic=MAGIC):
    return frame(HELLO, struct.pack("<IH", magic, version) + b'{"client":"test","pid":1}', 0)


def text(value):
    data = value.encode()
    return struct.pack("<I", len(data)) + data


class Client:
    def __init__(self, path, timeout=10):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(timeout)
        self.sock.connect(path)

    def read(self, size):
        data = b""
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def next(self):
        """(type, id, payload); EOFError at the end."""
        length, kind, ident = struct.unpack("<IBI", self.read(9))
        return kind, ident, self.read(length - 5)

    def is_closed(self):
        """Whether the daemon ends the connection, whatever it says before."""
        try:
            while self.sock.recv(65536):
                pass
            return True
        except ConnectionResetError:
            return True
        except socket.timeout:
            return False

    def hello(self):
        self.sock.sendall(hello_frame())
        kind, _, payload = self.next()
        assert kind == HELLO, kind
        return json.loads(payload[6:])

    def ask(self, request):
        """(is a reply, its object)"""
        self.sock.sendall(frame(REQUEST, json.dumps(request).encode()))
        kind, _, payload = self.next()
        return kind == REPLY, json.loads(payload)

    def ask_files(self, request, data=b""):
        """(is a reply, its object, the bytes that came ahead of it); `data` goes with the request."""
        if data:
            request = {**request, "size": len(data)}
        self.sock.sendall(frame(REQUEST, json.dumps(request).encode()) + b"".join(
            frame(DATA, data[at:at + (256 << 10)]) for at in range(0, len(data), 256 << 10)))
        got = b""
        while True:
            kind, _, payload = self.next()
            if kind != DATA:
                return kind == REPLY, json.loads(payload), got
            got += payload


if __name__ == "__main__":
    client = Client(sys.argv[1])
    client.hello()
    good, answer = client.ask(json.loads(sys.argv[2]))
    print(json.dumps(answer))
    sys.exit(0 if good else 1)
