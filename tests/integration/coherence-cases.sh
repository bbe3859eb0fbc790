#!/bin/bash
# Cases that the tester has found, each in its smallest form: two sides, a barrier, one right answer.
# fast
# timeout 180
. "$(dirname "$0")/lib.sh"
begin coherence-cases
start || { not_ok coherence-cases "no mount"; exit 1; }

# Other bytes, the same size and mtime, then another name: all before anybody could look.
cat >replace.py <<'END'
import os, sys
fd = os.open("a", os.O_RDWR)
st = os.fstat(fd)
os.pwrite(fd, sys.argv[1].encode(), 0)
os.utime("a", ns=(st.st_atime_ns, st.st_mtime_ns))
os.close(fd)
os.rename("a", "b")
END
wrong=0
for i in $(seq 101 120); do
	echo 000 >a
	cat a >/dev/null
	sandbox python3 replace.py "$i"
	[ "$(cat b)" = "$i" ] || wrong=$((wrong + 1))
done
is written-then-renamed "$wrong" 0

# A directory moved through the mount is watched where it is now.
for i in $(seq 10); do
	mkdir "from-$i" && echo x >"from-$i/file"
	sync_sides
	ls -l "from-$i" >/dev/null && cat "from-$i/file" >/dev/null
	mv "from-$i" "to-$i"
	sandbox sh -c "rm to-$i/file; mkdir to-$i/new"
	[ "$(ls "to-$i")" = new ] && ! [ -e "to-$i/file" ] || wrong=$((wrong + 1))
done
is moved-here-then-changed-there "$wrong" 0

# The sandbox moves `lower` below `upper` and, unseen, away again; the mount moves `upper` into it, for
# whoever stands there. By what was seen each is below the other.
cat >into.py <<'END'
import os, subprocess, sys
box = sys.argv[1]
os.makedirs("lower")
os.mkdir("upper")
stand = os.open("lower", os.O_RDONLY | os.O_DIRECTORY)
os.listdir(stand)
os.rename(box + "/lower", box + "/upper/lower")
subprocess.run(["pai-exec", "true"], check=True)
os.listdir("upper/lower")
os.rename(box + "/upper/lower", box + "/elsewhere")
os.rename("upper", "upper", dst_dir_fd=stand)
subprocess.run(["pai-exec", "true"], check=True)
print(os.listdir(stand), os.listdir("elsewhere/upper"), os.path.exists("upper"))
END
is moved-below-each-other "$(timeout 20 python3 into.py "$BOX" 2>&1)" "['upper'] [] False"

# A directory's own watch begins when somebody looks into it: what changed in it since its parent was
# listed is not told, and what the listing said of it is not believed.
cat >late.py <<'END'
import os, subprocess, sys
box, wrong = sys.argv[1], 0
for i in range(5):
    top = f"late-{i}"
    os.makedirs(f"{box}/{top}/sub")
    subprocess.run(["pai-exec", "true"], check=True)
    for name in ("no", "nor this"):  # of a server elsewhere the second brings the names along
        assert not os.path.exists(f"{top}/{name}")
    os.mkdir(f"{box}/{top}/sub/more")
    assert not os.path.exists(f"{top}/sub/no")
    os.listdir(top)
    subprocess.run(["pai-exec", "true"], check=True)
    wrong += os.stat(f"{top}/sub").st_mtime_ns != os.stat(f"{box}/{top}/sub").st_mtime_ns
print(wrong)
END
is watched-after-listed "$(timeout 20 python3 late.py "$BOX" 2>&1 | tail -1)" 0

# A walk that goes on where another began anew: what came in between is in no page of it.
cat >older.py <<'END'
import os, subprocess, sys
box, barrier = sys.argv[1], lambda: subprocess.run(["pai-exec", "true"], check=True)
os.mkdir(f"{box}/older")
for i in range(9000):  # more than come at once
    os.close(os.open(f"{box}/older/{i}", os.O_CREAT))
barrier()
first = os.scandir("older")
next(first)
for i in range(8):
    os.close(os.open(f"{box}/older/new-{i}", os.O_CREAT))
barrier()
second = os.scandir("older")
for _ in first:
    pass
