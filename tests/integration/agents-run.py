#!/usr/bin/env python3
# timeout 240
# timeout-long 300
"""pai run: the cases of agents_cases.py by an agent that knows nothing of paifs, whose shells are called
by absolute path; what stays on this machine; what --dry-run shows. As root, and (agents-user.sh) as a
user. PAI_OVER: as over_world.py has it."""
import json
import os
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hold_world  # noqa: E402
from agents_world import CANARY, HERE, OVER, Daemon, main  # noqa: E402
from hold_world import BUILD, TMP, case, skip  # noqa: E402

PAI = BUILD + "/pai"
SECRETS = {"ANTHROPIC_API_KEY": "k", "SECRET_TOKEN": "t", "PLAIN_OF_THE_HOST": "p"}


def run(d, *agent, key="k", cwd=TMP, **kw):
    kw.setdefault("timeout", 60)
    kw.setdefault("stdin", subprocess.DEVNULL)
    kw.setdefault("capture_output", True)
    return subprocess.run([PAI, "-n", d.name, "run", "-s", key, "--", *agent], cwd=cwd, text=True, **kw)


def cases(d):
    env = {**os.environ, **SECRETS, "PAI_CASES": "run", "PAI_CANARY": CANARY, "TMUX_TMPDIR": TMP}
    subprocess.run(["tmux", "new-session", "-d", "cat " + CANARY + "; sleep 100"], env=env, timeout=30)
    try:
        r = run(d, sys.executable, "-B", HERE + "/agents_cases.py", env=env, timeout=200, capture_output=False)
    finally:
        subprocess.run(["tmux", "kill-server"], env=env, timeout=30)
    if r.returncode:
        hold_world.failed = True


def the_agent_itself(d):
    script = ("import os,json;print(json.dumps([os.getcwd(),os.environ['SHELL'],os.environ['TMPDIR'],"
              "os.path.realpath('/proc/self/cwd'),open('/proc/self/status').read().split('NoNewPrivs:')[1][1]]))")
    r = run(d, sys.executable, "-c", script)
    want = ["/workspace", "/bin/bash", "/workspace/.pai/t", "/workspace", "1"]
    if r.returncode or json.loads(r.stdout) != want:
        return r
    r = run(d, sys.executable, "-c", "import os; print(os.getcwd())", cwd=f"{d.top}/k/sub")
    if r.stdout != "/workspace/sub\n":
        return r
    r = run(d, "/bin/sh", "-c", "exit 7")
    return None if r.returncode == 7 else r


def nothing_is_left(d):
    run(d, "/bin/true")
    return [p for p in ("/workspace", "/.paifs", "/.old") if os.path.exists(p) and p not in before] or None


def host_stays_on_the_host(d):
    line = f"cat {CANARY}"
    r = run(d, PAI, "host", "--", "sh", "-c", line)
    if r.stdout != "canary\n":
        return r
    # What it starts as well, by whatever way.
    r = run(d, PAI, "host", "--", sys.executable, "-c", f"import os; os.system({line!r})")
    return None if r.stdout == "canary\n" else r


def a_machine_whose_shell_is_busybox(d):
    """All that busybox is has the file of its shell: what is no shell runs here."""
    names = TMP + "/busybox"
    os.mkdir(names)
    for name in ("sh", "cat", "busybox"):
        os.symlink(shutil.which("busybox"), f"{names}/{name}")
    line, said = f"cat {CANARY} || echo away", []
    for argv in (["sh", "-c", line], ["busybox", "sh", "-c", line], ["cat", CANARY], ["busybox", "cat", CANARY]):
        r = run(d, "timeout", "20", f"{names}/{argv[0]}", *argv[1:],
                env={**os.environ, "PATH": f"{names}:{os.environ['PATH']}"})
        said.append(r.stdout)
    return None if said == ["away\n", "away\n", "canary\n", "canary\n"] else said


def a_launcher_in_shell(d):
    """The agent begins as a shell's script, and its shells are the sandbox's all the same."""
    path = TMP + "/launcher"
    with open(path, "w") as f:
        f.write("#!/usr/bin/env bash\nword=$(sh -c 'echo here')\n"
                f"exec {sys.executable} -c \"import subprocess as s, sys; print('$word', s.run(['/bin/sh', '-c', "
                f"'cat {CANARY} || echo away'], stdout=s.PIPE).stdout.decode().strip())\"\n")
    os.chmod(path, 0o755)
    r = run(d, path)
    return None if r.stdout == "here away\n" else r


def a_shell_within_busybox(d):
    box = shutil.which("busybox")
    line = f"cat {CANARY} 2>/dev/null || echo away"
    there = run(d, box, "sh", "-c", line)
    here = run(d, box, "cat", CANARY)
    host = run(d, PAI, "host", "--", box, "sh", "-c", line)
    good = (there.stdout, here.stdout, host.stdout) == ("away\n", "canary\n", "canary\n")
    return None if good else (there, here, host)


