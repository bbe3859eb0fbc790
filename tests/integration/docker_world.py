"""docker_world: a Docker engine of a test's own, and an image for it without a registry.

    with Engine() as e:         # e.socket, e.image, e.ask(method, path, body), e.options
    docker_world.py run CMD...  # runs CMD with PAI_DOCKER_SOCKET, _IMAGE, _USER, _OPTIONS; "skip"
                                # where no engine can run; the engine ends with it
    docker_world.py workspace TOP KEY   # where the files of a mounted session's container are

The engine is dockerd with data, sockets and network of its own (none), ended by its pid, with every
container that it still has. The image is busybox: a static program and its links.

host_image has no program of its own: host_runtime, which is runc, shows a container of it this
machine's /usr, read-only. So what a suite runs here it runs there too, without a copy.
"""
import ctypes
import glob
import http.client
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.parse

SECONDS = 20
PR_SET_CHILD_SUBREAPER = 36
USER = 4242  # made up: in no password file
PROGRAMS = ("dockerd", "containerd", "runc", "busybox")


def why_not():
    """Why no engine can run here; None: it can."""
    if os.geteuid() != 0:
        return "dockerd needs root"
    for program in PROGRAMS:
        if not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            return f"no {program} here"
    return None


class Connection(http.client.HTTPConnection):
    def __init__(self, path, timeout=SECONDS):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def busybox_tar():
    """A root file system: busybox and a link for each of its applets."""
    busybox = shutil.which("busybox")
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True,
                             check=True).stdout.split()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in ("bin", "dev", "etc", "proc", "run", "sys", "tmp", "workspace", "home"):
            info = tarfile.TarInfo(name)
            info.type, info.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(info)
        info = tar.gettarinfo(busybox, "bin/busybox")
        info.uid = info.gid = 0
        info.mode = 0o755
        with open(busybox, "rb") as f:
            tar.addfile(info, f)
        for applet in applets:
            info = tarfile.TarInfo("bin/" + applet)
            if applet != "busybox":
                info.type, info.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(info)
    return out.getvalue()


# What a container of host_image sees of this machine, where it is no link.
SHOWN = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc/alternatives")
RUNTIME = """#!/bin/sh
# runc, whose new containers see this machine's programs.
for word; do
	[ "$before" = --bundle ] && bundle=$word
	[ "$word" = create ] && creates=1
	before=$word
done
[ -z "$creates" ] || python3 -B "$0.py" "$bundle/config.json" || exit
exec runc "$@"
"""
RUNTIME_EDIT = """import json, os, sys
with open(sys.argv[1]) as f:
    config = json.load(f)
for name in %r:
    if os.path.isdir("/" + name) and not os.path.islink("/" + name):
        config["mounts"].insert(0, {"destination": "/" + name, "type": "bind", "source": "/" + name,
                                    "options": ["rbind", "ro", "rprivate"]})
with open(sys.argv[1], "w") as f:
    json.dump(config, f)
""" % (SHOWN,)


