"""What docker-life and docker-helper do to a mount over `docker`, with an engine of the test's own:
files on this host, or in the containers (far). Not a test by itself."""
import os
import socket
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hold_world import (BUILD, TMP, Daemon, begin, case, errno_of, finish, get,  # noqa: E402
                        put, skip, wait_for)
import docker_world  # noqa: E402

OTHER = docker_world.USER + 1  # another local user
engine = None
far = False  # -o workspace=helper


def options(name, *more):
    return [*engine.options.split(","), "workspace=helper" if far else f"root={TMP}/root-{name}", *more]


def daemon(name, *more, **kw):
    return Daemon("docker", name, *options(name, *more), **kw)


def names_of(name):
    """The containers with files in that daemon's directory; far: every one of ours."""
    found = [c for c in engine.containers() if (far and "paifs.root" in c["Labels"]) or
             any(m.get("Source", "").startswith(f"{TMP}/root-{name}/") for m in c["Mounts"])]
    return [(c["Id"], c["Names"][0].lstrip("/"), c["State"]) for c in found]


def directories(d):
    """What is left of sandboxes on this host."""
    if far:
        return names_of(d.name)
    return [x for x in os.listdir(f"{TMP}/root-{d.name}") if not x.startswith("helper-") and x != "bound"]


def run(d, *args, **kw):
    code, out, err, status = d.run(*args, **kw)
    return code, out.decode(errors="replace"), err.decode(errors="replace"), status


# --- it works ---


def both_ways(d):
    os.mkdir(d.top + "/k")
    code, out, err, status = run(d, "sh", "-c", "id -u; pwd; echo from inside > f; ls -ln f")
    if code or out.splitlines()[:2] != [str(docker_world.USER), "/workspace"]:
        return f"{code} {out} {err} {status}"
    if get(d.top + "/k/f") != b"from inside\n":
        return "the mount does not have what the sandbox wrote"
    put(d.top + "/k/g", b"from outside\n")
    code, out, err, _ = run(d, "cat", "g")
    return None if (code, out) == (0, "from outside\n") else f"{code} {out} {err}"


def made_by_root(d):
    """What root makes through the mount belongs to whom the commands are; what it gives away does not."""
    top = d.top + "/k/of root"
    os.mkdir(top)
    put(top + "/f", b"made here\n")
    os.symlink("f", top + "/l")
    os.mkfifo(top + "/p")
    put(top + "/given", b"away\n")
    try:
        os.chown(top + "/given", 0, 0)
    except PermissionError:
        if not far:
            raise
    owners = {os.lstat(f"{top}/{x}").st_uid for x in (".", "f", "l", "p")}
    code, out, err, _ = run(d, "sh", "-c", "cd 'of root' && echo changed >> f && rm l p && mkdir d && cat f")
    if owners != {docker_world.USER} or code or out != "made here\nchanged\n":
        return f"{owners}: {code} {out} {err}"
    code, *_ = run(d, "sh", "-c", "echo x >> 'of root/given'")
    if (code == 0) != far:
        return f"what was given to root: {code}"
    run(d, "rm", "-rf", "of root")
    return f"left: {os.listdir(top)}" if os.path.exists(top) else None


def shape(d):
    """What the container can and can't do, as seen from inside."""
    script = """
    grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status
    ls /sys/class/net | tr '\\n' ' '; echo
    touch /bin/x 2>/dev/null && echo root is writable
    touch /run/pai/nonce 2>/dev/null && echo nonce is writable
    rm -f /run/pai/lease 2>/dev/null && echo lease can be removed
    echo 1 2>/dev/null > /run/pai/lease && echo lease is writable
    mv /run/pai /run/other 2>/dev/null && echo its directory can be moved
    echo x > /run/pai/pai-helper 2>/dev/null && echo helper is writable
    mknod /workspace/null c 1 3 2>/dev/null && echo made a device
    kill -9 1; kill -TERM 1; sleep 0.2
    touch ~/t /tmp/t && echo home and tmp
    env | grep -c SECRET_OF_HOST
    cat /proc/1/comm"""
    os.environ["SECRET_OF_HOST"] = "1"
    code, out, err, _ = run(d, "sh", "-c", script)
    want = ["CapBnd:\t0000000000000000", "CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2",
            "lo", "home and tmp", "0", "pai-supervisor"]
    got = [line.strip() for line in out.splitlines()]
    return None if code == 0 and sorted(got) == sorted(want) else f"{code} {out!r} {err}"


