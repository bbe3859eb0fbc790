#!/usr/bin/env python3
# timeout 90
"""README's examples, line by line as they stand there, on a mount as `make up` makes it: each succeeds,
or ends and prints as its comment says."""
import os
import re
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hold_world import BUILD, TMP, begin, is_mounted, not_ok, ok, unmount, wait_for  # noqa: E402

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
HOME = f"{TMP}/home"
TOP = f"{HOME}/pai"
# What a person would type into; the rest runs as it stands.
BY_HAND = {"vim ": "echo kept > ",
           "pai port ": "sh -c 'timeout 1 \"$@\"; test $? = 124' sh pai port ",
           "pai-exec -t bash": "script -qec 'pai-exec -t bash -c exit' /dev/null"}
MARK = "@@line"


def lines():
    """(command, comment) of the examples."""
    with open(f"{ROOT}/README.md") as f:
        text = f.read().split("## Examples")[1].split("In `/etc/fstab`")[0]
    found = []
    for block in re.findall(r"^```\n(.*?)^```", text, re.M | re.S):
        for line in block.splitlines():
            if line.strip() and not line.startswith(" "):
                command, _, comment = line.partition("  #")
                found.append((command.strip(), comment.strip()))
    return found


def as_typed(command):
    for said, meant in BY_HAND.items():
        if command.startswith(said):
            return command.replace(said, meant, 1)
    return command


def run(commands):
    """Output and exit status of each, all in one shell."""
    script = "cd ~\n" + "".join(f"{as_typed(c)}\ns=$?; echo; echo {MARK} $s\n" for c in commands)
    env = {**os.environ, "PATH": f"{BUILD}:{os.environ['PATH']}", "HOME": HOME}
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        env.pop(name, None)
    r = subprocess.run(["bash", "-c", script], env=env, text=True, stdin=subprocess.DEVNULL, timeout=60,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    parts = re.split(rf"^\n?{MARK} (\d+)\n", r.stdout, flags=re.M)
    return [(parts[2 * i].strip(), int(parts[2 * i + 1])) for i in range(len(commands))], r.stderr


def judge(command, comment, out, status):
    number = re.match(r"(\d+)\b", comment)
    if number and "echo $?" in command:
        return out == number[1]
    if number or "--status-fd" in command:
        return status == (int(number[1]) if number else 3)
    if comment in ("from the sandbox", "/workspace"):
        return out == comment and status == 0
    return status == 0


begin("readme")
os.makedirs(f"{HOME}/src/paifs")
os.makedirs(f"{HOME}/proj")
os.makedirs(TOP)
with open(f"{HOME}/proj/Makefile", "w") as f:
    f.write("all:\n\ttrue\n")
git = ["git", "-C", f"{HOME}/src/paifs", "-c", "user.name=t", "-c", "user.email=t@t"]
subprocess.run([*git, "init", "-q"], check=True)
subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
shutil.copy(f"{HOME}/proj/Makefile", f"{HOME}/src/paifs")
subprocess.run([*git, "add", "."], check=True)
subprocess.run([*git, "commit", "-q", "-m", "second"], check=True)
environment = {**os.environ, "HOME": HOME}
for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
    environment.pop(variable, None)
    os.environ.pop(variable, None)
subprocess.run([BUILD + "/paifs", "local", TOP, "-o", "host_commands"], env=environment, check=True, timeout=20)
try:
    examples = lines()
    results, errors = run([command for command, _ in examples])
    if len(examples) < 25:
        not_ok("readme", f"only {len(examples)} lines were found")
    for (example, said), (printed, code) in zip(examples, results):
        if judge(example, said, printed, code):
            ok(f"readme {example[:60]}")
        else:
            not_ok(f"readme {example[:60]}", f"exit {code}, {printed!r}; README says {said!r}; {errors[-300:]}")
finally:
    shell = f"cd {TOP} && for k in *; do {BUILD}/pai kill \"$k\"; done; {BUILD}/pai umount -n cmd"
    subprocess.run(["bash", "-c", shell], env=environment, timeout=30, stdout=subprocess.DEVNULL)
    unmount(TOP)
    wait_for(lambda: not is_mounted(TOP))
from hold_world import failed  # noqa: E402
sys.exit(1 if failed else 0)