seen = sum(os.path.exists(f"older/new-{i}") for i in range(8))
barrier()
print(seen, sum(os.path.exists(f"older/new-{i}") for i in range(8)))
END
is goes-on-in-an-older-listing "$(timeout 40 python3 older.py "$BOX" 2>&1 | tail -1)" "8 8"

# The mount moves a file onto the name that the sandbox has just given it as well: that does nothing.
cat >same.py <<'END'
import os, subprocess, sys
box, wrong = sys.argv[1], 0
for i in range(5):
    top = f"same-{i}"
    os.mkdir(f"{box}/{top}")
    os.close(os.open(f"{box}/{top}/a", os.O_CREAT))
    subprocess.run(["pai-exec", "true"], check=True)
    os.listdir(top)
    assert os.path.exists(f"{top}/a") and not os.path.exists(f"{top}/b")
    os.link(f"{box}/{top}/a", f"{box}/{top}/b")
    os.rename(f"{top}/a", f"{top}/b")
    for name in os.listdir(f"{box}/{top}"):
        wrong += not os.path.exists(f"{top}/{name}")
print(wrong)
END
is moved-onto-itself "$(timeout 20 python3 same.py "$BOX" 2>&1 | tail -1)" 0

# The sandbox moves a directory, and the mount finds it where it is before it hears of that.
cat >found.py <<'END'
import os, subprocess, sys
box, wrong = sys.argv[1], 0
for i in range(10):
    old, new = f"found-{i}/old", f"taken-{i}/new"
    os.makedirs(f"{box}/{old}/below")
    os.mkdir(f"{box}/taken-{i}")
    subprocess.run(["pai-exec", "true"], check=True)
    os.stat(f"{old}/below")
    os.stat(f"taken-{i}")
    os.rename(f"{box}/{old}", f"{box}/{new}")
    os.stat(f"{new}/below")
    subprocess.run(["pai-exec", "true"], check=True)
    wrong += os.path.exists(old) or not os.path.exists(new)
print(wrong)
END
is found-before-it-was-heard-of "$(timeout 20 python3 found.py "$BOX" 2>&1 | tail -1)" 0

# What this side has done is so, also while others open the directory; and a listing numbers its names
# as a look at each does.
cat >own.py <<'END'
import os, time
wrong, pids = 0, []
os.mkdir("own")
for _ in range(2):
    pids.append(os.fork())
    if pids[-1] == 0:
        while True:
            os.close(os.open("own", os.O_RDONLY | os.O_DIRECTORY))
end, i = time.monotonic() + 3, 0
while time.monotonic() < end:
    i += 1
    a, b = f"own/a{i}", f"own/b{i}"
    os.close(os.open(a, os.O_CREAT))
    wrong += f"a{i}" not in os.listdir("own")
    try:
        os.rename(a, b)
        wrong += os.path.exists(a)
        os.unlink(b)
        wrong += f"b{i}" in os.listdir("own")
    except FileNotFoundError:
        wrong += 1
for pid in pids:
    os.kill(pid, 9)
print(wrong)
END
is own-changes-of-an-opened-directory "$(timeout 20 python3 own.py 2>&1 | tail -1)" 0
mkdir -p numbers/sub && echo x >numbers/file
ls -l numbers >/dev/null
is numbers-in-listings "$(python3 -c '
import os
print(sum(e.inode() != os.lstat(e.path).st_ino for _ in range(2) for e in os.scandir("numbers")))')" 0

