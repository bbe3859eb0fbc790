#!/usr/bin/env python3
# timeout 180
"""Gemini CLI, unchanged, under pai run over local: its model is a script on loopback that asks for its own
file tool and its shell; what its tools answer is what the sandbox holds, and nothing of this machine."""
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
CACHE = os.environ.get("PAI_TEST_CACHE") or os.path.dirname(
    os.environ.get("CARGO_HOME", os.path.expanduser("~/.cargo"))) + "/.cache/paifs-tests"
import hold_world  # noqa: E402
from hold_world import BUILD, TMP, Daemon, begin, case, not_ok, skip  # noqa: E402

VERSION = "0.61.0"
CANARY = TMP + "/canary"
NAME = "Gemini CLI writes a file, and its shell is the sandbox's"
CALLS = [("write_file", {"file_path": "/workspace/hello.txt", "content": "from the agent\n"}),
         ("run_shell_command", {"command": f"cat hello.txt /tmp/in-the-sandbox; cat {CANARY}; pwd"}),
         ("run_shell_command", {"command": "mkdir -p sub && cd sub && pwd; sleep 200 >/dev/null 2>&1 & echo on"})]
answers = []


class Model(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        ask = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
        streams = "stream" in self.path
        part = {"text": "{}"}
        if "tools" in ask and streams:
            told = [p["functionResponse"] for c in ask["contents"] for p in c["parts"] if "functionResponse" in p]
            answers[:] = told
            part = {"text": "done"}
            if len(told) < len(CALLS):
                name, args = CALLS[len(told)]
                part = {"functionCall": {"name": name, "args": args}}
        said = json.dumps({"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP",
                                           "index": 0}]}).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if streams else "application/json")
        self.end_headers()
        self.wfile.write(b"data: " + said + b"\n\n" if streams else said)

    def log_message(self, *_):
        pass


def install():
    """The program, kept from run to run; None and why it can't be had."""
    where = f"{CACHE}/gemini-{VERSION}"
    program = where + "/node_modules/.bin/gemini"
    if not os.path.exists(program):
        if not shutil.which("npm"):
            return None, "no npm here"
        r = subprocess.run(["npm", "install", "--prefix", where, f"@google/gemini-cli@{VERSION}", "--omit=optional",
                            "--no-audit", "--no-fund"], capture_output=True, text=True, timeout=120)
        if r.returncode:
            return None, "npm can't install it: " + " ".join(r.stderr.split())[-200:]
    return program, None


def tools_answer(d, program):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings = os.environ["HOME"] + "/.gemini/settings.json"
    os.makedirs(os.path.dirname(settings), exist_ok=True)
    with open(settings, "w") as f:
        json.dump({"security": {"auth": {"selectedType": "gemini-api-key"}}}, f)
    env = {**os.environ, "GEMINI_API_KEY": "dummy", "GEMINI_CLI_TRUST_WORKSPACE": "true",
           "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{server.server_port}"}
    r = subprocess.run([BUILD + "/pai", "-n", d.name, "run", "-s", "k", "--", program, "--yolo", "-p", "do it"],
                       cwd=TMP, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90)
    server.shutdown()
    said = [a["response"].get("output", "") for a in answers]
    with open(d.top + "/k/hello.txt") as f:
        good = f.read() == "from the agent\n" and len(said) == 3
    good = good and "from the agent\nyes\n" in said[1] and "No such file" in said[1] and "\n/workspace\n" in said[1]
    good = good and "on" in said[2] and "/workspace/sub" in said[2]
    return None if good else (said, r.returncode, r.stdout[-300:], r.stderr[-300:])


def main():
    begin(NAME)
    with open(CANARY, "w") as f:
        f.write("canary\n")
    program, why = install()
    if not program:
        skip(NAME, why)
        return
    d = Daemon("local", "agents-gemini")
    os.mkdir(d.top + "/k")
    assert d.run("sh", "-c", "echo yes > /tmp/in-the-sandbox")[0] == 0
    case(NAME, tools_answer, d, program)
    d.pai("kill", "k")  # and with it the job that the agent left running


try:
    main()
except Exception as e:
    not_ok(NAME, repr(e))
    raise
finally:
    code = hold_world.finish()
sys.exit(code)
