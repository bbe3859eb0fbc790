#!/usr/bin/env python3
# timeout 150
# timeout-long 600
"""kill -9 of the daemon at random moments leaves nothing that only a reboot frees, and a daemon
ends with its mount whoever else has a copy of it."""
import fcntl
import glob
import json
import mmap
import os
import random
import signal
import subprocess
import time

import hold_world as w

ROUNDS = w.short_or_long(10, 60)
names = [
    f"kill -9 at {ROUNDS} random moments: callers end, paifs again repairs the mount",
    "... every file that was written before is there, with its identity",
    "... and no reset is told: the sandbox is the same",
    "a killed daemon's mount can be taken away without another daemon",
    "what runs detached outlives a killed daemon and is reached by the next",
    "a process in another mount namespace keeps no daemon alive after umount",
    "after umount no process and no mount of ours remains once commands have ended",
    "after pai kill of each key nothing remains in the root",
    "kill -9 while a notification waits in the kernel: callers end at once, without another daemon",
    "... umount ends the daemon at once all the same, and no guard remains",
]
w.begin(*names)
rng = random.Random(int(os.environ.get("PAI_SEED", "1")))
d = w.Daemon("local", "nine", "timeout=3s", "create_timeout=10s")
os.mkdir(d.top + "/k")
K = d.top + "/k"
BOX = None


