#!/usr/bin/env python3
# timeout 120
"""What every program says: usage with an example, JSON where it was asked for, one line that says
what was expected, and no byte that a terminal would obey, whatever it is told to say."""
import json
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hold_world import BUILD, TMP, Daemon, begin, case, finish  # noqa: E402

PROGRAMS = ("paifs", "pai", "pai-exec", "pai-conformance", "pai-helper")
# command: (arguments that succeed, or None where it goes on until it is ended (see exec-port);
#           arguments that fail, or None where only the words can be wrong)
COMMANDS = {
    "ls": (["k"], ["k", "nosuch"]),
    "status": (["k"], ["nosuch"]),
    "probe": ([], ["-n", "nosuch"]),
    "create": (["k", "-o", "keepalive_ttl=1h"], ["k", "-o", "network=full"]),
    "use": (["k", "--", "echo", "{}"], ["k"]),
    "run": (None, ["-s", "k", "--", "true"]),
    "host": (["--", "echo", "{}"], ["--", "/nonexistent"]),
    "barrier": (["k"], ["nosuch"]),
    "trust": (["k"], ["nosuch"]),
    "log": (["k"], ["k", "--limit", "100000"]),
    "mcp": (None, ["--include", "nosuch"]),
    "port": (None, ["k", "80", "--listen", "203.0.113.1:80"]),
    "tool": (["read", "-s", "k", "--input", '{"reason":"r","path":"/workspace"}'], ["nosuch"]),
    "pause": (["k"], ["nosuch"]),
    "reset": (["k"], ["a\tb"]),
    "key": (["thread", "threadId=k"], ["thread"]),
    "seed": (["status", "k"], ["nosuch"]),
    "filename": (["a/b"], None),
    "kill": (["k", "nosuch"], ["a\tb"]),
    "conformance": (["memory", "--filter", "kill/twice*"], ["nosuch"]),
    "doctor": ([], None),
    "umount": ([], ["-n", "nosuch"]),
}
# What is wrong, and a word of the line that says what was expected.
WRONG = (
    (["pai"], "usage"), (["pai", "lst"], "ls, status"), (["pai", "--nope"], "expected a command"),
    (["pai", "-n"], "expected a command"), (["pai", "-n", "a/b", "ls"], "letters, digits"),
    (["pai", "log", "--limit", "x"], "a number from 1"), (["pai", "log", "--limit"], "--limit N"),
    (["pai", "create"], "KEY"), (["pai", "create", "k", "-o", "netwrk=full"], "did you mean 'network'"),
    (["pai", "create", "k", "-o", "net=full"], "did you mean 'network'"),
    (["pai", "create", "k", "-o", "network=on"], "none, allowlist or full"),
    (["pai", "create", "k", "-o", "timeout=1s"], "belongs to the mount"),
    (["pai", "create", "k", "-o", "ttl=1"], "a duration such as"),
    (["pai", "create", "k", "-o", "metadata=1"], "metadata.KEY=VALUE"),
    (["pai", "create", "k", "-o", "create=./nosuch"], "create=./nosuch"),
    (["pai", "create", "x" * 129], "1 to 128 bytes"), (["pai", "create", ""], "1 to 128 bytes"),
    (["pai", "kill"], "KEY"), (["pai", "kill", "k", "--sandbox", "x"], "not both"),
    (["pai", "status", "a", "b"], "pai status [KEY]"), (["pai", "status", "-s", "a", "b"], "once"),
    (["pai", "tool"], "one tool, or --batch"), (["pai", "tool", "cat"], "bash, read, write"),
    (["pai", "tool", "read", "--batch"], "one tool, or --batch"),
    (["pai", "tool", "read", "-s", "k", "--input", "{"], "JSON"),
    (["pai-exec"], "CMD"), (["pai-exec", "--nope", "true"], "--help"),
    (["pai-exec", "true"], "stand in no session"), (["pai-exec", "-s", "", "true"], "1 to 128"),
    (["pai-exec", "--timeout", "x", "true"], "30, 1.5s"),
    (["pai-exec", "--max-output", "x", "true"], "64K, 10M"),
    (["pai-exec", "--status-fd", "x", "true"], "descriptor"),
    (["pai-exec", "-s", "k", "-e", "=x", "true"], "VAR"),
    (["paifs"], "PROVIDER MOUNTPOINT"), (["paifs", "locl", "/tmp"], "expected docker, local, memory"),
    (["paifs", "local", "/tmp", "-o", "hostcommands"], "did you mean 'host_commands'"),
    (["paifs", "local", "/tmp", "-o", "root=/nosuch/x"], "can't be made in '/nosuch'"),
    (["paifs", "local", "/nosuch/dir"], "/nosuch/dir"), (["paifs", "memory", "--nope"], "--help"),
    (["paifs", "local", "/tmp", "-n", "a/b"], "letters, digits"),
    (["paifs", "local", "/tmp", "-o"], "expected a value"),
    (["paifs", "--help", "nosuch"], "expected docker, local, memory"),
    (["pai-conformance"], "one provider"), (["pai-conformance", "--nope"], "unknown option"),
    (["pai-conformance", "memory", "--suite", "x"], "no such suite"),
    (["pai-conformance", "memory", "--timeout"], "no value"),
)
EVERY_BYTE = bytes(range(1, 256))
BIDI = "a\u202eb\u2066c\u200fd\u2028e".encode()
EVIL = (EVERY_BYTE.replace(b"/", b""), BIDI, b"\x1b]0;title\x07", b"x\xc2\x9b31my", b"\xff\xfe", b"a\nb",
        b"del\x7f")
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def run(*words, cwd="/", **kw):
    words = [w.encode() if isinstance(w, str) else w for w in words]
    words[0] = BUILD.encode() + b"/" + words[0]
    return subprocess.run(words, cwd=cwd, capture_output=True, stdin=subprocess.DEVNULL, timeout=30, **kw)


