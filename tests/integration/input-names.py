#!/usr/bin/env python3
# timeout 90
"""Names: every byte in those of files, links and attributes, on both sides; keys that must be written
otherwise or are none; what the root of the mount refuses; what is answered of a session."""
import errno
import os
import stat
import subprocess
import sys

import hold_world as w

names = [
    "every byte in a name: made here, seen there; moved and removed there, seen here",
    "every byte in a name: made there, seen here; moved and removed here, seen there",
    "255 bytes of any kind are a name on both sides",
    "every byte in a link's text and in an extended attribute",
    "any directory is the cwd of a command, whatever its name, up to PATH_MAX",
    "errors and the log show such names in clean text",
    "guarded links: the shown text stays inside, the true one is an attribute",
    "FIFOs, sockets and devices are shown without rights",
    "special=full shows them as they are",
    "a key is one canonical name in the root",
    "what is no canonical name of a key is EINVAL",
    "what is no key is refused in one line, by every program",
    "the root refuses all but mkdir",
    "user.pai.* is answered, not listed, and can't be set",
]
w.begin(*names)
# Each in a file of its own, since no argument may be so long: what a command here or there prints.
LIST = "import os,sys; print(sorted((n, os.lstat(n).st_size) for n in os.listdir(b'.')))"
BYTES = [bytes([b]) for b in range(1, 256) if b != ord("/")]
NAMES = sorted(b"n" + b for b in BYTES) + [b"\xff" * 7, b" ", b"-rf", b"\n", b"...", b"%2F", b"~"]
b = os.fsencode


def there(directory, code):
    """What a python program prints that runs in the sandbox, there."""
    run = subprocess.run([w.BUILD + "/pai-exec", "python3", "-c", code], cwd=directory,
                         capture_output=True, timeout=30)
    assert run.returncode == 0, run
    return run.stdout.decode()


def here(directory):
    return str([(n, os.lstat(b(directory) + b"/" + n).st_size)
                for n in sorted(os.listdir(b(directory)))]) + "\n"


MAKE = f"import os\nfor n in {NAMES!r}:\n    open(n, 'wb').write(n)\n"
MOVE = f"import os\nfor n in {NAMES!r}:\n    os.rename(n, b'm' + n)\n"
REMOVE = f"import os\nfor n in {NAMES!r}:\n    os.unlink(b'm' + n)\n"


def do(directory, code):
    def run():
        os.chdir(directory)
        exec(code, {})
    w.in_child(run)


def made(first, second):
    """`first` makes, `second` moves and removes; after each step both sides are asked."""
    directory = M + "/" + first.__name__
    os.mkdir(directory)
    for step, (fn, code, prefix) in enumerate([(first, MAKE, b""), (second, MOVE, b"m")]):
        fn(directory, code)
        wanted = str([(n, len(n) - len(prefix)) for n in sorted(prefix + n for n in NAMES)]) + "\n"
        for side, seen in ("here", here(directory)), ("there", there(directory, LIST)):
            if seen != wanted:
                return f"step {step}, {side}: {seen[:300]}"
    for n in NAMES:
        if w.get(b(directory) + b"/m" + n) != n:
            return f"{n} has other bytes"
    second(directory, REMOVE)
    left = os.listdir(directory), there(directory, LIST)
    return "" if left == ([], "[]\n") else f"left: {left}"


def long_names():
    directory = M + "/long"
    os.mkdir(directory)
    wanted = [b"\xff" * 255, "\u00e4".encode() * 127 + b"x", b"\n" * 255, b" " * 255, b"." * 255]
    for n in wanted:
        w.put(b(directory) + b"/" + n, n)
    if there(directory, LIST) != str([(n, 255) for n in sorted(wanted)]) + "\n":
        return "there: " + there(directory, LIST)
    number, _ = w.errno_of(os.mkdir, b(directory) + b"/" + b"\xff" * 256)
    return "" if number == "ENAMETOOLONG" else f"256 bytes: {number or 'success'}"


def texts():
    directory = b(M) + b"/texts"
    os.mkdir(directory)
    text, key = b"".join(BYTES), b"user." + b"".join(BYTES)[:250]
    os.symlink(text, directory + b"/here")
    w.put(directory + b"/f")
    os.setxattr(directory + b"/f", key, bytes(range(256)))
    code = (f"import os; os.symlink({text!r}, 'there'); print(os.readlink(b'here') == {text!r}, "
            f"os.getxattr('f', {key!r}) == bytes(range(256)), os.listxattr(b'f') == "
            f"[os.fsdecode({key!r})]); os.setxattr('f', {key!r}, b'there')")
    seen = there(directory, code)
    if seen != "True True True\n":
        return f"there: {seen}"
    if os.readlink(directory + b"/there") != text or os.lstat(directory + b"/there").st_size != 254:
        return f"link: {os.readlink(directory + b'/there')}"
    if b(os.listxattr(directory + b"/f")[0]) != key or \
            os.getxattr(directory + b"/f", key) != b"there":
        return f"attribute: {os.listxattr(directory + b'/f')}"
    return ""


