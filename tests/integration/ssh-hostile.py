#!/usr/bin/env python3
"""A helper on the host that lies (hostile_helper.c): whoever asked gets an error within his deadline,
the daemon stays up and small, other sessions don't notice, and what is asked next is right."""
# timeout 200
# timeout-long 400
import errno
import fcntl
import os
import shutil
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hold_world as w  # noqa: E402
from ssh_world import World  # noqa: E402

TIMEOUT_S = 1
OWED_S = 2 * 6 * TIMEOUT_S + 4  # twice, since what is asked meanwhile may be behind it
MEMORY_KIB = 96 << 10
w.begin("hostile")
BIN = w.TMP + "/bin"
LIAR = w.BUILD + "/tests/integration-hostile_helper"


def set_up():
    """The programs with the liar where their helper would be; the real one is the host's."""
    global world, d, K, OTHER, box
    os.mkdir(BIN)
    for name in ("paifs", "pai", "pai-exec"):
        shutil.copy(f"{w.BUILD}/{name}", BIN)
    shutil.copy(LIAR, f"{BIN}/pai-helper-{os.uname().machine}")
    w.BUILD = BIN
    world = World(os.path.join(w.TMP, "host"), user="tester" if os.geteuid() == 0 else "").start()
    shutil.copy(real_helper, world.home + "/real-helper")
    os.chmod(world.home + "/real-helper", 0o755)
    d = w.Daemon("ssh", "hostile", "host=box", "root=boxes", f"config={world.config}",
                 f"timeout={TIMEOUT_S}s", "line_grace=2", "symlinks=raw")
    K, OTHER = d.top + "/k", d.top + "/other"
    os.mkdir(K)
    os.mkdir(OTHER)
    assert d.run("-c", "mkdir sub; echo other > f")[0] == 0
    box = sandboxes()[0]
    assert d.run("-c", "echo other > f", key="other")[0] == 0


def sandboxes():
    boxes = os.path.join(world.home, "boxes")
    return [f"{boxes}/{name}" for name in os.listdir(boxes)
            if os.path.isdir(f"{boxes}/{name}/workspace")]


def arm(what, channel=None):
    path = f"{world.home}/lie-{channel or os.path.basename(box)}"
    with open(path + ".new", "w", encoding="utf-8") as f:
        f.write(what)
    os.chown(path + ".new", world.uid(), world.uid())
    os.rename(path + ".new", path)
    return path


def is_gone(told):
    """The liar may still be at it when whoever asked has his answer."""
    try:
        w.wait_for(lambda: not os.path.exists(told), 20)
        return True
    except AssertionError:
        os.unlink(told)
        return False


fresh = 0


def new_file(data=b"0123456789"):
    """One that was made on the other side, and has been pushed."""
    global fresh
    fresh += 1
    path = f"{box}/workspace/new-{fresh}"
    w.put(path, data)
    os.chown(path, world.uid(), world.uid())
    w.wait_for(lambda: not w.errno_of(os.stat, f"{K}/new-{fresh}")[0], 10, "the push of it")
    return f"{K}/new-{fresh}"


def status(pid=None):
    with open(f"/proc/{pid or d.proc.pid}/status", encoding="utf-8") as f:
        return {line.split(":")[0]: line.split() for line in f}


def cpu_s():
    with open(f"/proc/{d.proc.pid}/stat", encoding="utf-8") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def list_it(path):
    with os.scandir(path) as entries:
        return sum(1 for e in entries if e.stat(follow_symlinks=False) or True)


def write_it(path):
    fd = os.open(path, os.O_WRONLY)
    try:
        return os.write(fd, b"more")
    finally:
        os.close(fd)


def link_it(path):
    os.symlink("x", path + ".link")
    return os.readlink(path + ".link")