def commands():
    text = run("pai", "--help").stdout.decode()
    return re.findall(r"^  (\w+)  +\S", text.split("\n\n")[1], re.M)


def help_of(*words):
    for flag in ("--help", "-h"):
        r = run(*words, flag)
        text = r.stdout.decode()
        if r.returncode or r.stderr or "usage: " not in text:
            return f"{words} {flag}: {r}"
        if "example" not in text:
            return f"{words} {flag}: no example"
    return None


def objects(r, words):
    """The lines of JSON on stdout, or what is wrong with them."""
    try:
        return [json.loads(line) for line in r.stdout.decode("ascii").splitlines()]
    except ValueError as e:
        raise AssertionError(f"{words}: {e}: {r}") from None


def succeeds(name):
    good, bad = COMMANDS[name]
    words = ["pai", name, "--json", *good]
    r = run(*words)
    if r.returncode or r.stderr or not objects(r, words):
        return f"{words}: {r}"
    return None


def fails(name):
    bad = COMMANDS[name][1]
    for words, status in ((["pai", name, "--json", *(bad or [])], 1), (["pai", name, "--nope", "--json"], 2)):
        if bad is None and status == 1:
            continue
        r = run(*words)
        want = {status, 2} if name in ("conformance", "kill", "tool") else {125 if name == "use" else status}
        if r.returncode not in want or r.stderr.count(b"\n") != 1:
            return f"{words}: {r}"
        error = objects(r, words)[-1].get("error") if r.stdout else None
        if name == "conformance" and status == 2:
            continue  # not understood: nothing was asked for
        if name == "probe" and status == 1 and error == "unknown":
            continue  # for programs that want to know no more
        if not error or not error["kind"] or not error["message"]:
            return f"{words}: {r}"
    return None


def before_the_command():
    """--json of the program is its command's, and of what is no command as well."""
    for words in (["pai", "--json", "ls"], ["pai", "--json", "-n", "default", "ls"],
                  ["pai", "-n", "default", "--json", "ls"]):
        r = run(*words)
        if r.returncode or "sessions" not in objects(r, words)[0]:
            return f"{words}: {r}"
    for words in (["pai", "--json", "frob"], ["pai", "frob", "--json"], ["pai", "--nope", "--json"],
                  ["pai", "--json", "ls", "--nope"], ["pai", "--json", "conformance", "nosuch"]):
        r = run(*words)
        if r.returncode != 2 or r.stderr.count(b"\n") != 1 or objects(r, words)[0]["error"]["kind"] != "input":
            return f"{words}: {r}"
    return None


def says(words, expected):
    r = run(*words)
    text = r.stderr.decode()
    status = {"pai-exec": {125}, "pai-conformance": {2}}.get(words[0], {1, 2})
    if r.returncode not in status or (text.count("\n") != 1 and words != ["pai"]) or expected not in text:
        return f"{r.returncode} {text}"
    return None


def unsafe(data):
    try:
        found = UNSAFE.search(data.decode())
    except UnicodeDecodeError as e:
        return str(e)
    return f"{found.group()!r} in {data[max(0, found.start() - 60):found.start() + 20]!r}" if found else None


def speaks_safely(*words, **kw):
    r = run(*words, **kw)
    return [f"{words[:3]!r}: {bad}" for bad in (unsafe(r.stdout), unsafe(r.stderr)) if bad]