def directories():
    wrong = []
    for n in [b" a  b ", b"a\nb", b"\n", b"\xff\xfe", b"-", b"'\"$(x)`", b"d" * 255, b"\x1b[31m",
              b"/".join([b"\xee" * 255] * 15)]:
        directory = b(M) + b"/dirs/" + n
        os.makedirs(directory)
        run = subprocess.run([w.BUILD + "/pai-exec", "-c", "pwd; echo x > mark"], cwd=directory,
                             capture_output=True, timeout=30)
        by_option = subprocess.run([w.BUILD + "/pai-exec", "-n", "names", "-s", "k", "-C",
                                    b"/workspace/dirs/" + n, "pwd"], cwd="/",
                                   capture_output=True, timeout=30)
        wanted = b"/workspace/dirs/" + n + b"\n"
        if (run.stdout, by_option.stdout) != (wanted, wanted):
            wrong.append(f"{n[:20]}: {run.stdout[:40]} {run.stderr} {by_option.stdout[:40]} "
                         f"{by_option.stderr}")
        elif not os.path.exists(directory + b"/mark"):
            wrong.append(f"{n[:20]}: what it wrote is elsewhere")
    return "; ".join(wrong)


def is_clean(text, lines=None):
    try:
        bad = [c for c in text.decode() if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160 or
                                                         c in "\u202e\u2066")]
    except UnicodeDecodeError:
        return False
    return not bad and (lines is None or text.count(b"\n") == lines)


def shown():
    evil = b"\x1b[31m\xff\xe2\x80\xae\n\x07"
    for argv in (["-s", "k", "-C", b"/workspace/" + evil, "true"], ["-s", "k", evil],
                 ["-n", evil, "-s", "k", "true"], ["--" + "x" * 9 + "\x1b[31m"],
                 ["-s", "k", "-e", evil, "true"]):
        argv = [w.BUILD + "/pai-exec", *(["-n", "names"] if "-n" not in argv else []), *argv]
        run = subprocess.run(argv, capture_output=True, cwd="/", timeout=30)
        if not is_clean(run.stderr) or (run.returncode == 0 and evil not in argv):
            return f"{argv}: {run.stderr}"
    for argv in (["log", "--all"], ["log", "--all", "--json"], ["ls"], ["status", evil], [evil]):
        run = d.pai(*argv)
        if not is_clean(run.stdout + run.stderr):
            return f"pai {argv}: {run.stdout[-300:]}{run.stderr}"
    with open(d.log, "rb") as f:
        return "" if is_clean(f.read()) else "the daemon's own log"


def guarded():
    """text in the sandbox -> what is shown of it in /a/b of the mount"""
    directory = M + "/a/b"
    os.makedirs(directory)
    inside = {"f": "f", "../x": "../x", "../../x": "../../x"}
    outside = ["/etc/passwd", "../../../x", "x/../../../../etc/passwd", "/workspace/../etc"]
    for i, text in enumerate([*inside, *outside, "/workspace/a/f"]):
        there(directory, f"import os; os.symlink({text!r}, 'l{i}')")
        path, text_shown = f"{directory}/l{i}", os.readlink(f"{directory}/l{i}")
        if os.getxattr(path, "security.pai.target", follow_symlinks=False).decode() != text:
            return f"{text}: the attribute differs"
        if text in inside and text_shown != text:
            return f"{text}: shown as {text_shown}"
        if text in outside and (os.path.exists(path) or text_shown == text):
            return f"{text}: shown as {text_shown}"
        if len(text_shown) != os.lstat(path).st_size:
            return f"{text}: another size than its text"
        os.symlink(text_shown, path + "-copy")
        if there(directory, f"import os; print(os.readlink('l{i}-copy'))") != text + "\n":
            return f"{text}: a copy is another"
    w.put(M + "/a/f", b"inside")
    if w.get(f"{directory}/l{i}") != b"inside":
        return f"an absolute link within: {text_shown}"
    number, _ = w.errno_of(lambda: os.getxattr(M + "/a/f", "security.pai.target"))
    return "" if number == "ENOTSUP" else f"of a file: {number or 'success'}"


KINDS = {"fifo": stat.S_IFIFO, "socket": stat.S_IFSOCK, "null": stat.S_IFCHR, "disk": stat.S_IFBLK}


