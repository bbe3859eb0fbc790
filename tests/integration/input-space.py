#!/usr/bin/env python3
# timeout 90
"""Full, read-only and damaged places: the workspace, the mount itself, the state directory."""
import contextlib
import errno
import fcntl
import mmap
import os
import sqlite3
import subprocess

import hold_world as w

names = [
    "a full disk: ENOSPC, df shows it, what was accepted is there, with room it goes on",
    "a full disk: commands run, and find it full as well",
    "a store that found no room: one command is refused and names the file",
    "a store that found no room, as fsync() has told: no command is refused",
    "no inode is left: ENOSPC for every kind",
    "a read-only workspace: EROFS for whatever changes it, commands run",
    "-o ro: EROFS for whatever changes the mount, commands run and write",
    "a full state directory: new keys are refused, sessions go on, with room all is well",
    "a start with a full state directory says so",
    "no room for sandboxes: a clear error, and a kill makes room",
    "a damaged ledger: set aside, said once, the session found again by looking",
]
w.begin(*names)
if os.geteuid() != 0:
    for skipped in names:
        w.skip(skipped, "needs root to mount small file systems")
    raise SystemExit(0)
MIB = 1 << 20
mounted = []


def mount(path, *args):
    os.makedirs(path, exist_ok=True)
    subprocess.run(["mount", *args, path], check=True)
    if path not in mounted:
        mounted.append(path)
    return path


def fill(path, size=4096):
    """(bytes accepted, errno)"""
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    got = 0
    try:
        while True:
            got += os.write(fd, b"x" * size)
    except OSError as e:
        return got, errno.errorcode[e.errno]
    finally:
        os.close(fd)


def full():
    for size in (4096, 3 * MIB):
        got, why = w.in_child(fill, M + "/big", size)
        there = w.get(SMALL + "/big")
        if why != "ENOSPC" or got != len(there) or there != b"x" * got or not got:
            return f"writes of {size}: {got} accepted, {why}, {len(there)} there"
        if w.get(M + "/big") != there:
            return "it is read otherwise"
    number, _ = w.errno_of(w.put, M + "/more", b"y")
    if number != "ENOSPC":
        return f"one more byte: {number or 'success'}"
    shown, real = (os.statvfs(path) for path in (M, SMALL))
    for field in ("f_bsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_namemax"):
        if getattr(shown, field) != getattr(real, field):
            return f"{field} is {getattr(shown, field)}, of the workspace {getattr(real, field)}"
    os.truncate(M + "/big", 4096)
    w.in_child(w.put, M + "/more", b"y" * 4096)
    return "" if w.get(SMALL + "/more") == b"y" * 4096 else "it is not there"


def full_commands():
    w.in_child(fill, M + "/big")
    code, out, err, _ = full_d.run("-c", "cat more | wc -c; dd if=/dev/zero of=z bs=4k count=1")
    if code != 1 or out != b"4096\n" or b"No space left" not in err:
        return f"{code} {out} {err}"
    code, out, _, _ = full_d.run("-c", "rm big z; echo there > more")
    return "" if code == 0 and w.get(M + "/more") == b"there\n" else f"{code} {out}"


def store(path, then):
    """Stores through a mapping of 4 MiB, where there is one; `then` gets the descriptor."""
    fd = os.open(path, os.O_CREAT | os.O_RDWR)
    os.ftruncate(fd, 4 * MIB)
    with mmap.mmap(fd, 4 * MIB) as m:
        m[:] = b"m" * (4 * MIB)
        answer = then(fd)
    os.close(fd)
    return answer


def lost():
    shown = []

    def run(_):
        first = full_d.run("-c", "echo ran")
        return first, full_d.ask("status", key="k")["lostWrites"], full_d.run("echo", "again")
    first, shown, again = w.in_child(store, M + "/stored", run)
    status = first[3]
    if (first[0], first[1], status["lostWrites"]) != (125, b"", ["stored"]):
        return f"{first}"
    if status["error"]["kind"] != "write-failed" or b"a write was lost: stored\n" not in first[2]:
        return f"{first}"
    if (again[0], again[1], shown) != (0, b"again\n", []):
        return f"then {again}, {shown}"
    os.unlink(M + "/stored")
    return ""


def told():
    def sync(fd):
        for _ in range(2):  # the second has nothing to tell
            try:
                os.fsync(fd)
            except OSError as e:
                number = errno.errorcode[e.errno]
        return number, full_d.run("echo", "ran")
    number, run = w.in_child(store, M + "/synced", sync)
    os.unlink(M + "/synced")
    return "" if number == "ENOSPC" and run[0] == 0 else f"{number} {run}"