def of_words():
    """Whatever a program is given, as a name, a key, an option or its value."""
    bad = []
    for evil in EVIL:
        for name in commands():
            if name not in ("doctor", "umount", "conformance"):
                bad += speaks_safely("pai", name, evil)
                bad += speaks_safely("pai", name, evil, "--json")
            bad += speaks_safely("pai", name, b"--" + evil)
        for words in ((b"pai", evil), (b"pai", b"-n", evil, b"ls"), (b"pai", b"log", b"--limit", evil),
                      (b"pai", b"kill", b"--sandbox", evil), (b"pai", b"create", b"k", b"-o", evil),
                      (b"pai", b"create", b"k", b"-o", evil + b"=" + evil),
                      (b"pai", b"create", b"k", b"-o", b"ttl=" + evil),
                      (b"pai", b"create", b"k", b"-o", b"create=" + evil),
                      (b"pai-exec", b"-s", evil, b"x"), (b"pai-exec", b"-n", evil, b"x"),
                      (b"pai-exec", b"--" + evil, b"x"), (b"pai-exec", b"--timeout", evil, b"x"),
                      (b"pai-exec", b"-s", b"k", b"-C", evil, b"x"),
                      (b"pai-exec", b"-s", b"k", b"-e", evil, b"x"),
                      (b"paifs", evil, b"/tmp"), (b"paifs", b"local", b"/nosuch/" + evil),
                      (b"paifs", b"local", b"/tmp", b"-o", evil), (b"paifs", b"local", b"/tmp", b"-n", evil),
                      (b"paifs", b"local", b"/tmp", b"-o", b"ttl=" + evil), (b"paifs", b"--" + evil),
                      (b"paifs", b"local", b"/tmp", b"-o", b"root=/nosuch/" + evil),
                      (b"paifs", b"/nosuch/" + evil + b".so", b"/tmp"),
                      (b"paifs", b"local", b"/tmp", evil), (b"paifs", b"--help", evil),
                      (b"paifs", b"memory", b"/tmp", b"-o", b"script=/" + evil),
                      (b"paifs", b"memory", b"/tmp", b"-o", b"fault=" + evil),
                      (b"pai-conformance", evil), (b"pai-conformance", b"--json", evil),
                      (b"pai-conformance", b"--" + evil),
                      (b"pai-conformance", b"memory", b"--filter", evil, b"--json"),
                      (b"pai-conformance", b"memory", b"-o", evil), (b"pai-helper", evil)):
            bad += speaks_safely(*words)
    return bad[:5]


def of_places(d):
    """Names of directories that commands start in, of commands, and their arguments in the log."""
    bad = []
    for evil in EVIL:
        where = os.path.join(d.top.encode(), b"k", evil)
        os.makedirs(where)
        for words in ((b"pai-exec", b"true", evil), (b"pai-exec", evil), (b"pai-exec", b"-C", b"nosuch" + evil, b"x"),
                      (b"pai", b"status"), (b"pai-exec", b"-C", evil, b"x")):
            bad += speaks_safely(*words, cwd=where)
        os.rmdir(where)
    run("pai", "-n", d.name, "create", BIDI)
    for words in (("ls",), ("ls", "--json"), ("status", BIDI), ("log", "--all"), ("log", "--all", "--json"),
                  ("reset", BIDI), ("kill", BIDI), ("status", BIDI)):
        bad += speaks_safely("pai", "-n", d.name, *words)
    log = run("pai", "-n", d.name, "log", "k").stdout.decode()
    if "\\x1b]0;title\\x07" not in log:
        bad.append(f"the log shows no arguments: {log[-300:]}")
    return bad[:5]


def of_providers(d):
    """A provider's own errors, in every program, in the log and in the trace."""
    bad = []
    os.makedirs(f"{d.top}/said-1")
    for words in (("pai", "-n", d.name, "probe"), ("pai", "-n", d.name, "probe", "--json"),
                  ("pai", "-n", d.name, "create", "said"), ("pai", "-n", d.name, "status", "said"),
                  ("pai-exec", "-n", d.name, "-s", "said", "true"),
                  ("pai-conformance", BUILD + "/tests/hostile.so", "--filter", "probe/*"),
                  ("pai-conformance", BUILD + "/tests/hostile.so", "--filter", "probe/*", "--json")):
        bad += speaks_safely(*words)
        if "status" not in words and b"2J" not in (lambda r: r.stdout + r.stderr)(run(*words)):
            bad.append(f"{words}: does not say what the provider said")
    try:
        with open(f"{d.top}/said-1/f", "w"):
            pass
        bad.append("a sandbox was made")
    except OSError:
        pass
    for path in (d.log, f"{TMP}/trace"):
        with open(path, "rb") as f:
            text = f.read()
        if b"2J" not in text:
            bad.append(f"{path} does not say what the provider said")
        wrong = unsafe(text)
        bad += [f"{path}: {wrong}"] if wrong else []
    return bad[:5]


