#!/usr/bin/env python3
# timeout 240
"""The two transports beside each other, on real servers: the same bytes, the same words about what
goes wrong, with its kind; and which of them the automatic choice takes."""
import hashlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from ssh_world import World, free_port, key, write  # noqa: E402

BUILD = os.path.realpath(os.environ.get("PAI_BUILD", "build/debug"))
STREAM = f"{BUILD}/tests/integration-ssh_stream"
TMP = os.environ.get("PAI_TMP") or tempfile.mkdtemp(prefix="pai-ssh-")
USER = "tester" if os.geteuid() == 0 else ""
PROGRAM = "the ssh program"
failures = []


def report(name, wrong):
    if wrong:
        failures.append(name)
        print(f"not ok {name}: {' '.join(str(wrong).split())[:600]}")
    else:
        print(f"ok {name}")
    sys.stdout.flush()


def stream(way, config, command="cat", data=b"", env=None, host="box"):
    """What came, and the word about the end."""
    done = subprocess.run([STREAM, way, config, host, command], input=data, timeout=60,
                          capture_output=True, check=False,
                          env={**os.environ, "SSH_AUTH_SOCK": "", **(env or {})})
    lines = done.stderr.decode(errors="replace").strip().split("\n")
    if done.returncode < 0:
        lines.append(f"ended by signal {-done.returncode}")
    return done.stdout, lines[-1]


def configured(world, name, *extra, without=()):
    """A configuration of its own: lines before the usual ones, of which some may go."""
    with open(world.config, encoding="utf-8") as f:
        lines = [line for line in f.read().splitlines()[1:] if line.split()[0] not in without]
    path = world.at(name)
    write(path, "\n".join(["Host box", *("    " + line for line in extra), *lines]) + "\n")
    return path


def carried(name, config, carrier, **more):
    """The automatic choice, and that what it chose works."""
    out, word = stream("auto", config, data=b"hello", **more)
    report("auto-" + name, "" if out == b"hello" and word.startswith(carrier) else
           f"{out!r} by '{word}', expected '{carrier}'")


def fails(name, config, kind, says, ways=("ssh", "libssh2", "auto"), want=b"", **more):
    for way in ways:
        out, word = stream(way, config, **more)
        wrong = out != want or kind not in word or says not in word
        report(f"{way}-{name}", f"{out!r} '{word}', expected '{kind}: ...{says}'" if wrong else "")


def bytes_pass(world):
    data = os.urandom(1 << 20) * 24
    want = hashlib.sha256(data).hexdigest()
    for way in ("ssh", "libssh2"):
        out, word = stream(way, world.config, data=data)
        report(f"{way}-echoes", "" if hashlib.sha256(out).hexdigest() == want else
               f"{len(out)} of {len(data)} bytes: {word}")
        # stderr beyond any window is not waited for by anybody
        out, word = stream(way, world.config, "head -c 8000000 /dev/zero >&2; echo done")
        report(f"{way}-drops-stderr", "" if out == b"done\n" else f"{out!r} {word}")
        out, word = stream(way, world.config, "cat >/dev/null; echo last; exit 7", b"x")
        report(f"{way}-status", "" if out == b"last\n" and "(status 7)" in word else f"{out!r} {word}")
    out, word = stream("libssh2", world.config, "kill -9 $$")
    report("libssh2-signal", "" if "ended by SIGKILL" in word else word)


