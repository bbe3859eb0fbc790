#!/usr/bin/env python3
# timeout 180
"""Codex CLI, unchanged, under pai run over local: its model is a script on loopback (agents_loop.py)."""
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from agents_loop import CONTRIB, TMP, Script, loop, test  # noqa: E402
from installs import installed  # noqa: E402

VERSION = "0.171.0"


def install():
    return installed(f"codex-{VERSION}", "npm", "install", "--prefix", "DIR", "--no-audit", "--no-fund",
                     f"@openai/codex@{VERSION}") + "/node_modules/.bin/codex"


def patch(kind, path, *lines):
    return "apply_patch", "\n".join(["*** Begin Patch", f"*** {kind} File: {path}", *lines, "*** End Patch", ""])


def write(path, text):
    return patch("Add", path, *["+" + line for line in text.splitlines()])


def edit(path, old, new):
    return patch("Update", path, "@@", f"-from {old}", f"+from {new}")


def shell(command, where, **more):
    return "exec_command", {"cmd": command, "workdir": where, "tty": "sleep" in command, **more}


def serve(command):
    return shell(command, "/workspace", yield_time_ms=500)


def headless(d, codex):
    home = TMP + "/codex"
    os.mkdir(home)
    shutil.copy(CONTRIB + "/codex.toml", home + "/config.toml")
    return loop(d, Script(write, edit, shell, serve, roams=True),
                lambda model: [codex, "exec", "--skip-git-repo-check", "-m", "gpt-5.5", "-c", "model_provider=script", "-c",
                               f"model_providers.script={{name='script',base_url='{model.url}/v1',"
                               "env_key='OPENAI_API_KEY',wire_api='responses'}", "do it"],
                lambda model: {"OPENAI_API_KEY": "dummy", "CODEX_HOME": home})


test(f"Codex CLI {VERSION}", install, ("goes through its tools", headless))
