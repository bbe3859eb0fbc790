#!/usr/bin/env python3
# timeout 240
"""kill -9 of whoever has a part in a sandbox: what ran is unknown, what lay there lies there, nobody is
told of a reset; after umount the sandbox remains and nothing else, after pai kill nothing."""
import os
import signal
import subprocess
import sys
import threading

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hold_world import (BUILD, TMP, Daemon, begin, case, finish, get, is_mounted, is_over,  # noqa: E402
                        put, skip, wait_for)
import docker_world  # noqa: E402

engine = None


def parent(pid):
    with open(f"/proc/{pid}/stat") as f:
        return int(f.read().rsplit(")", 1)[1].split()[1])


def processes(has):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().decode(errors="replace").split("\0")
            if has(words) and not is_over(int(pid)):
                found.append(int(pid))
        except OSError:
            pass
    return found


def shims():
    return processes(lambda w: "containerd-shim" in w[0] and any(engine.dir in x for x in w))


def containers():
    return [c["Id"] for c in engine.containers() if "paifs.root" in c["Labels"]]


def first():
    (c,) = containers()
    return engine.get(f"/v1.41/containers/{c}/json")["State"]["Pid"]


def inside(word):
    """Its processes with that word."""
    space = os.readlink(f"/proc/{first()}/ns/pid")

    def is_there(pid):
        try:
            return os.readlink(f"/proc/{pid}/ns/pid") == space
        except OSError:
            return False
    return [p for p in processes(lambda w: word in w) if is_there(p)]


def of_ours(name):
    """Processes of the daemon's on this host."""
    return processes(lambda w: w[0].startswith(BUILD) and name in w)


VICTIMS = {
    "process 1, the supervisor": lambda d: first(),
    "containerd-shim": lambda d: parent(first()),
    # Not the relay to it, which is the one that a shim has started: that costs nothing.
    "the worker": lambda d: [p for p in inside("serve") if parent(p) == first()][0],
    "the supervisor of the commands": lambda d: parent(inside("86387")[0]),
    "the daemon": lambda d: d.proc.pid,
    "dockerd": lambda d: engine.process.pid,
}


def remains(d, far):
    """After umount: the sandbox. After pai kill: nothing."""
    d.stop()
    if of_ours(d.name) or is_mounted(d.top):
        return f"after umount: {of_ours(d.name)}, mounted: {is_mounted(d.top)}"
    if len(containers()) != 1:
        return f"after umount: containers {containers()}"
    d.start()
    code, out, err, status = d.run("cat", "f")
    if (code, out) != (0, b"kept\n"):
        return f"mounted again: {code} {out} {err}"
    if d.pai("kill", "k").returncode:
        return "pai kill fails"
    d.stop()
    left = [] if far else [x for x in os.listdir(f"{TMP}/root") if not x.startswith("helper-")]
    if containers() or left or of_ours(d.name) or is_mounted(f"{TMP}/root"):
        return f"after pai kill: {containers()} {left} {of_ours(d.name)}"
    wait_for(lambda: not shims(), 10, "the end of the shims")
    return None


def without_shim(d, shim):
    """The engine says of such a container that it runs, and can start nothing in it: that is told, and
    pai kill removes it. (Where the files are on this host nothing needs a shim.)"""
    code, _, err, status = d.run("cat", "f", timeout=60)
    if code != 125 or status["error"]["kind"] != "unavailable":
        return f"the next command: {code} {err} {status}"
    init = first()
    if d.pai("kill", "k", timeout=60).returncode or containers():
        return f"pai kill: {containers()}"
    os.kill(init, signal.SIGKILL)  # the engine has lost it, nobody can tell it anything
    return None


def killed(name, who, far):
    options = [*engine.options.split(","), *(["workspace=helper", "line_grace=5"] if far else [f"root={TMP}/root"])]
    d = Daemon("docker", name, *options)
    try:
        return killed_in(d, who, far)
    finally:
        d.pai("kill", "k")
        d.stop()


def killed_in(d, who, far):
    os.makedirs(d.top + "/k", exist_ok=True)
    put(d.top + "/k/f", b"kept\n")
    answer = []
    thread = threading.Thread(target=lambda: answer.append(
        d.run("sh", "-c", "echo up > up; echo up; exec sleep 86387", timeout=100)))
    thread.start()
    wait_for(lambda: os.path.exists(d.top + "/k/up") and inside("86387"), 20, "the command")
    before = d.session()
    pid = VICTIMS[who](d)
    if who == "dockerd":
        engine.kill()
    else:
        os.kill(pid, signal.SIGKILL)
    if who == "the daemon":
        d.proc.wait()
        subprocess.run(["umount", "-l", d.top], check=False, timeout=20)
        d.start()
    elif who == "dockerd":
        if not far and get(d.top + "/k/f") != b"kept\n":
            return "the files are gone with the engine"
        engine.start()  # which ends what ran
    thread.join(110)
    if not answer:
        return "the command hangs"
    code, out, err, status = answer[0]
    if code != 125 or (status and status["outcome"] != "unknown"):
        return f"the command that ran: {code} {out} {err} {status}"
    if who == "containerd-shim" and far:
        return without_shim(d, pid)
    code, out, err, status = d.run("cat", "f", timeout=60)
    same = status and status["sandboxId"] == before["sandboxId"]
    # Who was told that the first environment was new may have died with the daemon.
    if (code, out) != (0, b"kept\n") or not same or (status["environmentReset"] and who != "the daemon"):
        return f"the next command: {code} {out} {err} {status}"
    return remains(d, far)


def main():
    global engine
    begin("docker-kill")
    why = docker_world.why_not()
    if why:
        skip("docker-kill", why)
        return 0
    only = {"the worker": True, "the supervisor of the commands": True}
    with docker_world.Engine() as engine:
        for far in (False, True):
            for who in VICTIMS:
                if far or who not in only:
                    mode = "helper" if far else "host"
                    case(f"{mode}: {who}", killed, f"{mode}-{list(VICTIMS).index(who)}", who, far)
        return finish()


sys.exit(main())
