#!/usr/bin/env python3
# timeout 120
"""What a container leaves in its directory gives the host and other local users nothing, through the
mount and behind it: set-user-id files, devices, FIFOs, sockets, links."""
import errno
import os
import socket
import stat
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hold_world import (TMP, Daemon, begin, case, errno_of, finish, get, put, skip)  # noqa: E402
import docker_world  # noqa: E402

PYTHON = "/usr/bin/python3"  # not one of root's own
USER, OTHER = docker_world.USER, docker_world.USER + 1
ROOT = TMP + "/root"
WHO = "#include <stdio.h>\n#include <unistd.h>\nint main(void)\n{\n" \
      "\treturn printf(\"%d %d\\n\", (int)geteuid(), (int)getegid()) < 0;\n}\n"


def as_user(uid, *argv, **kw):
    # setpriv has its capabilities until it has executed something.
    return subprocess.run(["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", "sh",
                           "-c", 'exec "$@"', "sh", *argv],
                          capture_output=True, text=True, timeout=20, check=False, **kw)


def tried_by(uid, path, mode="rb"):
    """The errno's name of that user's open(), "" for success."""
    r = as_user(uid, PYTHON, "-c",
                "import errno,os,sys\ntry: os.open(sys.argv[1], os.O_RDONLY|os.O_NONBLOCK)\n"
                "except OSError as e: print(errno.errorcode[e.errno])", path)
    return r.stdout.strip() if r.returncode == 0 else r.stderr[-200:]


def behind():
    """The session's directory on this host."""
    (box,) = [p for p in os.listdir(ROOT) if os.path.isdir(f"{ROOT}/{p}/workspace")]
    return f"{ROOT}/{box}/workspace"


def inside(d, script):
    code, out, err, _ = d.run("sh", "-c", script)
    return code, out.decode(), err.decode()


def set_id(d, top):
    """Its text is its effective ids: who runs it stays who he is."""
    put(top + "/who", get(TMP + "/who"))
    code, out, err = inside(d, "chmod 6755 who && ls -l who | cut -c1-10 && ./who")
    if code or out != f"-rwsr-sr-x\n{USER} {USER}\n":
        return f"set-up: {code} {out} {err}"
    control = TMP + "/control"
    subprocess.run(["cp", TMP + "/who", control], check=True)
    os.chown(control, USER, USER)
    os.chmod(control, 0o6755)
    said = as_user(OTHER, control).stdout
    if said != f"{USER} {USER}\n":
        return f"this test can't fail here: {said!r}"
    said = as_user(OTHER, top + "/who").stdout
    if said != f"{OTHER} {OTHER}\n":
        return f"through the mount another user is {said!r}"
    r = as_user(OTHER, behind() + "/who")
    if r.returncode == 0:
        return f"behind the mount another user runs it: {r}"
    said = subprocess.run([behind() + "/who"], capture_output=True, text=True, check=True).stdout
    return None if said == "0 0\n" else f"behind the mount root becomes {said!r}"


