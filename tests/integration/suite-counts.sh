#!/bin/bash
# Requests, counted exactly: what is cached costs what it says and no more.
# fast
# timeout 90
. "$(dirname "$0")/lib.sh"
begin counts
[ "$PAI_ON" = paifs ] || { skip counts "only our own mount counts"; exit 0; }
start default_permissions || { not_ok counts "no mount"; exit 1; }
PYTHONPATH=$lib_dir timeout 60 python3 - "$XDG_RUNTIME_DIR/paifs/default.sock" "$BOX" <<'END' || failed=1
import os
import shutil
import subprocess
import sys

from pai_ask import Client

client = Client(sys.argv[1])
client.hello()
box = sys.argv[2]
FAR = "workspace=helper" in os.environ.get("PAI_LOCAL_OPTS", "") or os.environ["PAI_OVER"] == "ssh"
bad = 0
START = ["pai-exec", "-n", "default", "-s", "work", "--"]


def sync():
    subprocess.run(START + ["true"], check=True)


def counted(call):
    """What `call` cost: (FUSE requests, workspace requests), the zeros left out."""
    before = client.ask({"op": "counters"})[1]
    call()
    after = client.ask({"op": "counters"})[1]
    # Forgotten inodes and stopped callers are nobody's question.
    return tuple({k: v - before[part][k] for k, v in after[part].items() if v != before[part][k]}
                 for part in ("requests", "server"))


def check(name, got, allowed):
    """Every request in `got` must be allowed, as often at most."""
    global bad
    over = {k: v for k, v in got.items() if v > allowed.get(k, 0)}
    if over:
        bad = 1
        print(f"not ok {name}: {over} beyond {allowed}; all: {got}")
    else:
        print(f"ok {name} ({got})")


def read(path):
    fd = os.open(path, os.O_RDONLY)
    os.read(fd, 10000)
    os.close(fd)


def quiet(*argv):
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


N = 200
os.mkdir("files")
os.mkdir("wide")
for i in range(N):
    with open(f"{box}/files/{i}", "w") as f:
        f.write("x" * 1000)
for i in range(1000):
    os.close(os.open(f"{box}/wide/{i}", os.O_CREAT))
sync()
names = [f"files/{i}" for i in range(N)]
for _ in range(2):
    for path in names:
        os.stat(path)
        read(path)
check("open-read-close", counted(lambda: [read(p) for p in names])[0], {"open": N, "release": N})
check("stat-after-a-read", counted(lambda: [os.stat(p) for p in names])[0], {"getattr": N})
check("stat", counted(lambda: [os.stat(p) for p in names])[0], {})
check("missing-name", counted(lambda: [os.path.exists("files/none") for _ in range(N)])[0],
      {"lookup": 1})

quiet("ls", "-l", "wide")
cost = counted(lambda: quiet("ls", "-l", "wide"))
check("ls-l-looks-nothing-up", {k: v for k, v in cost[0].items() if k in ("lookup", "getattr")},
      {"getattr": 2})
check("third-ls-lists-nothing", counted(lambda: quiet("ls", "-l", "wide"))[0],
      {"opendir": 1, "release": 1, "getxattr": 2, "getattr": 1})
# What was looked up by name is listed without a second look, and shown as it is all the same.
shutil.copytree(f"{box}/files", f"{box}/known")
sync()
for i in range(N):
    os.stat(f"known/{i}")
os.truncate(f"{box}/known/7", 7)
sync()
sizes = {}
cost = counted(lambda: sizes.update((int(e.name), e.stat().st_size) for e in os.scandir("known")))
check("known-names-are-listed-without-a-look",
      {k: v for k, v in cost[0].items() if k in ("lookup", "getattr")}, {"getattr": 1})
if sizes != {i: 7 if i == 7 else 1000 for i in range(N)}:
    bad = 1
    print(f"not ok known-names-are-shown-as-they-are: {len(sizes)} entries, 7 has {sizes.get(7)}")
else:
    print("ok known-names-are-shown-as-they-are")
xattrs = ("getxattr", "listxattr", "setxattr", "removexattr")
only = lambda cost: {k: v for k, v in cost[1].items() if k in xattrs}
check("ls-l-forwards-no-xattr", only(cost), {})


def write():
    for i in range(N):
        with open(f"files/new-{i}", "w", buffering=1) as f:
            f.write("one\n")
            f.write("two\n")


check("write-forwards-no-xattr", only(counted(write)), {})
check("cp-forwards-no-xattr", only(counted(lambda: quiet("cp", "-r", "files", "copy"))), {})
check("cp-a-forwards-no-xattr", only(counted(lambda: quiet("cp", "-a", "files", "copy-a"))), {})

# A barrier asks about the open files that it can't drop one by one, and about all that the kernel
# believes 512 at once. A server elsewhere compares what it has told by itself.
sync()
compares = {} if FAR else {"compare": 14}
check("barrier-compares-in-bulk", counted(sync)[1], {"barrier": 1, **compares})
for path in names[:10]:
    read(path)
held = [os.open(path, os.O_RDONLY) for path in names[:10]]
check("barrier-asks-about-open-files", counted(sync)[1],
      {"barrier": 1, "getattr": 10, **compares})
for fd in held:
    os.close(fd)

git = lambda *argv: quiet("git", "-C", "repo", "-c", "user.name=A", "-c", "user.email=a@b", *argv)
os.mkdir("repo")
git("init", "-q")
for i in range(300):
    os.makedirs(f"repo/d{i % 20}", exist_ok=True)
    with open(f"repo/d{i % 20}/{i}", "w") as f:
        f.write(f"{i}\n" * 50)
quiet("find", "repo", "-exec", "touch", "-d", "2020-01-01", "{}", "+")
git("add", "-A")
git("commit", "-qm", "first")
git("status")
git("status")
work = lambda cost: cost[1].get("read", 0)
got = counted(lambda: git("status"))
# git's own files (index, HEAD, refs, config) are opened, and read from the cache.
check("second-git-status-reads-nothing", {"read": work(got)}, {})
quiet(*START, "git", "-C", "repo", "status")
git("status")
got = counted(lambda: git("status"))
check("git-status-after-the-sandbox's-reads-nothing", {"read": work(got)}, {})
sys.exit(bad)
END
cd /
stop
exit $failed
