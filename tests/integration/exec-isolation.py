#!/usr/bin/env python3
# timeout 150
# timeout-long 1500
"""What an isolated sandbox sees of the host: nothing but the system's programs. The same whether
bubblewrap makes it or pai-helper itself, as root and as a plain user; so is what holds of commands."""
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

BUILD = os.path.realpath(os.environ.get("PAI_BUILD", "build/debug"))
TMP = os.environ.get("PAI_TMP") or tempfile.mkdtemp(prefix="pai-test-")
LONG = os.environ.get("PAI_LONG") == "1"
BIN = TMP + "/bin"
UID = 54321
failed = False

# name: a command that succeeds where it holds. What is in braces was made on the host before.
HOLDS = {
    "the workspace is its own": "test $(pwd) = /workspace && touch a && rm a",
    "tmp and home are its own": "test -z \"$(ls -A /tmp $HOME | grep -v :)\" && touch /tmp/a $HOME/a"
                                " && rm /tmp/a $HOME/a",
    "no file of the host's": "! test -e {file} && ! test -e {run} && ! test -e /root",
    "no home of another's": "test \"$(ls /home)\" = user",
    "no /run of the host's": "test -z \"$(ls -A /run)$(ls -A /var/run/)\" && ! test -e /var/run/docker.sock",
    "no socket with a path": "test -z \"$(find / -type s 2>/dev/null)\"",
    "no abstract socket": "! python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); "
                          "s.connect(\"\\0{abstract}\")' 2>/dev/null",
    "no network of the host's": "! python3 -c 'import socket; "
                                "socket.create_connection((\"127.0.0.1\", {port}), 2)' 2>/dev/null",
    "loopback alone, and up": "test $(grep -c : /proc/net/dev) = 1 && python3 -c 'import socket; "
                              "s = socket.create_server((\"127.0.0.1\", 0)); "
                              "socket.create_connection(s.getsockname(), 2)'",
    "no process of the host's": "test $(cat /proc/1/comm) = pai-supervisor && "
                                "! grep -qs '[{mark[0]}]{mark[1]}' /proc/[0-9]*/cmdline",
    "no memory of the host's": "test -z \"$(ls -A /dev/shm)\" && test $(wc -l </proc/sysvipc/shm) = 1",
    "no device but the harmless": "test -z \"$(find /dev -type b)\" && ! test -e /dev/mem && "
                                  "! test -e /dev/fuse",
    "a system that stays as it is": "! touch /x 2>/dev/null && ! touch /usr/x 2>/dev/null && "
                                    "! touch /etc/x 2>/dev/null && ! mkdir /proc/sys/x 2>/dev/null && "
                                    "! (echo x >/proc/sys/kernel/core_pattern) 2>/dev/null",
    "no secret of /etc": "! cat /etc/shadow 2>/dev/null && test -z \"$(find /etc -type f ! -perm -o=r "
                         "-readable 2>/dev/null -exec head -c 1 {{}} + | head -c 1)\"",
    "no way back": "! mount -t tmpfs none /tmp 2>/dev/null && ! umount /etc 2>/dev/null && "
                   "! mount -o remount,rw /usr 2>/dev/null && ! chroot /proc/1/root true 2>/dev/null "
                   "&& ! ls /proc/1/cwd/ 2>/dev/null",
    "nothing of the supervisor's": "for f in 3 4 7 8; do ! readlink /proc/1/fd/$f || exit 1; done; "
                                   "! head -c 1 /proc/1/mem 2>/dev/null",
}
# What must be the same whoever makes it, save what only names the one who did.
SEEN = r"""
for d in / /dev /run /var /home /etc/ssl; do echo $d; ls -lAn --time-style=+ $d | sed 1d |
	sed 's/^\(..........\) *[0-9]* /\1 /; s/ [0-9]* *\([^ ]*\)$/ \1/'; done
while read -r id parent dev root at options rest; do echo "$at ${options%,relatime*}"; done \
	</proc/self/mountinfo | sort | uniq
"""
SEEN_TOO = r"""
grep -E '^(Uid|Gid|Groups|CapPrm|CapEff|NoNewPrivs|Seccomp):' /proc/self/status
umask; ulimit -n; env | grep -v ^TMPDIR= | sort; cat /proc/1/comm
for f in sys irq bus sysrq-trigger; do test -w /proc/$f && echo writable $f; done; id
"""


