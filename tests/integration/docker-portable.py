#!/usr/bin/env python3
# timeout 120
"""The mount over the contract's calls alone (-o helper=off), in a container that has busybox and
nothing else."""
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hold_world import Daemon, TMP, begin, case, errno_of, finish, get, put, skip  # noqa: E402
import docker_world  # noqa: E402


def inside(d, script, want):
    """None, or how what the sandbox says is not what was expected."""
    code, out, err, _ = d.run("sh", "-c", script)
    return None if (code, out.decode()) == (0, want) else f"{script}: {code} {out!r} {err!r}"


def files(d, top):
    put(top + "/f", b"from outside\n")
    why = inside(d, "cat f; stat -c %a f; echo from inside > g", "from outside\n644\n")
    if why:
        return why
    if get(top + "/g") != b"from inside\n":
        return "the mount does not have what the sandbox wrote"
    os.truncate(top + "/f", 4)
    with open(top + "/f", "ab") as f:
        f.write(b"!")
    os.chmod(top + "/f", 0o600)
    why = inside(d, "cat f; stat -c ' %a %s' f; ls /workspace", "from! 600 5\nf\ng\n")
    return why or (None if sorted(os.listdir(top)) == ["f", "g"] else os.listdir(top))


def names(d, top):
    os.mkdir(top + "/d", 0o750)
    os.mkdir(top + "/d/it's a\nname *")
    os.rename(top + "/g", top + "/d/h")
    os.rename(top + "/d", top + "/e")
    why = inside(d, "stat -c '%a %F' e; cat e/h; cd e; echo *", "750 directory\nfrom inside\nh it's a\nname *\n")
    if why:
        return why
    for fn, want in ((lambda: os.rmdir(top + "/e"), "ENOTEMPTY"),
                     (lambda: os.mkdir(top + "/e"), "EEXIST"),
                     (lambda: os.rename(top + "/f", top + "/e"), "EISDIR"),
                     (lambda: os.rename(top + "/e", top + "/f"), "ENOTDIR"),
                     (lambda: os.unlink(top + "/no"), "ENOENT"),
                     (lambda: os.rmdir(top + "/f"), "ENOTDIR")):
        if errno_of(fn)[0] != want:
            return f"{want} expected: {errno_of(fn)[0]}"
    os.rmdir(top + "/e/it's a\nname *")
    os.unlink(top + "/e/h")
    os.rmdir(top + "/e")
    return inside(d, "ls", "f\n")


def links(d, top):
    os.symlink("any 'text'\n", top + "/s")
    os.link(top + "/f", top + "/l")
    if os.readlink(top + "/s") != "any 'text'\n" or os.stat(top + "/l").st_nlink != 2:
        return f"{os.readlink(top + '/s')!r} {os.stat(top + '/l')}"
    if errno_of(lambda: os.link(top + "/f", top + "/l"))[0] != "EEXIST":
        return "linked twice"
    why = inside(d, "readlink s; stat -c %h f; rm s l", "any 'text'\n\n2\n")
    return why or (None if os.listdir(top) == ["f"] else os.listdir(top))


def times(d, top):
    os.utime(top + "/f", ns=(5 * 10**9 + 1, 1234567890123456789))
    s = os.stat(top + "/f")
    if (s.st_atime_ns, s.st_mtime_ns) != (5 * 10**9, 1234567890 * 10**9):
        return f"cut to seconds: {s}"
    before = time.time_ns() - 20 * 10**6  # the kernel's own clock is coarse
    os.utime(top + "/f")
    s = os.stat(top + "/f")
    if s.st_mtime_ns < before or s.st_mtime_ns > time.time_ns():
        return f"now is {s.st_mtime_ns}, not {before}"
    return inside(d, "stat -c %y f | cut -c20-29", f".{s.st_mtime_ns % 10**9:09}\n")


def main():
    begin("docker-portable")
    why = docker_world.why_not()
    if why:
        skip("docker-portable", why)
        return 0
    with docker_world.Engine() as engine:
        d = Daemon("docker", "portable", *engine.options.split(","), f"root={TMP}/root", "helper=off")
        try:
            os.mkdir(d.top + "/k")
            for fn in (files, names, links, times):
                case(fn.__name__, fn, d, d.top + "/k")
        finally:
            d.pai("kill", "k")
            d.stop()
    return finish()


sys.exit(main())
