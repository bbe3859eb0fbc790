#!/usr/bin/env python3
# timeout 60
# timeout-long 400
"""opencode, unchanged, under pai run over local: its model is a script on loopback (agents_loop.py). What a person
does is done by its server's calls, as its own interface does it: to ask, and to interrupt."""
import http.client
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from agents_loop import CONTRIB, Script, loop, test, wait_for  # noqa: E402
from installs import installed  # noqa: E402

VERSION = "1.18.33"
PORT = 18766


def install():
    return installed(f"opencode-ai-{VERSION}", "npm", "install", "--prefix", "DIR", "--no-audit", "--no-fund",
                     f"opencode-ai@{VERSION}") + "/node_modules/.bin/opencode"


def write(path, text):
    return "write", {"filePath": path, "content": text}


def edit(path, old, new):
    return "edit", {"filePath": path, "oldString": old, "newString": new}


def shell(command, where):
    return "bash", {"command": command, "workdir": where, "description": "as the script says"}


def search(text):
    return "grep", {"pattern": text, "path": "/workspace"}


def settings(model):
    with open(CONTRIB + "/opencode.json") as f:
        ours = json.load(f)
    provider = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": model.url + "/v1", "apiKey": "dummy"},
                "models": {"m": {"name": "m", "tool_call": True}}}
    return json.dumps({**ours, "provider": {"script": provider}, "model": "script/m", "small_model": "script/m",
                       "permission": {"external_directory": "allow"}})


def call(path, body):
    c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    c.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    answer = c.getresponse()
    data = answer.read()
    assert answer.status < 300, (path, answer.status, data[:300])
    return json.loads(data or "null")


def served(d, opencode):
    session = []

    def ask(agent):
        wait_for(lambda: b"listening" in agent.said or agent.p.poll() is not None, 60, "its server")
        session.append("/session/" + call("/session", {})["id"])
        call(session[0] + "/prompt_async", {"parts": [{"type": "text", "text": "do it"}]})

    return loop(d, Script(write, edit, shell, search=search, roams=True),
                lambda model: [opencode, "serve", "--hostname", "127.0.0.1", "--port", str(PORT)],
                lambda model: {"OPENCODE_CONFIG_CONTENT": settings(model), "OPENCODE_DISABLE_MODELS_FETCH": "1",
                               "OPENCODE_DISABLE_AUTOUPDATE": "1"},
                ask, lambda agent: call(session[0] + "/abort", {}))


test(f"opencode {VERSION}", install, ("goes through its tools", served), is_slow=True)