def special(full):
    top = (whole if full else d).top + "/k"
    wrong = []
    for name, kind in KINDS.items():
        path = f"{BOX}/{name}"
        if not os.path.lexists(path):
            os.mknod(path, kind | 0o644, os.makedev(1, 3))
    for name, kind in KINDS.items():
        mode = os.lstat(f"{top}/{name}").st_mode
        if mode != kind | (0o644 if full else 0):
            wrong.append(f"{name}: {mode:o}")
    os.mkfifo(top + f"/own-{full}", 0o640)
    if os.lstat(top + f"/own-{full}").st_mode != stat.S_IFIFO | 0o640:
        wrong.append(f"one made here: {os.lstat(top + f'/own-{full}').st_mode:o}")
    number, _ = w.errno_of(lambda: os.open(top + "/null", os.O_RDONLY))
    return "; ".join(wrong) or ("" if number == "EACCES" else f"a device opens: {number}")  # nodev


KEYS = {"..": "%2E.", "a/b": "a%2Fb", ".x": "%2Ex", "100%": "100%25", ".": "%2E", "%2F": "%252F",
        "a b\\": "a b\\", "\u00e4": "\u00e4", "\u202e": "\u202e", "x" * 128: "x" * 128,
        "/" * 85: "%2F" * 85}


def keys():
    wrong = []
    for key, name in KEYS.items():
        path = f"{d.top}/{name}"
        if d.pai("create", key).returncode != 0 or not os.path.isdir(path):
            wrong.append(f"{key}: create")
        if w.errno_of(os.mkdir, path)[0] != "EEXIST" or name not in os.listdir(d.top):
            wrong.append(f"{key}: not in the root")
        w.in_child(w.put, path + "/f", b(key))
        if d.run("cat", "f", key=key)[1] != b(key):
            wrong.append(f"{key}: pai-exec -s")
        run = subprocess.run([w.BUILD + "/pai-exec", "cat", "f"], cwd=path, capture_output=True)
        if run.stdout != b(key) or os.getxattr(path, "user.pai.session") != b(key):
            wrong.append(f"{key}: from inside: {run}")
        if d.pai("kill", key).returncode != 0 or os.path.exists(path):
            wrong.append(f"{key}: kill")
        if w.errno_of(os.mkdir, path)[0] or d.session(key) is None or \
                d.pai("kill", key).returncode != 0:
            wrong.append(f"{key}: mkdir")
    return "; ".join(wrong)


def no_names():
    wrong = []
    for name in [b"%2e.", b"a%2fb", b"a%", b"%41", b"%2", b"%00", b"%0A", b"%C3%A4", b"x" * 129,
                 b"x" * 255, b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"a\nb", b"a\x7f",
                 b"\x01", "\u0085".encode(), b".x", b".git", b"a%2Fb%"]:
        path = b(d.top) + b"/" + name
        got = w.errno_of(os.mkdir, path)[0], w.errno_of(os.stat, path)[0]
        if got != ("EINVAL", "ENOENT"):
            wrong.append(f"{name}: {got}")
    if w.errno_of(os.mkdir, d.top + "/" + "x" * 256)[0] != "ENAMETOOLONG":
        wrong.append("256 bytes")
    return "; ".join(wrong)


def no_keys():
    wrong = []
    for key in [b"", b"x" * 129, b"x" * 300, b"x" * 5000, b"\xff", b"a\nb", b"a\x7f", b"\x01",
                "\u0085".encode(), b"\xed\xa0\x80"]:
        runs = [d.pai(*argv, key) for argv in
                (["create"], ["kill"], ["reset"], ["pause"], ["trust"], ["status"], ["log"])]
        runs += [subprocess.run([w.BUILD + "/pai-exec", "-n", "names", "-s", key, "true"],
                                capture_output=True, timeout=30)]
        codes = [r.returncode for r in runs]
        if codes != [1] * 7 + [125]:
            wrong.append(f"{key[:9]}: {codes}")
        for r in runs:
            if not is_clean(r.stderr, 1) or not r.stderr.endswith(b" (input)\n") or \
                    not any(why in r.stderr for why in (b"1 to 128 bytes", b"UTF-8", b"control")):
                wrong.append(f"{r.args[3:]}: {r.stderr}")
    c = d.client()
    for op in ("create", "kill", "reset", "pause", "trust", "status", "log"):  # not by our own
        for key in ("", "x" * 129, "x" * 60000, "\x01", 7, [], {}):
            good, answer = c.ask({"op": op, "key": key})
            if isinstance(key, str) and (good or answer["kind"] != "input"):
                wrong.append(f"{op} {key!r:.20}: {answer!r:.100}")
    return "; ".join(wrong)[:500]


