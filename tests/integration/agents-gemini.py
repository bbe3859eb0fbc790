#!/usr/bin/env python3
# timeout 180
"""Gemini CLI, unchanged, under pai run over local: its model is a script on loopback (agents_loop.py)."""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from agents_loop import Script, loop, test  # noqa: E402
from installs import installed  # noqa: E402

VERSION = "0.61.0"


def install():
    return installed(f"gemini-{VERSION}", "npm", "install", "--prefix", "DIR", "--omit=optional", "--no-audit",
                     "--no-fund", f"@google/gemini-cli@{VERSION}") + "/node_modules/.bin/gemini"


def write(path, text):
    return "write_file", {"file_path": path, "content": text}


def edit(path, old, new):
    return "replace", {"file_path": path, "instruction": "as the script says", "old_string": old, "new_string": new}


def shell(command, where):
    return "run_shell_command", {"command": command, "dir_path": where}


def search(text):
    return "grep_search", {"pattern": text}


def headless(d, gemini):
    settings = os.environ["HOME"] + "/.gemini/settings.json"
    os.makedirs(os.path.dirname(settings), exist_ok=True)
    with open(settings, "w") as f:
        json.dump({"security": {"auth": {"selectedType": "gemini-api-key"}}}, f)
    return loop(d, Script(write, edit, shell, search=search), lambda model: [gemini, "--yolo", "-p", "do it"],
                lambda model: {"GEMINI_API_KEY": "dummy", "GEMINI_CLI_TRUST_WORKSPACE": "true",
                               "GOOGLE_GEMINI_BASE_URL": model.url})


test(f"Gemini CLI {VERSION}", install, ("goes through its tools", headless))
