#!/usr/bin/env python3
# timeout 120
"""What is run out of, stopped, killed or flooded: each ends clearly, and the next one works."""
import concurrent.futures
import fcntl
import glob
import os
import pty
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time

import hold_world as w

MANY = w.short_or_long(200, 500)
names = [
    "a supervisor that has stopped: what runs is 125 and unknown by the timeout",
    "... what is started meanwhile runs once when it goes on",
    "stdin that was sent to a sandbox that can tell nothing any more rules a retry out",
    "a supervisor that is killed: 125, unknown, nothing of it is left, the next command runs",
    "a tar out of a sandbox that is killed in the middle ends in 125",
    "pai kill ends a sandbox full of processes that fork",
    "a client that is stopped for longer than the timeout loses nothing",
    "a terminal that goes away takes its command along",
    "standard streams that are closed harm nothing",
    f"{MANY} commands at once",
    "a queue of events that overflows while a command runs: all is right after the barrier",
    "two daemons on one root: one sandbox, one truth, locks of each other, one kill",
    "few descriptors: whatever does not fit is told, nothing hangs",
    "a limit of the daemon's on file sizes is EFBIG to whoever writes, and no end of it",
    "a command line that is too long is E2BIG, and nothing runs",
    "no watches: all is right at barriers, and later ones come too",
    "no inotify instance: the same",
]
FEW = "few"


def few_watches():
    """In namespaces of its own, with what the other side has set."""
    d = w.Daemon("local", "few", "timeout=5s")
    k = d.top + "/k"
    os.mkdir(k)
    code, _, err, _ = d.run("sh", "-c", "for i in 1 2 3 4 5 6 7 8; do mkdir d$i; echo 0 >d$i/f; done")
    if code:
        return err
    box = glob.glob(w.TMP + "/root-few/*/workspace")[0]

    def body():
        for n in range(1, 5):
            for i in range(1, 9):
                os.listdir(f"{k}/d{i}")
                os.stat(f"{k}/d{i}/f")
                w.get(f"{k}/d{i}/f")
            r = subprocess.run(d.run_argv("sh", "-c", f"for i in 1 2 3 4 5 6 7 8; do echo {n} >d$i/f; "
                                          f"echo >d$i/new{n}; done"), stdin=subprocess.DEVNULL)
            for i in range(1, 9):
                got = w.get(f"{k}/d{i}/f"), sorted(os.listdir(f"{k}/d{i}"))
                want = b"%d\n" % n, sorted(["f"] + [f"new{j}" for j in range(1, n + 1)])
                if r.returncode or got != want:
                    return f"round {n}: {got}"
        w.put(box + "/d3/f", b"by itself")
        w.wait_for(lambda: w.get(k + "/d3/f") == b"by itself", 5, "the push")
        return ""
    why = w.in_child(body)
    if d.pai("kill", "k").returncode or d.stop():
        why = why or "it did not end well"
    return why


if len(sys.argv) > 1 and sys.argv[1] == FEW:
    print(few_watches() or "fine")
    w.finish()
    sys.exit(0)

w.begin(*names)
d = w.Daemon("local", "life", "timeout=1s", "create_timeout=20s")
K = d.top + "/k"
os.mkdir(K)
ROOT = w.TMP + "/root-life"