def inodes():
    def make():
        for i in range(200):
            os.mkdir(f"{M}/d{i}")
    number, _ = w.errno_of(make)
    kinds = {"mkdir": lambda: os.mkdir(M + "/d"), "create": lambda: w.put(M + "/f"),
             "symlink": lambda: os.symlink("x", M + "/l"), "mknod": lambda: os.mkfifo(M + "/p")}
    wrong = [f"{name}: {w.errno_of(fn)[0]}" for name, fn in kinds.items()
             if w.errno_of(fn)[0] != "ENOSPC"]
    subprocess.run(["find", M, "-mindepth", "1", "-delete"], check=True)
    return "; ".join(wrong) or ("" if number == "ENOSPC" and not os.listdir(SMALL) else number)


def changes(top):
    f = top + "/f"
    return {
        "create": lambda: w.put(top + "/new"), "open": lambda: os.open(f, os.O_WRONLY),
        "open to append": lambda: os.open(f, os.O_RDWR | os.O_APPEND),
        "open to truncate": lambda: os.open(f, os.O_RDONLY | os.O_TRUNC),
        "truncate": lambda: os.truncate(f, 0), "mkdir": lambda: os.mkdir(top + "/n"),
        "rmdir": lambda: os.rmdir(top + "/d"), "unlink": lambda: os.unlink(f),
        "rename": lambda: os.rename(f, top + "/g"), "link": lambda: os.link(f, top + "/g"),
        "symlink": lambda: os.symlink("x", top + "/g"), "mknod": lambda: os.mkfifo(top + "/p"),
        "chmod": lambda: os.chmod(f, 0o600), "chown": lambda: os.chown(f, 1, 1),
        "utime": lambda: os.utime(f), "setxattr": lambda: os.setxattr(f, "user.b", b"1"),
        "removexattr": lambda: os.removexattr(f, "user.a")}


def refused(top):
    wrong = {name: w.errno_of(fn)[0] for name, fn in changes(top).items()}
    wrong = [f"{name}: {number or 'success'}" for name, number in wrong.items() if number != "EROFS"]
    if w.get(top + "/f") != b"data" or os.getxattr(top + "/f", "user.a") != b"1":
        wrong.append("not as it was")
    with open(top + "/f") as f:
        fcntl.flock(f, fcntl.LOCK_EX)  # that changes nothing
    return "; ".join(wrong)


def ro_workspace():
    d = w.Daemon("local", "rowork")
    assert d.pai("create", "k", "-o", f"template={READ_ONLY}").returncode == 0
    why = refused(d.top + "/k")
    code, out, err, _ = d.run("-c", "cat f; pwd; : > g")
    d.stop()
    if code == 0 or out != b"data/workspace\n" or b"Read-only file system" not in err:
        return f"{why} {code} {out} {err}"
    return why


def ro_mount():
    d = w.Daemon("local", "romount", "ro")
    assert d.pai("create", "k", "-o", f"template={SOURCE}").returncode == 0
    why = refused(d.top + "/k")
    number, _ = w.errno_of(os.mkdir, d.top + "/new")
    code, _, err, _ = d.run("-c", "echo there > g")
    why = why or ("" if w.get(d.top + "/k/g") == b"there\n" else "it is not seen")
    d.stop()
    return why or ("" if number == "EROFS" and code == 0 else f"{number} {code} {err}")


def state_full():
    os.mkdir(full_d.top + "/other")
    w.in_child(w.put, full_d.top + "/other/f")
    _, why = w.in_child(fill, STATE + "/fill", 1024)
    assert why == "ENOSPC", why
    wrong = []
    number, _ = w.errno_of(os.mkdir, full_d.top + "/new")
    if number != "ENOSPC":
        wrong.append(f"mkdir: {number or 'success'}")
    for r in (full_d.pai("create", "new"), full_d.pai("kill", "other")):
        if r.returncode != 1 or r.stderr.count(b"\n") != 1 or \
                b"ledger.db': No space left on device" not in r.stderr:
            wrong.append(f"{r.returncode} {r.stderr}")
    code, out, err, _ = full_d.run("true", key="new")
    if code != 125 or b"No space left" not in err:
        wrong.append(f"pai-exec with a new key: {code} {err}")
    w.in_child(w.put, M + "/f", b"goes on")
    code, out, err, _ = full_d.run("cat", "f")
    if (code, out, err) != (0, b"goes on", b""):
        wrong.append(f"pai-exec: {code} {out} {err}")
    if b"live" not in full_d.pai("ls").stdout or full_d.pai("status", "k").returncode != 0:
        wrong.append("ls or status")
    os.unlink(STATE + "/fill")
    w.in_child(os.mkdir, full_d.top + "/new")
    code, out, err, _ = full_d.run("echo", "made", key="new")
    kept = w.in_child(w.get, full_d.top + "/other/f")  # that kill has not come to pass
    if (code, out, kept) != (0, b"made\n", b"x"):
        wrong.append(f"with room: {code} {err} {kept}")
    return "; ".join(wrong)


