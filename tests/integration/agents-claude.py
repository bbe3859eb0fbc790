#!/usr/bin/env python3
# timeout 180
"""Claude Code, unchanged, under pai run over local: its model is a script on loopback (agents_loop.py)."""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from agents_loop import CONTRIB, HANGS, Agent, Script, is_running, loop, talked_to, test, wait_for  # noqa: E402
from agents_model import Model  # noqa: E402
from hold_world import get  # noqa: E402
from installs import installed  # noqa: E402

VERSION = "2.1.197"
KEY = "dummy-key-of-a-test-0123456789"
SETTINGS = CONTRIB + "/claude-code.json"


def install():
    return installed(f"claude-code-{VERSION}", "npm", "install", "--prefix", "DIR", "--no-audit", "--no-fund",
                     f"@anthropic-ai/claude-code@{VERSION}") + "/node_modules/.bin/claude"


def write(path, text):
    return "Write", {"file_path": path, "content": text}


def edit(path, old, new):
    return "Edit", {"file_path": path, "old_string": old, "new_string": new}


def shell(command, _where, **more):
    return "Bash", {"command": command, "description": "as the script says", **more}


def serve(command):
    return shell(command, None, run_in_background=True)


def options(claude, *more):
    return [claude, "--settings", SETTINGS, *more, "--allowedTools", "Bash", "Edit", "Write"]


def variables(model):
    return {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": model.url, "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}


def headless(d, claude):
    return loop(d, Script(write, edit, shell, serve), lambda model: options(claude, "-p", "do it"), variables)


def at_the_terminal(d, a):
    a.until("shortcuts")
    a.type("do it")
    a.until("it")
    a.type("\r")
    wait_for(lambda: is_running(d, HANGS), 30, "the command")
    a.type("\x1b")
    wait_for(lambda: not is_running(d, HANGS), 10, "the end of the command that was interrupted")
    a.until("Interrupted")
    a.type("!")
    a.until("!")
    a.type("pwd > mine; cat /tmp/in-the-sandbox >> mine")
    a.until("mine")
    a.type("\r")
    mine = d.top + "/k/sub/mine"
    wait_for(lambda: os.path.exists(mine) and get(mine).endswith(b"yes\n"), 20, "the person's own command")
    a.until("shortcuts")
    a.stop()
    a.until("again")
    return None if get(mine) == b"/workspace/sub\nyes\n" else get(mine)


def interactive(d, claude):
    """At its own interface: Esc, after which it goes on, and a command of the person's."""
    with open(os.environ["HOME"] + "/.claude.json", "w") as f:  # what it asks a new user
        json.dump({"hasCompletedOnboarding": True, "theme": "dark", "customApiKeyResponses": {"approved": [KEY[-20:]]},
                   "projects": {"/workspace": {"hasTrustDialogAccepted": True}}}, f)
    model = Model([shell("cd sub; pwd", None), shell(HANGS, None)])
    a = Agent(d, model, options(claude), variables(model))
    return talked_to(d, a, model, at_the_terminal)


test(f"Claude Code {VERSION}", install, ("goes through its tools", headless),
     ("is interrupted at its own interface, and serves its person's commands", interactive))
