"""An sshd of the tests' own on the loopback: keys, configuration, one user; nothing of the host's.

    ssh_world.py start DIR [--user NAME] [--shell PATH] [--option 'Keyword value']... [--rsa]
    ssh_world.py stop DIR
    ssh_world.py restart DIR

`start` prints shell assignments: SSH_PORT, SSH_CONFIG (a configuration for `ssh -F`, with the host
`box` and its known host key), SSH_HOME (of the user there), SSH_PID. DIR holds all of it.

As root the server sees a password file of its own, in a mount namespace of its own: the user of the
tests has a home in DIR and any shell, and no program outside sees a difference. `--user root` is
root itself with that home. Anybody else runs a server for himself.
"""
import argparse
import os
import pwd
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time

SSHD = "/usr/sbin/sshd"
START_S = 20
OTHER_UID = 23456


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def key(path, kind="ed25519"):
    if not os.path.exists(path):
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "tests", "-f", path],
                       check=True, stdin=subprocess.DEVNULL)


def write(path, text, mode=0o600):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    os.chmod(path, mode)


class World:
    """One server. `home` is the user's there. `prepare`: commands of a shell in the server's own
    mount namespace (root's alone), as what the host's disks are like; $DIR is this one's."""

    def __init__(self, where, user="root", shell="/bin/sh", options=(), rsa=False, prepare=""):
        self.dir = os.path.realpath(where)
        self.user = user if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        self.shell = shell
        self.options = list(options)
        self.prepare = prepare
        self.kind = "rsa" if rsa else "ed25519"
        self.home = os.path.join(self.dir, "home")
        self.config = os.path.join(self.dir, "ssh_config")
        self.port = 0
        self.pid = 0

    def at(self, name):
        return os.path.join(self.dir, name)

    def uid(self):
        return OTHER_UID if os.geteuid() == 0 and self.user != "root" else os.geteuid()

    def make(self):
        os.makedirs(self.dir, exist_ok=True)
        os.chmod(self.dir, 0o755)
        os.makedirs(self.home, mode=0o700, exist_ok=True)
        os.chown(self.home, self.uid(), self.uid())
        key(self.at("host_key"), self.kind)
        key(self.at("user_key"))
        shutil.copy(self.at("user_key.pub"), self.at("authorized_keys"))
        os.chmod(self.at("authorized_keys"), 0o644)
        self.port = self.port or free_port()
        self.write_config()
        self.trust()

    def write_config(self):
        lines = [f"Port {self.port}", "ListenAddress 127.0.0.1",
                 f"HostKey {self.at('host_key')}", f"PidFile {self.at('pid')}",
                 f"AuthorizedKeysFile {self.at('authorized_keys')}", "StrictModes no", "UsePAM no",
                 "PasswordAuthentication no", "KbdInteractiveAuthentication no",
                 "PermitRootLogin yes", "UseDNS no", "PrintMotd no", "PrintLastLog no",
                 "Subsystem sftp internal-sftp"]
        # The first word about a keyword counts.
        write(self.at("sshd_config"), "\n".join(self.options + lines) + "\n")
        write(self.config, f"""Host box
    HostName 127.0.0.1
    Port {self.port}
    User {self.user}
    IdentityFile {self.at('user_key')}
    IdentitiesOnly yes
    UserKnownHostsFile {self.at('known_hosts')}
    GlobalKnownHostsFile /dev/null
""")

    def trust(self):
        with open(self.at("host_key.pub"), encoding="utf-8") as f:
            words = f.read().split()
        write(self.at("known_hosts"), f"[127.0.0.1]:{self.port} {words[0]} {words[1]}\n", 0o644)

    def wrapped(self, argv):
        """Under root: with a password file in which the user has this home and this shell."""
        if os.geteuid() != 0:
            return argv
        with open("/etc/passwd", encoding="utf-8") as f:
            lines = [line for line in f if not line.startswith(self.user + ":")]
        lines.insert(0, f"{self.user}:x:{self.uid()}:{self.uid()}::{self.home}:{self.shell}\n")
        write(self.at("passwd"), "".join(lines), 0o644)
        with open("/etc/shadow", encoding="utf-8") as f:
            lines = [line for line in f if not line.startswith(self.user + ":")]
        lines.append(f"{self.user}:*:19000:0:99999:7:::\n")
        write(self.at("shadow"), "".join(lines), 0o600)
        # sshd wants its empty directory; a file system of its own leaves no trace.
        script = (f"mount --bind {shlex.quote(self.at('passwd'))} /etc/passwd && "
                  f"mount --bind {shlex.quote(self.at('shadow'))} /etc/shadow && "
                  "{ [ -d /run/sshd ] || { mkdir -m 755 /run/sshd; }; } && "
                  f"{{ DIR={shlex.quote(self.dir)}; {self.prepare or ':'}; }} && "
                  "exec " + shlex.join(argv))
        return ["unshare", "-m", "--propagation", "private", "sh", "-c", script]

    def start(self):
        self.make()
        self.launch()
        return self

    def launch(self):
        argv = self.wrapped([SSHD, "-D", "-e", "-f", self.at("sshd_config")])
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        if os.path.exists(self.at("pid")):
            os.unlink(self.at("pid"))
        with open(self.at("sshd.log"), "ab") as log:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       env=environment, start_new_session=True)
        deadline = time.monotonic() + START_S
        while not self.answers():
            if process.poll() is not None or time.monotonic() > deadline:
                with open(self.at("sshd.log"), encoding="utf-8", errors="replace") as f:
                    raise RuntimeError("sshd did not start: " + f.read()[-1000:])
            time.sleep(0.02)
        self.pid = process.pid
        write(self.at("state"), f"{self.pid} {self.port} {self.user} {self.shell}\n", 0o644)

    def answers(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as s:
                return s.recv(4) == b"SSH-"
        except OSError:
            return False

    def children(self):
        """The server's own processes, one or two for each connection; not what they run."""
        parents = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
                    name, _, rest = f.read().partition("(")[2].rpartition(")")
            except OSError:
                continue
            parents[int(pid)] = (int(rest.split()[1]), name)
        found = {self.pid}
        for _ in range(3):
            found |= {pid for pid, (up, name) in parents.items() if up in found and name == "sshd"}
        return sorted(found - {self.pid})

    def cut(self):
        """Every connection ends, as by kill -9 of who serves it."""
        for child in self.children():
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def stop(self):
        """The listener and every connection; what runs detached on the host is its own."""
        self.cut()
        if self.pid:
            try:
                os.kill(self.pid, signal.SIGTERM)
                deadline = time.monotonic() + 5
                while time.monotonic() < deadline:
                    done, _ = os.waitpid(self.pid, os.WNOHANG)
                    if done:
                        break
                    time.sleep(0.02)
            except ChildProcessError:
                self.wait_gone()
            except ProcessLookupError:
                pass
        self.pid = 0

    def wait_gone(self):
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            try:
                os.kill(self.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.02)

    def load(self):
        with open(self.at("state"), encoding="utf-8") as f:
            pid, port, self.user, self.shell = f.read().split()
        self.pid, self.port = int(pid), int(port)
        return self


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["start", "stop", "restart", "cut"])
    parser.add_argument("dir")
    parser.add_argument("--user", default="root")
    parser.add_argument("--shell", default="/bin/sh")
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--rsa", action="store_true")
    a = parser.parse_args()
    world = World(a.dir, a.user, a.shell, a.option, a.rsa)
    if a.what == "start":
        world.start()
        print(f"SSH_PORT={world.port} SSH_CONFIG={shlex.quote(world.config)} "
              f"SSH_HOME={shlex.quote(world.home)} SSH_PID={world.pid} SSH_UID={world.uid()}")
        return
    world.load()
    if a.what == "cut":
        world.cut()
        return
    world.stop()
    if a.what == "restart":
        world.launch()
        print(f"SSH_PID={world.pid}")


if __name__ == "__main__":
    sys.exit(main())