def supervisor():
    """Its process, which the socket tells."""
    d.run("true")
    s = socket.socket(socket.AF_UNIX)
    s.connect(glob.glob(ROOT + "/*/sup.sock")[0])
    with s:
        return struct.unpack("3i", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def spawn(*args, **kw):
    kw.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.Popen(d.run_argv(*args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)


def begun(name):
    w.wait_for(lambda: w.in_child(os.path.exists, f"{K}/{name}"), 10, name)


def stopped():
    pid = supervisor()
    p = spawn("sh", "-c", ": >run-one; sleep 100")
    begun("run-one")
    os.kill(pid, signal.SIGSTOP)
    start = time.monotonic()
    try:
        _, err = p.communicate(timeout=10)
    finally:
        os.kill(pid, signal.SIGCONT)
    took = time.monotonic() - start
    return "" if p.returncode == 125 and b"unknown" in err and took < 4 else f"{p.returncode} {err} {took:.1f} s"


w.case(names[0], stopped)


def goes_on():
    pid = supervisor()
    os.kill(pid, signal.SIGSTOP)
    p = spawn("sh", "-c", "echo x >>times; sleep 0.2; echo y >>times")
    time.sleep(1.6)
    os.kill(pid, signal.SIGCONT)
    out, err = p.communicate(timeout=20)
    if p.returncode != 0:
        return f"{p.returncode} {out} {err}"
    # The first start may have begun; it was dead before the second.
    times = w.in_child(w.get, K + "/times")
    return "" if times in (b"x\ny\n", b"x\nx\ny\n") else str(times)


w.case(names[1], goes_on)


def sent():
    pid = supervisor()
    reader, writer = os.pipe()
    p = spawn("sh", "-c", ": >run-two; sleep 100; cat >>taken", stdin=reader)
    os.close(reader)
    begun("run-two")
    os.kill(pid, signal.SIGSTOP)
    os.write(writer, b"perhaps\n")
    time.sleep(0.2)
    killer = subprocess.Popen([w.BUILD + "/pai", "-n", "life", "kill", "--sandbox",
                               d.session()["sandboxId"]], stdout=subprocess.DEVNULL)
    try:
        _, err = p.communicate(timeout=20)
    finally:
        os.close(writer)
        os.kill(pid, signal.SIGCONT)
    killer.wait(20)
    return "" if p.returncode == 125 and b"unknown" in err else f"{p.returncode} {err}"


w.case(names[2], sent)


def killed():
    pid = supervisor()
    p = spawn("sh", "-c", ": >run-three; sleep 4711")
    begun("run-three")
    os.kill(pid, signal.SIGKILL)
    _, err = p.communicate(timeout=10)
    if p.returncode != 125 or b"unknown" not in err:
        return f"{p.returncode} {err}"

    def left():
        return [c for c in glob.glob("/proc/[0-9]*/cmdline")
                if cmdline(c) == b"sleep\x004711\x00"]
    w.wait_for(lambda: not left(), 5, "the command's end")
    code, out, err, status = d.run("echo", "next")
    return "" if (code, out, status["environmentReset"]) == (0, b"next\n", False) else f"{code} {err} {status}"


def cmdline(path):
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return b""


w.case(names[3], killed)


def tar_out():
    d.run("sh", "-c", "mkdir -p t; head -c 60000000 /dev/urandom >t/big")
    out = w.TMP + "/out"
    os.makedirs(out, exist_ok=True)
    line = (shlex.join(d.run_argv("tar", "c", "t")) + f" | (head -c 1000000; touch {out}/middle; sleep 1; cat)"
            f" | tar x -C {out}; echo ${{PIPESTATUS[0]}} ${{PIPESTATUS[2]}}")
    p = subprocess.Popen(["bash", "-c", line], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    w.wait_for(lambda: os.path.exists(out + "/middle"))
    d.pai("kill", "--sandbox", d.session()["sandboxId"])
    said = p.communicate(timeout=30)[0].split()
    return "" if said[0] == b"125" and said[1] != b"0" else str(said)


w.case(names[4], tar_out)


def forks():
    p = spawn("sh", "-c", "for i in $(seq 100); do (while :; do sh -c : ; done) & done; : >run-four; wait")
    begun("run-four")
    start = time.monotonic()
    r = d.pai("kill", "k")
    took = time.monotonic() - start
    p.communicate(timeout=10)
    os.mkdir(K)
    again = d.run("echo", "again")[:2]
    if r.returncode or took > 10 or p.returncode != 125 or again != (0, b"again\n"):
        return f"{r} after {took:.1f} s, pai-exec {p.returncode}, then {again}"
    return ""


w.case(names[5], forks)


def client_stopped():
    p = spawn("seq", "400000")
    time.sleep(0.05)
    p.send_signal(signal.SIGSTOP)
    time.sleep(1.7)
    p.send_signal(signal.SIGCONT)
    out, err = p.communicate(timeout=20)
    want = b"".join(b"%d\n" % i for i in range(1, 400001))
    return "" if p.returncode == 0 and out == want else f"{p.returncode} {len(out)} bytes {err}"


w.case(names[6], client_stopped)


def hung_up():
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(w.BUILD + "/pai-exec", d.run_argv("-t", "sh", "-c", ": >run-five; sleep 4712"))
    begun("run-five")
    os.close(terminal)
    w.wait_for(lambda: w.is_over(pid), 5, "the client's end")
    os.waitpid(pid, 0)
    w.wait_for(lambda: not [c for c in glob.glob("/proc/[0-9]*/cmdline")
                            if cmdline(c) == b"sleep\x004712\x00"], 5, "the command's end")
    return ""


w.case(names[7], hung_up)


def closed():
    command = shlex.join(d.run_argv("sh", "-c", "cat; echo out; echo err >&2"))
    for redirect, out, err in (("<&-", b"out\n", b"err\n"), (">&-", b"", b"err\n"),
                               ("2>&-", b"out\n", b""), ("<&- >&- 2>&-", b"", b"")):
        r = subprocess.run(["sh", "-c", f"{command} {redirect}"], stdin=subprocess.DEVNULL,
                           capture_output=True, timeout=20)
        if r.returncode not in (0, 1) or (r.stdout, r.stderr) != (out, err):
            return f"{redirect}: {r}"
    return ""


w.case(names[8], closed)


def many():
    running = [spawn("echo", str(i)) for i in range(MANY)]
    for i, p in enumerate(running):
        out, err = p.communicate(timeout=60)
        if (p.returncode, out) != (0, b"%d\n" % i):
            return f"{i}: {p.returncode} {out} {err}"
    return ""


w.case(names[9], many)

FILES, TIMES = 500, 10  # four events each: more than fs.inotify.max_queued_events of 16384


def overflow():
    code, _, err, _ = d.run("sh", "-c", f"mkdir o; cd o; for i in $(seq {FILES}); do echo 0 >$i; done")
    if code:
        return err

    def body():
        for i in range(1, FILES + 1):
            assert w.get(f"{K}/o/{i}") == b"0\n"
        p = spawn("sh", "-c", f": >run-six; sleep 0.2; cd o; for t in $(seq {TIMES}); do for i in $(seq {FILES}); do echo $i >$i; done; done; "
                  "echo x >new; : >../run-seven")
        begun("run-six")
        box = glob.glob(ROOT + "/*/workspace")[0]
        d.proc.send_signal(signal.SIGSTOP)
        try:
            w.wait_for(lambda: os.path.exists(box + "/run-seven"), 20)
        finally:
            d.proc.send_signal(signal.SIGCONT)
        err = p.communicate(timeout=20)[1]
        wrong = [i for i in range(1, FILES + 1) if w.get(f"{K}/o/{i}") != b"%d\n" % i]
        if p.returncode or wrong or "new" not in os.listdir(K + "/o"):
            return f"{p.returncode} {err}: {len(wrong)} wrong"
        return ""
    return w.in_child(body, seconds=60)


w.case(names[10], overflow)


def two():
    pair = [w.Daemon("local", n, f"root={w.TMP}/root-two", before=["prlimit", "--nofile=500:"])
            for n in ("one", "two")]
    one, other = (x.top + "/k" for x in pair)
    os.mkdir(one)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        ids = set(pool.map(lambda i: pair[i % 2].run("true")[3]["sandboxId"], range(6)))
    if len(ids) != 1:
        return f"sandboxes: {ids}"
    # Raised for the daemons themselves, not for what they run.
    if pair[0].run("sh", "-c", "ulimit -Sn")[1] != b"500\n":
        return "the limit of open files is not the caller's"

    def held(lock):
        fd = os.open(other + "/f", os.O_RDWR)
        try:
            lock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False

    def body():
        for i in range(20):
            w.put(one + "/f", b"%d" % i)
            subprocess.run([w.BUILD + "/pai", "-n", "two", "barrier", "k"], check=True,
                           stdout=subprocess.DEVNULL)
            if w.get(other + "/f") != b"%d" % i:
                return f"{i}: {w.get(other + '/f')}"
        for lock in (fcntl.lockf, fcntl.flock):
            fd = os.open(one + "/f", os.O_RDWR)
            lock(fd, fcntl.LOCK_EX)
            before = w.in_child(held, lock)
            os.close(fd)
            if not before or w.in_child(held, lock):
                return f"{lock.__name__}: {before}"
        return ""
    why = w.in_child(body)
    if not why and (pair[0].pai("kill", "k").returncode or w.errno_of(os.stat, other + "/f")[0] != "ESTALE"):
        why = "the kill is not seen"
    if not why:
        w.wait_for(lambda: "k" not in w.in_child(os.listdir, pair[1].top), 5, "the end of the name")
    return why or "".join(f"exit {x.proc.returncode} " for x in pair if x.stop())


w.case(names[11], two)


def few_files():
    argv = ["prlimit", "--nofile=64:64"]
    few = w.Daemon("local", "fewfiles", "timeout=3s", "create_timeout=10s", before=argv)
    w.in_child(os.mkdir, few.top + "/k")
    code, _, err, _ = few.run("true")
    if code:
        return err
    running = [few.run_argv("--status-fd", "2", "sleep", "0.5") for _ in range(100)]
    running = [subprocess.Popen(a, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) for a in running]
    count = {0: 0, 125: 0}
    for p in running:
        err = p.communicate(timeout=40)[1].decode()
        if p.returncode not in count or (p.returncode and '"outcome":"not-started"' not in err):
            return f"{p.returncode} {err}"
        count[p.returncode] += 1

    def opens():
        return [os.open(f"{few.top}/k/{i}", os.O_CREAT | os.O_RDWR) for i in range(100)]
    refused = w.errno_of(opens)[0]
    code, _, err, _ = few.run("true")
    if refused != "EMFILE" or code or count[0] < 5:
        return f"files: {refused}, commands: {count}, then {code} {err}"
    few.pai("kill", "k")
    return "" if few.stop() == 0 else f"exit {few.proc.returncode}"


w.case(names[12], few_files)


def small_files():
    most = 64 << 20
    small = w.Daemon("local", "small", before=["prlimit", f"--fsize={most}"])
    os.mkdir(small.top + "/k")
    w.in_child(w.put, small.top + "/k/f")
    wrong = []
    for name, call in (("truncate", lambda: os.truncate(small.top + "/k/f", most + 1)),
                       ("write", lambda: os.pwrite(os.open(small.top + "/k/f", os.O_WRONLY), b"x", most))):
        number = w.errno_of(call)[0]
        if number != "EFBIG":
            wrong.append(f"{name}: {number or 'success'}")
    code, out, err, _ = small.run("cat", "f")
    small.pai("kill", "k")
    if small.stop() or (code, out) != (0, b"x"):
        wrong.append(f"exit {small.proc.returncode}, {code} {out} {err}")
    return "; ".join(wrong)


w.case(names[13], small_files)


def too_long():
    # What one call of this system takes, and one frame does not.
    code, _, err, status = d.run("true", *["x" * 100000] * 15)
    error = status["error"]
    if code != 125 or (error["kind"], error["errno"], status["outcome"]) != ("input", "E2BIG", "not-started"):
        return f"{code} {err} {status}"
    code, out, err, _ = d.run("printf", "%.1s", *["y" * 100000] * 9)
    return "" if (code, out) == (0, b"y" * 9) else f"{code} {out} {err}"


w.case(names[14], too_long)


def limited(name, what):
    """A user namespace has limits of its own."""
    tmp = f"{w.TMP}/{what}"
    os.makedirs(tmp)
    script = f'echo 0 >"/proc/sys/user/$1" || exit 77; exec python3 "$2" {FEW}'
    try:
        r = subprocess.run(["unshare", "-Urm", "sh", "-c", script, "sh", what, os.path.abspath(__file__)],
                           env=dict(os.environ, PAI_TMP=tmp), capture_output=True, timeout=60)
    except FileNotFoundError:
        w.skip(name, "no unshare here")
        return
    if r.returncode == 77 or b"unshare failed" in r.stderr:
        w.skip(name, "no user namespace of our own here")
        return
    w.case(name, lambda: "" if r.stdout == b"fine\n" else f"{r.stdout[-300:]} {r.stderr[-300:]}")


limited(names[15], "max_inotify_watches")
limited(names[16], "max_inotify_instances")
d.pai("kill", "k")
raise SystemExit(w.finish())
