#!/usr/bin/env python3
# timeout 90
"""System calls at their edges: the same list on the mount and on a plain directory of the same file
system; each answer (errno or effect) must be the same. Where it must not, DIFFERS says so and why."""
import ctypes
import errno
import fcntl
import mmap
import os
import stat
import struct
import sys

import hold_world as w

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
LIBC.pwrite.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_long]
LIBC.pread.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_long]
LIBC.truncate.argtypes = [ctypes.c_char_p, ctypes.c_long]
LIBC.lseek.argtypes = [ctypes.c_int, ctypes.c_long, ctypes.c_int]
LIBC.lseek.restype = ctypes.c_long
LIBC.pread.restype = LIBC.pwrite.restype = ctypes.c_ssize_t
LIBC.copy_file_range.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p,
                                 ctypes.c_size_t, ctypes.c_uint]
LIBC.copy_file_range.restype = ctypes.c_ssize_t
MAX = (1 << 63) - 1
RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4
KEEP, PUNCH, COLLAPSE, ZERO, INSERT, UNSHARE = 1, 2, 8, 16, 32, 64

lines = []
asked = ""


def say(what, fn, *args, **kw):
    """Notes the answer of one call, which is fn's; returns it. "  x" is said of the one before."""
    global asked
    if what.startswith("  "):
        what = f"{asked},{what[1:]}"
    else:
        asked = what
    try:
        answer = fn(*args, **kw)
        shown = answer
    except OSError as e:
        answer, shown = None, errno.errorcode.get(e.errno, e.errno)
    lines.append(f"{what}: {shown!r}")
    return answer


def sys_(fn, *args):
    """A call of libc, its errno raised."""
    ctypes.set_errno(0)
    r = fn(*args)
    if r < 0:
        raise OSError(ctypes.get_errno(), "")
    return r


def opened(path, flags, mode=0o644):
    os.close(os.open(path, flags, mode))
    return "opened"


def fill(path, data=b"0123456789"):
    with open(path, "wb") as f:
        f.write(data)
    return path


def look(path):
    st = os.lstat(path)
    return stat.filemode(st.st_mode), st.st_nlink, st.st_size


def link_open(fd, name):
    return link_through(f"/proc/self/fd/{fd}", name)


def link_through(path, name):
    """os.link() takes follow_symlinks for the default, which it is not."""
    return sys_(LIBC.linkat, -100, os.fsencode(path), -100, os.fsencode(name), 0x400)


def renameat2(a, b, flags):
    return sys_(LIBC.renameat2, -100, os.fsencode(a), -100, os.fsencode(b), flags)