def verdict(name, good, why=""):
    global failed
    failed = failed or not good
    print(f"ok {name}" if good else f"not ok {name}: {' '.join(str(why).split())[:500]}", flush=True)


class Host:
    """What lies on the host for a sandbox not to see."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.hidden = socket.socket(socket.AF_UNIX)
        self.name = f"pai-isolation-{os.getpid()}"
        self.hidden.bind("\0" + self.name)
        self.hidden.listen()
        self.run = f"/run/{self.name}" if os.access("/run", os.W_OK) else f"{TMP}/{self.name}"
        self.path = socket.socket(socket.AF_UNIX)
        self.path.bind(self.run)
        self.path.listen()
        self.file = tempfile.NamedTemporaryFile(prefix="pai-isolation-", dir="/tmp")
        self.sleeper = subprocess.Popen(["sleep", "1000"], env={"A": "b"}, executable="sleep")
        self.named = subprocess.Popen(["python3", "-c", "import time; time.sleep(1000)", self.name])

    def fill(self, command):
        return command.format(port=self.listener.getsockname()[1], abstract=self.name, run=self.run,
                              file=self.file.name, mark=(self.name[0], self.name[1:]))

    def end(self):
        for process in (self.sleeper, self.named):
            process.kill()
            process.wait()
        os.unlink(self.run)


class User:
    def __init__(self, uid, way, network="none"):
        self.who = f"{'root' if uid == 0 else 'user' if uid == UID else 'this user'}, {way}"
        self.uid = uid
        self.home = f"{TMP}/{uid}-{way}-{network}"
        for part in ("", "/config/paifs", "/run"):
            os.makedirs(self.home + part, mode=0o700)
        with open(self.home + "/config/paifs/default.conf", "w") as f:
            f.write(f"provider=local\nhost_commands\nisolation={way}\nnetwork={network}\n")
        for path, _, files in os.walk(self.home):
            for name in [path] + [f"{path}/{f}" for f in files]:
                os.chown(name, uid, uid if uid == UID else -1)

    def call(self, *argv, timeout=60):
        become = ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups"]
        return subprocess.run(
            (become if self.uid == UID else []) + list(argv), cwd="/", capture_output=True, text=True,
            timeout=timeout, umask=0o027,
            env={"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": self.home,
                 "XDG_CONFIG_HOME": self.home + "/config", "XDG_RUNTIME_DIR": self.home + "/run",
                 "XDG_STATE_HOME": self.home + "/state"})

    def run(self, command):
        return self.call("pai-exec", "-s", "k", "-c", command)

    def end(self):
        got = self.call("pai", "kill", "k"), self.call("pai", "umount")
        verdict(f"{self.who}: it ends", not any(g.returncode for g in got), got)


def check_isolated(host, user):
    for name, command in HOLDS.items():
        got = user.run(host.fill(command))
        verdict(f"{user.who}: {name}", got.returncode == 0, got)
    return user.run(SEEN + SEEN_TOO)


def check_full(user):
    got = user.run("test $(pwd) = /workspace && touch a && test -e " + user.home +
                   " && test $(cat /proc/1/comm) = pai-supervisor && ls -d /run >/dev/null")
    verdict(f"{user.who}: network=full shows the host", got.returncode == 0, got)
    return user.run(SEEN_TOO)


def same(uid, what, seen):
    names = sorted(seen)
    good = len(names) == 2 and seen[names[0]].returncode == 0 and \
        seen[names[0]].stdout == seen[names[1]].stdout
    lines = [set(seen[n].stdout.split("\n")) for n in names]
    verdict(f"{'root' if uid == 0 else 'user'}: {what} is the same by {' and '.join(names)}", good,
            [sorted(a - b) for a in lines for b in lines if a is not b] if len(lines) == 2 else names)


def check_conformance(user, way):
    args = ["pai-conformance"] + ([] if LONG else ["--filter", "commands/*"])
    args += ["-o", f"host_commands,isolation={way},root={user.home}/store", "local"]
    got = user.call(*args, timeout=300)
    bad = [line for line in got.stdout.split("\n") if line.startswith("not ok")]
    verdict(f"{user.who}: conformance", got.returncode == 0 and " 0 failed" in got.stdout,
            bad or got)


def check_without_bwrap():
    """Where there is no bubblewrap, and where the kernel allows no namespaces at all."""
    hide = "mount --bind /dev/null $(command -v bwrap) && "
    user = User(0, "auto")
    got = user.call("unshare", "--mount", "sh", "-c", hide + "pai-exec -s k true && pai status k")
    verdict("without bubblewrap pai-helper isolates", got.returncode == 0 and
            "network=none: pai-helper:" in got.stdout, got)
    user.end()
    user = User(UID, "auto")
    holder = subprocess.Popen(["unshare", "--user", "sleep", "100"])
    deadline = time.monotonic() + 20
    while os.readlink(f"/proc/{holder.pid}/ns/user") == os.readlink("/proc/self/ns/user") and \
            time.monotonic() < deadline:
        time.sleep(0.01)
    for kind in ("uid", "gid"):
        with open(f"/proc/{holder.pid}/{kind}_map", "w") as f:
            f.write("0 0 65536\n")
    got = subprocess.run(
        ["nsenter", f"--target={holder.pid}", "--user", "-S", "0", "-G", "0", "unshare", "--mount", "sh", "-c",
         hide + "echo 0 >/proc/sys/user/max_user_namespaces && "
         f"setpriv --reuid={UID} --regid={UID} --clear-groups sh -c 'pai-exec -s k true; pai umount'"],
        cwd="/", capture_output=True, text=True, timeout=60,
        env={"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": user.home,
             "XDG_CONFIG_HOME": user.home + "/config", "XDG_RUNTIME_DIR": user.home + "/run",
             "XDG_STATE_HOME": user.home + "/state"})
    holder.kill()
    holder.wait()
    verdict("without namespaces nothing runs, and it says why",
            "network none can't be enforced" in got.stderr and "user namespaces" in got.stderr, got)


def check_exec_local(way):
    where = f"{TMP}/exec-local-{way}"
    os.makedirs(where)
    got = subprocess.run([os.path.dirname(os.path.abspath(__file__)) + "/exec-local.py"], timeout=400,
                         capture_output=True, text=True,
                         env=dict(os.environ, PAI_TMP=where, PAI_LONG="", PAI_ISOLATION=way))
    bad = [line for line in got.stdout.split("\n") if line.startswith("not ok")]
    verdict(f"exec-local by {way}", got.returncode == 0 and "ok " in got.stdout, bad or got)


def main():
    os.makedirs(BIN)
    for program in ("paifs", "pai", "pai-exec", "pai-helper", "pai-conformance"):
        shutil.copy(f"{BUILD}/{program}", BIN)
    os.chmod(TMP, 0o711)
    host = Host()
    try:
        for uid in (0, UID) if os.getuid() == 0 else (os.getuid(),):
            seen, full = {}, {}
            for way in ("bwrap", "helper"):
                user = User(uid, way)
                seen[way] = check_isolated(host, user)
                user.end()
                if LONG or way == "helper":
                    check_conformance(user, way)
                user = User(uid, way, "full")
                full[way] = check_full(user)
                user.end()
            same(uid, "what is seen", seen)
            same(uid, "what is seen with network=full", full)
        if os.getuid() == 0:
            check_without_bwrap()
        if LONG:
            check_exec_local("helper")
    finally:
        host.end()


signal.signal(signal.SIGPIPE, signal.SIG_DFL)
main()
sys.exit(failed)
