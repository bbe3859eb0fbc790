"""reset.py TOP BUILD KILLS: see suite-reset.sh."""
import errno
import json
import os
import random
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import docker_world  # noqa: E402

top, build, kills = sys.argv[1], sys.argv[2], int(sys.argv[3])
rng = random.Random(1)
wrong = {}
KEY = "victim"
PATH = f"{top}/{KEY}"
ROOT = os.environ["PAI_RESET_ROOT"]
GONE = (errno.ESTALE, errno.ENOENT)
# What each kind of command may end as: (outcome, may it have been run again?).
COMMANDS = {
    "silent": (["sh", "-c", "sleep 0.2"], b""),
    "output": (["sh", "-c", "echo begun; sleep 30"], b""),
    "stdin": (["sh", "-c", "read line; mkdir taken; sleep 30"], b"taken\n"),
    "quick": (["true"], b""),
}


def fault(what):
    wrong[what] = wrong.get(what, 0) + 1
    if wrong[what] <= 3:
        print(f"  wrong: {what}", flush=True)


def run(*argv):
    return subprocess.run(argv, capture_output=True, timeout=30, cwd="/")


def pai_exec(argv, stdin=b"", cwd="/", key=True):
    """Starts a command; its status object comes on a pipe of its own."""
    r, w = os.pipe()
    where = ["-n", "default", "-s", KEY] if key else []
    p = subprocess.Popen([f"{build}/pai-exec", *where, "--status-fd", str(w), "--", *argv], cwd=cwd,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[w])
    os.close(w)
    if stdin:
        p.stdin.write(stdin)
        p.stdin.flush()
    return p, r


def finish(p, r):
    out, err = p.communicate(timeout=30)
    with os.fdopen(r) as f:
        text = f.read()
    return p.returncode, json.loads(text) if text else None, out, err


def sandbox_id():
    out = run(f"{build}/pai", "-n", "default", "status", KEY, "--json").stdout
    return json.loads(out)["session"]["sandboxId"]


def wait_until(what, condition):
    deadline = time.monotonic() + 20
    while not condition():
        if time.monotonic() > deadline:
            raise ValueError(what)
        time.sleep(0.002)


def expect_gone(what, call):
    """A mutation never succeeds on what is gone; nor does anything else that reaches the server."""
    try:
        call()
    except OSError as e:
        if e.errno not in GONE:
            fault(f"{what} after the kill: {errno.errorcode.get(e.errno)}")
        return
    fault(f"{what} succeeded after the kill had returned")


def living_in(sandbox):
    """Processes that see the sandbox's files: their mount table names its directory."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/mountinfo") as f:
                if sandbox in f.read():
                    found.append(pid)
        except OSError:
            pass
    return found


def is_of(path, sandbox):
    """Whether a directory is the sandbox's: by its name, or by what docker's provider keeps there."""
    try:
        with open(path + "/container") as f:
            return f.read().strip() == sandbox
    except OSError:
        return sandbox in path


def expect_nothing_left(sandbox):
    names = [name for name in os.listdir(ROOT) if is_of(f"{ROOT}/{name}", sandbox)] \
        if os.path.isdir(ROOT) else docker_world.containers(sandbox)
    if names:
        fault(f"files are left after the kill: {names[0][:6]}...")
    if living_in(sandbox):
        fault("a process of the sandbox is left after the kill")


def judge_command(kind, code, status, out):
    if status is None:
        fault(f"{kind}: no status object, exit {code}")
        return
    if kind in ("output", "stdin") and code != 125:
        fault(f"{kind}: exit {code}, {status.get('outcome')}")
    if kind == "output" and b"begun" in out:
        fault("output: it was started twice after it had said something")
    if kind in ("silent", "quick") and code not in (0, 125):
        fault(f"{kind}: exit {code}")
    if kind == "quick" and code == 125 and status.get("outcome") == "exited":
        fault("quick: 125, but exited")


def turn(number):
    os.makedirs(PATH, exist_ok=True)
    root = os.stat(PATH).st_ino
    code, status, _, err = finish(*pai_exec(["mkdir", "-p", "sub"]))
    if code != 0:
        fault(f"no environment before the kill: exit {code} {err[-200:]!r}")
        return
    with open(f"{PATH}/file", "w") as f:
        f.write("x" * 5000)
    old = sandbox_id()
    reading, writing = os.open(f"{PATH}/file", os.O_RDONLY), os.open(f"{PATH}/file", os.O_RDWR)
    directory = os.open(f"{PATH}/sub", os.O_RDONLY)
    os.chdir(f"{PATH}/sub")
    name = list(COMMANDS)[number % len(COMMANDS)]
    argv, stdin = COMMANDS[name]
    p, r = pai_exec(argv, stdin)
    if name == "output":
        if p.stdout.readline() != b"begun\n":
            fault("output: it never began")
    elif name == "stdin":
        wait_until("stdin: it never took its line", lambda: os.path.isdir(f"{PATH}/taken"))
    time.sleep(rng.random() * 0.03)
    killed = run(f"{build}/pai", "-n", "other", "kill", "--sandbox", old)
    if killed.returncode != 0:
        fault(f"the kill failed: {killed.stderr.decode().strip()[-60:]}")
    expect_nothing_left(old)
    expect_gone("write", lambda: os.pwrite(writing, b"y", 0))
    expect_gone("ftruncate", lambda: os.ftruncate(writing, 3))
    expect_gone("fsync", lambda: os.fsync(writing))
    expect_gone("mkdir in a directory", lambda: os.mkdir("new", dir_fd=directory))
    expect_gone("create in a directory", lambda: os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=directory)))
    deadline = time.monotonic() + 1
    while True:  # looking may be answered from the cache until the push has come
        try:
            os.pread(reading, 10, 0)
        except OSError as e:
            if e.errno != errno.ESTALE:
                fault(f"read after the kill: {errno.errorcode.get(e.errno)}")
            break
        if time.monotonic() > deadline:
            fault("read succeeds one second after the kill")
            break
        time.sleep(0.005)
    code, status, out, _ = finish(p, r)
    judge_command(name, code, status, out)
    # A shell that stands in what has gone can still run the command that tells it.
    code, status, _, err = finish(*pai_exec(["true"], cwd=None, key=False))
    os.chdir("/")
    if code != 125 or not status or not status.get("environmentReset"):
        kind = ((status or {}).get("error") or {}).get("kind")
        fault(f"a shell in what has gone isn't told of the reset: exit {code}, error {kind}, after '{name}'")
    for fd in (reading, writing, directory):
        try:
            os.close(fd)
        except OSError:
            pass
    code, status, _, err = finish(*pai_exec(["true"]))
    if code != 0:
        fault(f"the next command: exit {code} {err[-200:]!r}")
    elif sandbox_id() == old:
        fault("the next command ran in the environment that was killed")
    if os.path.exists(f"{PATH}/file"):
        fault("a file of the killed environment is still shown")
    if os.stat(PATH).st_ino != root:
        fault("the session's directory has another inode")


begun = time.monotonic()
done = 0
for i in range(kills):
    try:
        turn(i)
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError) as e:
        fault(f"turn: {type(e).__name__} {e}")
    os.chdir("/")
    done += 1
    if sum(wrong.values()) > 40:
        break
for what, count in wrong.items():
    print(f"not ok reset: {count} of {done}: {what}".replace("\n", " "))
if not wrong:
    print(f"ok reset ({done} kills, {time.monotonic() - begun:.0f} s)")
sys.exit(1 if wrong else 0)