def devices(d, top):
    code, out, err = inside(d, "mknod made b 7 0; mknod made c 1 5; test -e made && echo made; true")
    if code or out:
        return f"the container makes devices: {out} {err}"
    planted = behind() + "/zero"  # as if it could
    os.mknod(planted, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    os.chown(planted, USER, USER)
    try:
        for where, name in (("through the mount", errno_of(os.open, top + "/zero", os.O_RDONLY)[0]),
                            ("behind it", errno_of(os.open, planted, os.O_RDONLY)[0]),
                            ("through it, another", tried_by(OTHER, top + "/zero"))):
            if name not in ("EACCES", "EPERM"):
                return f"{where} it opens: {name or 'success'}"
        if stat.S_IMODE(os.lstat(top + "/zero").st_mode):
            return "it is shown with permissions"
        code, out, err = inside(d, "head -c 4 zero | wc -c")
        return None if out.strip() == "0" else f"the container reads it: {code} {out} {err}"
    finally:
        os.unlink(planted)


def fifos(d, top):
    code, out, err = inside(d, "mkfifo fifo && chmod 666 fifo; (echo from inside > fifo) >/dev/null 2>&1 & true")
    if code:
        return f"set-up: {code} {out} {err}"
    if stat.S_IMODE(os.lstat(top + "/fifo").st_mode):
        return "it is shown with permissions"
    name = tried_by(OTHER, top + "/fifo")
    if name != "EACCES":
        return f"another user opens it: {name or 'success'}"

    def read():  # root may: what the kernel has under that name is not the container's
        fd = os.open(top + "/fifo", os.O_RDONLY | os.O_NONBLOCK)
        return os.read(fd, 100)
    try:
        got = read()
    except OSError as e:
        got = errno.errorcode[e.errno]
    if got == b"from inside\n":
        return "bytes come through it"
    r = as_user(OTHER, "grep", "-r", "from inside", top)
    return None if r.returncode == 1 or "Permission denied" in r.stderr else f"grep -r: {r}"


def sockets(d, top):
    host = TMP + "/host.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(host)
        os.chmod(host, 0o777)
        listener.listen()
        code, out, err = inside(d, f"ln -s {host} out; nc -lU own >/dev/null 2>&1 & sleep 0.3; "
                                   "chmod 777 own; echo x | nc -U out 2>/dev/null && echo connected; true")
        if code or "connected" in out:
            return f"the container talks to a socket of the host: {out} {err}"
    connect = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])"
    for uid in (0, OTHER):
        for name in ("own", "out"):
            if as_user(uid, PYTHON, "-c", connect, f"{top}/{name}").returncode == 0:
                return f"uid {uid} connects to '{name}' through the mount"
    if as_user(OTHER, PYTHON, "-c", connect, behind() + "/own").returncode == 0:
        return "another user connects behind the mount"
    return None


def links(d, top):
    put(TMP + "/secret", b"of the host\n")
    os.chmod(TMP + "/secret", 0o644)
    code, out, err = inside(d, f"""
        ln -s {TMP}/secret abs; ln -s ../../../../../../../../../..{TMP}/secret rel; mkdir dir; ln -s / dir/slash
        ln -s dir/slash chain; ln -s /proc/self/root{TMP}/secret proc
        ln /run/pai/nonce hard 2>/dev/null && echo linked; ln /bin/busybox hard 2>/dev/null && echo linked
        true""")
    if code or out:
        return f"hard links to what is not the container's: {out} {err}"
    for uid in (0, OTHER):
        for path in ("abs", "rel", f"dir/slash{TMP}/secret", f"chain{TMP}/secret", "proc"):
            r = as_user(uid, "cat", f"{top}/{path}")
            if "of the host" in r.stdout or r.returncode == 0:
                return f"'{path}' leads uid {uid} out"
    if "of the host" in as_user(0, "grep", "-R", "-D", "skip", "of the host", top).stdout:
        return "grep -R is led out"
    code, out, err = inside(d, f"cat abs rel; ls /{TMP}")
    return None if code and "of the host" not in out else f"from inside: {code} {out}"


def main():
    begin("docker-escape")
    why = docker_world.why_not()
    if why:
        skip("docker-escape", why)
        return 0
    os.chmod(TMP, 0o711)
    with open(TMP + "/who.c", "w") as f:
        f.write(WHO)
    subprocess.run(["gcc", "-static", "-o", TMP + "/who", TMP + "/who.c"], check=True)
    with docker_world.Engine() as engine:
        d = Daemon("docker", "escape", *engine.options.split(","), "root=" + ROOT,
                   "allow_other", "default_permissions", "exec")
        os.mkdir(d.top + "/k")
        d.run("true")
        for fn in (set_id, devices, fifos, sockets, links):
            case(fn.__name__.replace("_", " "), fn, d, d.top + "/k")
        d.pai("kill", "k")
        d.stop()
        return finish()


sys.exit(main())
