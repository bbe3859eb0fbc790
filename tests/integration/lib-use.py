#!/usr/bin/env python3
# timeout 90
"""pai use: a local program against one environment, once more in the next one when it is lost; alone
in its queue with --exclusive, in every process. pai key, --scope, reset of what was never used, probe."""
import json
import os
import signal
import subprocess
import sys

import hold_world as world
from hold_world import BUILD, TMP, Daemon, case, wait_for

ENV = {**os.environ, "PATH": BUILD + ":" + os.environ["PATH"]}
number = 0


PLAIN = TMP + "/plain"
open(PLAIN, "w").close()


class Here(Daemon):
    def pai(self, *words, **kw):
        return super().pai(*words, text=True, **kw)


def daemon(*options, mount=False):
    global number
    number += 1
    return Here("local", f"use-{number}", *options, mount=mount)


def use(d, script, *options, key="k", **kw):
    """What `pai use` makes of a shell script."""
    return subprocess.run(["pai", "-n", d.name, "use", *options, key, "--", "sh", "-ec", script], env=ENV,
                          capture_output=True, text=True, timeout=60, cwd=TMP, **kw)


def sandbox_of(d, key="k"):
    return json.loads(d.pai("status", key, "--json").stdout)["session"]["sandboxId"]


LOSE = 'pai -n "$PAI_DAEMON" kill --sandbox "$(pai status --json "$PAI_SESSION" | ' \
       'sed "s/.*sandboxId\\":\\"\\([^\\"]*\\).*/\\1/")" >/dev/null'


def told():
    """A program knows its session, and that is new to it only when it is."""
    d = daemon()
    r = use(d, 'echo "$PAI_SESSION $PAI_DAEMON $PAI_ENVIRONMENT_RESET ${#PAI_ENVIRONMENT}.${#PAI_TOKEN}"; '
               "pai-exec sh -c 'echo in $PWD'; pai tool write --input "
               '\'{"reason":"r","path":"/workspace/f","content":"1"}\'')
    if r.returncode or r.stdout.splitlines()[:2] != [f"k {d.name} 0 64.0", "in /workspace"] or r.stderr:
        return f"{r}"
    if json.loads(r.stdout.splitlines()[2])["status"] != "written":
        return f"{r}"
    d.pai("reset", "k")
    r = use(d, 'echo "$PAI_ENVIRONMENT_RESET"')
    if r.stdout != "1\n" or "was reset" not in r.stderr:
        return f"after a reset: {r}"
    r = use(d, 'echo "$PAI_ENVIRONMENT_RESET"')
    d.stop()
    return None if r.stdout == "0\n" and not r.stderr else f"told twice: {r}"


def statuses():
    d = daemon()

    def run(*argv, options=()):
        return subprocess.run(["pai", "-n", d.name, "use", *options, *argv], env=ENV, capture_output=True,
                              text=True, timeout=60)
    for argv, wanted in ((("k", "--", "true"), 0), (("k", "false"), 1), (("k", "--", "sh", "-c", "exit 2"), 2),
                         (("k", "--", "sh", "-c", "kill -9 $$"), 137), (("k", "--", "/no/such"), 127),
                         (("k", "--", "nosuch-program"), 127), (("k", "--", PLAIN), 126),
                         (("k",), 125), (("--", "true"), 125), (("--nope", "k", "true"), 125),
                         (("", "--", "true"), 125), (("-s", "k", "--", "sh", "-c", "exit 3"), 3)):
        r = run(*argv)
        if r.returncode != wanted or (wanted == 125 and "expected" not in r.stderr and "1 to 128" not in r.stderr):
            return f"{argv}: {r}"
    r = subprocess.run(["pai", "-n", "nosuch", "use", "k", "--", "true"], env=ENV, capture_output=True, text=True,
                       timeout=60)
    d.stop()
    return None if r.returncode == 125 else f"no daemon: {r}"


def lost_in_the_middle():
    """Nothing of the first run is in the second, and nothing of the second before the loss."""
    d = daemon()
    script = ('n=$(cat n 2>/dev/null || echo 0); n=$((n+1)); echo $n > n; '
              'echo "run $n, reset $PAI_ENVIRONMENT_RESET"; pai-exec sh -c "ls; touch mark-$n"; '
              f'if [ $n = 1 ]; then {LOSE}; fi; pai-exec sh -c ls')
    for options in ((), ("--exclusive",)):
        r = use(d, script, *options)
        os.unlink(TMP + "/n")
        if r.returncode or r.stdout != "run 1, reset 0\nrun 2, reset 1\nmark-2\n":
            return f"{options}: {r}"
        if "run once more" not in r.stderr or "another environment answers" not in r.stderr:
            return f"{options}: {r.stderr}"
        d.pai("reset", "k")
        use(d, "true")
    d.stop()
    return None