# A second name in a directory that the mount has never looked into.
wrong=0
sandbox mkdir -p hidden/below
for i in $(seq 10); do
	echo "$i" >linked
	stat linked >/dev/null
	sandbox ln linked "hidden/below/$i"
	[ "$(stat -c %h linked)" = 2 ] || wrong=$((wrong + 1))
	sandbox sh -c "echo more >>hidden/below/$i"
	[ "$(stat -c %s linked)" = $((${#i} + 6)) ] || wrong=$((wrong + 1))
	sandbox rm "hidden/below/$i"
	[ "$(stat -c %h linked)" = 1 ] || wrong=$((wrong + 1))
	rm linked
done
is second-name-out-of-sight "$wrong" 0

# ... and nobody makes a barrier: the file tells of itself.
mkdir "$BOX/unseen"
echo 0 >linked
ln "$BOX/linked" "$BOX/unseen/name"
sync_sides
has_size() { [ "$(stat -c %s linked)" = "$1" ]; }
wrong=0
for i in $(seq 10); do
	stat linked >/dev/null
	echo 0 >>"$BOX/unseen/name"
	wait_for 2 has_size $((2 + 2 * i)) || wrong=$((wrong + 1))
done
is second-name-out-of-sight-by-a-push "$wrong" 0
rm linked

# Who has it mapped stores into a page that is dirty already: neither an event nor a stamp tells, and
# what is read meanwhile is not kept past the next barrier.
cat >dirty.py <<'END'
import mmap, os, subprocess, sys
path, wrong = sys.argv[1] + "/dirty", 0
with open(path, "w+b") as f:
    f.truncate(4096)
    m = mmap.mmap(f.fileno(), 4096)
for i in range(1, 11):
    m[0] = i
    subprocess.run(["pai-exec", "true"], check=True)
    with open("dirty", "rb") as f:
        wrong += f.read(1)[0] != i
print(wrong)
END
is stored-into-a-dirty-page-there "$(timeout 40 python3 dirty.py "$BOX" 2>&1 | tail -1)" 0

# What is stored here through a mapping that goes on is there for the command that is started next.
# The process that stores starts nothing: a fork writes its pages back.
cat >stored.py <<'END'
import mmap, sys
with open("stored", "w+b") as f:
    f.truncate(2 * 4096)
    m = mmap.mmap(f.fileno(), 2 * 4096)
for line in sys.stdin:
    m[7] = m[4096] = int(line)
    print(line, end="", flush=True)
END
coproc stored { exec python3 stored.py; }
# shellcheck disable=SC2154 # by coproc
stored_pid=$stored_PID
wrong=0
for i in $(seq 10); do
	echo "$i" >&"${stored[1]}"
	read -r -t 10 <&"${stored[0]}" || wrong=failed
	[ "$(sandbox od -An -tu1 -j7 -N1 stored)$(sandbox od -An -tu1 -j4096 -N1 stored | tr -d ' ')" = "$(printf '%4d%d' "$i" "$i")" ] ||
		wrong=$((wrong + 1))
done
eval "exec ${stored[1]}>&-"
wait "$stored_pid"
is stored-here-then-run-there "$wrong" 0

# A second name that came and went within one push: nothing tells of what was done by it.
cat >second.py <<'END'
import os, sys
second = sys.argv[1]
os.link("one", second)
st = os.stat(second)
if sys.argv[2] == "longer":
    with open(second, "a") as f:
        f.write("more")
else:
    with open(second, "r+") as f:
        f.write(sys.argv[2])
    os.utime(second, ns=(st.st_atime_ns, st.st_mtime_ns))
os.unlink(second)
END
mkdir never-looked-at
echo 000 >one
sync_sides
wrong_open=0 wrong_size=0 wrong_hidden=0
for i in $(seq 101 120); do
	exec 9<one
	cat one >/dev/null # proven, and told
	sandbox python3 second.py "never-looked-at/$i" "$i"
	[ "$(head -c 3 <&9)" = "$i" ] || wrong_open=$((wrong_open + 1))
	exec 9<&-
done
is written-by-a-second-name-while-open "$wrong_open" 0
size=4
for i in $(seq 20); do
	cat one >/dev/null
	sandbox python3 second.py "two$i" longer
	size=$((size + 4))
	[ "$(stat -c %s one)" = $size ] || wrong_size=$((wrong_size + 1))
	sandbox python3 second.py never-looked-at/two longer
	size=$((size + 4))
	[ "$(head -c 1000 one | wc -c)" = $size ] || wrong_hidden=$((wrong_hidden + 1))
done
is grown-by-a-second-name "$wrong_size" 0
is grown-by-a-hidden-name-then-opened "$wrong_hidden" 0

# Appends to a file that is stored to through a mapping as well: what is dropped is written back
# first, and kernels from 6.17 on zero the end of the page that is being appended to.
cat >append.py <<'END'
import mmap, os
fd = os.open("mapped", os.O_RDWR | os.O_CREAT)
wrong = 0
os.ftruncate(fd, 1)
with mmap.mmap(fd, 1) as m:
    m[0] = 1
    m.flush()  # what is written back tells that there is a mapping
    for i in range(1500):
        os.ftruncate(fd, 1)
        text = bytes([1 + i % 200]) * 100
        m[0] = 1
        for n in range(10):
            os.pwrite(fd, text, 1 + 100 * n)
        wrong += os.pread(fd, 1000, 1) != text * 10
print(wrong)
END
is appended-while-mapped "$(python3 append.py)" 0

# The sandbox makes a file longer while the mount appends to it: what the kernel is told of that changes
# nothing in what it is about to write.
cat >both.py <<'END'
import os, sys, time
box, wrong, turn = sys.argv[1], 0, 0
head, tail = os.urandom(8192), os.urandom(65536)
reading = os.open("both", os.O_RDONLY)
behind = os.open(f"{box}/both", os.O_RDWR)
end = time.monotonic() + 4
while time.monotonic() < end:
    turn += 1
    os.ftruncate(behind, 232)
    time.sleep(0.01)
    os.pread(reading, 232, 0)
    os.fstat(reading)
    writing = os.open("both", os.O_WRONLY | os.O_APPEND)
    os.pwrite(behind, head, 0)
    until = time.monotonic() + turn % 24 * 0.0005
    while time.monotonic() < until:
        pass
    os.write(writing, tail)
    os.close(writing)
    wrong += os.pread(behind, 1 << 17, 0) != head + tail
print(wrong)
END
echo x >both
sync_sides
is appended-while-it-grew "$(timeout 20 python3 both.py "$BOX" 2>&1 | tail -1)" 0

# What the sandbox appends is there for whoever has mapped more than there was: no read() asks for the
# size first, and beyond the one that is known a mapping answers SIGBUS.
cat >grown.py <<'END'
import mmap, os, signal, subprocess
def turn(size, more, access, stores):
    name = f"grown-{size}-{more}-{access}-{stores}"
    with open(name, "wb") as f:
        f.write(b"a" * size)
    fd = os.open(name, os.O_RDWR)
    os.ftruncate(fd, 1 << 16)  # Python maps no more than there is
    with mmap.mmap(fd, 1 << 16, access=access) as m:
        os.ftruncate(fd, size)
        m[0]
        if stores:
            m[0:1] = b"a"
        for i in range(1, 4):
            subprocess.run(["pai-exec", "sh", "-c", 'head -c "$1" /dev/zero | tr "\\0" "$2" >>"$3"',
                            "sh", str(more), str(i), name], check=True)
            want = b"a" * size + b"".join(b"%d" % n * more for n in range(1, i + 1))
            got = m[len(want) - 1:len(want)] + m[:len(want)]
            if got != want[-1:] + want:
                return f"{name}: {len(want)} bytes are wrong"
    os.close(fd)
    return None
for size in (1, 100, 4095, 4096, 4097):
    for more in (1, 3000, 4096, 4097):
        for access, stores in ((mmap.ACCESS_READ, False), (mmap.ACCESS_WRITE, False), (mmap.ACCESS_WRITE, True)):
            pid = os.fork()
            if pid == 0:
                why = turn(size, more, access, stores)
                print(why or "", end="", flush=True)
                os._exit(1 if why else 0)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if status < 0:
                print(f"{size} and {more}, {access}, {stores}: {signal.Signals(-status).name}")
END
is grown-under-a-mapping "$(timeout 80 python3 grown.py 2>&1 | head -3)" ""

# What this side alone does is seen by this side, whatever is being told about it.
cat >links.py <<'END'
import os
wrong = 0
for i in range(300):
    os.close(os.open("x", os.O_CREAT | os.O_WRONLY))
    os.lstat("x")
    os.rename("x", "y")
    os.lstat("y")
    os.link("y", "z")
    wrong += (os.lstat("z").st_nlink, os.lstat("y").st_nlink) != (2, 2)
    os.unlink("y")
    wrong += os.lstat("z").st_nlink != 1
    os.unlink("z")
print(wrong)
END
is own-links-are-counted "$(python3 links.py)" 0
# Who stands in a directory that the sandbox has moved, and that somebody has seen where it is now.
mkdir from && touch from/x
cat >stands.py <<'END'
import os, subprocess
top = os.getcwd()

def sandbox(text):
    subprocess.run(["pai-exec", "--", "sh", "-c", text], check=True, cwd=top)
    return os.path.exists("x"), os.path.exists("y"), sorted(os.listdir(top + "/to"))

os.mkdir("to")
os.chdir("from")
said = [sandbox("true"), sandbox("rmdir to && mv from to"), sandbox("cd to && rm x && touch y"),
        sandbox("cd to && mv y x")]
print(*said)
END
is stands-in-what-moved "$(python3 stands.py 2>&1 | tail -1)" \
	"(True, False, []) (True, False, ['x']) (False, True, ['y']) (True, False, ['x'])"

# Listings stay in the kernel: a directory that is held open shows what the sandbox does, too.
mkdir held && touch held/a
cat >held.py <<'END'
import ctypes, os, subprocess
libc = ctypes.CDLL(None, use_errno=True)
libc.opendir.restype = libc.readdir.restype = ctypes.c_void_p
libc.opendir.argtypes = [ctypes.c_char_p]
for call in (libc.readdir, libc.rewinddir, libc.closedir):
    call.argtypes = [ctypes.c_void_p]
NAME = 19 # offsetof(struct dirent, d_name)

def names(stream):
    libc.rewinddir(stream)
    found = set()
    ctypes.set_errno(0)
    while entry := libc.readdir(stream):
        found.add(ctypes.string_at(entry + NAME).decode())
    assert ctypes.get_errno() == 0, os.strerror(ctypes.get_errno())
    return found - {".", ".."}

def sandbox(*argv):
    subprocess.run(["pai-exec", "--", *argv], check=True)

one, two = libc.opendir(b"held"), libc.opendir(b"held")
for i in range(30):
    mine, theirs = f"mine{i}", f"theirs{i}"
    for stream in (one, two):
        names(stream)
    open(f"held/{mine}", "w").close()
    for found in (names(one), set(os.listdir("held"))):
        assert mine in found, found
    sandbox("sh", "-c", f"rm held/{mine}; mkdir held/{theirs}")
    for found in (names(two), names(one), set(os.listdir("held"))):
        assert theirs in found and mine not in found, (i, found)
sandbox("sh", "-c", "mv held moved; touch moved/later")
assert "later" in names(one)
sandbox("rm", "-r", "moved")
assert names(one) == set(), "of a directory that is gone"
print("exact")
END
is held-listing "$(python3 held.py 2>&1 | tail -1)" exact

# Who deletes as he reads meets every name, and so does who reads while somebody else deletes.
mkdir wide && (cd wide && seq 3000 | xargs touch)
for i in 1 2; do ls wide | wc -l; done >counts
is wide-listing "$(sort -u counts)" 3000
cat >walk.py <<'END'
import os
met = set()
for entry in os.scandir("wide"):
    met.add(entry.name)
    if int(entry.name) % 2:
        os.unlink(entry.path)
print(len(met), len(os.listdir("wide")))
END
is delete-as-you-read "$(python3 walk.py)" "3000 1500"
cat >meet.py <<'END'
import os, subprocess
os.listdir("wide")
walk = os.scandir("wide")
met = {next(walk).name}
subprocess.run(["pai-exec", "--", "sh", "-c", "cd wide && rm ?0 ??0 ???0 && touch x y z"], check=True)
met |= {entry.name for entry in walk}
print(len([n for n in range(2, 3001, 2) if n % 10 and str(n) not in met]))
END
is met-once-while-others-delete "$(python3 meet.py)" 0

# Who lists while names come and go reads the directory once, not once for each page of it.
cat >busy.py <<'END'
import os, subprocess, sys, time

def walk():
    start = time.monotonic()
    assert len(os.listdir("crowd")) >= int(sys.argv[1]) - 1
    return time.monotonic() - start

walk()
os.unlink("crowd/1")
quiet = walk()
churn = subprocess.Popen(["pai-exec", "--", "sh", "-c", """cd crowd; echo
    while :; do : >new; rm new; done"""], stdout=subprocess.PIPE)
churn.stdout.readline()
busy = walk()
churn.terminate()
churn.wait()
print(f"{quiet:.3f} {busy:.3f}" if busy > 5 * quiet else "soon")
END
mkdir crowd
crowd=$(short_or_long 5000 100000)
sandbox sh -c "cd crowd && seq $crowd | xargs touch"
is listed-while-busy "$(timeout 40 python3 busy.py "$crowd")" soon
stop
exit $failed
