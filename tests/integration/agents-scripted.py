#!/usr/bin/env python3
# timeout 180
"""A scripted agent in python and one in node see under pai run what they see in a plain directory, line
by line, and no command of theirs sees this machine."""
import difflib
import os
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hold_world  # noqa: E402
from hold_world import BUILD, TMP, Daemon, begin, case, not_ok, skip  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
CANARY = TMP + "/canary"
# Prints where to connect, as pai port does, and stays.
PLAIN_PORT = [sys.executable, "-uc", "import time; print('127.0.0.1:{}'); time.sleep(100)"]


def transcript(argv, cwd):
    try:
        r = subprocess.run(argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True, timeout=80)
    except subprocess.TimeoutExpired as e:
        return (e.stdout or b"").decode(errors="replace").splitlines() + ["does not end"]
    return r.stdout.splitlines() + [f"exit {r.returncode}"]


def same(d, program, agent):
    plain = f"{TMP}/plain-{os.path.basename(agent)}"
    os.mkdir(plain)
    want = transcript([*program, agent, "/nonexistent", *PLAIN_PORT], plain)
    if want[-1] != "exit 0":
        return "in a plain directory: " + " | ".join(want[-5:])
    got = transcript([BUILD + "/pai", "-n", d.name, "run", "-s", os.path.basename(agent), "--", *program, agent, CANARY,
                      BUILD + "/pai", "-n", d.name, "port", os.path.basename(agent), "{}"], TMP)
    return " | ".join(difflib.unified_diff(want, got, "plain", "run", lineterm="", n=0)) or None


def main():
    begin("agents-scripted")
    with open(CANARY, "w") as f:
        f.write("canary\n")
    d = Daemon("local", "scripted")
    case("an agent in python", same, d, [sys.executable, "-B"], HERE + "/agent_of_python.py")
    node = shutil.which("node")
    if node:
        case("an agent in node", same, d, [node], HERE + "/agent_of_node.js")
    else:
        skip("an agent in node", "no node here")


try:
    main()
except Exception as e:
    not_ok("agents-scripted", repr(e))
    raise
finally:
    code = hold_world.finish()
sys.exit(code)
