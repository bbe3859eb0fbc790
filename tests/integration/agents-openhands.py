#!/usr/bin/env python3
# timeout 60
# timeout-long 1300
"""OpenHands' agent and tools, unchanged, under pai run over local: a program of a few lines, as its SDK wants one,
whose model is a script on loopback (agents_loop.py). One shell in tmux is kept alive."""
import glob
import os
import pwd
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from agents_loop import TMP, Script, loop, test  # noqa: E402
from installs import installed  # noqa: E402

VERSION = "1.43.1"
PROGRAM = """
import os
from openhands.sdk import LLM, Agent, Conversation, Tool
from openhands.tools.file_editor import FileEditorTool
from openhands.tools.terminal import TerminalTool
from pydantic import SecretStr

llm = LLM(model="openai/m", api_key=SecretStr("dummy"), base_url=os.environ["MODEL_URL"], usage_id="agent")
agent = Agent(llm=llm, tools=[Tool(name=TerminalTool.name), Tool(name=FileEditorTool.name)])
talk = Conversation(agent=agent, workspace=os.getcwd())
try:
    talk.send_message("do it")
    talk.run()
finally:
    talk.close()
"""


def new_python():
    """One of 3.12 or later, also where it is not the first."""
    home = os.environ.get("PYENV_ROOT", pwd.getpwuid(os.getuid()).pw_dir + "/.pyenv")
    versions = home + "/versions/3.1[2-9]*/bin/python3"
    for program in (sys.executable, "python3.12", "python3.13", *sorted(glob.glob(versions))):
        try:
            if subprocess.run([program, "-c", "import sys; sys.exit(sys.version_info < (3, 12))"], timeout=20,
                              stderr=subprocess.DEVNULL).returncode == 0:
                return program
        except OSError:
            pass
    raise RuntimeError("no Python 3.12 here, which it needs")


def install():
    return installed(f"openhands-tools-{VERSION}", "sh", "-c", f"'{new_python()}' -m venv DIR && "
                     f"exec DIR/bin/pip install -q openhands-sdk=={VERSION} openhands-tools=={VERSION}",
                     timeout=900) + "/bin/python"


def write(path, text):
    return "file_editor", {"command": "create", "path": path, "file_text": text}


def edit(path, old, new):
    return "file_editor", {"command": "str_replace", "path": path, "old_str": old, "new_str": new}


def shell(command, _where):
    return "terminal", {"command": command}


def by_its_sdk(d, python):
    with open(TMP + "/talk.py", "w") as f:
        f.write(PROGRAM)
    return loop(d, Script(write, edit, shell), lambda model: [python, TMP + "/talk.py"],
                lambda model: {"MODEL_URL": model.url + "/v1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"})


test(f"OpenHands {VERSION}", install, ("goes through its tools", by_its_sdk), is_slow=True)