def state_full_start():
    full_d.stop()
    subprocess.run(["rm", "-rf", STATE + "/paifs"], check=True)
    w.in_child(fill, STATE + "/fill", 1024)
    r = subprocess.run(full_d.argv, capture_output=True, timeout=20)
    os.unlink(STATE + "/fill")
    if r.returncode != 1 or r.stderr.count(b"\n") != 1 or b"No space left on device" not in r.stderr:
        return f"{r.returncode} {r.stderr}"
    full_d.start()
    return ""


def no_room():
    d = w.Daemon("local", "noroom", f"root={SMALL}/root")
    os.mkdir(d.top + "/k")
    w.in_child(fill, d.top + "/k/big")
    wrong = []
    run = d.run("cat", "big")
    if (run[0], len(run[1])) != (0, os.path.getsize(d.top + "/k/big")):
        wrong.append(f"a command in the one that fills it: {run[0]} {run[2]}")
    run = d.run("true", key="next")
    if run[0] != 125 or b"No space left on device" not in run[2]:
        wrong.append(f"another: {run}")
    os.mkdir(d.top + "/new")
    number, _ = w.errno_of(w.put, d.top + "/new/f")
    if number != "ENOSPC":
        wrong.append(f"a write: {number or 'success'}")
    assert d.pai("kill", "k").returncode == 0
    w.in_child(w.put, d.top + "/new/f")
    run = d.run("cat", "f", key="new")
    if run[:2] != (0, b"x"):
        wrong.append(f"with room: {run}")
    d.pai("kill", "new", "next")
    left = sorted(n for _, _, files in os.walk(SMALL) for n in files)
    d.stop()
    return "; ".join(wrong) or (f"left: {left}" if left else "")


def damage_random(path):
    w.put(path, os.urandom(20000))


def damage_foreign(path):
    os.unlink(path)
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE sessions (x)")


def damage_cut(path):
    os.truncate(path, os.path.getsize(path) // 2)


def damaged():
    d = w.Daemon("local", "damaged")
    path = STATE + "/paifs/ledger.db"
    os.mkdir(d.top + "/kept")
    w.in_child(w.put, d.top + "/kept/f", b"kept")
    before = d.session("kept")["sandboxId"]
    for damage in damage_random, damage_foreign, damage_cut:
        d.stop()
        damage(path)
        os.truncate(d.log, 0)
        d.start()
        w.wait_for(lambda: os.listdir(d.top) == ["kept"], 10, "the key, listed by the provider")
        data = w.in_child(w.get, d.top + "/kept/f")
        d.stop()
        d.start()
        said = w.get(d.log)
        if said.count(b"\n") != 1 or b"set aside" not in said:
            return f"{damage.__name__}: said {said}"
        if data != b"kept" or d.session("kept")["sandboxId"] != before:
            return f"{damage.__name__}: {data} {d.session('kept')}"
    kept = [n for n in os.listdir(STATE + "/paifs") if n.startswith("ledger.db.damaged-")]
    d.pai("kill", "kept")
    d.stop()
    return "" if len(kept) >= 3 else f"what was set aside: {kept}"


try:
    STATE = mount(w.TMP + "/state", "-t", "tmpfs", "-o", "size=1m", "none")
    SMALL = mount(w.TMP + "/small", "-t", "tmpfs", "-o", "size=1m,nr_inodes=64", "none")
    SOURCE = w.TMP + "/source"
    os.makedirs(SOURCE + "/d")
    w.put(SOURCE + "/f", b"data")
    os.setxattr(SOURCE + "/f", "user.a", b"1")
    READ_ONLY = mount(w.TMP + "/read-only", "--bind", SOURCE)
    mount(READ_ONLY, "-o", "remount,bind,ro")
    full_d = w.Daemon("local", "full")
    M = full_d.top + "/k"
    assert full_d.pai("create", "k", "-o", f"template={SMALL}").returncode == 0
    for name, fn in zip(names, [full, full_commands, lost, told, inodes, ro_workspace, ro_mount,
                                state_full, state_full_start]):
        w.case(name, fn)
    full_d.pai("kill", "k", "new", "other")
    full_d.stop()
    subprocess.run(["find", SMALL, "-mindepth", "1", "-delete"], check=True)
    w.case(names[9], no_room)
    w.case(names[10], damaged)
finally:
    os.chdir("/")
    for daemon in w.daemons:
        daemon.stop()
    for path in reversed(mounted):
        subprocess.run(["umount", path]).returncode and subprocess.run(["umount", "-l", path])
raise SystemExit(w.finish())
