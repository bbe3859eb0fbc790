"""HTTP in front of `pai mcp`, for checkers that know no other way: Streamable HTTP as far as one needs
it. Not a test by itself, and nothing that anybody should use.

A session is a server of its own; a request that needs no handshake is, too. What HTTP adds to a message
(statuses, headers, sessions, whose Host it is) is this bridge's; every message is the server's, but
that STANDS_FOR puts calls of our tools in the place of those of the checker's own fixture.
"""
import http.server
import json
import subprocess
import threading
import uuid

META = "io.modelcontextprotocol/"
MODERN = "2026-07-28"


class Server:
    def __init__(self, argv):
        self.proc = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.DEVNULL)
        self.lock = threading.Lock()
        self.waiting = {}  # id -> function
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.proc.stdout:
            message = json.loads(line)
            with self.lock:
                to = list(self.waiting.items())
            for number, (tell, token) in to:
                own = message.get("params", {}).get("progressToken")
                if message.get("id") == number or ("method" in message and own in (None, token)):
                    tell(message)

    def send(self, message):
        self.proc.stdin.write(json.dumps(message).encode() + b"\n")
        self.proc.stdin.flush()

    def close(self):
        self.proc.stdin.close()
        self.proc.wait(10)
        self.proc.stdout.close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, message=None, headers=()):
        body = json.dumps(message).encode() if message is not None else b""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def is_local(self):
        names = ("localhost", "127.0.0.1")
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
        origin = self.headers.get("Origin")
        return host in names and (origin is None or origin.split("//")[-1].rsplit(":", 1)[0] in names)

    def do_GET(self):
        self.answer(405)

    def do_DELETE(self):
        server = self.server.sessions.pop(self.headers.get("Mcp-Session-Id"), None)
        if server:
            server.close()
        self.answer(200 if server else 404)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self.is_local():
            self.answer(403)
            return
        message = json.loads(body)
        session = self.headers.get("Mcp-Session-Id")
        if message.get("method") == "tools/call":
            params = message["params"]
            if params["name"] == "test_tool_with_logging" and session in self.server.sessions:
                # Which says nothing of a level: by default calls that go well are not told of.
                self.server.sessions[session].send({"jsonrpc": "2.0", "id": "level", "method": "logging/setLevel",
                                                    "params": {"level": "debug"}})
            params.update(self.server.stands_for.get(params["name"], {}))
        if session or message.get("method") == "initialize" and not self.said_version(message):
            self.with_session(message, session)
        else:
            self.without_session(message)

    @staticmethod
    def said_version(message):
        return message.get("params", {}).get("_meta", {}).get(META + "protocolVersion")

    def with_session(self, message, session):
        if not session:
            session = str(uuid.uuid4())
            self.server.sessions[session] = Server(self.server.argv)
        if session not in self.server.sessions:
            self.answer(404, {"jsonrpc": "2.0", "id": message.get("id"),
                              "error": {"code": -32600, "message": "no such session"}})
            return
        self.exchange(self.server.sessions[session], message, [("Mcp-Session-Id", session)])

    def without_session(self, message):
        said, header = self.said_version(message), self.headers.get("MCP-Protocol-Version")
        if said and header and said != header:
            self.answer(400, {"jsonrpc": "2.0", "id": message.get("id"),
                              "error": {"code": -32020, "message": "Header mismatch"}})
            return
        server = Server(self.server.argv)
        try:
            self.exchange(server, message, [])
        finally:
            server.close()

    def exchange(self, server, message, headers):
        if "id" not in message:
            server.send(message)
            self.answer(202, headers=headers)
            return
        said, more = [], threading.Condition()

        def tell(m):
            with more:
                said.append(m)
                more.notify()

        with server.lock:
            server.waiting[message["id"]] = (tell, message.get("params", {}).get("_meta", {}).get("progressToken"))
        server.send(message)
        begun = False
        while True:
            with more:
                while not said:
                    if not more.wait(30):
                        self.close_connection = True
                        return
                m = said.pop(0)
            if "method" not in m:
                break
            begun = begun or self.begin_stream(headers)
            self.stream(m)
        with server.lock:
            del server.waiting[message["id"]]
        if begun:
            self.stream(m)
            self.wfile.write(b"0\r\n\r\n")
            return
        code = m.get("error", {}).get("code")
        is_modern = not headers
        self.answer({-32601: 404, -32602: 400, -32022: 400}.get(code, 200) if is_modern else 200, m, headers)

    def begin_stream(self, headers):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        return True

    def stream(self, message):
        data = b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


class Bridge(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, argv, stands_for):
        super().__init__(("127.0.0.1", 0), Handler)
        self.argv, self.stands_for, self.sessions = argv, stands_for, {}
        self.url = f"http://127.0.0.1:{self.server_port}/mcp"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def close(self):
        self.shutdown()
        self.server_close()
        for server in self.sessions.values():
            server.close()