def dir_it(_path):
    global fresh
    fresh += 1
    os.mkdir(f"{box}/workspace/dir-{fresh}")
    for name in ("a", "b", "c"):
        w.put(f"{box}/workspace/dir-{fresh}/{name}")
    w.wait_for(lambda: os.path.isdir(f"{K}/dir-{fresh}"), 10, "the push of it")
    return list_it(f"{K}/dir-{fresh}")


def lock_it(path):
    with open(path, "r+b") as f:
        fcntl.lockf(f, fcntl.LOCK_EX)


def exec_it(_path):
    code, _, err, told = d.run("-c", "true", timeout=OWED_S + 10)
    if code != 0:
        raise OSError(errno.EIO, f"{code} {err} {told}")


ANY = ["huge-frame", "unknown-id", "twice", "other-op", "no-kind", "truncated", "trailing", "errno"]
FLOODS = ["pushes-known", "pushes-all", "push-slash"] + (["pushes-unknown"] if w.LONG else [])
ATTRS = ["negative-size", "huge-size", "no-mode", "strange-mode", "negative-times", "root-id",
         "another-id", "is-dir", "no-links"]
NAMES = ["duplicate", "backwards", "cycle", "slash", "dotdot", "empty", "nul"]
# What is asked, by which request, and the lies about it.
LIES = [
    (w.get, "open", ANY + ["later", "unasked", "no-handle"] + FLOODS + ATTRS),
    (dir_it, "opendir", NAMES + ["truncated", "no-handle", "root-id", "no-mode"]),
    (w.get, "read", ["more", "more-data", "unasked", "truncated", "twice"]),
    (write_it, "write", ["more", "unknown-id", "truncated"]),
    (link_it, "symlink", ["no-mode", "is-dir", "truncated"]),
    (lock_it, "setlk", ["truncated", "other-op", "errno"]),
    (exec_it, "barrier", ["truncated", "unknown-id", "never"]),
]


def lie(act, op, name):
    path = new_file(bytes(1 << 20) if op == "read" else b"0123456789")  # a small one comes at once
    told = arm(f"FILES {op} {name}")
    answer, took = w.errno_of(act, path, seconds=40)
    if not is_gone(told):
        return f"{op} was not asked"
    # It may be believed, where it harms nobody; never waited for without an end.
    if answer not in ("", "EIO", "EPROTO", "ESTALE", "ENOTDIR", "ETIMEDOUT", "ENOENT", "EISDIR",
                      "EACCES", "EOVERFLOW"):
        return answer
    if took > (OWED_S if name == "never" else TIMEOUT_S + 8):
        return f"{answer} after {took:.1f} s"
    return harmless()


def harmless():
    """The daemon is up, the other session answers, and this one is asked anew and answers right."""
    if d.proc.poll() is not None:
        return f"the daemon ended: {d.proc.returncode}"
    begun = time.monotonic()
    if w.in_child(w.get, OTHER + "/f") != b"other\n":
        return "the other session lies too"
    if time.monotonic() - begun > TIMEOUT_S + 1:
        return "the other session waits"
    good = new_file(b"true")
    w.wait_for(lambda: not w.errno_of(w.get, good)[0], 15, "an answer to what is asked next")
    if w.in_child(w.get, good) != b"true":
        return "what is asked next is wrong"
    return ""


def endless():
    """A listing without an end: the caller may read on; the daemon doesn't grow with it."""
    new_file()
    os.mkdir(f"{box}/workspace/endless")
    w.put(f"{box}/workspace/endless/one")
    told = arm("FILES opendir endless")
    w.wait_for(lambda: not w.errno_of(os.stat, f"{K}/endless")[0], 10, "the push of it")
    child = w.Child(list_it, f"{K}/endless")
    answer = child.wait(12)
    if answer is None:
        child.kill()
    print(f"# an endless listing ended with {answer}", flush=True)
    return harmless() if is_gone(told) else "opendir was not asked"