def creates(d):
    """Every option of pai create; they outlive the daemon, a reset takes none, a kill all."""
    os.makedirs(f"{TMP}/beside", exist_ok=True)
    with open(f"{TMP}/beside/prog", "w") as f:
        f.write('#!/bin/sh\necho "{\\"env\\":{\\"FOR\\":\\"$1\\",\\"GIVEN\\":\\"program\\"}}"\n')
    os.chmod(f"{TMP}/beside/prog", 0o755)
    options = ("network=none,env.GIVEN=here,metadata.team=blue,ttl=1h,keepalive_ttl=2h,create_timeout=9s,"
               "session_key_metadata=thread,create=./prog")
    r = run("pai", "-n", d.name, "create", "all", "-o", options, "--json", cwd=f"{TMP}/beside")
    if r.returncode or not objects(r, "create")[0]["created"]:
        return str(r)

    def as_made():
        env = run("pai-exec", "-n", d.name, "-s", "all", "env").stdout.decode().splitlines()
        status = json.loads(d.pai("status", "all", "--json").stdout)["session"]
        good = {"FOR=all", "GIVEN=here"} <= set(env) and status["network"] == "none"
        return "" if good else f"{env} {status}"
    wrong = as_made()
    for how in ("restart", "reset"):
        if how == "reset":
            d.pai("reset", "all")
        else:
            d.stop()
            d.start()
        wrong = wrong or as_made() and f"after a {how}: {as_made()}"
    r = d.pai("create", "all", "-o", "network=full", "--json")
    if wrong or json.loads(r.stdout)["error"]["kind"] != "policy-mismatch":
        return wrong or str(r)
    again = json.loads(d.pai("create", "all", "-o", "keepalive_ttl=3h", "--json").stdout)
    d.pai("kill", "all")
    if again["created"] or "GIVEN=here" in run("pai-exec", "-n", d.name, "-s", "all", "env").stdout.decode():
        return f"{again}, or a kill left the options"
    r = d.pai("create", "mine", "-o", f"template={TMP}/beside")
    made = run("pai-exec", "-n", d.name, "-s", "mine", "ls").stdout
    return None if r.returncode == 0 and made == b"prog\n" else f"{r} {made}"


def nowhere():
    """What can't be written is no success."""
    for words in (["pai", "--help"], ["pai", "--version"], ["pai", "ls", "--help"], ["pai", "ls"], ["paifs", "--help"],
                  ["paifs", "--version"], ["pai-exec", "--help"], ["pai-conformance", "--list"]):
        with open("/dev/full", "w") as full:
            r = subprocess.run([f"{BUILD}/{words[0]}", *words[1:]], stdin=subprocess.DEVNULL, stdout=full,
                               stderr=subprocess.PIPE, timeout=30, cwd="/")
        if r.returncode == 0:
            return f"{words}: {r}"
    return None


def no_template_of_ours(d):
    """The daemon would have to answer itself."""
    os.mkdir(f"{d.top}/k/sub")
    for path in (f"{d.top}/k", f"{d.top}/k/sub", f"{d.top}"):
        r = d.pai("create", "ours", "-o", f"template={path}", "--json")
        if r.returncode != 1 or json.loads(r.stdout)["error"]["kind"] != "policy-mismatch":
            return f"{path}: {r}"
    return None


begin("words")
memory = Daemon("memory", "default", mount=False)
assert run("pai", "create", "k").returncode == 0
for program in PROGRAMS:
    case(f"help {program}", help_of, program)
for command in commands():
    case(f"help pai {command}", help_of, "pai", command)
for wrong_words, expected_word in WRONG:
    case("says " + " ".join(wrong_words)[:60], says, wrong_words, expected_word)
case("every byte in words is printed safely", of_words)
for command in [c for c in commands() if c not in COMMANDS]:
    case(f"json {command}", lambda: "tests/integration/exec-words.py has no arguments for it")
for command in COMMANDS:
    case(f"json of a failure {command}", fails, command)
case("json before the command", before_the_command)
case("a full disk is no success", nowhere)
for command in [c for c in COMMANDS if COMMANDS[c][0] is not None]:  # the last one ends the daemon
    case(f"json {command}", succeeds, command)
local = Daemon("local", "places", "network=full", "log_arguments")
assert local.pai("create", "k").returncode == 0
case("every byte in names is printed safely", of_places, local)
case("pai create takes every option, for its session", creates, local)
case("a template in a mount is refused", no_template_of_ours, local)
hostile = Daemon(BUILD + "/tests/hostile.so", "hostile", f"trace={TMP}/trace")
case("every byte of a provider's errors is printed safely", of_providers, hostile)
sys.exit(finish())
