#!/usr/bin/env python3
# timeout 180
"""Claude Code, unchanged, under pai run over local: its model is a script on loopback (agents_loop.py)."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from agents_loop import CONTRIB, Script, loop, test  # noqa: E402
from installs import installed  # noqa: E402

VERSION = "2.1.197"
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


def headless(d, claude):
    return loop(d, Script(write, edit, shell, serve),
                lambda model: [claude, "--settings", SETTINGS, "-p", "do it", "--allowedTools", "Bash", "Edit", "Write"],
                lambda model: {"ANTHROPIC_API_KEY": "dummy", "ANTHROPIC_BASE_URL": model.url,
                               "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"})


test(f"Claude Code {VERSION}", install, ("goes through its tools", headless))
