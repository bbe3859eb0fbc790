#!/usr/bin/env python3
"""What can go wrong with a login is told in one line with the next step and its kind, and servers of
every kind that ssh can talk to are served."""
# timeout 240
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from ssh_world import World, free_port, key  # noqa: E402

BUILD = os.path.realpath(os.environ.get("PAI_BUILD", "build/debug"))
TMP = os.environ.get("PAI_TMP") or tempfile.mkdtemp(prefix="pai-ssh-")
failures = []


def report(name, wrong):
    if wrong:
        failures.append(name)
        print(f"not ok {name}: {' '.join(wrong.split())[:600]}")
    else:
        print(f"ok {name}")
    sys.stdout.flush()


def options(world, **more):
    pairs = {"host": "box", "config": world.config, "root": "boxes", "line_grace": "3", **more}
    return ",".join(f"{k}={v}" for k, v in pairs.items())


def probe(given, env=None):
    """The provider is opened, as by a mount: exit status and what it said."""
    done = subprocess.run([f"{BUILD}/pai-conformance", "--suite", "provider", "--filter",
                           "probe/provisions_nothing", "--json", "--timeout", "15", "-o", given,
                           "ssh"],
                          capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, **(env or {})})
    return done


def mount(given, env=None):
    """paifs itself, which must not come up."""
    return subprocess.run([f"{BUILD}/paifs", "ssh", "--no-mount", "-f", "-n", "logins", "-o", given],
                          capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, **(env or {})})


def refused(name, given, says, status=1, env=None):
    done = mount(given, env)
    text = done.stderr
    wrong = ""
    if done.returncode != status:
        wrong = f"exit {done.returncode}, expected {status}: {text}"
    elif says not in text or text.count("\n") != 1:
        wrong = f"'{says}' is not in the one line: {text!r}"
    report(name, wrong)


def works(name, world, cwd=None, **more):
    done = subprocess.run([f"{BUILD}/pai-conformance", "--suite", "provider", "--filter",
                           "commands/[sm]*", "-o", options(world, **more), "ssh"],
                          cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    report(name, "" if done.returncode == 0 else done.stdout + done.stderr)


def away(name, given, says):
    """What may pass is no reason not to come up; who asks is told, and that asking again may help."""
    done = probe(given)
    wrong = ""
    if done.returncode == 0:
        wrong = "it was reached"
    elif says not in done.stdout:
        wrong = f"'{says}' is not in: {done.stdout} {done.stderr}"
    report(name, wrong)


def mistakes(world):
    away("port-closed", options(world, port=free_port()), "no ssh server listens")
    refused("unknown-name", f"host=nowhere.invalid,config={world.config}", "no host")
    refused("no-ssh-program", options(world), "install openssh-client", env={"PATH": "/nowhere"})
    refused("no-host", "root=x", "expected", status=2)
    refused("a-host-that-is-an-option", "host=-oProxyCommand=touch", "expected [USER@]HOST", 2)
    refused("port-that-is-none", options(world, port="x"), "expected a number", 2)
    refused("transport-that-is-none", options(world, transport="rsh"), "expected auto", 2)
    key(world.at("other_key"))
    wrong = world.at("wrong_config")
    with open(world.config, encoding="utf-8") as f:
        text = f.read()
    with open(wrong, "w", encoding="utf-8") as f:
        f.write(text.replace("user_key", "other_key"))
    refused("wrong-key", options(world, config=wrong), "takes none of our keys")
    with open(wrong, "w", encoding="utf-8") as f:
        f.write(text.replace("known_hosts", "known_nobody"))
    refused("unknown-host-key", options(world, config=wrong), "is not known: log in once")
    with open(wrong, "w", encoding="utf-8") as f:
        f.write(text.replace("known_hosts", "known_nobody") + "    StrictHostKeyChecking no\n")
    refused("never-looser", options(world, config=wrong), "is not known: log in once")
    with open(wrong, "w", encoding="utf-8") as f:
        f.write(text + "    Frobnicate yes\n")
    refused("bad-configuration", options(world, config=wrong), "option that ssh does not know", 2)
    refused("root-is-a-file", options(world, root="/etc/passwd"), "root")


def changed_key(world):
    for name in ("host_key", "host_key.pub"):
        os.rename(world.at(name), world.at("old_" + name))
    key(world.at("host_key"))
    world.stop()
    world.launch()
    refused("host-key-changed", options(world), "is not the known one")


BUSYBOX = "; ".join(f"mount --bind /bin/busybox /usr/bin/{s}" for s in ("dash", "bash"))


def login_shells(user):
    """Whatever runs the first word, by both transports and without a helper."""
    if os.geteuid() != 0:
        print("skip login-shells: only root can give a user a shell of the test's own")
        return
    for name, how in (("csh", {"shell": "/bin/tcsh"}), ("fish", {"shell": "/usr/bin/fish"}),
                      ("busybox", {"prepare": BUSYBOX}),
                      ("one-session", {"options": ["MaxSessions 1"]})):
        if not os.path.exists(how.get("shell", "/bin/busybox")):
            print(f"skip {name}: not installed")
            continue
        world = World(os.path.join(TMP, name), user=user, **how).start()
        for way in ("ssh", "libssh2"):
            works(f"{name}-by-{way}", world, transport=way)
        works(f"{name}-without-helper", world, helper="off")
        world.stop()


def variants(user):
    kinds = [
        ("rsa-host-key", {"rsa": True}, None),
        ("modern-ciphers-only", {"options": [
            "Ciphers chacha20-poly1305@openssh.com,aes256-gcm@openssh.com",
            "MACs hmac-sha2-512-etm@openssh.com"]}, None),
        ("login-shell-with-a-banner", {"shell": "/bin/bash"}, "echo Welcome; echo and more >&2\n"),
    ]
    for name, how, rc in kinds:
        world = World(os.path.join(TMP, name), user=user, **how)
        world.make()
        if rc:
            # bash reads ~/.bashrc when sshd starts it
            with open(os.path.join(world.home, ".bashrc"), "w", encoding="utf-8") as f:
                f.write(rc)
        world.start()
        works(name, world)
        world.stop()
    for name, how, says in (
            ("internal-sftp", {"options": ["ForceCommand internal-sftp"]}, "runs no command of ours"),
            ("no-shell", {"shell": "/usr/sbin/nologin"}, "runs no command of ours")):
        world = World(os.path.join(TMP, name), user=user, **how).start()
        refused(name, options(world), says)
        world.stop()


def workers_gone():
    """Each leaves a second after its last link."""
    for _ in range(100):
        if subprocess.run(["pgrep", "-f", f"^{TMP}/.*pai-helper.* serve"], check=False,
                          stdout=subprocess.DEVNULL).returncode:
            return ""
        time.sleep(0.1)
    return "there are workers left"


def main():
    user = "tester" if os.geteuid() == 0 else None
    world = World(os.path.join(TMP, "plain"), user=user or "").start()
    works("plain", world)
    works("paths-from-where-one-stands", world, cwd=TMP, config="plain/ssh_config",
          identity="plain/user_key")
    mistakes(world)
    changed_key(world)
    world.stop()
    variants(user or "")
    login_shells(user or "")
    report("every worker leaves", workers_gone())
    if not os.environ.get("PAI_TMP"):
        shutil.rmtree(TMP)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
