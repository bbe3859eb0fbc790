#!/usr/bin/env python3
# timeout 240
# timeout-long 900
"""A host that takes no helper is served by the contract over logins alone, and it is said so; the
contract's suite with -o helper=off, and a mount."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from ssh_world import OTHER_UID, World, write  # noqa: E402

BUILD = os.path.realpath(os.environ.get("PAI_BUILD", "build/debug"))
TMP = os.environ.get("PAI_TMP") or tempfile.mkdtemp(prefix="pai-ssh-")
LONG = os.environ.get("PAI_LONG", "0") != "0"
USER = "tester" if os.geteuid() == 0 else ""
failures = []

# An empty /tmp and /var/tmp in which this directory is where it was.
FRESH_TMP = ("mount --bind $DIR /mnt; mount -t tmpfs -o mode=1777 none /var/tmp; "
             "mount -t tmpfs -o mode=1777 none /tmp; mkdir -p $DIR; mount --bind /mnt $DIR")
NOEXEC = "; ".join(f"mount --bind {d} {d}; mount -o remount,bind,noexec {d}"
                   for d in ("$DIR/home", "/tmp", "/var/tmp"))
SQUATTED = FRESH_TMP + "; mkdir -m 777 " + " ".join(
    f"{d}/paifs-helper-{OTHER_UID}" for d in ("/tmp", "/var/tmp"))
SMALL = f"mount -t tmpfs -o size=64k,mode=700,uid={OTHER_UID},gid={OTHER_UID} none "
FULL = SQUATTED + f"; mkdir -p $DIR/home/.cache; {SMALL}$DIR/home/.cache"


def report(name, wrong):
    if wrong:
        failures.append(name)
        print(f"not ok {name}: {' '.join(str(wrong).split())[:600]}")
    else:
        print(f"ok {name}")
    sys.stdout.flush()


def options(world, **more):
    pairs = {"host": "box", "config": world.config, "root": "boxes", "line_grace": "3", **more}
    return ",".join(f"{k}={v}" for k, v in pairs.items())


class Daemon:
    def __init__(self, world, name, mount=None, **more):
        self.name, self.log = name, os.path.join(TMP, name + ".log")
        place = [mount] if mount else ["--no-mount"]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [f"{BUILD}/paifs", "ssh", *place, "-f", "-n", name, "-o", options(world, **more)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until = time.monotonic() + 30
        while self.pai("ls").returncode != 0:
            if self.process.poll() is not None or time.monotonic() > until:
                raise AssertionError(self.said()[-600:])
            time.sleep(0.02)

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def pai(self, *args):
        return subprocess.run([f"{BUILD}/pai", "-n", self.name, *args], capture_output=True,
                              text=True, timeout=60, check=False)

    def run(self, script, data=b"", cwd=None):
        return subprocess.run([f"{BUILD}/pai-exec", "-n", self.name, *([] if cwd else ["-s", "k"]),
                               "--", "sh", "-c", script], input=data, capture_output=True,
                              timeout=60, check=False, cwd=cwd)

    def end(self):
        self.pai("kill", "k")
        self.pai("umount")
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def served(name, world, why, **more):
    """It comes up without a helper, says why, once, and serves commands; not without a network."""
    daemon = Daemon(world, name, network="full", **more)
    done = daemon.run("cat; echo $((6 * 7)); exit 3", b"in ")
    status = json.loads(daemon.pai("status", "--json").stdout)
    text = daemon.pai("status").stdout
    wrong = ""
    if (done.returncode, done.stdout) != (3, b"in 42\n"):
        wrong = done
    elif not status["line"].startswith("a login for each call") or why not in status["line"]:
        wrong = f"'{why}' is not in the status: {status}"
    elif status["transport"] not in text or "a login for each call" not in text:
        wrong = text
    elif daemon.said().count("no helper: every call") != (0 if "helper" in more else 1):
        wrong = daemon.said()
    elif "nothing (network=full only" not in status["isolation"]:
        wrong = status["isolation"]
    daemon.end()
    report(name, wrong)


def refuses_none(world):
    daemon = Daemon(world, "none", helper="off")
    done = daemon.run("echo ran")
    report("network-none-is-refused", "" if done.returncode == 125 and not done.stdout and
           b"network=full can be asked for" in done.stderr else done)
    daemon.end()


def suite(name, world, what, pattern):
    argv = [f"{BUILD}/pai-conformance", "--suite", what, "--timeout", "30"]
    if pattern:
        argv += ["--filter", pattern]
    return name, subprocess.Popen([*argv, "-o", options(world, helper="off", root=name), "ssh"],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def start_suites(world):
    short = [("files", "provider", "files/[a-l]*"), ("commands", "provider", "commands/[ae]*"),
             ("binding", "provider", "binding/[atc]*")]
    whole = [("provider", "provider", None), ("session", "session", None)]
    return [suite("suite-" + n, world, w, p) for n, w, p in (whole if LONG else short)]


def end_suites(world, started):
    for name, process in started:
        out, _ = process.communicate(timeout=800)
        bad = [line for line in out.splitlines() if line.startswith("not ok")]
        report(name, "" if process.returncode == 0 and " 0 failed" in out else bad or out[-400:])
        left = os.listdir(os.path.join(world.home, name, "portable"))
        report(name + "-leaves-nothing", [n for n in left if n != "lock"])


def mounted(world):
    """What one side writes the other reads."""
    top = os.path.join(TMP, "top")
    os.mkdir(top)
    if not os.access("/dev/fuse", os.W_OK):
        print("skip mounted: no /dev/fuse")
        return
    daemon = Daemon(world, "mounted", top, network="full", helper="off")
    try:
        at = os.path.join(top, "k")
        os.makedirs(at + "/dir/it's a name", exist_ok=True)
        data = os.urandom(300000)
        with open(at + "/dir/f", "wb") as f:
            f.write(data)
        os.chmod(at + "/dir/f", 0o750)
        os.symlink("f", at + "/dir/l")
        done = daemon.run("cat f; stat -c %a f >&2; readlink l >&2; echo new >made; mv 'it'* gone",
                          cwd=at + "/dir")
        wrong = ""
        if done.stdout != data or not done.stderr.endswith(b"750\nf\n"):
            wrong = f"{len(done.stdout)} bytes, {done.stderr}"
        elif sorted(os.listdir(at + "/dir")) != ["f", "gone", "l", "made"]:
            wrong = os.listdir(at + "/dir")
        else:
            with open(at + "/dir/made", "rb") as f:
                wrong = "" if f.read() == b"new\n" else "what a command wrote is not there"
        report("mounted", wrong)
        # Nothing of it runs on, and nothing stays.
        daemon.run("sleep 987654 >/dev/null 2>&1 &")
        daemon.pai("kill", "k")
        left = subprocess.run(["pgrep", "-fx", "sleep 987654"], capture_output=True, check=False)
        report("kill-takes-what-runs-in-the-background", left.stdout)
    finally:
        daemon.end()


def at_most_once(world):
    """A connection that breaks in the middle is no reason to run it again."""
    daemon = Daemon(world, "once", network="full", helper="off")
    daemon.run("true")
    process = subprocess.Popen([f"{BUILD}/pai-exec", "-n", "once", "-s", "k", "--", "sh", "-c",
                                "echo ran >>log; echo begun; exec sleep 30"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    first = process.stdout.readline()
    world.cut()
    _, words = process.communicate(timeout=60)
    done = daemon.run("cat log")
    report("at-most-once", "" if first == b"begun\n" and process.returncode == 125 and
           done.stdout == b"ran\n" else f"{first} {process.returncode} {words} {done}")
    daemon.end()


def hosts():
    """Each has no place for the helper."""
    cases = [("noexec", {"prepare": NOEXEC}, "runs no programs", {}),
             ("squatted", {"prepare": SQUATTED + "; touch $DIR/home/.cache"}, "not ours alone",
              {}),
             ("full-disk", {"prepare": FULL}, "or full", {})]
    for name, how, why, more in cases:
        if os.geteuid() != 0:
            print(f"skip {name}: only root can give a server disks of its own")
            continue
        world = World(os.path.join(TMP, name), user=USER, **how).start()
        served(name, world, why, **more)
        world.stop()
    world = World(os.path.join(TMP, "machine"), user=USER, options=["PermitUserEnvironment yes"])
    world.make()
    os.makedirs(world.at("bin"))
    write(world.at("bin/uname"), "#!/bin/sh\necho m68k\n", 0o755)
    os.makedirs(os.path.join(world.home, ".ssh"))
    write(os.path.join(world.home, ".ssh/environment"), f"PATH={world.at('bin')}:/usr/bin:/bin\n",
          0o644)
    world.start()
    served("another-machine", world, "no pai-helper for a machine 'm68k'")
    world.stop()


def main():
    world = World(os.path.join(TMP, "plain"), user=USER, options=["MaxStartups 100"]).start()
    other = World(os.path.join(TMP, "suites"), user=USER, options=["MaxStartups 100"]).start()
    started = start_suites(other)
    served("helper-off-by-the-program", world, "helper=off", helper="off", transport="ssh")
    refuses_none(world)
    mounted(world)
    at_most_once(world)
    world.stop()
    hosts()
    end_suites(other, started)
    other.stop()
    if not os.environ.get("PAI_TMP"):
        shutil.rmtree(TMP)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