def in_exec(name):
    told = arm(f"EXEC {name}")
    code, out, err, said = d.run("-c", "cat", timeout=30, stdin=subprocess.DEVNULL)
    if not is_gone(told):
        return "it was not told"
    if name == "exit-twice" or (name == "unknown-id" and code == 0):
        return harmless()
    if code == 0 and name in ("wrong-count", "bad-kind", "huge-frame"):
        return f"success: {out} {err}"
    if code not in (0, 125):
        return f"{code} {out[:100]} {err} {said}"
    return harmless()


def in_calls(name):
    told = arm(f"CALLS {name}", "calls")
    begun = time.monotonic()
    if name == "million":
        d.pai("ls", "--all")
        d.pai("probe")
    key = f"call-{name}"
    code, _, err, said = d.run("-c", "true", key=key, timeout=60)
    took = time.monotonic() - begun
    if not is_gone(told):
        return "it was not told"
    print(f"# {name}: {code} {err[:200]} after {took:.1f} s", flush=True)
    return harmless()


def bounded():
    now = status()
    wrong = []
    if int(now["VmHWM"][1]) > before["rss"] + MEMORY_KIB:
        wrong.append(f"memory: {before['rss']} then {now['VmHWM'][1]} KiB")
    w.wait_for(lambda: descriptors() <= before["fds"] + 8, 10, "the end of descriptors")
    threads = int(now["Threads"][1])
    if threads > before["threads"] + 16:
        wrong.append(f"threads: {before['threads']} then {threads}")
    used = cpu_s()
    begun = time.monotonic()
    time.sleep(2)  # what is measured
    share = (cpu_s() - used) / (time.monotonic() - begun)
    if share > 0.25:
        wrong.append(f"{share:.0%} of a processor for nothing")
    print(f"# {before['rss']} KiB at first, {now['VmHWM'][1]} at most, {descriptors()} descriptors, "
          f"{threads} threads, {used:.1f} s of processor", flush=True)
    return " ".join(wrong)


def descriptors():
    return len(os.listdir(f"/proc/{d.proc.pid}/fd"))


def outside():
    """What no session may touch: beside the mount, and above the sandboxes."""
    found = []
    for top in (w.TMP, world.home, world.home + "/boxes"):
        found += [f"{top}/{name}" for name in os.listdir(top) if name in ("escaped", "up")]
    return found


def main():
    global before
    set_up()
    try:
        harmless()
        before = {"rss": int(status()["VmRSS"][1]), "fds": descriptors(),
                  "threads": int(status()["Threads"][1])}
        for act, op, names in LIES:
            for name in names:
                w.case(f"{op}-{name}", lie, act, op, name)
        if w.LONG:  # each waits for all of the time in which an answer is owed
            for act, op in ((w.get, "open"), (w.get, "read"), (write_it, "write")):
                w.case(f"{op}-never", lie, act, op, "never")
        w.case("readdir-endless", endless)
        for name in ("more-output", "unknown-id", "twice", "credit", "wrong-count", "bad-kind",
                     "exit-twice", "huge-frame"):
            w.case(f"exec-{name}", in_exec, name)
        for name in ("escaping-id", "no-kind", "unknown-id", "million"):
            w.case(f"calls-{name}", in_calls, name)
        w.case("bounded", bounded)
        w.case("nothing-outside", outside)
    except Exception as e:  # whatever it is, the host is put away
        w.not_ok("the script", f"{type(e).__name__}: {e}")
    finally:
        end()
    return 1 if w.failed else 0


def end():
    os.chdir("/")
    for path in sandboxes():
        subprocess.run(["rm", "-rf", path], check=False)  # their supervisors end with them
    w.finish()
    w.wait_for(lambda: not real_workers(), 20, "the end of the real helper")
    world.stop()


def real_workers():
    """The helper that lies starts the real one for what it doesn't lie about."""
    return subprocess.run(["pgrep", "-f", f"^{w.TMP}/.*pai-helper.* serve"], check=False,
                          stdout=subprocess.DEVNULL).returncode == 0


real_helper = f"{w.BUILD}/../helper/pai-helper-{os.uname().machine}"
if __name__ == "__main__":
    sys.exit(main())
