#!/usr/bin/env python3
# timeout 300
"""libpai as a program outside the tree has it: installed, found by pkg-config, linked shared and
static; every call of libpai.h, its errors, losses in the middle, threads and cancellation."""
import json
import os
import re
import subprocess
import sys
import time

import hold_world as world
from hold_world import BUILD, TMP, Daemon, case

ROOT = TMP + "/root"
# What is installed has no sanitizer: where one is asked for, the static program has it, and is all that runs.
SANITIZER = {"asan": ["-fsanitize=address,undefined"], "tsan": ["-fsanitize=thread"]}.get(os.path.basename(BUILD))
number = 0
KINDS = {"unavailable:transport": "unavailable transport", "unavailable:backend": "unavailable backend",
         "unavailable:auth": "unavailable auth", "unavailable:not-served": "unavailable not-served",
         "command-timeout": "command-timeout", "output-limit": "output-limit", "file-too-large": "file-too-large",
         "policy-mismatch": "policy-mismatch", "quota-exceeded": "quota-exceeded", "input": "input", "seed": "seed",
         "cancelled": "cancelled", "timeout": "timeout", "protocol": "internal", "unsupported": "unsupported",
         "no-memory": "no-memory", "internal": "internal", "not-found": "not-found"}


def daemon(provider="local", *options):
    global number
    number += 1
    return Daemon(provider, f"lib-{number}", *options, mount=False)


def config(*words):
    env = {**os.environ, "PKG_CONFIG_PATH": ROOT + "/usr/lib/pkgconfig", "PKG_CONFIG_SYSROOT_DIR": ROOT}
    return subprocess.run(["pkg-config", *words, "libpai"], env=env, capture_output=True, text=True,
                          check=True).stdout.split()


