#!/usr/bin/env python3
# timeout 120
"""Looking never creates: provider calls are counted while people and programs look around."""
import fcntl
import glob
import os
import subprocess

import hold_world as w

names = [
    "stat, ls, globbing, find and 1,000 unknown names in the root: no provider call",
    "looking into a session that has no sandbox: no provider call, and it looks empty",
    "mkdir names a session and makes no sandbox; the first write makes one, once",
    "looking at a paused sandbox neither resumes nor recreates it, a listing says so",
    "a write resumes it",
    "looking at a sandbox that has gone by itself does not recreate it",
    "a write into it recreates it",
    "a killed session is neither listed nor found, and looking brings nothing back",
    "a write into a killed session, from inside, is ESTALE; nothing is made",
    "mkdir, pai create and pai-exec bring a killed key back",
]
w.begin(*names)
memory = w.Daemon("memory", "look")
TOP = memory.top
w.wait_for(lambda: memory.provider_calls().get("list"), 10, "the list that a mount begins with")


def look_around(top):
    """What shells, indexers, file managers and agents do wherever they stand."""
    seen = os.listdir(top)
    glob.glob(top + "/*")
    glob.glob(top + "/*/*")
    for name in [".git", "CLAUDE.md", ".Trash-1000", ".hidden", "desktop.ini", ".directory"]:
        os.path.exists(f"{top}/{name}")
        for key in seen:
            os.path.exists(f"{top}/{key}/{name}")
    for argv in (["ls", "-la", top], ["find", top, "-maxdepth", "2"], ["df", top], ["stat", top],
                 ["du", "-s", top], ["sh", "-c", 'cd "$1"; echo */.git; test -d x', "sh", top]):
        subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30)


def unchanged(fn, d=memory, allowed=()):
    """Runs fn; the provider calls that it caused."""
    before = d.provider_calls()
    w.in_child(fn)
    after = d.provider_calls()
    made = {k: after[k] - before.get(k, 0) for k in after if after[k] != before.get(k, 0)}
    made = {k: n for k, n in made.items() if k not in allowed}
    return f"provider calls: {made}" if made else ""


def root():
    os.mkdir(TOP + "/named")

    def act():
        look_around(TOP)
        for i in range(1000):
            for path in (f"{TOP}/unknown-{i}", f"{TOP}/.unknown-{i}/x"):
                if os.path.lexists(path):
                    raise AssertionError(path)
        for name, fn in {"open": lambda: os.open(TOP + "/f", os.O_CREAT | os.O_WRONLY),
                         "rmdir": lambda: os.rmdir(TOP + "/named"),
                         "rename": lambda: os.rename(TOP + "/named", TOP + "/other"),
                         "symlink": lambda: os.symlink("x", TOP + "/l"),
                         "unlink": lambda: os.unlink(TOP + "/nothing")}.items():
            try:
                fn()
            except OSError:
                continue
            raise AssertionError(f"{name} in the root succeeded")
    why = unchanged(act)
    return why or ("" if os.listdir(TOP) == ["named"] else f"the root has {os.listdir(TOP)}")


w.case(names[0], root)


def empty():
    def act():
        assert os.listdir(TOP + "/named") == []
        for i in range(200):
            assert not os.path.exists(f"{TOP}/named/u{i}")
        try:
            w.get(TOP + "/named/f")
            raise AssertionError("read")
        except FileNotFoundError:
            pass
    return unchanged(act) or ("" if memory.session("named")["state"] == "new"
                              else str(memory.session("named")))


w.case(names[1], empty)


def first():
    why = unchanged(lambda: os.mkdir(TOP + "/p"))
    if why:
        return why
    before = memory.provider_calls().get("create", 0)
    w.in_child(lambda: w.put(TOP + "/p/f", b"kept"))
    w.in_child(lambda: w.put(TOP + "/p/g", b"more"))
    made = memory.provider_calls()["create"] - before
    return "" if made == 1 and memory.session("p")["state"] == "live" else f"{made} creates"


w.case(names[2], first)


def looks_paused():
    before = memory.session("p")
    memory.ask("pause", key="p")
    assert memory.session("p")["state"] == "paused", memory.session("p")

    def act():
        look_around(TOP)
        for path in (TOP + "/p", TOP + "/p/f", TOP + "/p/nothing"):
            try:
                os.stat(path)
                os.listdir(path)
            except OSError:
                pass  # it may say that it can't look; it must not wake
        try:
            w.get(TOP + "/p/f")
        except OSError:
            pass
    w.in_child(act)
    calls = memory.provider_calls()
    after = memory.session("p")
    # Whoever copies it is not to think that its files are gone.
    number, _ = w.errno_of(os.listdir, TOP + "/p")
    if number != "EHOSTDOWN":
        return f"a listing: {number or 'success'}"
    if after["state"] != "paused" or after["sandboxId"] != before["sandboxId"]:
        return f"{before} became {after}; {calls}"
    return unchanged(act)


