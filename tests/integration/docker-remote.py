#!/usr/bin/env python3
# timeout 240
"""An engine elsewhere: over TLS, both sides proven by certificates, and over ssh. And podman's service,
where there is one."""
import json
import os
import shutil
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hold_world import (BUILD, TMP, Daemon, begin, case, finish, get, put, skip,  # noqa: E402
                        wait_for)
import docker_world  # noqa: E402
import ssh_world  # noqa: E402

CERTS = TMP + "/certs"


def openssl(*args):
    subprocess.run(["openssl", *args], check=True, capture_output=True, cwd=CERTS)


def authority(name):
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            "-subj", "/CN=" + name, "-keyout", name + "-key.pem", "-out", name + ".pem")


def certificate(name, signer, usage, address=""):
    with open(f"{CERTS}/{name}.ext", "w") as f:
        f.write(f"extendedKeyUsage={usage}\n{address}\n")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=" + name,
            "-keyout", name + "-key.pem", "-out", name + ".csr")
    openssl("x509", "-req", "-days", "2", "-in", name + ".csr", "-CA", signer + ".pem", "-CAkey",
            signer + "-key.pem", "-CAcreateserial", "-extfile", name + ".ext", "-out", name + ".pem")


def client(name, ca, certs):
    """A directory as docker's clients have it."""
    os.mkdir(f"{CERTS}/{name}", 0o700)
    for to, what in (("ca", ca), ("cert", certs), ("key", certs + "-key")):
        shutil.copy(f"{CERTS}/{what}.pem", f"{CERTS}/{name}/{to}.pem")


def make_certificates():
    os.mkdir(CERTS, 0o700)
    for name in ("ours", "theirs"):
        authority(name)
    certificate("server", "ours", "serverAuth", "subjectAltName=IP:127.0.0.1")
    certificate("me", "ours", "clientAuth")
    certificate("other", "theirs", "clientAuth")
    client("good", "ours", "me")
    client("other client", "ours", "other")
    client("other server", "theirs", "me")


def works(d, engine):
    """Files and commands agree, streams are whole, and nothing is left."""
    os.mkdir(d.top + "/k")
    code, _, err, _ = d.run("true", timeout=90)
    if code:
        return f"{code} {err}"
    put(d.top + "/k/f", b"from outside\n")
    code, out, err, _ = d.run("sh", "-c", "cat f; echo from inside > g")
    if (code, out) != (0, b"from outside\n"):
        return f"{code} {out} {err}"
    if get(d.top + "/k/g") != b"from inside\n":
        return "the mount does not have what the sandbox wrote"
    big = os.urandom(3 << 20)
    code, out, err, _ = d.run("cat", input=big, stdin=None)
    if (code, out) != (0, big):
        return f"a stream: {code}, {len(out)} bytes of {len(big)}, {err}"
    put(d.top + "/k/big", big)
    code, out, err, _ = d.run("sha256sum", "big")
    back = subprocess.run(["sha256sum", d.top + "/k/big"], capture_output=True, text=True, check=True)
    if code or out.split()[0].decode() != back.stdout.split()[0]:
        return f"a file: {code} {out} {err}"
    if d.pai("kill", "k").returncode:
        return "it can't be killed"
    left = [c for c in engine.containers() if "paifs.root" in c["Labels"]]
    return f"left: {left}" if left else None


def told(name, options, words, reason):
    """One line with the kind."""
    d = Daemon("docker", name, *options, "create_timeout=20s", mount=False)
    code, _, err, status = d.run("true")
    err = err.decode()
    d.stop()
    e = status["error"] or {}
    ok = code == 125 and len(err.splitlines()) == 1 and all(w in err for w in words) and \
        (e["kind"], e.get("reason")) == ("unavailable", reason)
    return None if ok else f"{code} {err} {e}"


def refused(given, words):
    r = subprocess.run([BUILD + "/paifs", "docker", "--no-mount", "-f", "-n", "refused", "-o",
                        "uid=1,image=x," + given], capture_output=True, text=True, timeout=20, check=False)
    return None if r.returncode and words in r.stderr and len(r.stderr.splitlines()) == 1 else f"{r}"


def over_tls(engine, url):
    base = [f"image={engine.image}", f"uid={docker_world.USER}", "workspace=helper", f"host={url}"]
    d = Daemon("docker", "tls", *base, f"certs={CERTS}/good")
    case("tls: files and commands", works, d, engine)
    d.stop()
    case("tls: a client that the engine does not know", told, "client",
         [*base, f"certs={CERTS}/other client"], ["certs="], "auth")
    case("tls: an engine that we do not know", told, "server", [*base, f"certs={CERTS}/other server"],
         ["certs="], "auth")
    case("tls: without certificates", refused, f"workspace=helper,host={url}", "go together")
    case("plain TCP", refused, "workspace=helper,certs=/x,host=" + url.replace("https", "http"),
         "open to everybody")
    case("files that are not on this host", refused, f"host={url},certs={CERTS}/good",
         "workspace=helper")