def links():
    fill("f")
    os.mkdir("d")
    for i in range(45):
        os.symlink("f" if i == 0 else f"c{i - 1}", f"c{i}")
    for i in (0, 38, 39, 40, 44):
        say(f"open a chain of {i + 1}", opened, f"c{i}", os.O_RDONLY)
    os.symlink("loop", "loop")
    os.symlink("nothing", "dangling")
    os.symlink("d", "to-d")
    os.symlink("f", "to-f")
    say("open a loop", opened, "loop", os.O_RDONLY)
    say("O_NOFOLLOW on a link", opened, "to-f", os.O_RDONLY | os.O_NOFOLLOW)
    say("O_NOFOLLOW|O_DIRECTORY on a link", opened, "to-d",
        os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
    say("O_PATH|O_NOFOLLOW on a link", opened, "to-f", os.O_PATH | os.O_NOFOLLOW)
    say("O_EXCL on a link", opened, "to-f", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    say("O_EXCL on a dangling link", opened, "dangling", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    say("O_CREAT|O_NOFOLLOW on a dangling link", opened, "dangling",
        os.O_CREAT | os.O_NOFOLLOW | os.O_WRONLY)
    say("O_CREAT through a dangling link", opened, "dangling", os.O_CREAT | os.O_WRONLY)
    say("what it made", look, "nothing")
    say("mkdir on a link", os.mkdir, "to-f")
    say("mkdir on a dangling link", os.mkdir, "loop")
    say("symlink over a link", os.symlink, "x", "to-f")
    say("symlink of nothing", os.symlink, "", "empty")
    for size in (4095, 4096):
        say(f"a link of {size} bytes", os.symlink, "x" * size, f"l{size}")
    say("its length", lambda: len(os.readlink("l4095")))
    say("its size", lambda: os.lstat("l4095").st_size)
    say("link(2) of a link", os.link, "to-f", "hard", follow_symlinks=False)
    say("it is a link", look, "hard")
    say("link(2) through a link", link_through, "to-f", "hard2")
    say("it is a file", look, "hard2")
    say("link of a directory", os.link, "d", "hard-d")
    say("link over a file", os.link, "f", "hard2")
    say("readlink of a file", os.readlink, "f")
    say("rmdir of a link to a directory", os.rmdir, "to-d")
    say("a slash behind a link to a file", os.stat, "to-f/")
    say("unlink with a slash", os.unlink, "to-d/")
    say("chmod of a link itself", sys_, LIBC.fchmodat, -100, b"to-f", 0o600, 0x100)
    say("times of a link itself", os.utime, "to-f", ns=(1, 2), follow_symlinks=False)
    say("they are there", lambda: os.lstat("to-f").st_mtime_ns)
    say("user xattr on a link", os.setxattr, "to-f", "user.x", b"1", follow_symlinks=False)


def names():
    fill("f")
    os.mkdir("d")
    os.mkdir("d/e")
    fill("d/e/f")
    say("rename over itself", os.rename, "f", "f")
    say("rename a directory over itself", os.rename, "d", "d")
    say("rename into its own child", os.rename, "d", "d/e/x")
    say("rename over its own parent", os.rename, "d/e", "d")
    say("rename a directory over a file", os.rename, "d", "f")
    say("rename a file over a directory", os.rename, "f", "d")
    say("rename to .", os.rename, "d", "d/.")
    say("rename ..", os.rename, "d/e/..", "x")
    say("rename of nothing", os.rename, "nothing", "x")
    say("rename with a slash behind a file", os.rename, "f", "x/")
    os.link("f", "f2")
    say("rename over another name of the same", os.rename, "f", "f2")
    say("both are there", lambda: sorted(os.listdir(".")))
    say("NOREPLACE", renameat2, "f", "f2", RENAME_NOREPLACE)
    say("NOREPLACE|EXCHANGE", renameat2, "f", "f2", RENAME_NOREPLACE | RENAME_EXCHANGE)
    say("EXCHANGE with nothing", renameat2, "f", "nothing", RENAME_EXCHANGE)
    say("EXCHANGE with a directory", renameat2, "f", "d", RENAME_EXCHANGE)
    say("exchanged", lambda: (look("f")[0], look("d")[0]))
    say("EXCHANGE with its own child", renameat2, "f", "f/e", RENAME_EXCHANGE)
    say("EXCHANGE back", renameat2, "f", "d", RENAME_EXCHANGE)
    say("WHITEOUT", renameat2, "f2", "f3", RENAME_WHITEOUT)
    say("flags nobody knows", renameat2, "f", "x", 64)
    say("mkdir .", os.mkdir, ".")
    say("mkdir d/..", os.mkdir, "d/..")
    say("rmdir .", os.rmdir, "d/.")
    say("rmdir ..", os.rmdir, "d/e/..")
    say("rmdir of one that is full", os.rmdir, "d")
    say("rmdir of a file", os.rmdir, "f")
    say("unlink of a directory", os.unlink, "d")
    say("unlink of .", os.unlink, "d/.")
    say("a file as a directory", os.stat, "f/x")
    say("a file with a slash", os.stat, "f/")
    say("create with a slash", opened, "new/", os.O_CREAT | os.O_WRONLY)
    say("the empty name", opened, "", os.O_CREAT | os.O_WRONLY)
    for size in (255, 256, 4096):
        name = "n" * size
        say(f"create {size}", opened, name, os.O_CREAT | os.O_WRONLY)
        say(f"mkdir {size}", os.mkdir, "m" * size)
        say(f"stat {size}", lambda: look(name))
        say(f"rename {size}", os.rename, "f", name)
        say(f"and back {size}", os.rename, name, "f")
        say(f"symlink {size}", os.symlink, "x", "s" * size)
        say(f"link {size}", os.link, "f", "l" * size)
        say(f"unlink {size}", os.unlink, "l" * size)
        say(f"mknod {size}", os.mknod, "k" * size, 0o644 | stat.S_IFREG)


def opens():
    fill("f")
    os.mkdir("d")
    for name, flags in {
            "O_DIRECTORY on a file": os.O_RDONLY | os.O_DIRECTORY,
            "O_CREAT|O_EXCL": os.O_CREAT | os.O_EXCL | os.O_WRONLY,
            "O_TRUNC on O_RDONLY": os.O_RDONLY | os.O_TRUNC,
            "O_APPEND|O_TRUNC": os.O_WRONLY | os.O_APPEND | os.O_TRUNC,
            "O_ACCMODE": 3, "O_PATH|O_TRUNC": os.O_PATH | os.O_TRUNC,
            "O_SYNC": os.O_WRONLY | os.O_SYNC, "O_NONBLOCK": os.O_RDONLY | os.O_NONBLOCK,
            "O_NOATIME": os.O_RDONLY | os.O_NOATIME, "all high bits": os.O_RDONLY | 0x40000000,
            "O_ASYNC": os.O_RDONLY | 0o20000, "O_NOCTTY": os.O_RDONLY | os.O_NOCTTY}.items():
        fill("f")
        say(name, opened, "f", flags)
        say("  it is now", look, "f")
    for name, flags in {"O_RDWR": os.O_RDWR, "O_WRONLY": os.O_WRONLY,
                        "O_CREAT": os.O_CREAT | os.O_RDONLY,
                        "O_TRUNC": os.O_RDONLY | os.O_TRUNC,
                        "O_CREAT|O_DIRECTORY": os.O_CREAT | os.O_DIRECTORY | os.O_RDONLY}.items():
        say(name + " on a directory", opened, "d", flags)
    say("O_CREAT|O_DIRECTORY on nothing", opened, "n", os.O_CREAT | os.O_DIRECTORY)
    say("  it is now", os.path.lexists, "n")
    say("O_TMPFILE|O_RDONLY", opened, "d", os.O_TMPFILE)
    say("O_TMPFILE on a file", opened, "f", os.O_TMPFILE | os.O_RDWR)

    def unnamed():
        fd = os.open("d", os.O_TMPFILE | os.O_RDWR, 0o640)
        os.write(fd, b"unnamed")
        before = os.fstat(fd).st_nlink
        link_open(fd, "d/named")
        os.close(fd)
        return before, look("d/named"), w.get("d/named")
    say("O_TMPFILE, linked", unnamed)

    def unnamed_only():
        fd = os.open("d", os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o640)
        link_open(fd, "d/named2")
    say("O_TMPFILE|O_EXCL, linked", unnamed_only)
    for kind, mode in (("a FIFO", stat.S_IFIFO), ("a socket", stat.S_IFSOCK)):
        name = kind.replace(" ", "-")
        say(f"mknod {kind}", os.mknod, name, mode | 0o644)
        say("  it is", look, name)
    say("mknod of a file", os.mknod, "plain", stat.S_IFREG | 0o640)
    say("  it is", look, "plain")
    say("mknod of a directory", os.mknod, "dir", stat.S_IFDIR | 0o755)
    say("mknod of a link", os.mknod, "lnk", stat.S_IFLNK | 0o777)
    say("mknod over a file", os.mknod, "f", stat.S_IFIFO | 0o644)
    say("open a FIFO to write, nobody reads", opened, "a-FIFO", os.O_WRONLY | os.O_NONBLOCK)
    say("open a FIFO to read", opened, "a-FIFO", os.O_RDONLY | os.O_NONBLOCK)
    say("open a socket", opened, "a-socket", os.O_RDONLY)
    say("truncate a FIFO", os.truncate, "a-FIFO", 0)

    def direct():
        fd = os.open("f", os.O_RDWR | os.O_DIRECT)
        block = mmap.mmap(-1, 8192)
        block[:8192] = b"d" * 8192
        wrote = os.write(fd, block)
        block[:8192] = b"\0" * 8192
        read = os.preadv(fd, [block], 4096)
        return wrote, read, block[:5]
    say("O_DIRECT", direct)


def sizes():
    fill("f")
    fd = os.open("f", os.O_RDWR)
    for name, at in {"2^63-2": MAX - 1, "2^63-1": MAX, "-1": -1, "2^62": 1 << 62,
                     "2^44": 1 << 44}.items():
        say(f"pwrite at {name}", sys_, LIBC.pwrite, fd, b"xy", 2, at)
        say(f"pread at {name}", sys_, LIBC.pread, fd, ctypes.create_string_buffer(2), 2, at)
    say("the size after", lambda: os.fstat(fd).st_size)
    os.ftruncate(fd, 10)
    for name, size in {"-1": -1, "2^63-1": MAX, "2^62": 1 << 62, "2^44": 1 << 44, "0": 0,
                       "4097": 4097}.items():
        say(f"truncate {name}", sys_, LIBC.truncate, b"f", size)
        say(f"ftruncate {name}", os.ftruncate, fd, size)
        say("  is", lambda: os.stat("f").st_size)
        say("  starts with", lambda: os.pread(fd, 3, 0))
    say("truncate a directory", os.truncate, ".", 0)
    say("truncate nothing", os.truncate, "nothing", 0)
    ro = os.open("f", os.O_RDONLY)
    say("ftruncate a read-only descriptor", os.ftruncate, ro, 0)
    say("write to a read-only descriptor", os.write, ro, b"x")
    say("write of nothing", os.write, fd, b"")
    say("read of nothing", os.read, fd, 0)
    say("read past the end", os.pread, fd, 10, 5000)
    wo = os.open("f", os.O_WRONLY)
    say("read of a write-only descriptor", os.read, wo, 1)
    say("read a directory", lambda: os.read(os.open(".", os.O_RDONLY), 1))
    say("lseek past the end", os.lseek, fd, 1 << 40, os.SEEK_SET)
    say("  write there", os.write, fd, b"far")
    say("  is", lambda: os.fstat(fd).st_size)
    say("lseek negative", os.lseek, fd, -1, os.SEEK_SET)
    say("lseek before the start", os.lseek, fd, -(1 << 50), os.SEEK_END)
    say("lseek whence 9", os.lseek, fd, 0, 9)
    os.ftruncate(fd, 0)
    os.ftruncate(fd, 1 << 20)
    os.pwrite(fd, b"d" * 4096, 65536)
    for name, at in {"0": 0, "65536": 65536, "70000": 70000, "the end": 1 << 20, "-1": -1,
                     "past it": 1 << 21}.items():
        say(f"SEEK_DATA {name}", sys_, LIBC.lseek, fd, at, os.SEEK_DATA)
        say(f"SEEK_HOLE {name}", sys_, LIBC.lseek, fd, at, os.SEEK_HOLE)
    ap = os.open("f", os.O_WRONLY | os.O_APPEND)
    os.ftruncate(fd, 3)
    say("pwrite with O_APPEND", os.pwrite, ap, b"end", 0)
    say("  is", lambda: os.pread(fd, 10, 0))


def space():
    fill("f", b"abcd" * 4096)
    fd = os.open("f", os.O_RDWR)

    def allocate(mode, at, size, on=fd):
        return sys_(LIBC.fallocate, on, mode, at, size)

    def state():
        return os.fstat(fd).st_size, bytes(sorted(set(os.pread(fd, 1 << 20, 0))))
    for name, args in {
            "plain, longer": (0, 16384, 4096), "KEEP_SIZE past the end": (KEEP, 1 << 16, 4096),
            "PUNCH|KEEP": (PUNCH | KEEP, 4096, 4096), "PUNCH alone": (PUNCH, 4096, 4096),
            "PUNCH past the end": (PUNCH | KEEP, 1 << 20, 4096),
            "ZERO": (ZERO, 0, 4096), "ZERO|KEEP": (ZERO | KEEP, 8192, 4096),
            "UNSHARE": (UNSHARE, 0, 4096), "length 0": (0, 0, 0), "length -1": (0, 0, -1),
            "offset -1": (0, -1, 1), "too far": (0, MAX - 10, 100), "mode 4096": (4096, 0, 1),
            "more than there is": (0, 0, 1 << 53)}.items():
        say(name, allocate, *args)
        say("  is", state)
    for name, mode in {"COLLAPSE": COLLAPSE, "INSERT": INSERT}.items():
        say(name, allocate, mode, 1, 10)  # unaligned: nothing is done there either
    say("read-only descriptor", lambda: allocate(0, 0, 1, os.open("f", os.O_RDONLY)))
    say("a directory", lambda: allocate(0, 0, 1, os.open(".", os.O_RDONLY)))
    say("posix_fallocate", os.posix_fallocate, fd, 0, 1 << 18)
    say("  is", state)


def copies():
    fill("a", b"0123456789" * 1000)
    fill("b", b"")
    a, b = os.open("a", os.O_RDWR), os.open("b", os.O_RDWR)

    def copy(size, at, to, source=a, target=b):
        at = ctypes.byref(ctypes.c_int64(at))
        to = ctypes.byref(ctypes.c_int64(to))
        return sys_(LIBC.copy_file_range, source, at, target, to, size, 0)
    for name, args in {"all": (10000, 0, 0), "past the end": (10, 20000, 0),
                       "over the end": (10000, 5000, 0), "to a hole": (10, 0, 50000),
                       "nothing": (0, 0, 0), "offset -1": (1, -1, 0), "to -1": (1, 0, -1),
                       "to 2^63-2": (10, 0, MAX - 1)}.items():
        say(name, copy, *args)
        say("  is", lambda: (os.fstat(b).st_size, hash(os.pread(b, 1 << 20, 0)) and
                             os.pread(b, 20, 49995)))
    say("within one file", copy, 100, 0, 9000, a, a)
    say("overlapping", copy, 100, 0, 50, a, a)
    say("from a write-only", lambda: copy(1, 0, 0, os.open("a", os.O_WRONLY)))
    say("to a read-only", lambda: copy(1, 0, 0, a, os.open("b", os.O_RDONLY)))
    say("to an O_APPEND", lambda: copy(1, 0, 0, a, os.open("b", os.O_WRONLY | os.O_APPEND)))
    say("from a directory", lambda: copy(1, 0, 0, os.open(".", os.O_RDONLY)))
    say("with flags", lambda: sys_(LIBC.copy_file_range, a, None, b, None, 1, 1))


def locks():
    fill("f")
    fd = os.open("f", os.O_RDWR)
    ro = os.open("f", os.O_RDONLY)

    def lock(on, kind, start=0, size=0, whence=0, cmd=fcntl.F_SETLK):
        return fcntl.fcntl(on, cmd, struct.pack("hhqqi4x", kind, whence, start, size, 0))[:2]

    def in_other(fn, *args):
        name, _ = w.errno_of(fn, *args, seconds=5)
        return name
    say("write lock on read-only", lock, ro, fcntl.F_WRLCK)
    say("kind 7", lock, fd, 7)
    say("whence 7", lock, fd, fcntl.F_WRLCK, 0, 0, 7)
    say("start -1", lock, fd, fcntl.F_WRLCK, -1)
    say("length -5 at 10", lock, fd, fcntl.F_WRLCK, 10, -5)
    say("other at 5", in_other, lock, fd, fcntl.F_WRLCK, 5, 1)
    say("other at 4", in_other, lock, fd, fcntl.F_WRLCK, 4, 1)
    say("other at 10", in_other, lock, fd, fcntl.F_WRLCK, 10, 1)
    say("over 2^63", lock, fd, fcntl.F_WRLCK, MAX, 2)
    say("to the end of all", lock, fd, fcntl.F_WRLCK, 100)
    say("other far", in_other, lock, fd, fcntl.F_RDLCK, MAX, 1)
    say("unlock the middle", lock, fd, fcntl.F_UNLCK, 1000, 1000)
    say("other in it", in_other, lock, fd, fcntl.F_WRLCK, 1500, 100)
    say("other beside", in_other, lock, fd, fcntl.F_WRLCK, 1500, 501)
    say("unlock", lock, fd, fcntl.F_UNLCK)

    def deadlock():
        lock(fd, fcntl.F_WRLCK, 0, 1)
        reader, writer = os.pipe()

        def other():
            mine = os.open("f", os.O_RDWR)
            lock(mine, fcntl.F_WRLCK, 1, 1)
            os.write(writer, b"x")
            lock(mine, fcntl.F_WRLCK, 0, 1, 0, fcntl.F_SETLKW)
            return "had both"
        child = w.Child(other)
        os.read(reader, 1)
        # It waits for byte 0 as soon as it is asleep.
        w.wait_for(lambda: w.get(f"/proc/{child.pid}/stat").rsplit(b")")[1].split()[0] == b"S")
        try:
            lock(fd, fcntl.F_WRLCK, 1, 1, 0, fcntl.F_SETLKW)
            answer = "granted"
        except OSError as e:
            answer = errno.errorcode[e.errno]
        lock(fd, fcntl.F_UNLCK)
        return answer, child.wait(5)
    say("deadlock", deadlock)
    say("flock", fcntl.flock, fd, fcntl.LOCK_EX)
    say("flock by another", lambda: in_other(
        lambda: fcntl.flock(os.open("f", os.O_RDONLY), fcntl.LOCK_SH | fcntl.LOCK_NB)))
    say("flock twice", fcntl.flock, fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    say("flock operation 99", lambda: sys_(LIBC.flock, fd, 99))
    say("flock of a directory", lambda: fcntl.flock(os.open(".", os.O_RDONLY), fcntl.LOCK_EX))
    say("lock of a directory", lambda: lock(os.open(".", os.O_RDONLY), fcntl.F_RDLCK))
    say("open file description lock", lock, fd, fcntl.F_WRLCK, 0, 1, 0, 37)
    say("  by another description", lambda: lock(os.open("f", os.O_RDWR), fcntl.F_WRLCK, 0, 1, 0, 37))
    fill("g")
    before = os.open("g", os.O_RDONLY)
    mine = os.open("g", os.O_RDWR)
    lock(mine, fcntl.F_WRLCK)
    os.close(os.open("g", os.O_RDONLY))
    say("of another, when one opened since was closed", in_other, lock, mine, fcntl.F_WRLCK)
    lock(mine, fcntl.F_WRLCK)
    os.close(before)
    say("of another, when one opened before was closed", in_other, lock, mine, fcntl.F_WRLCK)


def xattrs():
    fill("f")
    os.mkdir("d")
    for path in ("f", "d"):
        for name, (key, value, flags) in {
                "plain": ("user.a", b"1", 0), "empty": ("user.empty", b"", 0),
                "CREATE again": ("user.a", b"2", os.XATTR_CREATE),
                "REPLACE none": ("user.none", b"2", os.XATTR_REPLACE),
                "bad flags": ("user.a", b"2", 64),
                "65536 bytes": ("user.big", b"x" * 65536, 0),
                "65537 bytes": ("user.big", b"x" * 65537, 0),
                "3000 bytes": ("user.some", b"x" * 3000, 0),
                "no namespace": ("a", b"1", 0), "user. alone": ("user.", b"1", 0),
                "another": ("bogus.a", b"1", 0),
                "255": ("user." + "k" * 250, b"1", 0), "256": ("user." + "k" * 251, b"1", 0),
                "not UTF-8": (b"user.\xff\x01\n", b"\0\xff", 0)}.items():
            say(f"set {name} on {path}", os.setxattr, path, key, value, flags)
        say("list", lambda: sorted(os.listxattr(path)))
        say("get", os.getxattr, path, "user.a")
        say("get empty", os.getxattr, path, "user.empty")
        say("get some", lambda: len(os.getxattr(path, "user.some")))
        say("get bytes", os.getxattr, path, b"user.\xff\x01\n")
        say("get none", os.getxattr, path, "user.none")
        say("get into too little", lambda: sys_(LIBC.getxattr, path.encode(), b"user.some",
                                                ctypes.create_string_buffer(10), 10))
        say("list into too little", lambda: sys_(LIBC.listxattr, path.encode(),
                                                 ctypes.create_string_buffer(3), 3))
        say("remove", os.removexattr, path, "user.a")
        say("remove again", os.removexattr, path, "user.a")
    os.mkfifo("p")
    say("on a FIFO", os.setxattr, "p", "user.a", b"1")
    say("through O_PATH", lambda: os.setxattr(os.open("f", os.O_PATH), "user.a", b"1"))
    say("through O_RDONLY", lambda: os.setxattr(os.open("f", os.O_RDONLY), "user.a", b"1"))
    say("security.capability", os.getxattr, "f", "security.capability")


def times():
    fill("f")
    top = (1 << 34) * 10**9
    for name, ns in {"0": 0, "1 ns": 1, "-1 ns": -1, "1901": -(1 << 31) * 10**9,
                     "before it": -(1 << 31) * 10**9 - 1, "2038": (1 << 31) * 10**9,
                     "2106": (1 << 32) * 10**9 + 999999999, "2262": (1 << 63) - 1,
                     "after it": 1 << 63, "2446": top - (1 << 31) * 10**9 - 1,
                     "much later": top * 1000}.items():
        say(f"set {name}", os.utime, "f", ns=(ns, ns))
        say("  is", lambda: (os.stat("f").st_atime_ns, os.stat("f").st_mtime_ns))

    def utimens(a, b):
        return sys_(LIBC.utimensat, -100, b"f", struct.pack("qqqq", 5, a, 5, b), 0)
    now, omit = (1 << 30) - 1, (1 << 30) - 2
    os.utime("f", ns=(7, 8))
    say("omit both", utimens, omit, omit)
    say("omit one", utimens, omit, 3)
    say("  is", lambda: (os.stat("f").st_atime_ns, os.stat("f").st_mtime_ns))
    say("10^9 ns", utimens, 10**9, 0)
    say("-1 ns", utimens, -1, 0)
    say("now", utimens, now, now)
    say("  is equal", lambda: os.stat("f").st_atime_ns == os.stat("f").st_mtime_ns)
    say("NULL", lambda: sys_(LIBC.utimensat, -100, b"f", None, 0))


def modes():
    fill("f")
    os.mkdir("d")
    for path in ("f", "d"):
        for mode in (0, 0o7777, 0o4755, 0o2755, 0o1777, 0o644, 0o177777):
            say(f"chmod {mode:o} {path}", os.chmod, path, mode)
            say("  is", look, path)
    os.chmod("f", 0o6777)
    say("write keeps root's set-id bits", fill, "f", b"x")
    say("  is", look, "f")
    os.chmod("f", 0o6777)
    say("chown clears them", os.chown, "f", 0, 0)
    say("  is", look, "f")
    say("chown -1 -1", os.chown, "f", -1, -1)
    os.umask(0o777)
    say("create, umask 777", opened, "u", os.O_CREAT | os.O_WRONLY, 0o666)
    say("  is", look, "u")
    say("mkdir, umask 777", os.mkdir, "ud", 0o777)
    say("  is", look, "ud")
    os.umask(0)
    say("create 7777", opened, "all", os.O_CREAT | os.O_WRONLY, 0o7777)
    say("  is", look, "all")
    say("mkdir 7777", os.mkdir, "alld", 0o7777)
    say("  is", look, "alld")
    say("read of one removed", lambda: (os.open("all", os.O_RDONLY), os.unlink("all"))[1])


def held():
    """What is open outlives its name."""
    fill("f")
    os.mkdir("d")
    fd, dfd = os.open("f", os.O_RDWR), os.open("d", os.O_RDONLY)
    os.unlink("f")
    os.rmdir("d")
    say("stat of a file without a name", lambda: (os.fstat(fd).st_nlink, os.fstat(fd).st_size))
    say("write", os.pwrite, fd, b"more", 10)
    say("read", os.pread, fd, 100, 0)
    say("truncate", os.ftruncate, fd, 3)
    say("chmod", os.fchmod, fd, 0o600)
    say("xattr", os.setxattr, fd, "user.a", b"1")
    say("fsync", os.fsync, fd)
    say("open it again", lambda: os.read(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY), 9))
    say("link it", link_open, fd, "back")
    say("stat of a directory without a name", lambda: os.fstat(dfd).st_nlink)
    say("list", os.listdir, dfd)
    say("create in it", lambda: os.open("x", os.O_CREAT | os.O_WRONLY, dir_fd=dfd))
    say("mkdir in it", lambda: os.mkdir("x", dir_fd=dfd))
    say("stat in it", lambda: os.stat("x", dir_fd=dfd))
    say(".. of it", lambda: os.stat("..", dir_fd=dfd).st_ino == os.stat(".").st_ino)
    say("fsync of it", os.fsync, dfd)


def listing():
    os.mkdir("d")
    for i in range(300):
        fill(f"d/{i:03}", b"")

    def removed_while_read():
        seen = 0
        with os.scandir("d") as entries:
            for e in entries:
                os.unlink(e.path)
                seen += 1
        return seen, os.listdir("d")
    say("removed while it is read", removed_while_read)
    for i in range(100):
        fill(f"d/{i:03}", b"")
    os.mkdir("d/sub")
    os.symlink("x", "d/link")
    os.mkfifo("d/fifo")
    with os.scandir("d") as entries:
        say("kinds in it", lambda: sorted((e.name, e.is_dir(follow_symlinks=False), e.is_symlink(),
                                           e.is_file(follow_symlinks=False)) for e in entries
                                          if not e.name.isdigit()))
    say("links of it", lambda: os.stat("d").st_nlink)

    def again():
        fd = os.open("d", os.O_RDONLY)
        first = sorted(os.listdir(fd))  # on a duplicate, which shares the offset
        fill("d/new", b"")
        os.lseek(fd, 0, os.SEEK_SET)
        return len(first), len(os.listdir(fd))
    say("read again from the start", again)
    buffer = ctypes.create_string_buffer(4096)
    fd = os.open("d", os.O_RDONLY)
    say("getdents into 10 bytes", sys_, LIBC.syscall, 217, fd, buffer, 10)
    say("getdents of a file", lambda: sys_(LIBC.syscall, 217, os.open("d/new", os.O_RDONLY),
                                           buffer, 4096))
    say("write to a directory", os.write, fd, b"x")
    say("mmap of a directory", lambda: mmap.mmap(fd, 4096, mmap.MAP_SHARED, mmap.PROT_READ))
    say("lseek to the end", os.lseek, fd, 0, 9)


def mappings():
    fill("f", b"a" * 10000)
    fd = os.open("f", os.O_RDWR)

    def touch(at):
        """The signal that ends a process which stores there."""
        pid = os.fork()
        if pid == 0:
            m[at] = 1
            os._exit(0)
        return os.waitpid(pid, 0)[1] & 127
    os.ftruncate(fd, 1 << 20)
    m = mmap.mmap(fd, 1 << 20)
    say("past a cut", lambda: (os.ftruncate(fd, 10000), m[9999], m[12287])[1:])
    say("store past the last page", touch, 12288)
    say("store in the last page", touch, 12287)
    m[10000:12288] = b"z" * 2288  # in the last page, past the end
    m.flush()
    say("what was stored past the end is not there", lambda: (os.ftruncate(fd, 12288),
                                                              os.pread(fd, 5, 10000))[1])
    m[0:3] = b"new"
    say("a store is read at once", os.pread, fd, 5, 0)
    os.pwrite(fd, b"written", 100)
    say("a write is in the mapping", lambda: m[100:107])
    os.unlink("f")
    m[5:8] = b"end"
    m.flush()
    say("a store into one without a name", os.pread, fd, 3, 5)
    private = mmap.mmap(fd, 4096, mmap.MAP_PRIVATE)
    private[0:1] = b"P"
    say("a private store stays private", os.pread, fd, 1, 0)
    for name, flags, prot in (("shared, write, read-only", mmap.MAP_SHARED, mmap.PROT_WRITE),
                              ("private, write, read-only", mmap.MAP_PRIVATE, mmap.PROT_WRITE)):
        fill("g")
        say(name, lambda: bool(mmap.mmap(os.open("g", os.O_RDONLY), 10, flags,
                                         prot | mmap.PROT_READ)))
    say("write-only", lambda: bool(mmap.mmap(os.open("g", os.O_WRONLY), 10, mmap.MAP_SHARED,
                                             mmap.PROT_WRITE)))


def others():
    fill("f", b"0123456789")
    fd, out = os.open("f", os.O_RDWR), os.open("out", os.O_CREAT | os.O_RDWR)
    for name, flags in {"NOWAIT": 8, "APPEND": 16, "DSYNC": 2, "unknown": 1 << 20}.items():
        say(f"pwritev2 {name}", os.pwritev, fd, [b"x"], 0, flags)
        say("  is", lambda: os.fstat(fd).st_size)
    say("sendfile", os.sendfile, out, fd, 0, 100)
    say("  is", os.pread, out, 100, 0)
    reader, writer = os.pipe()
    say("splice out", os.splice, fd, writer, 5, 0)
    say("  got", os.read, reader, 10)
    os.write(writer, b"spliced")
    say("splice in", os.splice, reader, out, 7, None, 2)
    say("  is", os.pread, out, 100, 0)
    for name, advice in {"WILLNEED": 3, "DONTNEED": 4, "99": 99}.items():
        say(f"fadvise {name}", os.posix_fadvise, fd, 0, 0, advice)
    say("readahead", sys_, LIBC.readahead, fd, 0, 4096)
    say("sync_file_range", sys_, LIBC.sync_file_range, fd, 0, 0, 7)
    say("syncfs", sys_, LIBC.syncfs, fd)
    say("fdatasync", os.fdatasync, fd)
    say("FIONREAD", lambda: struct.unpack("i", fcntl.ioctl(fd, 0x541B, b"\0" * 4))[0])
    say("ioctl nobody knows", fcntl.ioctl, fd, 0x12345678)
    say("TCGETS", fcntl.ioctl, fd, 0x5401, b"\0" * 64)
    say("F_GETFL", lambda: fcntl.fcntl(fd, fcntl.F_GETFL) & (os.O_ACCMODE | os.O_APPEND))
    say("F_SETFL O_APPEND", fcntl.fcntl, fd, fcntl.F_SETFL, os.O_APPEND)
    say("  then pwrite", os.pwrite, fd, b"end", 0)
    say("  is", os.pread, fd, 100, 0)
    say("  off again", fcntl.fcntl, fd, fcntl.F_SETFL, 0)
    say("  then pwrite", os.pwrite, fd, b"START", 0)
    say("  is", os.pread, fd, 100, 0)
    for name, mode in {"X": 1, "R": 4, "W": 2, "RW": 6, "nothing": 0, "9": 9}.items():
        say(f"access {name} of an open file", sys_, LIBC.access, b"f", mode)
        say(f"access {name} of a directory", sys_, LIBC.access, b".", mode)
        say(f"access {name} of nothing", sys_, LIBC.access, b"nothing", mode)
    say("statvfs", lambda: (os.statvfs("f").f_namemax, os.statvfs("f").f_bsize))
    say("chdir to a file", os.chdir, "f")
    say("chdir without rights", lambda: (os.mkdir("shut"), os.chdir("f/.."))[0])
    say("openat2 BENEATH ..", lambda: sys_(LIBC.syscall, 437, -100, b"..",
                                           struct.pack("QQQ", os.O_RDONLY, 0, 8), 24))
    say("pathconf PATH_MAX", os.pathconf, "f", "PC_PATH_MAX")
    say("a long path", look, "./" * 2047 + "f")
    say("a path too long", look, "./" * 2048 + "f")
    say("execute a file that may not", lambda: os.execv("f", ["f"]))


GROUPS = [links, names, opens, sizes, space, copies, locks, xattrs, times, modes, held, listing,
          mappings, others]
# What is another answer here than there, and is meant to be.
UNKNOWN = "'ENOTSUP'"
TOP_NS = (1 << 63) - 1  # times are 64-bit nanoseconds: they end in 2262
DIFFERS = {
    # This libfuse has no tmpfile(); programs fall back on a name.
    "opens": {"O_TMPFILE, linked": UNKNOWN, "O_TMPFILE|O_EXCL, linked": UNKNOWN},
    # The kernel's FUSE knows KEEP_SIZE, PUNCH_HOLE and ZERO_RANGE.
    "space": {"COLLAPSE": UNKNOWN, "INSERT": UNKNOWN},
    # Its close is not told: README, "Locks".
    "locks": {"of another, when one opened before was closed": "'EAGAIN'"},
    "times": {f"set {name}, is": repr((TOP_NS, TOP_NS)) for name in ("after it", "2446", "much later")},
}


def transcript(group, top):
    os.umask(0o022)
    os.mkdir(f"{top}/{group.__name__}")
    os.chdir(f"{top}/{group.__name__}")
    group()
    return lines


def compare(group):
    there = w.in_child(transcript, group, PLAIN)
    here = w.in_child(transcript, group, daemon.top + "/k")
    meant = DIFFERS.get(group.__name__, {})
    wrong = []
    for mine, plain in zip(here, there):
        name, _, answer = mine.partition(": ")
        _, _, wanted = plain.partition(": ")
        if answer != meant.get(name, wanted):
            wrong.append(f"{name}: {answer}, not {meant.get(name, wanted)}")
    if len(here) != len(there):
        wrong.append(f"{len(here)} answers, {len(there)} on a plain directory")
    return " | ".join(wrong)


def title(group):
    return f"{group.__name__}: at their edges as on a plain directory"


w.begin(*map(title, GROUPS))
PLAIN = w.TMP + "/plain"
os.mkdir(PLAIN)
os.mkdir(w.TMP + "/box")
daemon = w.Daemon("local", "calls", *sys.argv[1:])
assert daemon.pai("create", "k", "-o", f"template={w.TMP}/box").returncode == 0
for g in GROUPS:
    w.case(title(g), compare, g)
raise SystemExit(w.finish())
