"""links.py MOUNT BOX OUTSIDE SECONDS MODE: random links in a session, opened by host programs.

Builds directories and links from both sides (relative, absolute, chained, hard-linked, climbing
out by every way known), then opens everything it can find through the mount while the sandbox's
side moves directories and rewrites links (under nofollow the mount's side too). Prints "escape
PATH: what" for everything opened that isn't the session's, "text PATH: ..." for a link whose text
in the sandbox isn't what was given, and at the end one line of counts. MODE: guarded, nofollow, raw.
"""
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time

mount, box, outside, seconds, mode = sys.argv[1:5] + sys.argv[5:6]
seconds = float(seconds)
rng = random.Random(int(os.environ.get("PAI_SEED", "1")))
NAMES = ["a", "b", "c", "d"]
device = os.stat(mount).st_dev
counts = {"opened": 0, "refused": 0, "links": 0, "moves": 0, "escapes": 0}
faults = 0
done = threading.Event()


def fault(kind, path, what):
    global faults
    faults += 1
    counts["escapes"] += kind == "escape"
    if faults < 20:
        print(f"{kind} {path}: {what}", flush=True)


def random_dir(top):
    path = top
    for _ in range(rng.randrange(4)):
        below = os.path.join(path, rng.choice(NAMES))
        if not os.path.isdir(below) or os.path.islink(below):
            break
        path = below
    return path


def random_text():
    up = "../" * rng.randrange(1, 9)
    inside = "/".join(rng.choice(NAMES + ["l1", "l2", "s"]) for _ in range(rng.randrange(1, 4)))
    return rng.choice([
        inside, "../" + inside, up + "secret", up + "secret-dir", up.rstrip("/"), inside + "/" + up + "secret",
        "./" + up + "secret", "s/s/s/s/" + up + "secret", "s/../" * 5 + "secret", ".", "./.", "//", "/",
        "/workspace", "/workspace/" + inside, "/workspace/../" + outside.lstrip("/") + "/secret",
        "/workspace//" + up + "secret", outside + "/secret", outside + "/secret-dir", "/etc/hostname",
        "/proc/self/root" + outside + "/secret", "/proc/self/cwd", "././" + inside, "././" + up + "secret",
        inside + "/.", inside + "/", "x" * 200, "\\x2fetc", "%2e%2e/secret", "/workspacex/" + inside])


def build():
    for top in [box] * 30:
        path = os.path.join(random_dir(top), rng.choice(NAMES))
        if not os.path.lexists(path):
            os.mkdir(path)
            with open(path + "/file", "w") as f:
                f.write("inside")
    os.symlink(".", box + "/s")
    for i in range(250):
        side = rng.choice([mount, box])
        directory = random_dir(box)
        path = os.path.join(directory, f"l{i % 60}")
        if os.path.lexists(path):
            continue
        if side == mount:
            path = mount + path[len(box):]
        text = random_text()
        if side == mount and mode == "guarded" and text.startswith("././"):
            continue  # given through the mount this is how it writes a link to /workspace
        try:
            os.symlink(text, path)
        except OSError as e:
            fault("text", path, f"symlink({text!r}): {e}")
            continue
        counts["links"] += 1
        below = box + path[len(side):]
        want = text
        if side == mount and mode == "guarded" and text.startswith("././"):
            # Copies rely on it: what looks like a shown text is taken for one.
            want = re.sub(r"^\./\./(\.\./)*", "/workspace/", text)
        if os.readlink(below) != want:
            fault("text", path, f"given {text!r}, the sandbox holds {os.readlink(below)!r}")
        if side == mount and os.readlink(path) != text and mode != "guarded":
            fault("text", path, f"given {text!r}, shown {os.readlink(path)!r}")
        if len(os.readlink(path)) != os.lstat(path).st_size and side == mount:
            fault("text", path, f"size {os.lstat(path).st_size}, text {os.readlink(path)!r}")
        if rng.randrange(4) == 0:
            try:
                os.link(below, os.path.join(random_dir(box), f"h{i}"), follow_symlinks=False)
            except FileExistsError:
                pass