def root():
    for key in ("r1", "r2"):
        os.mkdir(f"{d.top}/{key}")
        w.in_child(lambda: (w.put(f"{d.top}/{key}/f"), os.mkdir(f"{d.top}/{key}/d")))
    one, two = d.top + "/r1", d.top + "/r2"
    wanted = {
        "rmdir": ("EPERM", os.rmdir, one), "rename": ("EPERM", os.rename, one, d.top + "/r3"),
        "rename over another": ("EPERM", os.rename, one, two),
        "a session into another": ("EXDEV", os.rename, two, one + "/d/x"),
        "a directory to the root": ("EXDEV", os.rename, one + "/d", d.top + "/d"),
        "a file to the root": ("EXDEV", os.rename, one + "/f", d.top + "/f"),
        "a file to another session": ("EXDEV", os.rename, one + "/f", two + "/g"),
        "a link to another session": ("EXDEV", os.link, one + "/f", two + "/g"),
        "a link to the root": ("EXDEV", os.link, one + "/f", d.top + "/g"),
        "create": ("EPERM", w.put, d.top + "/f"), "symlink": ("EPERM", os.symlink, "x", d.top + "/l"),
        "mknod": ("EPERM", os.mkfifo, d.top + "/p"), "unlink": ("ENOENT", os.unlink, d.top + "/none"),
        "unlink of a session": ("EISDIR", os.unlink, one), "chmod": ("EPERM", os.chmod, d.top, 0o777),
        "chown": ("EPERM", os.chown, d.top, 1, 1), "utime": ("EPERM", os.utime, d.top),
        "setxattr": ("EPERM", os.setxattr, d.top, "user.a", b"1")}
    got = {name: w.errno_of(*args[1:])[0] for name, args in wanted.items()}
    wrong = [f"{name}: {got[name] or 'success'}" for name in wanted if got[name] != wanted[name][0]]
    run = subprocess.run(["mv", one + "/f", two + "/moved"], capture_output=True, timeout=30)
    if run.returncode or w.get(two + "/moved") != b"x" or os.listdir(one) != ["d"]:
        wrong.append(f"mv between sessions: {run}")
    return "; ".join(wrong)


def answered():
    one, record = d.top + "/r1", d.session("r1")
    wanted = {"session": "r1", "sandbox_id": record["sandboxId"], "provider": "local",
              "generation": str(record["generation"]), "state": "live"}
    wrong = []
    for path in (one, one + "/d"):
        got = {name: os.getxattr(path, "user.pai." + name).decode() for name in wanted}
        if got != wanted or os.listxattr(path):
            wrong.append(f"{path}: {got} {os.listxattr(path)}")
        for name in [*wanted, "other"]:
            for fn, *more in (os.setxattr, b"1"), (os.removexattr,):
                number, _ = w.errno_of(fn, path, "user.pai." + name, *more)
                if number != "ENOTSUP":
                    wrong.append(f"{fn.__name__} {name}: {number or 'success'}")
    number, _ = w.errno_of(os.getxattr, one, "user.pai.other")
    if (number, w.errno_of(os.getxattr, d.top, "user.pai.state")[0]) != ("ENODATA", "ENODATA"):
        wrong.append(f"an unknown one: {number or 'success'}")
    there(one, "import os; os.setxattr('d', 'user.pai.state', b'a lie')")
    if os.getxattr(one + "/d", "user.pai.state") != b"live" or os.listxattr(one + "/d"):
        wrong.append("the sandbox's own is believed")
    return "; ".join(wrong)


BOX = w.TMP + "/box"
os.mkdir(BOX)
d = w.Daemon("local", "names", "symlinks=guarded")
assert d.pai("create", "k", "-o", f"template={BOX}").returncode == 0
M = d.top + "/k"
do.__name__, there.__name__ = "made-here", "made-there"
w.case(names[0], made, do, there)
w.case(names[1], made, there, do)
for name, fn in zip(names[2:7], [long_names, texts, directories, shown, guarded]):
    w.case(name, fn)
if os.geteuid() == 0:
    w.case(names[7], special, False)
    whole = w.Daemon("local", "whole", "special=full")
    assert whole.pai("create", "k", "-o", f"template={BOX}").returncode == 0
    w.case(names[8], special, True)
else:
    for name in names[7:9]:
        w.skip(name, "needs root to make devices")
for name, fn in zip(names[9:], [keys, no_names, no_keys, root, answered]):
    w.case(name, fn)
for daemon in w.daemons:
    for session in daemon.ask("ls")["sessions"]:
        daemon.pai("kill", session["key"])
sys.exit(w.finish())
