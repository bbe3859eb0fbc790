#!/usr/bin/env python3
# fast
# timeout 90
"""pai shell-init: its links are the sandbox's programs in a session's directory, and the next ones on
PATH elsewhere, or where an option or a variable names a place outside. PAI_OVER: as over_world.py has it."""
import os
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from agents_world import main  # noqa: E402
from hold_world import BUILD, TMP, case  # noqa: E402

LINKS = os.environ["XDG_STATE_HOME"] + "/paifs/links"
CONFIG = os.environ["XDG_CONFIG_HOME"] + "/paifs/links"
HOSTS = TMP + "/hosts"  # programs of this machine that say so


def init(*argv):
    return subprocess.run([BUILD + "/pai", "shell-init", *argv], capture_output=True, text=True, timeout=30)


def sh(line, cwd, **env):
    """What a user's shell does, with the links in front."""
    path = f"{HOSTS}:{os.environ['PATH']}"
    r = subprocess.run(["bash", "-c", f'eval "$({BUILD}/pai shell-init)"; {line}'], cwd=cwd, capture_output=True,
                       text=True, timeout=30, stdin=subprocess.DEVNULL, env={**os.environ, "PATH": path, **env})
    return r.returncode, r.stdout, r.stderr


def is_here(got):
    return got[1].startswith("here ")


def in_a_session(top):
    got = sh("git init -q repo && cd repo && git status --short && git -C . rev-parse --show-toplevel", top)
    if got != (0, "/workspace/repo\n", ""):
        return got
    got = sh(f"git -C {top}/repo rev-parse --show-toplevel; git --git-dir={top}/repo/.git rev-parse --git-dir", top)
    if got[1] != "/workspace/repo\n/workspace/repo/.git\n":
        return got
    with open(top + "/Makefile", "w") as f:
        f.write("all:\n\t@cat /tmp/in-the-sandbox; exit 4\n")
    got = sh("make -s; echo $?", top)
    return None if got[1] == "yes\n2\n" else got


def elsewhere(top):
    for line, cwd, env in (("git status", TMP, {}), ("git --git-dir /tmp/x --work-tree . status", top, {}),
                           ("git --git-dir=/tmp/x status", top, {}), ("git -C /tmp status", top, {}),
                           ("git -C ../.. status", top, {}), ("git status", top, {"GIT_DIR": "/tmp/x"}),
                           ("npm --prefix /tmp/x install", top, {}), ("make -C/tmp", top, {})):
        got = sh(line, cwd, **env)
        if not is_here(got):
            return line, got
    return None


def nowhere(_):
    got = subprocess.run(
        [LINKS + "/meson"], cwd=TMP, env={**os.environ, "PATH": LINKS}, capture_output=True, text=True, timeout=30)
    return None if got.returncode == 127 and "no other 'meson'" in got.stderr else got


def the_list(top):
    os.makedirs(os.path.dirname(CONFIG), exist_ok=True)
    with open(CONFIG, "w") as f:
        f.write("# mine\nuname\n  cat # too\npython3\nbash\n../x\n")
    r = init()
    if sorted(os.listdir(LINKS)) != ["cat", "uname"] or r.returncode:
        return os.listdir(LINKS), r
    if any(f"no link for '{name}'" not in r.stderr for name in ("python3", "bash", "../x")):
        return r
    got = sh("cat /tmp/in-the-sandbox", top)
    os.unlink(CONFIG)
    return None if got[:2] == (0, "yes\n") else got


def twice(_):
    got = subprocess.run(["sh", "-c", f'eval "$({BUILD}/pai shell-init)"; one=$PATH; eval "$({BUILD}/pai shell-init)"; '
                          '[ "$one" = "$PATH" ]'], timeout=30)
    return got if got.returncode else None


def play(d, _):
    os.mkdir(HOSTS)
    for name in ("git", "npm", "make"):
        with open(f"{HOSTS}/{name}", "w") as f:
            f.write(f"#!/bin/sh\necho here {name}\n")
        os.chmod(f"{HOSTS}/{name}", 0o755)
    top = d.top + "/k"
    os.mkdir(top)
    assert d.run("sh", "-c", "echo yes > /tmp/in-the-sandbox")[0] == 0
    case("in a session the programs are the sandbox's", in_a_session, top)
    case("elsewhere, and for places outside, they are this machine's", elsewhere, top)
    case("a program that is nowhere else", nowhere, top)
    case("a list of one's own, without interpreters", the_list, top)
    case("PATH has them once", twice, top)


main("agents-links", play)
