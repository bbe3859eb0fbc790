#!/usr/bin/env python3
# timeout 180
"""A scripted agent in python and one in node see under pai run what they see in a plain directory, line
by line, and no command of theirs sees this machine. PAI_OVER: as over_world.py has it."""
import concurrent.futures
import difflib
import os
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from agents_world import CANARY, HERE, main  # noqa: E402
from hold_world import BUILD, TMP, case, skip  # noqa: E402

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
    pai, key = [BUILD + "/pai", "-n", d.name], os.path.basename(agent)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        there = pool.submit(transcript, [*program, agent, "/nonexistent", *PLAIN_PORT], plain)
        got = transcript([*pai, "run", "-s", key, "--", *program, agent, CANARY, *pai, "port", key, "{}"], TMP)
        want = there.result()
    if want[-1] != "exit 0":
        return "in a plain directory: " + " | ".join(want[-5:])
    return " | ".join(difflib.unified_diff(want, got, "plain", "run", lineterm="", n=0)) or None


def play(d, _):
    case("an agent in python", same, d, [sys.executable, "-B"], HERE + "/agent_of_python.py")
    node = shutil.which("node")
    if node:
        case("an agent in node", same, d, [node], HERE + "/agent_of_node.js")
    else:
        skip("an agent in node", "no node here")


main("agents-scripted", play)