def each_kind_of_call():
    """None of them is made on another environment than the program's."""
    read = '{"reason":"r","path":"/workspace/f"}'
    edit = '{"reason":"r","path":"/workspace/f","oldString":"a","newString":"b"}'
    write = '{"reason":"r","path":"/workspace/f","content":"a"}'
    command = '{"reason":"r","command":"touch /workspace/made"}'
    for call in ("pai-exec touch made", f"pai tool read --input '{read}'", f"pai tool edit --input '{edit}'",
                 f"pai tool write --input '{write}'", f"pai tool bash --input '{command}'",
                 "pai tool listDirectory --input '{\"reason\":\"r\",\"path\":\"/workspace\"}'",
                 "pai tool grep --input '{\"reason\":\"r\",\"pattern\":\"a\"}'"):
        d = daemon()
        r = use(d, f"test $PAI_ENVIRONMENT_RESET = 0 || exit 9; {LOSE}; {call} && exit 0; echo failed; exit 1")
        after = subprocess.run(d.run_argv("ls", key="k"), capture_output=True, text=True, timeout=60)
        d.stop()
        if r.returncode != 9 or "failed\n" not in r.stdout or after.stdout:
            return f"{call}: {r} {after}"
        if "pai tool" in call and '"sandbox-lost"' not in r.stdout:
            return f"{call}: {r.stdout}"
    return None


def runs_so_far():
    """What the programs noted, once."""
    with open(TMP + "/runs") as f:
        runs = f.read()
    os.unlink(TMP + "/runs")
    return runs


def lost_twice():
    d = daemon()
    r = use(d, f"echo run >> runs; {LOSE}; pai-exec true")
    runs = runs_so_far()
    d.stop()
    return None if r.returncode == 125 and runs == "run\nrun\n" else f"{r} {runs!r}"


def by_somebodys_word():
    """Pre-reset work is never done again in the replacement; nor after a kill."""
    d = daemon()
    for word in ("reset", "kill"):
        r = use(d, f"echo run >> runs; env -u PAI_TOKEN pai {word} k >/dev/null; pai-exec true")
        runs = runs_so_far()
        if r.returncode != 125 or runs != "run\n" or "not run again" not in r.stderr:
            return f"{word}: {r} {runs!r}"
    state = d.pai("status", "k")
    d.stop()
    return None if "killed" in state.stderr else f"the killed key was revived: {state}"


def what_ended_well_stays():
    d = daemon()
    r = use(d, f"echo run >> runs; {LOSE}; pai-exec true || true")
    runs = runs_so_far()
    d.stop()
    return None if r.returncode == 0 and runs == "run\n" else f"{r} {runs!r}"


def other_sessions():
    """They are not the use's: no pin, no turn."""
    d = daemon()
    r = use(d, "pai-exec -s other sh -c 'echo $PWD > who'; pai tool write -s other --input "
               '\'{"reason":"r","path":"/workspace/f","content":"1"}\' >/dev/null; pai-exec -s other ls; '
               "pai-exec ls", "--exclusive")
    d.stop()
    return None if r.returncode == 0 and r.stdout == "f\nwho\n" else f"{r}"


def exclusive():
    """One at a time, in every process: read, think, write; and nobody's write in between."""
    d = daemon()
    use(d, "pai-exec sh -c 'echo 0 > n'")
    step = ("n=$(pai-exec cat n); sleep 0.05; pai tool write --input "
            "\"{\\\"reason\\\":\\\"r\\\",\\\"path\\\":\\\"/workspace/n\\\",\\\"content\\\":\\\"$((n+1))\\\"}\" > /dev/null")
    many = [subprocess.Popen(["pai", "-n", d.name, "use", "--exclusive", "k", "--", "sh", "-ec", step], env=ENV,
                             cwd=TMP) for _ in range(6)]
    codes = [p.wait(60) for p in many]
    got = use(d, "pai-exec cat n").stdout
    if codes != [0] * 6 or got.strip() != "6":
        return f"{codes} {got}"
    # A reset waits as well, for the program and not for its process.
    p = subprocess.Popen(["pai", "-n", d.name, "use", "--exclusive", "k", "--", "sh", "-c",
                          f"echo begun; sleep 0.7; touch {TMP}/over"], env=ENV, cwd=TMP, stdout=subprocess.PIPE)
    p.stdout.readline()
    r = d.pai("reset", "k")
    was_over = os.path.exists(TMP + "/over")
    p.communicate(timeout=30)
    d.stop()
    return None if r.returncode == 0 and was_over else f"{r}"