def over_ssh(engine):
    if not shutil.which("docker"):
        skip("ssh", "no docker client here")
        return
    world = ssh_world.World(TMP + "/sshd").start()
    base = [f"image={engine.image}", f"uid={docker_world.USER}", "workspace=helper"]
    try:
        d = Daemon("docker", "ssh", *base, "host=ssh://box", f"config={world.config}",
                   f"socket={engine.socket}", "create_timeout=60s")
        case("ssh: files and commands", works, d, engine)
        d.stop()
        case("ssh: a host that is not there", told, "away",
             [*base, "host=ssh://no-such-host.invalid", f"config={world.config}"],
             ["no-such-host.invalid"], "transport")
        case("ssh: no engine there", told, "none",
             [*base, "host=ssh://box", f"config={world.config}", "socket=/nonexistent.sock"],
             ["docker"], "not-served")
        case("ssh: no name", refused, "workspace=helper,host=ssh://-x", "ssh://[USER@]HOST")
    finally:
        wait_for(lambda: not world.children(), 20, "the end of the logins")
        world.stop()


class Podman(docker_world.Engine):
    """podman's service in the place of dockerd."""

    def start(self):
        d = self.dir
        conf = d + "/containers.conf"
        with open(conf, "w") as f:
            f.write('[containers]\ndefault_ulimits = ["nofile=10000:10000", "nproc=10000:10000"]\n'
                    f'[engine]\ntmp_dir = "{d}/tmp"\nevents_logger = "file"\n'
                    'cgroup_manager = "cgroupfs"\nruntime = "runc"\n')
        env = dict(os.environ, CONTAINERS_CONF=conf, TMPDIR=d,
                   PATH=os.environ["PATH"] + ":/usr/sbin:/sbin")
        with open(d + "/podman.log", "ab") as log:
            # pylint: disable-next=consider-using-with
            self.process = subprocess.Popen(
                ["podman", "--root", d + "/data", "--runroot", d + "/run", "--storage-driver", "vfs",
                 "system", "service", "--time=0", "unix://" + self.socket],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
        deadline = time.monotonic() + docker_world.SECONDS
        while not self.is_up():
            if self.process.poll() is not None or time.monotonic() > deadline:
                with open(d + "/podman.log", errors="replace") as log:
                    raise RuntimeError("podman does not start: " + log.read()[-600:])
            time.sleep(0.02)
        os.chmod(d, 0o711)
        self.note_pids()

    def load(self):
        tar = self.dir + "/image.tar"
        with open(tar, "wb") as f:
            f.write(docker_world.busybox_tar())
        repo, tag = self.image.split(":")
        with open(tar, "rb") as f:
            status, body = self.ask(
                "POST", f"/v1.41/images/create?fromSrc=-&repo={repo}&tag={tag}", f.read(),
                "application/x-tar")
        if status != 200 or b'"error"' in body:
            raise RuntimeError(f"image: {status} {body[:200]}")
        self.image = json.loads(body.split(b"\n")[0]).get("status", self.image) \
            if b"status" in body else self.image


def over_podman():
    if not shutil.which("podman"):
        skip("podman", "no podman here")
        return
    try:
        engine = Podman().__enter__()
    except RuntimeError as e:
        skip("podman", f"its service can't run here: {' '.join(str(e).split())[:200]}")
        return
    try:
        for name, more in (("host", f"root={TMP}/podman"), ("helper", "workspace=helper")):
            d = Daemon("docker", "podman-" + name, f"socket={engine.socket}", f"image={engine.image}",
                       f"uid={docker_world.USER}", more)
            case(f"podman: files and commands ({name})", works, d, engine)
            d.pai("kill", "k")
            d.stop()
    finally:
        engine.__exit__()


def main():
    begin("docker-remote")
    why = docker_world.why_not() or (None if shutil.which("openssl") else "no openssl here")
    if why:
        skip("docker-remote", why)
        return 0
    make_certificates()
    port = ssh_world.free_port()
    arguments = ["-H", f"tcp://127.0.0.1:{port}", "--tlsverify", "--tlscacert", CERTS + "/ours.pem",
                 "--tlscert", CERTS + "/server.pem", "--tlskey", CERTS + "/server-key.pem"]
    with docker_world.Engine(arguments) as engine:
        over_tls(engine, f"https://127.0.0.1:{port}")
        over_ssh(engine)
    over_podman()
    return finish()


sys.exit(main())
