#!/bin/bash
# Round trips to a workspace at the other end of a line, counted exactly: releases and watches, which
# nobody waits for, aside.
# timeout 90
# timeout-long 90
export PAI_LOCAL_OPTS=workspace=helper
. "$(dirname "$0")/lib.sh"
begin trips
start default_permissions || { not_ok trips "no mount"; exit 1; }
PYTHONPATH=$lib_dir timeout 60 python3 - "$XDG_RUNTIME_DIR/paifs/default.sock" "$BOX" <<'END' || failed=1
import os
import subprocess
import sys

from pai_ask import Client

client = Client(sys.argv[1])
client.hello()
box = sys.argv[2]
bad = 0


def sync():
    subprocess.run(["pai-exec", "-n", "default", "-s", "work", "--", "true"], check=True)


def asked(call):
    """What the server was asked, and somebody waited for."""
    before = client.ask({"op": "counters"})[1]["server"]
    call()
    after = client.ask({"op": "counters"})[1]["server"]
    return {k: v - before[k] for k, v in after.items()
            if v != before[k] and k not in ("release", "watch", "unwatch")}


def check(name, call, want):
    global bad
    got = asked(call)
    if got == want:
        print(f"ok trips-{name} ({got})")
    else:
        bad = 1
        print(f"not ok trips-{name}: {got}, expected {want}")


def quiet(*argv):
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def fill(name, count, make=lambda path: open(path, "w").close()):
    os.mkdir(f"{box}/{name}")
    for i in range(count):
        make(f"{box}/{name}/{i}")


def put(path, text):
    with open(path, "w", buffering=1) as f:
        f.write(text)


# A directory's listing comes with its opening, and is enough for what follows.
fill("wide", 1000)
fill("looked", 300)
fill("huge", 5000)
sync()
os.stat(".")
check("ls-l-of-1000", lambda: quiet("ls", "-l", "wide"), {"lookup": 1, "getattr": 1, "opendir": 1})
os.stat("wide")
check("ls-l-again", lambda: quiet("ls", "-l", "wide"), {})
check("stats-after-it", lambda: [os.stat(f"wide/{i}") for i in range(1000)], {})
check("misses-after-it", lambda: [os.path.exists(f"wide/no{i}") for i in range(1000)], {})
check("listing-of-5000", lambda: os.listdir("huge"), 
      {"lookup": 1, "getattr": 1, "opendir": 1, "readdir": 2})
# Names that are looked up one by one: the second in a directory asks for its listing.
check("300-looks", lambda: [os.stat(f"looked/{i}") for i in range(300)],
      {"lookup": 2, "getattr": 1, "opendir": 1})
check("300-misses", lambda: [os.path.exists(f"looked/no{i}") for i in range(300)], {})
check("a-walk-of-what-was-looked-up", lambda: os.listdir("looked"), {})
# What changed there is asked for, and nothing else.
os.truncate(f"{box}/looked/7", 5)
put(f"{box}/looked/new", "x")
os.unlink(f"{box}/looked/8")
sync()
sizes = {}
check("what-the-sandbox-changed",
      lambda: sizes.update({n: os.path.getsize(f"looked/{n}") for n in ["7", "9", "new"]}),
      {"getattr": 2, "lookup": 1})
if sizes != {"7": 5, "9": 0, "new": 1} or os.path.exists("looked/8"):
    bad = 1
    print(f"not ok trips-what-the-sandbox-changed-is-seen: {sizes}")
# A small file comes with its opening; once the sandbox has changed it, so does what it is then.
def cat(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 100000)
    finally:
        os.close(fd)


fill("small", 20, lambda path: put(path, path * 100))
fill("larger", 3, lambda path: put(path, "x" * 65537))
sync()
os.listdir("small"), os.listdir("larger")
check("small-files-come-with-the-open", lambda: [cat(f"small/{i}") for i in range(20)], {"open": 20})
check("larger-ones-are-read", lambda: [cat(f"larger/{i}") for i in range(3)], {"open": 3, "read": 3})
put(f"{box}/small/3", "other")
sync()
got = []
check("changed-ones-too", lambda: got.append(cat("small/3")), {"open": 1, "getattr": 1})
fd = os.open("small/4", os.O_RDONLY)
put(f"{box}/small/4", "changed while it was open")
sync()
got.append(os.read(fd, 1000))
os.close(fd)
fd = os.open("small/5", os.O_RDWR)
other = os.open("small/5", os.O_RDONLY)
os.pwrite(fd, b"own", 0)
got.append(os.pread(other, 3, 0))
if got != [b"other", b"changed while it was open", b"own"]:
    bad = 1
    print(f"not ok trips-what-came-with-the-open-is-right: {got}")
# A reader has megabytes under way: 64 MiB are 64 requests, and some at the beginning. The kernel lets
# root alone have that.
with open(f"{box}/large", "wb") as f:
    f.write(os.urandom(1 << 20) * 64)
sync()


def read_all():
    fd = os.open("large", os.O_RDONLY)
    while os.read(fd, 1 << 17):
        pass
    os.close(fd)


if os.geteuid() == 0:
    reads = asked(read_all).get("read", 0)
    if 60 <= reads <= 80:
        print(f"ok trips-64-MiB-are-read ({reads} requests)")
    else:
        bad = 1
        print(f"not ok trips-64-MiB-are-read: by {reads} requests")
else:
    print("skip trips-64-MiB-are-read: only root may raise the kernel's read-ahead")

# Changes cost themselves. A push that crosses one makes the kernel's next question a real one.
N = 100


def change(name, call, want):
    got = asked(lambda: [call(i) for i in range(N)])
    crossed = got.pop("getattr", 0) + got.pop("lookup", 0)
    check(name, lambda: None, {} if got == {k: N for k in want} and crossed <= N // 2
          else {"not": {**got, "crossed": crossed}})


os.mkdir("made")
os.listdir("made")
change("a-file-is-made", lambda i: os.close(os.open(f"made/{i}", os.O_CREAT | os.O_WRONLY)), ["create"])
change("a-file-is-written", lambda i: put(f"made/w{i}", "one"), ["create", "write"])
change("a-directory-is-made", lambda i: os.mkdir(f"made/d{i}"), ["mkdir"])
change("a-directory-is-removed", lambda i: os.rmdir(f"made/d{i}"), ["rmdir"])
change("a-file-is-renamed", lambda i: os.rename(f"made/{i}", f"made/r{i}"), ["rename"])
change("a-file-is-linked", lambda i: os.symlink("x", f"made/l{i}"), ["symlink"])
change("a-file-is-removed", lambda i: os.unlink(f"made/r{i}"), ["unlink"])
change("a-removed-name-is-made-again",
       lambda i: os.close(os.open(f"made/r{i}", os.O_CREAT | os.O_WRONLY)), ["create"])
a, b = os.stat("made"), os.stat(f"{box}/made")
if (a.st_mtime_ns, a.st_ctime_ns, a.st_nlink) != (b.st_mtime_ns, b.st_ctime_ns, b.st_nlink):
    bad = 1
    print(f"not ok trips-a-directory-is-shown-as-it-is: {a}, {b}")
sync()
check("a-barrier", sync, {"barrier": 1})
sys.exit(bad)
END
cd /
stop
exit $failed