def nested():
    """Inside a use another one of the session is part of it."""
    d = daemon()
    r = use(d, 'a=$PAI_ENVIRONMENT.$PAI_TOKEN; pai use --exclusive k -- sh -c \'test "$0" = '
               '"$PAI_ENVIRONMENT.$PAI_TOKEN" && pai tool write --input "{\\"reason\\":\\"r\\",\\"path\\":'
               '\\"/workspace/f\\",\\"content\\":\\"1\\"}"\' "$a"; pai reset k', "--exclusive")
    d.stop()
    return None if r.returncode == 0 and '"written"' in r.stdout else f"{r}"


def a_killed_user():
    """Its turn ends with it; a signal reaches the program and ends the use."""
    d = daemon()
    argv = ["pai", "-n", d.name, "use", "--exclusive", "k", "--", "sh", "-c",
            "trap 'echo got; exit 7' TERM; echo begun; while :; do sleep 0.05; done"]
    p = subprocess.Popen(argv, env=ENV, cwd=TMP, stdout=subprocess.PIPE, text=True)
    p.stdout.readline()
    p.send_signal(signal.SIGTERM)
    out = p.communicate(timeout=30)[0]
    if p.returncode != 7 or out != "got\n":
        return f"TERM: {p.returncode} {out!r}"
    p = subprocess.Popen(argv[:7] + ["sleep", "600"], env=ENV, cwd=TMP)
    wait_for(lambda: [c for c in children(p.pid)])
    child = children(p.pid)[0]
    p.kill()
    p.wait()
    r = use(d, "true", "--exclusive")
    os.kill(child, signal.SIGKILL)
    d.stop()
    return None if r.returncode == 0 else f"after its end: {r}"


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return [int(word) for word in f.read().split()]
    except OSError:
        return []


# --- keys ---

def keys():
    def key(*words):
        r = subprocess.run([BUILD + "/pai", "key", *words], capture_output=True, text=True, timeout=20)
        return r.returncode, r.stdout.strip()
    # As tests/unit/base/test_scope.c has them.
    for words, wanted in ((("thread", "threadId=thread-42"), "thread-42"),
                          (("scope", "scopeKey=acme"), "scope-13fd1be87296b24fcbdcf1ae452bab81530b2376")):
        if key(*words) != (0, wanted):
            return f"{words}: {key(*words)}"
    if key("user", "userKey=u", "scopeKey=s") != key("user", "scopeKey=s", "userKey=u", "threadId=t"):
        return "the order counts, or an id that does not"
    for words in ((), ("thread",), ("wrong", "a=b"), ("thread", "threadId"), ("thread", "threadId="),
                  ("thread", "threadId=a", "threadId=b"), ("custom",), ("thread", "nosuch=1", "threadId=t")):
        code, out = key(*words)
        if code == 0 or out:
            return f"{words}: {code} {out}"
    r = subprocess.run([BUILD + "/pai", "key", "--json", "custom", "repo=a b"], capture_output=True, text=True)
    answer = json.loads(r.stdout)
    return None if answer["scope"] == "custom" and answer["ids"] == {"repo": "a b"} else f"{answer}"