def of_ours():
    """Processes whose program is of this build."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            exe = os.readlink(f"/proc/{pid}/exe")
            with open(f"/proc/{pid}/environ", "rb") as f:
                ours = ("XDG_RUNTIME_DIR=" + w.RUN).encode() in f.read()
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                line = f.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if exe.startswith(w.BUILD) and (ours or w.TMP in line) and not w.is_over(pid):
            found.append((int(pid), line))
    return found


def work(i):
    """Keeps going until the mount dies; then it has to end."""
    n = 0
    fd = os.open(f"{K}/w{i}", os.O_CREAT | os.O_RDWR)
    try:
        while True:
            n += 1
            os.pwrite(fd, b"%08d" % n, 0)
            w.put(f"{K}/d{i}/f{n % 20}", b"%d" % n)
            os.listdir(f"{K}/d{i}")
            os.rename(f"{K}/d{i}/f{n % 20}", f"{K}/d{i}/g{n % 20}")
            if n % 10 == 0:
                os.fsync(fd)
    except OSError:
        return n


def maps():
    """Stores through a mapping, and has them written, until the mount dies."""
    with open(K + "/mapped", "a+b") as f:
        f.truncate(8192)
        m = mmap.mmap(f.fileno(), 8192)
        n = 0
        try:
            while True:
                n += 1
                m[n % 8192] = n % 256
                m.flush()
        except OSError:
            return n


def lock_is_free():
    """In the sandbox, as soon as the daemon is gone: nobody cleans up first. Who took it for a
    daemon at the other end of a line has to see that end."""
    box = glob.glob(w.TMP + "/root-nine/*/workspace")[0]

    def taken():
        with open(box + "/lock", "a") as f:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    if os.environ.get("PAI_LOCAL_OPTS"):
        w.wait_for(taken, 2, "the lock to be let go")
    else:
        assert taken(), "the lock is still held"


def takes_lock():
    """The first holds it until the mount dies, the others wait."""
    fd = os.open(K + "/lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    while True:
        os.pwrite(fd, b"mine", 0)
        time.sleep(0.01)


written = {}


def one(number):
    for i in range(3):
        w.in_child(lambda: os.makedirs(f"{K}/d{i}", exist_ok=True))
    name, data = f"kept{number}", os.urandom(100)
    w.in_child(w.put, f"{K}/{name}", data)
    written[name] = data
    kids = [w.Child(work, i) for i in range(3)]
    kids += [w.Child(takes_lock), w.Child(takes_lock), w.Child(maps)]
    command = subprocess.Popen(d.run_argv("sh", "-c", "echo started; sleep 0.3; echo ended"),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    # Among them moments before the mount answers its first request.
    time.sleep(rng.choice([0, 0.01, 0.05, 0.2, 0.4]) * rng.random() * 2)
    d.proc.kill()
    # Whatever its threads waited for: its guard sees to that.
    d.proc.wait(5)
    for kid in kids:
        # A store that finds its page gone is a SIGBUS.
        if kid.wait(5) is None and not kid.over:
            return "a caller hangs after the kill"
    lock_is_free()
    if rng.random() < 0.3:  # one that is killed as it starts
        early = subprocess.Popen(d.argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.random() * 0.1)
        early.kill()
        early.wait(10)
    d.start()
    out, err = command.communicate(timeout=20)
    if command.returncode == 0 and out != b"started\nended\n":
        return f"a cut stream called success: {out} {err}"
    if command.returncode not in (0, 125):
        return f"pai-exec: {command.returncode} {out} {err}"
    with open("/proc/self/mountinfo") as f:
        mounts = sum(line.split()[4] == d.top for line in f)
    return "" if mounts == 1 else f"{mounts} mounts"


identity = None


def rounds():
    global identity
    w.in_child(lambda: w.put(K + "/first"))
    d.run("true")
    s = d.session()
    identity = s["sandboxId"], s["incarnation"], s["generation"]
    for i in range(ROUNDS):
        why = one(i)
        if why:
            return f"round {i}: {why}"
    return ""


w.case(names[0], rounds)


def files():
    for name, data in written.items():
        if w.in_child(w.get, f"{K}/{name}") != data:
            return name
    w.in_child(lambda: w.put(K + "/again"))
    s = d.session()
    now = s["sandboxId"], s["incarnation"], s["generation"]
    return "" if now == identity and len(written) == ROUNDS else f"{identity} became {now}"


w.case(names[1], files)


def untold():
    code, _, err, status = d.run("true")
    return "" if code == 0 and not err and not status["environmentReset"] else f"{err} {status}"


w.case(names[2], untold)


def taken_away():
    d.proc.kill()
    d.proc.wait(10)
    begun = time.monotonic()
    subprocess.run(["fusermount3", "-u", d.top], check=True, timeout=10)
    took = time.monotonic() - begun
    why = "" if not w.is_mounted(d.top) and os.listdir(d.top) == [] and took < 1 else "it stays"
    d.start()
    return why


w.case(names[3], taken_away)


def detached():
    r = subprocess.run(d.run_argv("--detach", "sh", "-c", "while [ ! -e stop ]; do sleep 0.1; done; echo x >ended"),
                       capture_output=True, timeout=20)
    if r.returncode:
        return str(r)
    d.proc.kill()
    d.proc.wait(10)
    d.start()
    w.in_child(lambda: w.put(K + "/stop"))
    w.wait_for(lambda: w.in_child(os.path.exists, K + "/ended"), 10, "the end of the detached command")
    return ""


w.case(names[4], detached)


def namespace():
    if os.geteuid() != 0:
        return ""
    sleeper = subprocess.Popen(["unshare", "-m", "--propagation", "private", "sleep", "60"])
    try:
        w.wait_for(lambda: os.readlink(f"/proc/{sleeper.pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt"))
        time.sleep(0.2)
        with open(f"/proc/{sleeper.pid}/mountinfo") as f:
            if not any(line.split()[4] == d.top for line in f):
                return "the copy is not there: nothing was tested"
        subprocess.run(["fusermount3", "-u", d.top], check=True, timeout=10)
        begun = time.monotonic()
        status = d.proc.wait(15)
        took = time.monotonic() - begun
        if status != 0 or took > 10:
            return f"exit {status} after {took:.1f} s"
        # Who has the copy gets an error, not a hang.
        r = subprocess.run(["nsenter", "-t", str(sleeper.pid), "-m", "ls", d.top], timeout=10,
                           capture_output=True)
        return "" if r.returncode else "the copy still answers"
    finally:
        sleeper.kill()
        sleeper.wait()


w.case(names[5], namespace)


def nothing_remains():
    if d.proc.poll() is not None:
        d.start()
    code, _, err, _ = d.run("sh", "-c", "sleep 0.2")
    if code:
        return err
    if d.stop() != 0:
        return f"exit {d.proc.returncode}"
    w.wait_for(lambda: not of_ours(), 15, f"the end of {of_ours()}")
    with open("/proc/self/mountinfo") as f:
        left = [line for line in f if w.TMP in line]
    # Of all the daemons that were killed, in the middle of whatever they did.
    files = [name for top in ("run/paifs", "state/paifs", "root-nine")
             for name in os.listdir(f"{w.TMP}/{top}")]
    known = {"nine.lock", "ledger.db", "ledger.db.lock", "locks", "keys", identity[0]}
    return f"left: {left} {files}" if left or set(files) - known else ""


w.case(names[6], nothing_remains)


def killed_leaves_nothing():
    d.start()
    for s in d.ask("ls")["sessions"]:
        if d.pai("kill", s["key"]).returncode:
            return f"kill {s}"
    root = f"{w.TMP}/root-nine"
    left = [os.path.join(p, n) for p, _, ns in os.walk(root) for n in ns]
    w.wait_for(lambda: len(of_ours()) <= 2, 15, "the supervisors' end")
    boxes = [n for n in os.listdir(root) if os.path.exists(f"{root}/{n}/workspace")]
    return "" if not boxes else f"left: {left}"


w.case(names[7], killed_leaves_nothing)
d.stop()

# --- a thread of the daemon waits in the kernel for a page that is being read ---

with open(w.TMP + "/script", "w") as f:
    json.dump({"templates": {"t": [{"path": "f", "text": "x" * 100}]}}, f)
stuck = w.Daemon("memory", "stuck", "timeout=60s", f"script={w.TMP}/script", "template=t",
                 "fault=read_file=delay:60000")


def states(pid):
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/stat") as f:
            found.append(f.read().rsplit(")", 1)[1].split()[0])
    return found


def get_stuck():
    """A reader whose page never comes, and a barrier that would drop the page."""
    stuck.ask("create", key="k")
    w.in_child(os.stat, stuck.top + "/k/f")
    reader = w.Child(w.get, stuck.top + "/k/f")
    w.wait_for(lambda: stuck.provider_calls().get("read_file", 0) > 0)
    command = subprocess.Popen(stuck.run_argv("true"), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    w.wait_for(lambda: "D" in states(stuck.proc.pid), 10, "a notification that waits")
    return reader, command


def cut_off():
    reader, command = get_stuck()
    stuck.proc.kill()
    begun = time.monotonic()
    answer = reader.wait(5)
    took = time.monotonic() - begun
    stuck.proc.wait(5)
    if answer is None or answer[0] or took > 1:
        return f"the reader: {answer} after {took:.1f} s"
    if command.wait(10) != 125:
        return f"pai-exec: {command.returncode}"
    w.wait_for(lambda: not of_ours(), 5, f"the end of {of_ours()}")
    # Dead, not gone: nobody writes into the directory below.
    return "" if w.is_mounted(stuck.top) and w.errno_of(os.listdir, stuck.top)[0] == "ENOTCONN" \
        else "the dead mount is no longer there"


w.case(names[8], cut_off)


def umounted():
    stuck.start()
    reader, command = get_stuck()
    begun = time.monotonic()
    subprocess.run(["umount", "-l", stuck.top], check=True, timeout=10)
    status = stuck.proc.wait(20)
    took = time.monotonic() - begun
    answer = reader.wait(5)
    command.wait(10)
    if status != 0 or took > 2 or answer is None or answer[0]:
        return f"exit {status} after {took:.1f} s, the reader: {answer}"
    w.wait_for(lambda: not of_ours(), 5, f"the end of {of_ours()}")
    return ""


w.case(names[9], umounted)
raise SystemExit(w.finish())