def install():
    r = subprocess.run(["make", "-s", "install", "DESTDIR=" + ROOT, "PREFIX=/usr"], capture_output=True, text=True)
    if r.returncode:
        return r.stdout + r.stderr
    strict = ["gcc", "-std=c99", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1"]
    for name, libs in (("shared", config("--libs")),
                       ("static", [*([BUILD + "/libpai.a", *SANITIZER] if SANITIZER else [ROOT + "/usr/lib/libpai.a"]),
                                   *config("--libs", "--static")[2:]])):
        r = subprocess.run([*strict, *config("--cflags"), "-o", f"{TMP}/user-{name}", "tests/lib/lib_user.c", *libs,
                            "-pthread"], capture_output=True, text=True)
        if r.returncode:
            return f"{name}: {r.stderr}"
    needs = subprocess.run(["ldd", TMP + "/user-static"], capture_output=True, text=True).stdout
    if "libpai" in needs:
        return needs
    # Nothing but what the header says.
    header = open(ROOT + "/usr/include/libpai.h").read()
    said = set(re.findall(r"\b(libpai_\w+)\(", header)) - {"libpai_use_fn"}
    for words in (["nm", "-D", "--defined-only", ROOT + "/usr/lib/libpai.so"],
                  ["nm", "-g", "--defined-only", ROOT + "/usr/lib/libpai.a"]):
        names = {line.split()[-1] for line in subprocess.run(words, capture_output=True, text=True).stdout.splitlines()
                 if len(line.split()) == 3}
        if names != said:
            return f"{words[1]}: {names ^ said}"
    # A header of C++ too, by itself.
    with open(TMP + "/one.cc", "w") as f:
        f.write("#include <libpai.h>\nint main() { return libpai_code_name(LIBPAI_OK)[0]; }\n")
    r = subprocess.run(["g++", "-Wall", "-Wextra", "-Werror", *config("--cflags"), "-c", "-o", TMP + "/one.o",
                        TMP + "/one.cc"], capture_output=True, text=True)
    return r.stderr if r.returncode else None


def user(d, *words, key="k", how="shared", **kw):
    """(exit status, lines)"""
    how = "static" if SANITIZER else how
    env = {**os.environ, "LD_LIBRARY_PATH": ROOT + "/usr/lib", "PATH": BUILD + ":" + os.environ["PATH"],
           **kw.pop("env", {})}
    r = subprocess.run([f"{TMP}/user-{how}", d.name if d else "-", key, *map(str, words)], env=env, text=True,
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=kw.pop("timeout", 60), cwd="/", **kw)
    assert r.returncode >= 0, (words, r)
    return r.returncode, r.stdout.splitlines()


def expect(d, wanted, *words, **kw):
    got = user(d, *words, **kw)
    assert got == wanted, (words, got)


def one_call_each(how):
    d = daemon()
    expect(d, (0, ["reset=0"]), "write", "/workspace/a/b", "text", how=how)
    expect(d, (0, ["4:text", "reset=0"]), "read", "a/b", how=how)
    expect(d, (0, ["none", "reset=0"]), "read", "/workspace/none", how=how)
    expect(d, (1, ["failed file-too-large 27 3", "reset=0"]), "read", "/workspace/a/b", 3, how=how)
    expect(d, (0, ["1 a/", "reset=0"]), "list", "/workspace", how=how)
    expect(d, (0, ["1 b", "reset=0"]), "list", "a", how=how)
    expect(d, (0, ["none", "reset=0"]), "list", "/workspace/none", how=how)
    code, lines = user(d, "read", "/workspace/a", how=how)
    if code != 1 or not lines[0].startswith("failed input 22 "):
        return f"a directory read: {lines}"
    code, lines = user(d, "list", "/workspace/a/b", how=how)
    if code != 1 or not lines[0].startswith("failed input 22 "):
        return f"a file listed: {lines}"
    expect(d, (0, ["7 out=19:hello there-k out-e err=4:oops", "seen=19,4 restarts=0", "reset=0"]), "run",
           'printf %s "$GREETING-k out-e"; printf oops >&2; exit 7', how=how)
    expect(d, (0, ["0 out=13:/workspace/a", " err=0:", "seen=13,0 restarts=0", "reset=0"]), "run", "pwd", "a", how=how)
    expect(d, (0, ["137 out=0: err=0:", "seen=0,0 restarts=0", "reset=0"]), "run", "kill -9 $$", how=how)
    expect(d, (1, ["-1 out=0: err=0:", "failed input 2 0", "seen=0,0 restarts=0", "reset=0"]), "run", "pwd",
           "/workspace/none", how=how)
    expect(d, (1, ["-1 out=0: err=0:", "failed input 22 0", "seen=0,0 restarts=0", "reset=0"]), "run", how=how)
    expect(d, (1, ["-1 out=3:abc err=0:", "failed command-timeout 110 300", "seen=3,0 restarts=0", "reset=0"]), "run",
           "printf abc; sleep 20", "/workspace", 300, how=how)
    code, lines = user(d, "run", "seq 1 100000", "/workspace", 30000, 1000, how=how)
    if code != 1 or "failed output-limit 27 1000" not in lines:
        return f"{lines[-3:]}"
    expect(d, (0, ["0 out=8:3000000", " err=0:", "reset=0"]), "input", 3000000, how=how)
    expect(d, (0, ["0 out=2:0", " err=0:", "reset=0"]), "input", 0, how=how)
    expect(d, (0, ["reset=0"]), "write", "/workspace/big", "x", 20 << 20, how=how)
    expect(d, (0, [f"{20 << 20}:x", "reset=0"]), "read", "/workspace/big", how=how)
    expect(d, (1, [f"failed file-too-large 27 {50 << 20}", "reset=0"]), "write", "/workspace/big", "x", (50 << 20) + 1,
           how=how)
    expect(d, (0, ["reset=1"]), "reset", how=how)
    d.stop()
    return None


def large_directory():
    d = daemon()
    subprocess.run(d.run_argv("sh", "-c", "mkdir d; cd d; seq -f %05.0f 30000 | xargs touch"), check=True, timeout=60)
    expect(d, (0, ["30000 00001 00002 00003 00004 00005", "reset=0"]), "list", "/workspace/d")
    d.stop()
    return None


def every_kind():
    calls = {"read": ("read_file", ("read", "/workspace/x")), "write": ("write_file", ("write", "/workspace/x", "1")),
             "list": ("list_dir", ("list", "/workspace"))}
    for fault, wanted in KINDS.items():
        d = daemon("local", "fault=" + ";".join(f"{name}#1+=error:{fault}" for name, _ in calls.values()))
        for name, words in calls.values():
            code, lines = user(d, *words)
            if code != 1 or not lines[0].startswith(f"failed {wanted} "):
                return f"{fault}, {name}: {lines}"
        d.stop()
    for fault, wanted in (("unavailable:auth", "unavailable auth"), ("unavailable:not-served", "unavailable not-served"),
                          ("unavailable:transport", "unavailable transport")):
        d = daemon("local", "fault=probe#1=error:" + fault)
        code, lines = user(d, "probe")
        if code != 1 or not lines[0].startswith(f"failed {wanted}") or user(d, "probe") != (0, ["served", "reset=0"]):
            return f"probe {fault}: {lines}"
        calls = d.provider_calls()
        d.stop()
        if calls.get("create") or calls["probe"] != 2:
            return f"a probe made something, or was not asked afresh: {calls}"
    expect(None, (1, ["failed unavailable not-served 13 0", "reset=0"]), "list", "/workspace")
    return None


def lose(d):
    return (f"{BUILD}/pai -n {d.name} kill --sandbox $({BUILD}/pai -n {d.name} status k --json | "
            "sed 's/.*sandboxId\":\"\\([^\"]*\\).*/\\1/') >/dev/null")


def uses():
    for verb in ("use", "use-exclusive"):
        for last in ("list", "run"):
            d = daemon()
            expect(d, (0, ["calls=2 entries=1", "reset=1"]), verb, lose(d), last)
            d.stop()
        for word in ("reset", "kill"):
            if verb == "use-exclusive" and word == "reset":
                continue  # waits for the use
            d = daemon()
            code, lines = user(d, verb, f"{BUILD}/pai -n {d.name} {word} k >/dev/null")
            if code != 1 or lines[0] != "calls=1 entries=0" or not lines[1].startswith("failed reset 116"):
                return f"{verb}, {word}: {lines}"
            d.stop()
    d = daemon()
    expect(d, (0, ["-77 after 1, 0", "reset=0"]), "own-failure")
    expect(d, (0, ["calls=1 entries=1", "reset=0"]), "use", "true")
    # The turn is the outer one's to its end: a reset that waits for it can't be made meanwhile.
    waits = f"timeout -s KILL 1 {BUILD}/pai -n {d.name} reset k; test $? = 137"
    expect(d, (0, ["inner -22 after 0, input", "outer 0", "reset=0"]), "nested", waits)
    d.stop()
    return None


def lost_in_a_call():
    """A single call whose sandbox goes is made once more in the next one; a command begins anew."""
    for fault, words in (("read_file#1", ("read", "/workspace/x")), ("list_dir#1", ("list", "/workspace")),
                         ("write_file#1", ("write", "/workspace/x", "1"))):
        d = daemon("local", f"fault={fault}=lose")
        code, lines = user(d, *words)
        if code or lines[-1] != "reset=1":
            return f"{words}: {lines}"
        d.stop()
    d = daemon()
    expect(d, (0, ["reset=0"]), "write", "old", "1")
    p = subprocess.Popen([f"{TMP}/user-static", d.name, "k", "run",
                          "echo some; if test -e old; then touch begun; sleep 60; fi; echo more"], text=True,
                         stdout=subprocess.PIPE)
    world.wait_for(lambda: user(d, "read", "begun")[1][0] != "none")
    subprocess.run(["sh", "-c", lose(d)], check=True, timeout=30)
    out = p.communicate(timeout=60)[0].splitlines()
    d.stop()
    wanted = ["0 out=10:some", "more", " err=0:", "seen=10,0 restarts=1", "reset=1"]
    return None if out == wanted else f"{out}"


def latched():
    """A handle tells of what it has not seen, whoever was told before it; and goes on telling."""
    for last in ((), ("run",)):
        d = daemon()
        code, lines = user(d, "latch", lose(d), *last)
        told = [line for line in lines if line.startswith("reset=")]
        d.stop()
        if code or told != ["reset=0", "reset=1", "reset=1", "reset=1", "reset=1"]:
            return f"{last}: {lines}"
    return None


def threads():
    d = daemon()
    expect(d, (0, ["2:48", "reset=0"]), "threads", timeout=200)
    d.stop()
    return None


def cancelled():
    """Whatever is under way, its processes with it; what it had said is there."""
    d = daemon()
    begun = time.monotonic()
    code, lines = user(d, "cancel-run", "echo begun; sleep 100 & wait; echo no")
    took = time.monotonic() - begun
    if code != 1 or "failed cancelled 125 0" not in lines or "mask kept" not in lines or took > 20:
        return f"a command, {took:.1f} s: {code} {lines}"
    if "0 out=0: err=0:" in lines or "-1 out=6:begun" not in lines:
        return f"what it had said: {lines}"
    left = subprocess.run(d.run_argv("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"), capture_output=True,
                          text=True, timeout=30).stdout
    if "sleep 100" in left:
        return f"its processes live on: {left}"
    expect(d, (0, ["1:x", "reset=0"]), "read", "after")
    d.stop()
    d = daemon("local", "fault=read_file#1=delay:30000")
    begun = time.monotonic()
    code, lines = user(d, "cancel-read", "/workspace/x")
    took = time.monotonic() - begun
    d.stop()
    if code != 1 or lines[0] != "failed cancelled 125 0" or lines[-1] != "reset=0" or took > 15:
        return f"a read, {took:.1f} s: {code} {lines}"
    return None


def scoped():
    """The keys of pai key, and scope and ids in the ledger; a delegated thread ends nothing."""
    d = daemon()
    key = subprocess.run([BUILD + "/pai", "key", "rootThread", "scopeKey=s", "rootThreadId=r"], capture_output=True,
                         text=True, check=True).stdout.strip()
    root = ("scoped", 1, "s", "t", "r", "-")
    expect(d, (0, [key, "reset=0"]), *root, "touch")
    session = json.loads(d.pai("status", key, "--json").stdout)["session"]
    if session["scope"] != "rootThread" or session["ids"] != {"scopeKey": "s", "threadId": "t", "rootThreadId": "r"}:
        return f"{session}"
    expect(d, (0, ["reset=0"]), *root, "dispose")
    if d.session(key)["state"] != "live":
        return "a delegated thread ended the session"
    expect(d, (0, ["reset=0"]), *root, "reset")
    if d.session(key)["state"] != "new":
        return "no reset"
    expect(d, (0, ["reset=0"]), "scoped", 1, "s", "r", "r", "-", "dispose")
    expect(d, (0, ["plain", "reset=0"]), "scoped", 0, "-", "plain", "-", "-", "touch")
    for words in ((0, "s", "-", "-", "-"), (2, "s", "-", "-", "-"), (3, "-", "t", "-", "-"), (9, "s", "t", "r", "u")):
        code, lines = user(d, "scoped", *words, "acquire")
        if code != 1 or not lines[0].startswith("failed input 22"):
            return f"{words}: {lines}"
    key = subprocess.run([BUILD + "/pai", "key", "custom", "repo=a", "pr=7"], capture_output=True,
                         text=True).stdout.strip()
    expect(d, (0, [key, "reset=0"]), "scoped", 5, "-", "-", "-", "-", "acquire", "pr=7", "repo=a")
    expect(d, (0, ["reset=0"]), "scoped", 3, "never", "-", "-", "-", "reset")
    keys = [s["key"] for s in d.ask("ls")["sessions"]]
    d.stop()
    return None if keys == ["plain"] else f"{keys}"


def inside_pai_use():
    """Its calls are the use's: in its environment, inside its turn."""
    d = daemon()
    env = {**os.environ, "LD_LIBRARY_PATH": ROOT + "/usr/lib"}
    r = subprocess.run([BUILD + "/pai", "-n", d.name, "use", "--exclusive", "k", "--", "sh", "-ec",
                        f"{TMP}/user-shared {d.name} k use-exclusive true; {TMP}/user-shared - k list /workspace; "
                        f"test $PAI_ENVIRONMENT_RESET = 1 && exit; {lose(d)}; {TMP}/user-shared - k list /workspace"],
                       env=env, capture_output=True, text=True, timeout=60)
    d.stop()
    wanted = ["calls=1 entries=1", "reset=0", "1 mark-1", "reset=0", "failed reset 116 0", "reset=1",
              "calls=1 entries=1", "reset=0", "1 mark-1", "reset=0"]
    return None if r.returncode == 0 and r.stdout.splitlines() == wanted else f"{r}"


def seeds():
    """A failed check names what is missing to the call that it was for; the next goes ahead."""
    with open(TMP + "/list.json", "w") as f:
        json.dump([{"path": "/workspace/a", "loader": ["false"], "version": "1"},
                   {"path": "/workspace/b", "data": "2"}, {"path": "/workspace/c", "loader": ["false"], "version": "1"}], f)
    d = daemon("local", f"seed={TMP}/list.json")
    expect(d, (1, ["missing /workspace/a", "missing /workspace/c", "failed seed 121 0", "reset=0"]), "missing", "b")
    expect(d, (0, ["reset=0"]), "missing", "b")
    expect(d, (0, ["1:2", "reset=0"]), "read", "b")
    return d.stop() or None


def on_demand():
    """The daemon that was installed with the library is started when there is none."""
    os.makedirs(os.environ["XDG_CONFIG_HOME"] + "/paifs", exist_ok=True)
    conf = os.environ["XDG_CONFIG_HOME"] + "/paifs/default.conf"
    with open(conf, "w") as f:
        f.write("provider=memory\n")
    if SANITIZER:
        os.symlink(BUILD + "/paifs", TMP + "/paifs")  # the static program has it beside itself
    expect(None, (0, ["reset=0"]), "write", "f", "1")
    expect(None, (0, ["1:1", "reset=0"]), "read", "f")
    exe = os.readlink(f"/proc/{json.loads(subprocess.run([BUILD + '/pai', 'status', '--json'], capture_output=True).stdout)['pid']}/exe")
    subprocess.run([BUILD + "/pai", "umount"], capture_output=True, timeout=30)
    os.unlink(conf)
    return None if exe == (BUILD if SANITIZER else ROOT + "/usr/bin") + "/paifs" else exe


def main():
    why = install()
    if why:
        world.not_ok("make install, and a program built against it", why)
        sys.exit(world.finish())
    world.ok("make install, and a program built against it")
    for how in ("shared", "static"):
        case(f"one call each, {how}", one_call_each, how)
    case("a large directory", large_directory)
    case("every kind of error", every_kind)
    case("uses", uses)
    case("lost in the middle of a call", lost_in_a_call)
    case("resets are latched by handle", latched)
    case("threads", threads)
    case("cancelled from a signal handler", cancelled)
    case("scopes", scoped)
    case("inside pai use", inside_pai_use)
    case("seeds", seeds)
    case("a daemon on demand", on_demand)
    sys.exit(world.finish())


main()