def many_at_once(d):
    begun = time.monotonic()
    procs = [subprocess.Popen(d.run_argv("sh", "-c", f"sleep 0.3; echo {i}"), text=True,
                              stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) for i in range(10)]
    outs = [p.communicate(timeout=30)[0].strip() for p in procs]
    took = time.monotonic() - begun
    return None if outs == [str(i) for i in range(10)] and took < 15 else f"{outs} in {took:.1f} s"


def paused(d):
    if d.pai("pause", "k").returncode:
        return "pause failed"
    if names_of(d.name)[0][2] != "paused":
        return f"the engine says {names_of(d.name)}"
    code, out, err, status = run(d, "cat", "g")
    return None if code == 0 and not status["environmentReset"] else f"{code} {out} {err}"


def git_guard(d):
    repo = d.top + "/k/repo"
    subprocess.run(["git", "init", "-q", TMP + "/repo"], check=True)
    with open(TMP + "/repo/.git/config", "a") as f:
        f.write(f"[core]\n\tfsmonitor = touch {TMP}/ran; false\n")
    subprocess.run(["cp", "-r", TMP + "/repo", repo], check=True)
    # Its owner, not root, who finds every repository of somebody else's dubious.
    git = ["setpriv", "--reuid", str(docker_world.USER), "--regid", str(docker_world.USER),
           "--clear-groups", "git", "-C", repo]
    r = subprocess.run([*git, "status"], capture_output=True, text=True, timeout=30)
    if "dubious ownership" not in r.stderr or os.path.exists(TMP + "/ran"):
        return f"git did not refuse: {r}"
    if d.pai("trust", "k").returncode:
        return "pai trust failed"
    r = subprocess.run([*git, "-c", "core.fsmonitor=false", "status"],
                       capture_output=True, text=True, timeout=30)
    return None if r.returncode == 0 else f"after pai trust: {r.stderr}"


# --- what ends it ---


def take_numbers(count=30):
    """Takes the device numbers that a container has left, so that its file systems, started again,
    have others: the kernel gives the lowest that is free. What gives them back."""
    taken = []
    for i in range(count):
        taken.append(f"{TMP}/number-{i}")
        os.makedirs(taken[-1], exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "none", taken[-1]], check=True)
    return lambda: [subprocess.run(["umount", "-l", path], check=True) for path in taken]


def container_stopped(d):
    """A machine that was switched off: what ran is unknown, what lay there lies there."""
    (cid, _, _), = names_of(d.name)
    answer = []
    thread = threading.Thread(target=lambda: answer.append(run(d, "sh", "-c", "echo up; sleep 30")))
    thread.start()
    time.sleep(1)
    begun = time.monotonic()
    engine.ask("POST", f"/v1.41/containers/{cid}/kill")
    thread.join(20)
    took = time.monotonic() - begun
    code, out, err, status = answer[0]
    if code != 125 or status["outcome"] != "unknown" or took > 5:
        return f"the command that ran: {code} {out} {err} {status} after {took:.1f} s"
    wait_for(lambda: names_of(d.name)[0][2] == "exited", 10, "the container's end")
    give_back = take_numbers()
    try:
        code, out, err, status = run(d, "cat", "g")
        if get(d.top + "/k/g") != b"from outside\n":
            return "the files are not there"
    finally:
        give_back()
    if code or out != "from outside\n" or status["environmentReset"]:
        return f"the next command: {code} {out} {err} {status}"
    return None if names_of(d.name)[0][0] == cid else "another container"