def look(path):
    """Opens as any host program would, and asks where it landed; true inside the session."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        counts["refused"] += 1
        return False
    try:
        st = os.fstat(fd)
        counts["opened"] += 1
        if st.st_dev != device:
            fault("escape", path, f"device {st.st_dev}")
        elif os.path.isfile(f"/proc/self/fd/{fd}") and os.read(fd, 6) != b"inside":
            fault("escape", path, "another session's file")
        elif os.path.isdir(f"/proc/self/fd/{fd}") and "canary" in os.listdir(fd):
            fault("escape", path, "another session's directory")
        else:
            return True
        return False
    except OSError:
        return False
    finally:
        os.close(fd)


def walk(top, until, depth=0):
    """Links that lead to each other make more paths than anybody can walk: until `until`."""
    try:
        names = os.listdir(top)
    except OSError:
        return
    for name in names:
        # One way out is enough: nobody walks through the host to find more.
        if counts["escapes"] or time.monotonic() > until:
            return
        path = os.path.join(top, name)
        inside = look(path)
        look(path + "/" + rng.choice(NAMES + ["file", "secret", "../secret", ".."]) if depth else path + "/file")
        if inside and depth < 5 and os.path.isdir(path) and rng.randrange(3):
            walk(path, until, depth + 1)


def move(top):
    mover = random.Random(7)
    while not done.is_set():
        source, target = random_dir(top), random_dir(top)
        try:
            if source != top and mover.randrange(2):
                os.rename(source, os.path.join(target, mover.choice(NAMES)))
                counts["moves"] += 1
            else:
                path = os.path.join(target, f"l{mover.randrange(60)}")
                os.symlink(random_text(), path + ".new")
                os.rename(path + ".new", path)
        except OSError:
            pass


def programs(top):
    """Host programs that follow links; what they open is read off their own output. Links that lead
    to each other keep them busy for as long as they may."""
    for argv in (["find", "-L", top, "-maxdepth", "6", "-name", "canary"],
                 ["grep", "-rs", "OUTSIDE", top], ["grep", "-Rs", "OUTSIDE", top]):
        try:
            out = subprocess.run(argv, capture_output=True, timeout=max(8, seconds / 4)).stdout
        except subprocess.TimeoutExpired as e:
            out = e.stdout or b""
        for line in out.decode(errors="replace").splitlines()[:5]:
            # /proc/self/root leads find -L anywhere; it is an escape like any other.
            fault("escape", argv[0] + " " + argv[1], line)


def texts(top):
    found = {}
    for directory, dirs, files in os.walk(top):
        for name in dirs + files:
            path = os.path.join(directory, name)
            if os.path.islink(path):
                found[os.path.relpath(path, top)] = os.readlink(path)
    return found


def copies():
    """A copy inside the mount holds exactly the texts of its source, at another depth too."""
    os.mkdir(box + "/source")
    os.mkdir(box + "/source/a")
    for i in range(120):
        os.symlink(random_text(), f"{box}/source/{'a/' if i % 2 else ''}t{i}")
    os.makedirs(box + "/x/y")
    for name in ("source/a/t119", "source/t118", "x/y"):
        arrives(name)
    want = texts(box + "/source")
    for target in ("copy", "x/y/copy"):
        subprocess.run(["cp", "-a", mount + "/source", mount + "/" + target], check=True)
        got = texts(box + "/" + target)
        for name in want:
            if got.get(name) != want[name]:
                fault("text", f"{target}/{name}", f"copied {want[name]!r}, holds {got.get(name)!r}")
        for name in want:
            shown = f"{mount}/{target}/{name}"
            if os.lstat(shown).st_size != len(os.readlink(shown)):
                fault("text", shown, f"size {os.lstat(shown).st_size}, text {os.readlink(shown)!r}")
    for i in range(40):
        os.symlink(random_text(), f"{box}/t{i}")
        arrives(f"t{i}")
        subprocess.run(["cp", "-a", f"{mount}/t{i}", f"{mount}/u{i}"], check=True)
        if os.readlink(f"{box}/t{i}") != os.readlink(f"{box}/u{i}"):
            fault("text", f"u{i}", f"copied {os.readlink(f'{box}/t{i}')!r}, holds {os.readlink(f'{box}/u{i}')!r}")
        os.unlink(f"{box}/t{i}")
        os.unlink(f"{box}/u{i}")
    for target in ("source", "copy", "x"):
        shutil.rmtree(box + "/" + target)


def arrives(name):
    """What the sandbox made is there when its push has come, in no more than the push delay."""
    until = time.monotonic() + 5
    while not os.path.lexists(f"{mount}/{name}") and time.monotonic() < until:
        time.sleep(0.001)


def names():
    """One link under two names: each shows what is safe where it lies, whichever was asked last."""
    os.makedirs(box + "/deep/er")
    os.symlink("../../x", box + "/deep/er/l")
    os.link(box + "/deep/er/l", box + "/shallow", follow_symlinks=False)
    want = {"deep/er/l": "../../x", "shallow": "./.pai-link/..%2F..%2Fx"}
    for name in want:
        arrives(name)
    held = {name: os.open(f"{mount}/{name}", os.O_PATH | os.O_NOFOLLOW) for name in want}
    for name in list(want) * 2 + ["shallow"]:
        text, size = os.readlink(f"{mount}/{name}"), os.lstat(f"{mount}/{name}").st_size
        if (text, size) != (want[name], len(want[name])):
            fault("text", name, f"shown {text!r} of {size} bytes, not {want[name]!r}")
        for other in held:
            text, size = os.readlink("", dir_fd=held[other]), os.fstat(held[other]).st_size
            if (text, size) != (want[other], len(want[other])):
                fault("text", other, f"held and shown {text!r} of {size} bytes, not {want[other]!r}")
        true = os.getxattr(f"{mount}/{name}", "security.pai.target", follow_symlinks=False)
        if true != b"../../x":
            fault("text", name, f"security.pai.target is {true!r}")
    for fd in held.values():
        os.close(fd)
    os.unlink(box + "/shallow")
    shutil.rmtree(box + "/deep")


def moved():
    """Who stands in a directory that the sandbox moves deeper climbs from where it was. No name that
    was seen before: its removal may be about to be told."""
    os.makedirs(box + "/lower/er/still")
    os.mkdir(box + "/stand")
    os.symlink("../../../secret", box + "/stand/l")
    arrives("stand/l")
    arrives("lower/er/still")
    stand = os.open(mount + "/stand", os.O_RDONLY | os.O_DIRECTORY)
    os.readlink("l", dir_fd=stand)
    os.rename(box + "/stand", box + "/lower/er/still/stand")
    arrives("lower/er/still/stand/l")
    os.readlink(mount + "/lower/er/still/stand/l")
    try:
        text = os.readlink("l", dir_fd=stand)
        if not text.startswith("./.pai-link/"):
            fault("escape", "stand/l", f"shows {text!r} one directory deep")
    except OSError:
        pass  # it is found no more
    os.close(stand)
    shutil.rmtree(box + "/lower")


build()
if mode == "guarded":
    names()
    moved()
if mode != "raw":
    copies()
movers = [threading.Thread(target=move, args=(box,))]
if mode == "nofollow":
    movers.append(threading.Thread(target=move, args=(mount,)))
walk(mount, time.monotonic() + seconds / 2)
for m in movers:
    m.start()
end = time.monotonic() + seconds
while time.monotonic() < end and not counts["escapes"]:
    walk(mount, end)
    if not counts["escapes"]:
        programs(mount)
done.set()
for m in movers:
    m.join()
print(" ".join(f"{k} {v}" for k, v in counts.items()) + f" faults {faults}")
sys.exit(1 if faults else 0)