HELPER = "!f() { test \"$1\" = get && echo username=u && echo password=p; echo $1 >> %s; }; f"


def credentials_stay_on_the_host(d):
    told, config = TMP + "/helper-told", TMP + "/gitconfig-run"
    helper = HELPER % told
    env = {**os.environ, "GIT_CONFIG_GLOBAL": config, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
    subprocess.run(["git", "config", "--file", config, "credential.helper", helper], check=True)
    r = run(d, "git", "credential", "fill", env=env, stdin=None, input="protocol=https\nhost=h\n\n")
    if "password=p" not in r.stdout or not os.path.exists(told):
        return r
    # The same line, said by the workspace's own repository: it runs in the sandbox.
    theirs = TMP + "/theirs-told"
    d.run("sh", "-c", "git init -q evil && git -C evil config credential.helper \"$1\"", "sh", HELPER % theirs)
    subprocess.run(["git", "config", "--file", config, "--unset-all", "credential.helper"], check=True)
    r = run(d, "git", "-C", "/workspace/evil", "credential", "fill", env=env, stdin=None,
            input="protocol=https\nhost=h\n\n")
    return ("ran here", r) if os.path.exists(theirs) else None


def started_by(d, told, *agent, env=(), **kw):
    """What a command said that `agent` has started; it says it here, where the canary is, or not at all."""
    r = run(d, *agent, env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", **dict(env)},
            **kw)
    said = hold_world.get(told).decode() if os.path.exists(told) else "nothing"
    if said != "nothing":
        os.unlink(told)
    return None if said == "canary\n" else (said, r)


def ssh_starts_shells_here(d):
    """A proxy for a way to a host, and what git is to use instead of ssh."""
    told, config = TMP + "/told-by-ssh", TMP + "/gitconfig-ssh"
    line = f"cat {CANARY} | tee {told} >&2; false"  # ssh hangs up on one that closes its output
    why = started_by(d, told, "ssh", "-F", "none", "-o", f"ProxyCommand={line}", "nowhere")
    ls = ("git", "ls-remote", "ssh://nowhere/x")
    why = why or started_by(d, told, *ls, env={"GIT_SSH_COMMAND": line})
    subprocess.run(["git", "config", "--file", config, "core.sshCommand", line], check=True)
    why = why or started_by(d, told, *ls, env={"GIT_CONFIG_GLOBAL": config})
    # The same, said by the workspace's own repository: whoever runs it, it isn't this machine.
    d.run("sh", "-c", "git init -q via && git -C via config core.sshCommand \"$1\"", "sh", line)
    return why or ("ran here" if started_by(d, told, "git", "-C", "/workspace/via", *ls[1:])[0] != "nothing" else None)


def gpg_starts_shells_here(d):
    """A pinentry that is a script."""
    told, home, pinentry = TMP + "/told-by-gpg", TMP + "/gnupg", TMP + "/pinentry"
    os.makedirs(home, mode=0o700)
    for path, text in ((home + "/gpg-agent.conf", f"pinentry-program {pinentry}\n"),
                       (pinentry, f"#!/bin/sh\ncat {CANARY} >{told}\n")):
        with open(path, "w") as f:
            f.write(text)
    os.chmod(pinentry, 0o755)
    return started_by(d, told, "gpg-agent", "--homedir", home, "--server", stdin=None,
                      input="GET_PASSPHRASE --data x X X X\nBYE\n")


def a_program_of_the_workspace_is_no_ssh(_, another):
    """Where the mount runs programs at all: not by its name."""
    d = another("exec", "exec")
    os.mkdir(d.top + "/named")
    shutil.copy(shutil.which("timeout"), d.top + "/named/ssh")
    line = f"cat {CANARY} || echo away"
    r = run(d, "/workspace/ssh", "10", "/bin/sh", "-c", line, key="named")
    d.pai("kill", "named")
    d.stop()
    return None if r.stdout == "away\n" else r


def an_agents_own_sandbox(d):
    """One that forbids Unix sockets, as Codex's does: one line, at once, and nothing runs."""
    r = run(d, sys.executable, "-B", HERE + "/no_unix.py", "/bin/bash", "-c", "echo ran")
    good = (r.returncode == 125 and r.stdout == "" and len(r.stderr.splitlines()) == 1
            and "the agent's own sandbox" in r.stderr)
    return None if good else r


def dry_run(d):
    env = {**os.environ, **SECRETS}
    r = subprocess.run([PAI, "-n", d.name, "run", "-s", "k", "--dry-run", "--json"], env=env, timeout=30,
                       capture_output=True, text=True)
    plan = json.loads(r.stdout)
    if plan["workspace"] != d.top + "/k" or plan["tmp"] != "/workspace/.pai/t":
        return plan
    env_of = plan["environment"]
    if env_of["TMPDIR"] != "passed: /workspace/.pai/t" or env_of["TERM"] != "passed: on a terminal":
        return env_of
    missing = [p for p in ("/bin/sh", "/bin/bash") if os.path.realpath(p) not in plan["masked"]]
    passed = [k for k in SECRETS if not plan["environment"][k].startswith("refused")]
    text = subprocess.run([PAI, "-n", d.name, "run", "-s", "k", "--dry-run"], env=env, timeout=30,
                          capture_output=True, text=True)
    return missing or passed or (None if "refused: named like a secret" in text.stdout else text)


def refusals(d):
    r = subprocess.run([PAI, "-n", d.name, "run", "-s", "k", "--"], capture_output=True, text=True, timeout=30)
    if r.returncode != 1 or "no agent given" not in r.stderr:
        return r
    r = run(d, PAI, "run", "-s", "k", "--", "true")
    if "inside of a pai run already" not in r.stderr:
        return r
    r = run(d, "/bin/bash", "-c", "pwd", key="made-by-run")
    if r.stdout != "/workspace\n":
        return r
    bare = Daemon("local", "bare", mount=False)
    r = run(bare, "true")
    bare.stop()
    return None if r.returncode == 1 and "no mount" in r.stderr else r


def guarded(d):
    """What it would run for the asking, it refuses to read; the sandbox's own git has no such doubts."""
    ran = TMP + "/guard-ran"
    d.run("sh", "-c", "git init -q guard && git -C guard config core.fsmonitor \"touch $1; false\" && "
          "git -C guard config alias.st \"!touch $1\"", "sh", ran)
    for line in (["status"], ["st"], ["log"]):
        r = run(d, "git", "-C", "/workspace/guard", *line)
        if r.returncode == 0 or os.path.exists(ran) or line != ["st"] and "dubious ownership" not in r.stderr:
            return line, r
    r = run(d, "/bin/sh", "-c", "git -C guard config core.fsmonitor false; git -C guard status --short && echo done")
    return None if r.stdout == "done\n" else r


def trusted(d, another):
    r = d.pai("trust", "k")
    if r.returncode:
        return r
    r = run(d, "/bin/sh", "-c", "echo ran")
    if r.returncode != 1 or r.stdout or "pai trust --off" not in r.stderr:
        return r
    d.pai("trust", "--off", "k")
    r = run(d, "/bin/sh", "-c", "echo ran")
    if r.stdout != "ran\n":
        return r
    other = another("trusting", git="trust")
    r = run(other, "/bin/sh", "-c", "echo ran", key="never-made")
    made = other.session("never-made")
    other.stop()
    good = r.returncode == 1 and not r.stdout and "mount with -o git=guard" in r.stderr and not made
    return None if good else (r, made)


before = os.listdir("/")
before = ["/" + name for name in before]


def play(d, another):
    os.mkdir(d.top + "/k")
    os.mkdir(d.top + "/k/sub")
    assert d.run("sh", "-c", "echo yes > /tmp/in-the-sandbox")[0] == 0
    cases(d)
    if os.environ.get("PAI_SHELL"):  # the rest is about this machine
        return
    for name, fn in (("the agent starts at /workspace with one temp folder and no new privileges", the_agent_itself),
                     ("no trace is left on this machine", nothing_is_left),
                     ("pai host runs here, and what it starts", host_stays_on_the_host),
                     ("an agent that begins as a script", a_launcher_in_shell),
                     ("a machine whose shell is busybox", a_machine_whose_shell_is_busybox),
                     ("git's credential helpers run here, a workspace's don't", credentials_stay_on_the_host),
                     ("what ssh starts, and git instead of it, runs here, a workspace's doesn't",
                      ssh_starts_shells_here),
                     ("an agent's own sandbox is named", an_agents_own_sandbox),
                     ("--dry-run", dry_run), ("what can't be run is said", refusals)):
        case(name, fn, d)
    case("a program of the workspace is no ssh by its name", a_program_of_the_workspace_is_no_ssh, d, another)
    if shutil.which("gpg-agent"):
        case("what gpg starts runs here", gpg_starts_shells_here, d)
    else:
        skip("what gpg starts runs here", "no gpg-agent here")
    if shutil.which("busybox"):
        case("a shell within busybox", a_shell_within_busybox, d)
    else:
        skip("a shell within busybox", "no busybox here")
    guard = {"git of this machine believes no repository of the sandbox's": (guarded, d),
             "a session whose repositories it would believe runs no agent": (trusted, d, another)}
    for name, (fn, *args) in guard.items():
        if OVER == "local":
            skip(name, "git may believe those of local, which are files of this machine")
        else:
            case(name, fn, *args)


if os.geteuid() and subprocess.run(["unshare", "-Ur", "true"], stderr=subprocess.DEVNULL).returncode:
    skip("agents-run", "no namespaces of users here")
else:
    main("agents-run", play)
