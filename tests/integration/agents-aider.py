#!/usr/bin/env python3
# timeout 60
# timeout-long 1200
"""aider, unchanged, under pai run over local: its model is a script on loopback (agents_loop.py), and a person
at its terminal says yes and asks for commands."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from agents_loop import CANARIES, EDITED, FETCH, HANGS, HARM, KEYS, SERVE, Agent, fetch_by_port, is_running, talked_to, test, wait_for  # noqa: E402
from agents_model import Model  # noqa: E402
from installs import installed  # noqa: E402

VERSION = "0.86.2"
LOOK = f"cat hello.txt /tmp/in-the-sandbox; pwd; stty size; {KEYS}; {HARM}; true"
BLOCK = "hello.txt\n```\n<<<<<<< SEARCH\n{}=======\n{}>>>>>>> REPLACE\n```\n"
SAYS = [BLOCK.format("", "from the model\n"), BLOCK.format("from the model\n", EDITED + "\n") + f"\n```bash\n{LOOK}\n```\n",
        "done"]


def install():
    return installed(f"aider-chat-{VERSION}", "sh", "-c", f"'{sys.executable}' -m venv DIR && "
                     f"exec DIR/bin/pip install -q aider-chat=={VERSION}", timeout=900) + "/bin/python"


def over(a):
    """What a command of the person's has said."""
    said = a.until("output to the chat?")
    a.type("n\n")
    a.until("diff> ")
    return said


def command(a, line):
    a.type(f"/run {line}\n")
    return over(a)


def at_the_terminal(d, a):
    a.until("diff> ")
    a.type("write it\n")
    a.until("Create new file?")
    a.type("y\n")
    a.until("diff> ")
    a.type("edit it\n")
    a.until("Run shell command?")
    a.type("y\n")
    said = a.until("output to the chat?")
    missing = [w for w in (EDITED, "yes", "/workspace\r\n", "24 80\r\n", "no key\r\n", *[c + ": No such" for c in CANARIES])
               if w not in said]
    a.type("y\n")
    a.until("diff> ")
    if missing:
        return f"{said!r} lacks {missing}"
    if "/workspace/sub\r\n" not in command(a, "mkdir -p sub && cd sub && pwd && echo made > here"):
        return "the shell goes nowhere"
    command(a, f"{SERVE} > server.log 2>&1 & echo on")
    if EDITED not in command(a, FETCH) or fetch_by_port(d) != EDITED + "\n":
        return "the server isn't reached"
    with open(d.top + "/k/sub/here") as f, open(d.top + "/k/hello.txt") as g:
        if f.read() != "made\n" or g.read() != EDITED + "\n":
            return "the files differ"
    a.type(f"/run {HANGS}\n")
    wait_for(lambda: is_running(d, HANGS), 30, "the last command")
    a.stop()
    wait_for(lambda: not is_running(d, HANGS), 10, "the end of the command that was interrupted")
    over(a)
    a.type("/exit\n")
    return None


def with_a_person(d, python):
    model = Model(list(SAYS))
    options = ["--no-pretty", "--no-fancy-input", "--no-auto-commits", "--no-check-update", "--analytics-disable",
               "--no-show-model-warnings", "--no-show-release-notes", "--model", "openai/m", "--edit-format", "diff",
               "--map-tokens", "0", "--no-gitignore"]
    a = Agent(d, model, [python, "-m", "aider", *options],
              {"OPENAI_API_KEY": "dummy", "OPENAI_API_BASE": model.url + "/v1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"})
    return talked_to(d, a, model, at_the_terminal)


test(f"aider {VERSION}", install, ("goes through a person's day", with_a_person), is_slow=True)