def container_removed(d):
    """Behind our back: looked at, it is gone; it is not made again by that."""
    (cid, _, _), = names_of(d.name)
    with open(d.top + "/k/g", "rb", buffering=0) as f:
        if engine.remove(cid) != 204:
            return "not removed"
        wait_for(lambda: "ESTALE" in (errno_of(os.fstat, f.fileno())[0],
                                      errno_of(os.pread, f.fileno(), 1, 0)[0]), 5,
                 "ESTALE of an open file")
    for _ in range(5):
        errno_of(os.listdir, d.top + "/k")
        errno_of(os.stat, d.top + "/k/g")
    if names_of(d.name):
        return "looking made a container"
    code, out, err, status = run(d, "ls", "-A")
    if code or out.strip() or not status["environmentReset"]:
        return f"the next command: {code} {out!r} {err} {status}"
    return None if len(directories(d)) == 1 and len(names_of(d.name)) == 1 else \
        f"left over: {directories(d)}"


def removed_under_a_command(d):
    """It is run again where that can't do harm, or its outcome is unknown: never a success of the
    first run."""
    (cid, _, _), = names_of(d.name)
    answer = []
    thread = threading.Thread(
        target=lambda: answer.append(run(d, "sh", "-c", "echo out; test -e again || sleep 30")))
    thread.start()
    time.sleep(1)
    engine.remove(cid)
    thread.join(20)
    if not answer:
        return "the command hangs"
    code, out, err, status = answer[0]
    return None if code == 125 and status["outcome"] == "unknown" else f"{code} {out} {err} {status}"


def removed_under_a_silent_command(d):
    """Nothing of it was seen, so it is run again, in what has taken the place; that is told."""
    code, _, err, _ = run(d, "touch", "mark")
    if code:
        return f"{code} {err}"
    (cid, _, _), = names_of(d.name)
    answer = []
    thread = threading.Thread(
        target=lambda: answer.append(run(d, "sh", "-c", "! test -e mark || { mkdir begun; sleep 30; }")))
    thread.start()
    wait_for(lambda: os.path.isdir(d.top + "/k/begun"), 10, "the command's beginning")
    engine.remove(cid)
    thread.join(20)
    if not answer:
        return "the command hangs"
    code, out, err, status = answer[0]
    if code or status["attempts"] != 2 or not status["environmentReset"]:
        return f"{code} {out} {err} {status}"
    return None if "reset" in err and len(names_of(d.name)) == 1 else f"{err} {names_of(d.name)}"


def engine_killed(d):
    """kill -9 of dockerd: files and commands go on; its restart ends the containers."""
    put(d.top + "/k/h", b"kept\n")
    code, *_ = run(d, "true")
    engine.kill()
    code, out, err, _ = run(d, "cat", "h")
    if code or out != "kept\n":
        engine.start()
        return f"a command while the engine is down: {code} {out} {err}"
    put(d.top + "/k/i", b"while it was down\n")
    os.listdir(d.top)
    code, out, err, status = run(d, "true", key="new")
    engine.start()
    if code != 125 or "no Docker engine is running" not in err:
        return f"a new session while the engine is down: {code} {err}"
    code, out, err, status = run(d, "cat", "h", "i")
    if code or out != "kept\nwhile it was down\n" or status["environmentReset"]:
        return f"after the restart: {code} {out} {err} {status}"
    (cid, _, _), = names_of(d.name)
    engine.remove(cid)  # the events are followed again
    wait_for(lambda: errno_of(os.stat, d.top + "/k/h")[0] in ("ESTALE", "ENOENT"), 10, "the loss")
    return None


def daemon_killed(d):
    code, _, _, before = run(d, "sh", "-c", "echo here > j")
    d.proc.kill()
    d.proc.wait()
    subprocess.run(["umount", "-l", d.top], check=False, timeout=20)
    d.start()
    code, out, err, status = run(d, "cat", "j")
    # That the last environment was new may be told again: who was told it has died.
    return None if (code, out) == (0, "here\n") and status["generation"] == before["generation"] and \
        status["sandboxId"] == before["sandboxId"] else f"{code} {out} {err} {status} {before}"