def cut_off(world):
    """A connection that goes is told, whatever had come is had."""
    for way in ("ssh", "libssh2"):
        p = subprocess.Popen([STREAM, way, world.config, "box", "echo here; exec cat"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        first = p.stdout.readline()
        world.cut()
        rest, words = p.communicate(timeout=30)
        word = words.decode().strip().split("\n")[-1]
        report(f"{way}-cut-off", "" if first == b"here\n" and not rest and
               "unavailable transport again" in word else f"{first!r} {rest!r} {word}")


def leaves_nothing(world):
    """Who closes without a word takes his command along."""
    for way in ("ssh", "libssh2"):
        p = subprocess.Popen([STREAM, way, world.config, "box", "echo $$; exec cat"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL)
        pid = int(p.stdout.readline())
        p.kill()
        p.communicate(timeout=30)
        fd = None
        try:
            fd = os.pidfd_open(pid)
            gone = select.select([fd], [], [], 20)[0]
        except ProcessLookupError:
            gone = True
        finally:
            if fd is not None:
                os.close(fd)
        report(f"{way}-takes-its-command-along", "" if gone else f"{pid} runs on")


def known_hosts(world):
    with open(world.at("known_hosts"), encoding="utf-8") as f:
        name, kind, text = f.read().split()[:3]
    write(world.at("hashed"), f"{name} {kind} {text}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", world.at("hashed")], check=True,
                   capture_output=True)
    write(world.at("wide"), f"# all\n[127.0.0.*]:{world.port},!x {kind} {text}\n")
    write(world.at("by_name"), f"127.0.0.1 {kind} {text}\n")
    write(world.at("aliased"), f"Alias {kind} {text}\n")
    for kind_of in ("hashed", "wide", "by_name"):
        carried(f"known-{kind_of}", configured(
            world, f"config_{kind_of}", f"UserKnownHostsFile {world.at(kind_of)}"), "libssh2")
    carried("known-aliased", configured(world, "config_aliased", "HostKeyAlias alias",
                                        f"UserKnownHostsFile {world.at('aliased')}"), "libssh2")
    key(world.at("stranger"))
    with open(world.at("stranger.pub"), encoding="utf-8") as f:
        other = f.read().split()[1]
    for what, lines, says in (
            ("nobody", "", "is not known: log in once"),
            ("changed", f"{name} {kind} {other}\n", "is not the known one"),
            ("revoked", f"{name} {kind} {text}\n@revoked * {kind} {text}\n", "been revoked")):
        write(world.at("known_" + what), lines)
        fails(f"host-key-{what}", configured(
            world, f"config_{what}", f"UserKnownHostsFile {world.at('known_' + what)}",
            "StrictHostKeyChecking no"), "unavailable auth final", says)


def logins(world):
    keys = {"UserKey": world.at("user_key")}
    for kind in ("rsa", "ecdsa"):
        keys[kind] = world.at("key_" + kind)
        key(keys[kind], kind)
        with open(keys[kind] + ".pub", encoding="utf-8") as f, \
                open(world.at("authorized_keys"), "a", encoding="utf-8") as to:
            to.write(f.read())
    subprocess.run(["cp", keys["UserKey"], world.at("locked_key")], check=True)
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "secret", "-f", world.at("locked_key")],
                   check=True, capture_output=True)
    subprocess.run(["ssh-keygen", "-q", "-s", keys["UserKey"], "-I", "x", "-n", "tester",
                    world.at("stranger.pub")], check=True, capture_output=True)

    def by(name, path, *more):
        return configured(world, f"config_{name}", f"IdentityFile {path}", *more,
                          without=("IdentityFile",))
    carried("ecdsa-key", by("ecdsa", keys["ecdsa"]), "libssh2")
    carried("rsa-key", by("rsa", keys["rsa"]), PROGRAM + " (no key that libssh2 can use")
    fails("rsa-key", by("rsa", keys["rsa"]), "unavailable auth final", "takes none of our keys",
          ways=("libssh2",))
    fails("refused-key", by("stranger", world.at("stranger")), "unavailable auth final",
          "takes none of our keys")
    fails("no-key", by("none", "none"), "unavailable auth final", "takes none of our keys")
    locked = by("locked", world.at("locked_key"))
    fails("locked-key", locked, "unavailable auth final", "takes none of our keys")
    with open(world.at("user_key"), encoding="utf-8") as f:
        write(world.at("open_key"), f.read(), 0o644)
    fails("key-that-all-may-read", by("open", world.at("open_key")), "unavailable auth final",
          "takes none of our keys")
    agent(world, locked, keys)