def scopes(mounted):
    """The ledger knows what a key was derived from, also after another daemon's start."""
    d = daemon(mount=mounted)
    ids = ("scopeKey=acme", "rootThreadId=r1")
    key = subprocess.run([BUILD + "/pai", "key", "rootThread", *ids], capture_output=True, text=True).stdout.strip()
    r = d.pai("create", "--scope", "rootThread", *ids, "threadId=r1", "-o", "keepalive_ttl=1h", "--json")
    if r.returncode or json.loads(r.stdout)["key"] != key:
        return f"{r}"
    if mounted:
        os.mkdir(d.top + "/plain")
    else:
        d.pai("create", "plain")
    sessions = {s["key"]: s["scope"] for s in json.loads(d.pai("ls", "--json").stdout)["sessions"]}
    if sessions != {"plain": "thread", key: "rootThread"}:
        return f"ls: {sessions}"
    for name, wanted in ((key, ("rootThread", {"scopeKey": "acme", "rootThreadId": "r1", "threadId": "r1"})),
                         ("plain", ("thread", {"threadId": "plain"}))):
        s = json.loads(d.pai("status", name, "--json").stdout)["session"]
        if (s["scope"], s["ids"]) != wanted:
            return f"status {name}: {s}"
    events = [e for e in json.loads(d.pai("log", key, "--json").stdout)["entries"] if e["event"] == "scope"]
    if len(events) != 1 or json.loads(events[0]["detail"])["scope"] != "rootThread":
        return f"log: {events}"
    # A delegated thread's end leaves the session alone; the root thread's does not.
    before = sandbox_of(d, key)
    r = d.pai("kill", "--scope", "rootThread", *ids, "threadId=child")
    if r.returncode or "stays" not in r.stdout or sandbox_of(d, key) != before:
        return f"a delegated thread: {r}"
    r = d.pai("reset", "--scope", "rootThread", *ids)
    if r.returncode or "reset" not in r.stdout:
        return f"reset: {r}"
    r = d.pai("kill", "--scope", "rootThread", *ids)
    if r.returncode or [s["key"] for s in json.loads(d.pai("ls", "--json").stdout)["sessions"]] != ["plain"]:
        return f"the root thread: {r}"
    # What does not fit is refused before anything is made.
    client = d.client()
    for request in ({"op": "create", "key": "other", "scope": "rootThread", "ids": {"rootThreadId": "r1"}},
                    {"op": "scope", "key": "other", "scope": "user", "ids": {"userKey": "u"}},
                    {"op": "scope", "key": "plain", "scope": "nosuch", "ids": {"threadId": "plain"}},
                    {"op": "scope", "key": "plain", "scope": "thread", "ids": ["plain"]},
                    {"op": "scope", "key": "plain", "scope": "thread", "ids": {}}):
        good, answer = client.ask(request)
        if good or answer["kind"] != "input":
            return f"{request}: {answer}"
    keys_now = [s["key"] for s in json.loads(d.pai("ls", "--json").stdout)["sessions"]]
    d.stop()
    return None if keys_now == ["plain"] else f"{keys_now}"


def never_used():
    d = daemon()
    r = d.pai("reset", "nobody")
    if r.returncode or "never used" not in r.stdout:
        return f"{r}"
    made = d.provider_calls().get("create", 0)
    sessions = json.loads(d.pai("ls", "--json").stdout)["sessions"]
    log = json.loads(d.pai("log", "--all", "--json").stdout)["entries"]
    d.stop()
    return f"{made} {sessions} {log}" if made or sessions or log else None


def probe():
    d = daemon()
    r = d.pai("probe", "--json")
    if r.returncode or json.loads(r.stdout) != {"enabled": True, "error": None}:
        return f"{r}"
    d.stop()
    for fault, wanted in (("unavailable:auth", "auth"), ("unavailable:not-served", "not-served"),
                          ("unavailable:transport", "transport"), ("unavailable:backend", "backend"),
                          ("internal", "unknown"), ("policy-mismatch", "unknown")):
        d = daemon(f"fault=probe#1+=error:{fault}")
        r = d.pai("probe", "--json")
        d.stop()
        if r.returncode != 1 or json.loads(r.stdout) != {"enabled": False, "error": wanted} or not r.stderr:
            return f"{fault}: {r}"
    return None


def main():
    case("a program is told of its session", told)
    case("exit statuses", statuses)
    case("lost in the middle: once more, in the next environment", lost_in_the_middle)
    case("no call reaches another environment", each_kind_of_call)
    case("lost twice", lost_twice)
    case("reset or killed in the middle: not again", by_somebodys_word)
    case("what ended well is not done again", what_ended_well_stays)
    case("other sessions", other_sessions)
    case("exclusive", exclusive)
    case("a use in a use", nested)
    case("signals and a killed use", a_killed_user)
    case("keys", keys)
    case("scopes, without a mount", scopes, False)
    if os.path.exists("/dev/fuse"):
        case("scopes, with a mount", scopes, True)
    else:
        world.skip("scopes, with a mount", "no /dev/fuse here")
    case("a reset of what was never used makes nothing", never_used)
    case("probe", probe)
    sys.exit(world.finish())


main()