def killed_leaves_nothing(d):
    for key in ("k", "new"):
        d.pai("kill", key)
    if names_of(d.name):
        return f"containers: {names_of(d.name)}"
    if os.path.ismount(f"{TMP}/root-{d.name}"):
        return "their directories' bind is left"
    return f"directories: {directories(d)}" if directories(d) and not far else None


def quiet(d):
    """Nothing of this host is looked for, where nothing is."""
    with open(d.log) as f:
        said = [line for line in f if "root '" in line]
    return f"{len(said)} times {said[0]}" if said else None


def lease():
    """The container ends by itself when nobody keeps it."""
    d = daemon("lease", "ttl=3s", "keepalive_ttl=3s", mount=False)
    code, out, err, _ = run(d, "true")
    if code:
        return f"{code} {out} {err}"
    code, out, err, _ = run(d, "sleep", "5")  # a command keeps it
    if code:
        return f"a command longer than the lease: {code} {out} {err}"
    d.stop()
    begun = time.monotonic()
    wait_for(lambda: not [c for c in names_of("lease") if c[2] == "running"], 10, "its end")
    took = time.monotonic() - begun
    d.start()
    code, out, err, status = run(d, "true")
    if code or not status["environmentReset"] or took > 8:
        return f"{code} {err} {status}, it lived {took:.1f} s"
    d.pai("kill", "k")
    return None


# --- a hostile socket ---


def squatted_socket(d):
    """What the sandbox puts in the place of its supervisor's socket leads nowhere."""
    seen = []
    listener = socket.socket(socket.AF_UNIX)
    os.makedirs(f"{TMP}/root-{d.name}", exist_ok=True)
    listener.bind(TMP + "/host.sock")
    os.chmod(TMP + "/host.sock", 0o777)
    listener.listen()
    listener.settimeout(0.2)
    os.mkdir(d.top + "/hostile")
    code, out, err, _ = run(d, "sh", "-c",
                            f"rm /run/pai/sock/sup.sock; ln -s {TMP}/host.sock /run/pai/sock/sup.sock",
                            key="hostile")
    if code:
        return f"set-up: {code} {out} {err}"
    d.stop()
    d.start()
    answer = []
    thread = threading.Thread(target=lambda: answer.append(run(d, "true", key="hostile")))
    thread.start()
    while thread.is_alive():
        try:
            seen.append(listener.accept())
        except OSError:
            pass
    listener.close()
    if seen:
        return "the daemon talked to a socket of the host"
    code, _, err, _ = answer[0]
    if code != 125 or "does not come up" not in err:
        return f"{code} {err}"
    d.pai("kill", "hostile")
    return None