def host_tar():
    """A root file system of directories and links alone."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in ("dev", "etc", "proc", "run", "sys", "tmp", "workspace", "home", *SHOWN):
            info = tarfile.TarInfo(name)
            info.type, info.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            if os.path.islink("/" + name):
                info.type, info.linkname = tarfile.SYMTYPE, os.readlink("/" + name)
            elif name in SHOWN and not os.path.isdir("/" + name):
                continue
            tar.addfile(info)
        for name in ("etc/passwd", "etc/group"):
            tar.add("/" + name, name)
    return out.getvalue()


class Engine:
    image = "pai-test:busybox"
    host_image = "pai-test:host"
    host_runtime = "host"

    def __init__(self, arguments=()):
        self.arguments = list(arguments)  # more of dockerd's
        base = os.environ.get("PAI_TMP")
        self.dir = tempfile.mkdtemp(prefix="docker-", dir=base)
        self.socket = os.path.join(self.dir, "docker.sock")
        self.process = None
        self.pids = set()

    def __enter__(self):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        # Ended from outside it cleans up all the same.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        try:
            self.start()
            self.load()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        try:
            if self.is_up():
                self.remove_all()
        finally:
            self.stop()
            shutil.rmtree(self.dir, ignore_errors=True)

    @property
    def options(self):
        """As -o takes them."""
        return f"socket={self.socket},image={self.image},uid={USER}"

    def start(self):
        d = self.dir
        runtime = d + "/runtime"
        for path, text in ((runtime, RUNTIME), (runtime + ".py", RUNTIME_EDIT)):
            with open(path, "w") as f:
                f.write(text)
            os.chmod(path, 0o755)
        env = dict(os.environ, PATH=os.environ["PATH"] + ":/usr/sbin:/sbin")
        with open(os.path.join(d, "dockerd.log"), "ab") as log:
            # pylint: disable-next=consider-using-with
            self.process = subprocess.Popen(
                ["dockerd", "--iptables=false", "--bridge=none", "--data-root", d + "/data",
                 "--exec-root", d + "/exec", "--pidfile", d + "/pid", "-H", "unix://" + self.socket,
                 "--add-runtime", f"{self.host_runtime}={runtime}", *self.arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
        deadline = time.monotonic() + SECONDS
        while not self.is_up():
            if self.process.poll() is not None or time.monotonic() > deadline:
                with open(os.path.join(d, "dockerd.log"), errors="replace") as log:
                    raise RuntimeError("dockerd does not start: " + log.read()[-600:])
            time.sleep(0.02)
        # Whoever runs a test as that user may use it, and come to it.
        os.chmod(d, 0o711)
        os.chown(self.socket, 0, USER)
        self.note_pids()

    def note_pids(self):
        """containerd and the shims outlive a dockerd that is killed: they are ours to end."""
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                with open(path, "rb") as f:
                    if self.dir.encode() in f.read():
                        self.pids.add(int(path.split("/")[2]))
            except OSError:
                pass

    def stop(self):
        if self.process and self.process.poll() is None:
            self.note_pids()
            self.process.terminate()
            try:
                self.process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.note_pids()
        self.pids.discard(os.getpid())
        for pid in self.pids:
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    if self.dir.encode() in f.read():
                        os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        self.pids.clear()
        with open("/proc/self/mountinfo") as f:
            mounts = [line.split()[4] for line in f if self.dir in line.split()[4]]
        for mount in reversed(mounts):
            subprocess.run(["umount", "-l", mount], check=False)

    def kill(self):
        """As kill -9 of dockerd is: what it runs goes on until it is started again."""
        self.note_pids()
        self.process.kill()
        self.process.wait()
        # Its containerd ends with it. A dead one that nobody has reaped looks alive to the next.
        time.sleep(0.5)
        for pid in self.pids:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass

    def is_up(self):
        try:
            return self.ask("GET", "/_ping")[0] == 200
        except OSError:
            return False

    def ask(self, method, path, body=None, kind="application/json", timeout=SECONDS):
        c = Connection(self.socket, timeout)
        try:
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
            c.request(method, path, body, {"Content-Type": kind})
            answer = c.getresponse()
            return answer.status, answer.read()
        finally:
            c.close()

    def get(self, path):
        status, body = self.ask("GET", path)
        if status != 200:
            raise RuntimeError(f"GET {path}: {status} {body[:200]}")
        return json.loads(body)

    def containers(self):
        return self.get("/v1.41/containers/json?all=1")

    def load(self):
        for image, tar in ((self.image, busybox_tar()), (self.host_image, host_tar())):
            repo, tag = image.split(":")
            query = urllib.parse.urlencode({"fromSrc": "-", "repo": repo, "tag": tag})
            status, body = self.ask("POST", "/v1.41/images/create?" + query, tar,
                                    "application/x-tar")
            if status != 200 or b'"error"' in body:
                raise RuntimeError(f"image: {status} {body[:200]}")

    def remove(self, which):
        return self.ask("DELETE", f"/v1.41/containers/{which}?force=1&v=1")[0]

    def remove_all(self):
        for c in self.containers():
            self.remove(c["Id"])


def inspect(container):
    """What the engine of PAI_DOCKER_SOCKET says of it; None: there is none."""
    c = Connection(os.environ["PAI_DOCKER_SOCKET"])
    c.request("GET", f"/v1.41/containers/{container}/json")
    answer = c.getresponse()
    return json.loads(answer.read()) if answer.status == 200 else None


def containers(container):
    return [container] if inspect(container) else []


def workspace_of(top, key):
    """Where root finds, on this host, what is /workspace in the session's container."""
    found = inspect(os.getxattr(f"{top}/{key}", "user.pai.sandbox_id").decode())
    bound = [m["Source"] for m in found["Mounts"] if m["Destination"] == "/workspace"]
    return bound[0] if bound else f"/proc/{found['State']['Pid']}/root/workspace"


def main():
    if sys.argv[1:2] == ["workspace"] and len(sys.argv) == 4:
        print(workspace_of(*sys.argv[2:]))
        return
    if sys.argv[1:2] != ["run"] or len(sys.argv) < 3:
        sys.exit(__doc__)
    why = why_not()
    if why:
        print("skip " + os.path.basename(sys.argv[2]) + ": " + why)
        sys.exit(0)
    with Engine() as e:
        env = dict(os.environ, PAI_DOCKER_SOCKET=e.socket, PAI_DOCKER_IMAGE=e.image,
                   PAI_DOCKER_HOST_IMAGE=e.host_image, PAI_DOCKER_HOST_RUNTIME=e.host_runtime,
                   PAI_DOCKER_OPTIONS=e.options, PAI_DOCKER_DIR=e.dir, PAI_DOCKER_USER=str(USER))
        status = subprocess.run(sys.argv[2:], env=env, check=False).returncode
    sys.exit(status)


if __name__ == "__main__":
    main()