w.case(names[3], looks_paused)


def resumes():
    before = memory.session("p")
    w.in_child(lambda: w.put(TOP + "/p/h", b"awake"))
    after = memory.session("p")
    data = w.in_child(lambda: w.get(TOP + "/p/f"))
    return "" if after["state"] == "live" and data == b"kept" and \
        after["sandboxId"] == before["sandboxId"] else f"{before} {after} {data}"


w.case(names[4], resumes)

# Gone by itself: killed through another daemon on the same root.
local = w.Daemon("local", "lost")
other = w.Daemon("local", "lostother", f"root={w.TMP}/root-lost", mount=False)
L = local.top + "/k"
os.mkdir(L)


def lose():
    sandbox = local.session()["sandboxId"]
    assert other.pai("kill", "--sandbox", sandbox).returncode == 0
    return sandbox


def lost():
    w.in_child(lambda: (os.mkdir(L + "/d"), w.put(L + "/d/f")))
    top = os.stat(L).st_ino
    lose()

    def act():
        look_around(local.top)
        for path in (L, L + "/d", L + "/d/f", L + "/nothing"):
            try:
                os.stat(path)
                os.listdir(path)
            except OSError:
                pass
    before = local.provider_calls().get("create", 0)
    w.in_child(act)
    made = local.provider_calls().get("create", 0) - before
    state = local.session()["state"]
    if made or state != "lost":
        return f"{made} creates, state {state}"
    # A second look makes no call at all.
    return unchanged(act, local) or ("" if os.stat(L).st_ino == top else "another inode of the top")


w.case(names[5], lost)


def recreates():
    before = local.provider_calls().get("create", 0)
    w.in_child(lambda: w.put(L + "/new", b"1"))
    made = local.provider_calls()["create"] - before
    return "" if made == 1 and w.in_child(os.listdir, L) == ["new"] \
        else f"{made} creates, {os.listdir(L)}"


w.case(names[6], recreates)


def killed():
    assert local.pai("kill", "k").returncode == 0

    def act():
        look_around(local.top)
        assert os.listdir(local.top) == [], os.listdir(local.top)
        assert not os.path.exists(L) and not os.path.exists(L + "/new")
    return unchanged(act, local) or ("" if local.session() is None or
                                     local.session()["state"] == "killed" else str(local.session()))


w.case(names[7], killed)


def from_inside():
    os.mkdir(local.top + "/i")
    w.in_child(lambda: (os.mkdir(local.top + "/i/d"), w.put(local.top + "/i/f")))
    stands, at_top = (os.open(local.top + p, os.O_RDONLY | os.O_DIRECTORY) for p in ("/i/d", "/i"))
    file = os.open(local.top + "/i/f", os.O_RDWR)
    assert local.pai("kill", "i").returncode == 0
    before = local.provider_calls().get("create", 0)
    wrong = []
    for name, fn in {
            "write": lambda: os.write(file, b"x"),
            "read": lambda: os.read(file, 10),
            "fsync": lambda: os.fsync(file),
            "truncate": lambda: os.ftruncate(file, 1),
            "lock": lambda: fcntl.flock(file, fcntl.LOCK_EX),
            "create below": lambda: os.open("n", os.O_CREAT | os.O_WRONLY, dir_fd=stands),
            "mkdir below": lambda: os.mkdir("n", dir_fd=stands),
            "create at the top": lambda: os.open("n", os.O_CREAT | os.O_WRONLY, dir_fd=at_top),
            "mkdir at the top": lambda: os.mkdir("n", dir_fd=at_top)}.items():
        number, took = w.errno_of(fn)
        if number != "ESTALE" and not (number == "ENOENT" and "at the top" not in name):
            wrong.append(f"{name}: {number or 'success'}")
    for fd in (stands, at_top, file):
        try:
            os.close(fd)
        except OSError:
            pass  # it may say so as well; the descriptor is gone
    if local.provider_calls().get("create", 0) != before:
        wrong.append("a sandbox was made")
    if os.path.exists(local.top + "/i"):
        wrong.append("the session is shown")
    return "; ".join(wrong)


w.case(names[8], from_inside)


def back():
    os.mkdir(L)
    w.in_child(lambda: w.put(L + "/a"))
    assert local.pai("kill", "k").returncode == 0 and not os.path.exists(L)
    assert local.pai("create", "k").returncode == 0
    assert w.in_child(os.listdir, L) == []
    assert local.pai("kill", "k").returncode == 0 and not os.path.exists(L)
    code, _, err, _ = local.run("touch", "b")
    return "" if code == 0 and w.in_child(os.listdir, L) == ["b"] else f"{code} {err}"


w.case(names[9], back)
for key in [s["key"] for s in local.ask("ls")["sessions"]]:
    local.pai("kill", key)
raise SystemExit(w.finish())