def no_space():
    """A full disk is told, hurts no other session for good, and can be emptied."""
    root = TMP + "/root-full"
    os.mkdir(root, 0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m,mode=700", "none", root], check=True)
    try:
        d = daemon("full", "reserve=4M")
        os.mkdir(d.top + "/k")
        code, *_ = run(d, "sh", "-c", "dd if=/dev/zero of=big bs=1M count=20 2>/dev/null; true")
        def fill():
            with open(d.top + "/k/g", "wb", buffering=0) as f:
                while f.write(b"x" * 65536):
                    pass
        os.unlink(d.top + "/k/big")
        name, took = errno_of(fill)  # up to the floor, which is not the end
        free = os.statvfs(root).f_bavail * os.statvfs(root).f_frsize
        if name != "ENOSPC" or not 3 << 20 < free <= 4 << 20:
            return f"at the floor: {name or 'success'}, {free} bytes are free"
        os.unlink(d.top + "/k/g")
        code, *_ = run(d, "sh", "-c", "dd if=/dev/zero of=big bs=1M count=20 2>/dev/null; true")
        name, took = errno_of(lambda: put(d.top + "/k/f", b"x" * 500000))
        if name != "ENOSPC" or took > 5:
            return f"write: {name or 'success'} after {took:.1f} s"
        os.unlink(d.top + "/k/big")
        put(d.top + "/k/f", b"x" * 500000)
        code, out, err, _ = run(d, "wc", "-c", "f")
        if code or not out.startswith("500000"):
            return f"{code} {out} {err}"
        d.pai("kill", "k")
        d.stop()
        return None
    finally:
        subprocess.run(["umount", "-l", root], check=False)


# --- bad input ---


class Impostor(threading.Thread):
    """Answers every request with these bytes."""

    def __init__(self, name, answer):
        super().__init__(daemon=True)
        self.path, self.answer = f"{TMP}/{name}.sock", answer
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        self.start()

    def run(self):
        while True:
            try:
                c, _ = self.listener.accept()
                c.settimeout(1)
                c.recv(65536)
                c.sendall(self.answer)
                c.close()
            except OSError:
                if self.listener.fileno() < 0:
                    return


def told(what, options_of, want, kind, retryable, user=None):
    """A command's one line, with its kind."""
    name = "bad-" + what
    before = ()
    if user is not None:
        home = f"{TMP}/{name}-home"
        os.mkdir(home, 0o700)
        os.chown(home, user, user)
        os.chmod(TMP, 0o711)
        before = ("setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups", "env",
                  f"HOME={home}", f"XDG_STATE_HOME={home}", f"XDG_RUNTIME_DIR={home}",
                  BUILD + "/pai-conformance", "--suite", "provider", "--filter",
                  "lifecycle/create_gives*", "--in-process")
        r = subprocess.run([*before, "-o", ",".join(options_of), "docker"], capture_output=True,
                           text=True, timeout=60, check=False)
        return None if all(w in r.stdout for w in want) and kind in r.stdout else r.stdout[-600:]
    d = Daemon("docker", name, *options_of, mount=False)
    code, _, err, status = run(d, "true")
    d.stop()
    lines = [line for line in err.splitlines() if line]
    e = status["error"]
    if code != 125 or len(lines) != 1 or any(w not in err for w in want):
        return f"{code}: {err}"
    return None if (e["kind"], e["retryable"]) == (kind, retryable) else f"{e}"


def wrong_options():
    for given, want in (("image=x", "uid=N"), ("uid=x", "expected N"), ("socket=rel,uid=1", "absolute"),
                        ("uid=4242,socket=/" + "x" * 120, "107 bytes"), ("imag=x", "unknown option 'imag'"),
                        ("uid=1,reserve=1X", "expected bytes"), ("uid=1,workspace=x", "host or helper"),
                        ("uid=1,workspace=helper,root=/x", "nothing is kept on this host")):
        r = subprocess.run([BUILD + "/paifs", "docker", "--no-mount", "-f", "-n", "wrong",
                            "-o", given], capture_output=True, text=True, timeout=20, check=False)
        if r.returncode == 0 or want not in r.stderr or len(r.stderr.splitlines()) != 1:
            return f"{given}: {r.returncode} {r.stderr}"
    return None


def taken_name():
    d = daemon("taken", mount=False)
    code, *_ = run(d, "true")
    (cid, name, _), = names_of("taken")
    d.pai("kill", "k")
    status, body = engine.ask("POST", f"/v1.41/containers/create?name={name}",
                              {"Image": engine.image, "Cmd": ["true"]})
    if status != 201:
        return f"{status} {body}"
    code, _, err, status = run(d, "true")
    engine.remove(name)
    if code != 125 or "none of ours" not in err or status["error"]["kind"] != "policy-mismatch":
        return f"{code} {err} {status}"
    code, _, err, _ = run(d, "true")
    d.pai("kill", "k")
    return None if code == 0 else f"after it was removed: {code} {err}"


def bad_input():
    given = dict(o.split("=") for o in engine.options.split(","))
    base = [f"image={given['image']}", f"uid={given['uid']}", f"root={TMP}/root-bad"]
    http = b"HTTP/1.1 200 OK\r\n%sContent-Length: 2\r\nConnection: close\r\n\r\nOK"
    old = Impostor("old", http % b"Api-Version: 1.39\r\n")
    none = Impostor("none", http % b"")
    words = Impostor("words", b"SSH-2.0-OpenSSH_9.2\r\n")
    html = Impostor("html", b"HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nContent-Length: 6\r\n"
                            b"Connection: close\r\n\r\n<html>")
    case("docker bad input: engine down", told, "down",
         [*base, f"socket={TMP}/nobody.sock"], ["no Docker engine is running here", "ENOENT",
                                               "start it"], "unavailable", True)
    case("docker bad input: a stale socket", stale_socket, base)
    case("docker bad input: socket permission denied", told, "denied",
         [f"image={given['image']}", f"socket={engine.socket}", f"root={TMP}/bad-denied-home/r"],
         ["may not use the Docker engine", "join the group"], "unavailable", False, OTHER)
    case("docker bad input: image missing", told, "image",
         [f"socket={engine.socket}", "image=no-such-image:1", *base[1:]],
         ["the engine has no image 'no-such-image:1'", "docker pull", "-o pull"],
         "policy-mismatch", False)
    case("docker bad input: no image named", told, "unnamed",
         [f"socket={engine.socket}", *base[1:]], ["-o image=NAME"], "input", False)
    case("docker bad input: no such runtime", told, "runtime",
         [f"socket={engine.socket}", *base, "runtime=nosuch"], ["nosuch"], "policy-mismatch", False)
    case("docker bad input: API too old", told, "old", [*base, f"socket={old.path}"],
         ["too old", "1.39", "1.41 is needed"], "unavailable", False)
    case("docker bad input: no engine", told, "none", [*base, f"socket={none.path}"],
         ["no Docker engine", "names no API version"], "unavailable", False)
    case("docker bad input: not HTTP", told, "words", [*base, f"socket={words.path}"],
         ["no Docker engine at this socket"], "protocol", False)
    case("docker bad input: not JSON", told, "html", [*base, f"socket={html.path}"],
         ["the engine's answer"], "protocol", False)
    case("docker bad input: options", wrong_options)
    case("docker bad input: a foreign container of the key's name", taken_name)


def stale_socket(base):
    path = TMP + "/stale.sock"
    s = socket.socket(socket.AF_UNIX)
    s.bind(path)
    s.close()
    return told("stale", [*base, f"socket={path}"],
                ["no Docker engine is running here", "ECONNREFUSED"], "unavailable", True)


def engine_killed_far(d):
    """The link leads through the engine: what ran is unknown when its restart has ended it."""
    put(d.top + "/k/h", b"kept\n")
    code, out, err, _ = run(d, "cat", "h")
    if code or out != "kept\n":
        return f"before: {code} {out} {err}"
    answer = []
    thread = threading.Thread(target=lambda: answer.append(run(d, "sleep", "60", timeout=90)))
    thread.start()
    time.sleep(1)
    engine.kill()
    os.listdir(d.top)
    engine.start()
    thread.join(60)
    if not answer or answer[0][0] != 125 or answer[0][3]["outcome"] != "unknown":
        return f"the command that ran: {answer}"
    code, out, err, status = run(d, "cat", "h")
    return None if (code, out) == (0, "kept\n") and not status["environmentReset"] else \
        f"after the restart: {code} {out} {err} {status}"


def main(name, is_far):
    global engine, far
    far = is_far
    begin(name)
    why = docker_world.why_not()
    if why:
        skip(name, why)
        return 0
    here = (both_ways, made_by_root, shape, many_at_once, paused, git_guard, container_stopped, container_removed,
            removed_under_a_command, removed_under_a_silent_command, engine_killed, daemon_killed, squatted_socket,
            killed_leaves_nothing)
    elsewhere = (both_ways, made_by_root, shape, many_at_once, paused, container_stopped, container_removed,
                 removed_under_a_command, removed_under_a_silent_command, engine_killed_far, daemon_killed,
                 killed_leaves_nothing, quiet)
    with docker_world.Engine() as engine:
        try:
            os.chmod(TMP, 0o711)
            os.environ["PAI_LOG"] = "docker:debug"
            d = daemon("life", "allow_other")
            for fn in elsewhere if far else here:
                case(f"{name} {fn.__name__}".replace("_", " "), fn, d)
            case(f"{name} lease", lease)
            if not far:
                case(f"{name} no space", no_space)
                bad_input()
        finally:
            status = finish()
    return status