def agent(world, locked, keys):
    """Its keys count, by name or not; one that doesn't answer is waited for no longer than asked."""
    path = os.path.join(tempfile.mkdtemp(prefix="pai-agent-", dir="/tmp"), "sock")
    process = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    env = {"SSH_AUTH_SOCK": path}
    try:
        for _ in range(200):
            if subprocess.run(["ssh-add", "-q", keys["UserKey"]], env={**os.environ, **env},
                              capture_output=True, check=False).returncode == 0:
                break
        carried("agent-named-key", locked, "libssh2", env=env)
        any_key = configured(world, "config_any", f"IdentityFile {world.at('missing')}",
                             "IdentitiesOnly no", without=("IdentityFile", "IdentitiesOnly"))
        carried("agent-any-key", any_key, "libssh2", env=env)
        carried("identityagent", configured(
            world, "config_agent", f"IdentityAgent {path}", f"IdentityFile {world.at('locked_key')}",
            without=("IdentityFile",)), "libssh2")
        process.send_signal(signal.SIGSTOP)
        fails("agent-asleep", configured(
            world, "config_asleep", "ConnectTimeout 1", f"IdentityFile {world.at('locked_key')}",
            without=("IdentityFile",)), "unavailable transport again", "does not answer",
              ways=("libssh2",), env=env)
    finally:
        process.kill()
        process.wait()
        os.unlink(path)
        os.rmdir(os.path.dirname(path))


def unreachable(world):
    def at(name, *lines, **more):
        return configured(world, "config_" + name, *lines, **more)
    fails("port-closed", at("closed", f"Port {free_port()}"), "unavailable transport again",
          "no ssh server listens")
    fails("unknown-name", at("name", "HostName nowhere.invalid", f"HostKeyAlias [127.0.0.1]:{world.port}"),
          "unavailable transport final", "there is no host")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(1)
        fails("says-nothing", at("dumb", f"Port {s.getsockname()[1]}", "ConnectTimeout 1",
                                 f"HostKeyAlias [127.0.0.1]:{world.port}"),
              "unavailable transport again", "does not answer", ways=("libssh2", "auto"))
    fails("wrong-option", at("odd", "Frobnicate yes"), "input none final", "does not know")


def choice(world):
    carried("plain", world.config, "libssh2")
    gcm = ["Ciphers chacha20-poly1305@openssh.com,aes256-gcm@openssh.com",
           "MACs hmac-sha2-512-etm@openssh.com"]
    for name, how in (("modern-ciphers", {"options": gcm}), ("rsa-host-key", {"rsa": True})):
        other = World(os.path.join(TMP, name), user=USER, **how).start()
        carried(name, other.config, PROGRAM + " (libssh2")
        fails(name, other.config, "unavailable not-served final", "use -o transport=ssh", ways=("libssh2",))
        other.stop()
    rekeys = World(os.path.join(TMP, "rekeys"), user=USER, options=["RekeyLimit 1M"]).start()
    data = os.urandom(1 << 20) * 12
    out, word = stream("libssh2", rekeys.config, data=data)
    report("libssh2-rekeys-both-ways-full", "" if out == data else f"{len(out)} bytes: {word}")
    rekeys.stop()
    single = World(os.path.join(TMP, "single"), user=USER,
                   options=["MaxSessions 0"]).start()
    fails("no-session", single.config, "unavailable not-served final", "gives us no session",
          ways=("libssh2",))
    single.stop()
    for name, option in (("client-ciphers", gcm[0]), ("compression", "Compression yes")):
        carried(name, configured(world, "config_" + name, option), PROGRAM + " (libssh2 knows no")
    jump = configured(world, "config_jump", "ProxyJump hop", "HostName 127.0.0.1")
    hop = World(os.path.join(TMP, "hop"), user=USER).start()
    with open(hop.config, encoding="utf-8") as f:
        text = f.read().replace("Host box", "Host hop")
    with open(jump, "a", encoding="utf-8") as f:
        f.write(text)
    # The hop's own ssh is told of the file by the first one's -F.
    carried("proxy-jump", jump, PROGRAM + " (libssh2 knows no ProxyJump)")
    with open(hop.at("sshd.log"), encoding="utf-8", errors="replace") as f:
        report("proxy-jump-by-the-hop", "" if "Accepted publickey" in f.read() else "nobody came")
    hop.stop()
    sftp = World(os.path.join(TMP, "sftp"), user=USER, options=["ForceCommand internal-sftp"]).start()
    fails("internal-sftp", sftp.config, "unavailable not-served final", "runs no command of ours",
          want=b"This service allows sftp connections only.\n", data=b"\0\0\0\1\1")
    sftp.stop()


def main():
    world = World(os.path.join(TMP, "plain"), user=USER).start()
    bytes_pass(world)
    cut_off(world)
    leaves_nothing(world)
    known_hosts(world)
    logins(world)
    unreachable(world)
    choice(world)
    world.stop()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
