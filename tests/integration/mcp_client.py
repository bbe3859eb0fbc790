"""A client that says to `pai mcp` whatever it is told to, line by line. Not a test by itself."""
import json
import queue
import subprocess
import threading
import time

from hold_world import BUILD

META = "io.modelcontextprotocol/"


def modern(version="2026-07-28", **more):
    return {META + "protocolVersion": version, META + "clientCapabilities": {},
            **{META + k: v for k, v in more.items()}}


class Server:
    def __init__(self, *argv, daemon=None, revision=None, **kw):
        self.proc = subprocess.Popen([BUILD + "/pai", *(["-n", daemon] if daemon else []), "mcp", *argv],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=kw.pop("stderr", subprocess.DEVNULL), **kw)
        self.said = queue.Queue()
        self.number = 0
        self.deaf = threading.Event()
        self.aside = []  # what came while something else was waited for
        threading.Thread(target=self.read, daemon=True).start()
        self.revision = revision
        if revision:
            self.hello = self.ask("initialize", {"protocolVersion": revision, "capabilities": {},
                                                 "clientInfo": {"name": "test", "version": "1"}})["result"]
            self.tell("notifications/initialized")

    def read(self):
        for line in self.proc.stdout:
            self.said.put(json.loads(line))
            if self.deaf.is_set():
                self.proc.stdout.close()
                break
        self.said.put(None)

    def raw(self, data):
        self.proc.stdin.write(data)
        self.proc.stdin.flush()

    def send(self, **message):
        self.raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def tell(self, method, params=None):
        self.send(method=method, **({"params": params} if params is not None else {}))

    def begin(self, method, params=None):
        """The id of a request that is not waited for."""
        self.number += 1
        self.send(id=self.number, method=method, **({"params": params} if params is not None else {}))
        return self.number

    def next(self, timeout=20):
        return self.said.get(timeout=timeout)

    def answer(self, number, timeout=20):
        """What else comes is left in `aside`."""
        for m in self.aside:
            if isinstance(m, dict) and m.get("id") == number:
                self.aside.remove(m)
                return m
        until = time.monotonic() + timeout
        while True:
            m = self.next(max(0.01, until - time.monotonic()))
            if m is None:
                raise AssertionError("the server ended")
            if isinstance(m, dict) and m.get("id") == number and "method" not in m:
                return m
            self.aside.append(m)

    def ask(self, method, params=None, timeout=20):
        return self.answer(self.begin(method, params), timeout)

    def begin_call(self, tool, token=None, meta=None, reason="a test", **fields):
        meta = {**(meta or {}), **({"progressToken": token} if token is not None else {})}
        return self.begin("tools/call", {"name": tool, "arguments": {"reason": reason, **fields},
                                         **({"_meta": meta} if meta else {})})

    def call(self, tool, timeout=30, **fields):
        """The result of tools/call."""
        m = self.answer(self.begin_call(tool, **fields), timeout)
        assert "result" in m, m
        return m["result"]

    def value(self, tool, **fields):
        return self.call(tool, **fields)["structuredContent"]

    def notes(self, method):
        """What has come of that kind so far."""
        while not self.said.empty():
            self.aside.append(self.said.get())
        return [m["params"] for m in self.aside if isinstance(m, dict) and m.get("method") == method]

    def close(self, timeout=10):
        self.proc.stdin.close()
        return self.proc.wait(timeout)
