#!/usr/bin/env python3
# timeout 240
"""The second seed document, from "Seed the workspace" to "Keep seeded files apart": a case a sentence,
over memory (which has no file provider) and the provider that PAI_OVER names (local). Words in
PAI_SEED_CASES, or arguments: only the cases with one of them in their names."""
import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import hold_world as world
from hold_world import BUILD, TMP, wait_for
from over_world import over
from seed_world import Seeded, inline, loaded, stored

KEY_IDS = {"thread": {"threadId": "t1", "scopeKey": "s"}, "rootThread": {"rootThreadId": "r", "scopeKey": "s"},
           "user": {"userKey": "u", "scopeKey": "s"}, "scope": {"scopeKey": "s"}, "global": {},
           "custom": {"threadId": "x", "team": "y"}}


class Here:
    """Where the cases are made."""

    def __init__(self, provider, options):
        self.provider, self.options = provider, options
        self.has_files = provider != "memory"
        self.number = 0

    def daemon(self, *options, **kw):
        """On a host each has a place of its own there: the session is called k everywhere."""
        self.number += 1
        own = [f"{o}-{self.number}" if o.startswith("root=") else o for o in self.options]
        return Seeded(self.provider, *own, *options, **kw)


def until_called(d, n):
    wait_for(lambda: len(d.called()) >= n, 20, f"call {n}")


# --- "Seed the workspace" ---

def before_the_agent(here):
    """Copied into each environment before the agent uses it, and again into a replacement."""
    d = here.daemon()
    d.declare(inline("skills/a", "1\n"), inline("b", "two"))
    for round in range(2):
        if (d.cat("/workspace/skills/a"), d.cat("/workspace/b")) != ("1\n", "two"):
            return f"round {round}: {d.said()}"
        d.sh("rm", "/workspace/b")
        d.pai("reset", "k")
    d.stop()


def each_source(here):
    """Inline data, a fileId from the file provider, or a loader with a version; executable."""
    d = here.daemon()
    d.stored("f1", b"stored\n")
    d.program("load", 'printf "loaded %s" "$1"')
    d.declare(inline("a", "AP8K", encoding="base64"), stored("b", "f1"), loaded("c", "./load", "x"),
              inline("run", "#!/bin/sh\necho ran\n", executable=True), inline("not", "#!/bin/sh\n"))
    got = [d.cat("/workspace/" + name) for name in "bc"]
    if got != ["stored\n" if here.has_files else None, "loaded x"]:
        return f"{got} {d.said()}"
    with open(d.top + "/k/a", "rb") as f:
        if f.read() != b"\0\xff\n":
            return "base64"
    modes = [bool(os.stat(f"{d.top}/k/{name}").st_mode & 0o111) for name in ("run", "not")]
    d.stop()
    return None if modes == [True, False] else f"{modes}"


def a_program_is_a_function(here):
    """seed is a list of files, or a function that returns one."""
    d = here.daemon(seed="seed")
    d.program("seed", 'ids=$(cat | tr \'"\' "\'"); printf \'[{"path":"/workspace/ids","data":"%s"}]\' "$ids"')
    got = d.cat("/workspace/ids")
    name = d.name
    d.stop()
    return None if got == f"{{'threadId':'k','scopeKey':'{name}'}}" else f"{got}"


def the_ids_of_each_scope(here):
    """Only the ids that the scope keys on, each of them set; a plain mkdir is a thread of the instance."""
    d = here.daemon(seed="seed")
    d.program("seed", f'cat >> {d.dir}/ids; echo >> {d.dir}/ids; echo "[]"')
    wanted = []
    for scope, ids in KEY_IDS.items():
        more = {} if scope == "custom" else {"userKey": "u", "threadId": "t1", "rootThreadId": "r"}
        words = [f"{k}={v}" for k, v in {**more, **ids}.items()]
        if scope == "global":
            words = []
        key = json.loads(d.pai("create", "--json", "--scope", scope, *words, text=True).stdout)["key"]
        d.sh("true", key=key)
        wanted.append(ids)
    os.mkdir(d.top + "/plain")
    d.sh("true", key="plain")
    wanted.append({"threadId": "plain", "scopeKey": d.name})
    with open(d.dir + "/ids") as f:
        got = [json.loads(line) for line in f if line.strip()]
    # A key that was derived elsewhere: its ids are nobody's here.
    r = d.sh("true", key="user-" + "0" * 40)
    d.stop()
    if r.returncode != 125 or "which ids" not in r.stderr:
        return f"{r}"
    return None if got == wanted else f"{got}\n{wanted}"


# --- "When PAI checks" ---

def once_per_run(here):
    """Before the first operation of each run, and of an environment new to this process; others skip it."""
    d = here.daemon(seed="seed")
    d.program("seed", f"cat {d.dir}/list.json")
    d.declare(inline("a", "1"))
    steps = ((None, 1), (None, 1), ("r1", 2), ("r1", 2), ("r2", 3), ("r1", 3), (None, 3))
    for i, (run, calls) in enumerate(steps):
        d.sh("true", run=run)
        if len(d.called()) != calls:
            return f"step {i}: {d.called()}"
    d.declare(inline("a", "2"))
    if d.cat("/workspace/a") != "1" or d.cat("/workspace/a", run="r1") != "1" or d.cat("/workspace/a", run="r3") != "2":
        return f"{d.called()}"
    d.stop()


def environments_new_to_the_process(here):
    """One that another process created, a replacement after a loss or a reset."""
    d = here.daemon(seed="seed")
    d.program("seed", f"cat {d.dir}/list.json")
    d.declare(inline("a", "1"))
    d.sh("true")
    if here.provider != "memory":  # whose sandboxes end with the daemon
        d.stop(keep=True)
        d.start()
        d.sh("true")
        if len(d.called()) != 2:
            return f"another process: {d.called()}"
    before = len(d.called())
    sandbox = d.session()["sandboxId"]
    d.pai("kill", "--sandbox", sandbox)
    if d.cat("/workspace/a") != "1" or len(d.called()) != before + 1:
        return f"a loss: {d.called()}"
    d.pai("reset", "k")
    if d.cat("/workspace/a") != "1" or len(d.called()) != before + 2:
        return f"a reset: {d.called()}"
    d.stop()


def parallel_ones_wait(here):
    """Parallel operations wait for that check and then skip it."""
    d = here.daemon()
    d.program("load", f"while [ ! -e {d.dir}/go ]; do sleep 0.05; done; echo x")
    d.declare(loaded("a", "./load"))
    d.make()
    waiting = [subprocess.Popen(d.run_argv("--run", "r", "cat", "/workspace/a"), stdout=subprocess.PIPE,
                                stdin=subprocess.DEVNULL) for _ in range(5)]
    looking = subprocess.Popen(["cat", d.top + "/k/a"], stdout=subprocess.PIPE)
    until_called(d, 1)
    time.sleep(0.3)
    if any(p.poll() is not None for p in [*waiting, looking]):
        return "somebody did not wait"
    open(d.dir + "/go", "w").close()
    got = [p.communicate(timeout=30)[0] for p in [*waiting, looking]]
    d.stop()
    return None if got == [b"x\n"] * 6 and len(d.called()) == 1 else f"{got} {d.called()}"


def looking_makes_nothing(here):
    """A run that never touches the sandbox starts no check and no sandbox; nor does a look."""
    d = here.daemon(seed="seed")
    d.program("seed", "echo '[]'")
    os.mkdir(d.top + "/k")
    os.listdir(d.top + "/k")
    subprocess.run([BUILD + "/pai", "-n", d.name, "mcp", "-s", "k"], stdin=subprocess.DEVNULL, timeout=30,
                   stdout=subprocess.DEVNULL)
    d.pai("seed", "status", "k")
    state = d.session()["state"]
    if d.called() or state != "new":
        return f"{d.called()} {state}"
    d.make()
    if d.called():
        return "a create is no operation"
    os.listdir(d.top + "/k")
    if len(d.called()) != 1:
        return "a listing in a live, unchecked environment waits for the check"
    d.stop()


def what_is_a_run(here):
    """A pai use, a pai tool --batch, an MCP session, --run; commands have none."""
    d = here.daemon("git=guard", seed="seed")
    d.program("seed", "echo '[]'")
    d.sh("true")
    call = {"reason": "r", "command": "true"}
    batch = "".join(json.dumps({"tool": "bash", "input": call}) + "\n" for _ in range(3))

    def pai(*words, **kw):
        return subprocess.run([BUILD + "/pai", "-n", d.name, *words], capture_output=True, text=True,
                              timeout=60, **kw)

    runs = []
    if os.geteuid() == 0 and here.provider != "memory":  # an agent's shells, of whatever kind
        runs = [("run", lambda: pai("run", "-s", "k", "--", sys.executable, "-c",
                                    "import os; os.system('true'); os.system('env -i /bin/sh -c true')"))]

    def mcp():
        requests = [{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            *({"jsonrpc": "2.0", "id": i, "method": "tools/call",
               "params": {"name": "bash", "arguments": call}} for i in (2, 3))]
        p = subprocess.Popen([BUILD + "/pai", "-n", d.name, "mcp", "-s", "k"], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
        p.stdin.write("".join(json.dumps(r) + "\n" for r in requests))
        p.stdin.flush()
        answers = [json.loads(p.stdout.readline()) for _ in range(3)]
        p.stdin.close()
        p.wait(30)
        return any("error" in a for a in answers) and answers
    for what, fn in (("use", lambda: pai("use", "k", "--", "sh", "-c",
                                         "pai-exec true; pai-exec true; pai tool bash --input '%s'"
                                         % json.dumps(call))),
                     ("batch", lambda: pai("tool", "--batch", "-s", "k", input=batch)), ("mcp", mcp),
                     ("--run", lambda: d.sh("true", run="x")), *runs):
        before = len(d.called())
        r = fn()
        if len(d.called()) != before + 1:
            return f"{what}: {len(d.called()) - before} {r}"
    before = len(d.called())
    d.sh("true")
    pai("tool", "bash", "-s", "k", "--input", json.dumps(call))
    if len(d.called()) != before:
        return "a command and a single call are of no run"
    d.stop()


# --- "What it copies" ---

def only_what_is_lacking(here):
    """Only files whose version the ledger lacks; one whose version changes is written again."""
    d = here.daemon()
    d.program("load", "echo $1")
    d.declare(loaded("a", "./load", "1"), loaded("b", "./load", "2"))
    d.sh("true", run="1")
    d.sh("true", run="2")
    d.declare(loaded("a", "./load", "3", version="2"), loaded("b", "./load", "4"))
    got = d.cat("/workspace/a", run="3"), d.cat("/workspace/b")
    ledger = json.loads(d.cat("/workspace/.pai/seed.json"))
    d.stop()
    if ledger != {"files": [{"path": "/workspace/b", "version": "loader:1"},
                            {"path": "/workspace/a", "version": "loader:2"}]}:
        return f"{ledger}"
    return None if got == ("3\n", "2\n") and len(d.called()) == 3 else f"{got} {d.called()}"


def changes_stay(here):
    """An edited or deleted file stays so until its version changes; an unlisted one stays."""
    d = here.daemon()
    d.declare(inline("a", "1"), inline("b", "1"), inline("c", "1"))
    d.sh("true")
    d.put("/workspace/a", "mine")
    d.sh("rm", "/workspace/b")
    d.declare(inline("a", "1"), inline("b", "1"))
    got = [d.cat("/workspace/" + name, run="1") for name in "abc"]
    if got != ["mine", None, "1"]:
        return f"{got}"
    d.declare(inline("a", "2"), inline("b", "2"))
    got = [d.cat("/workspace/" + name, run="2") for name in "abc"]
    d.stop()
    return None if got == ["2", "2", "1"] else f"{got}"


# --- "Versions, stored files and loaders" ---

def inline_is_versioned_by_its_hash(here):
    d = here.daemon()
    d.declare(inline("a", "x"))
    ledger = json.loads(d.cat("/workspace/.pai/seed.json"))
    d.stop()
    wanted = "sha256:" + hashlib.sha256(b"x").hexdigest()
    return None if ledger["files"][0]["version"] == wanted else f"{ledger}"


def stored_files(here):
    """Read only when the sandbox lacks it; one that is gone is skipped, and tried again."""
    d = here.daemon(files="provide")
    d.program("provide", f'[ -e {d.dir}/files/$1 ] || exit 75; cat {d.dir}/files/$1')
    d.stored("f1", b"1")
    d.declare(stored("a", "f1"), stored("b", "f2"))
    if d.sh("true", run="1").returncode:
        return "a skipped one is a failure"
    d.stored("f2", b"2")
    got = d.cat("/workspace/a", run="2"), d.cat("/workspace/b")
    d.sh("true", run="3")
    calls = [line.split()[1] for line in d.called()]
    d.stop()
    if not here.has_files:
        return None if got == (None, None) and not calls else f"memory has none: {got} {calls}"
    return None if got == ("1", "2") and calls == ["f1", "f2", "f2"] else f"{got} {calls}"


def stored_files_have_a_scope(here):
    """A "global" or custom scope never reads stored files; a check without a file provider skips them."""
    for scope, words in (("global", []), ("custom", ["team=x"])):
        d = here.daemon()
        d.stored("f", b"1")
        d.declare(stored("a", "f"), inline("b", "2"))
        key = json.loads(d.pai("create", "--json", "--scope", scope, *words, text=True).stdout)["key"]
        got = d.cat("/workspace/a", key=key), d.cat("/workspace/b", key=key)
        d.stop()
        if got != (None, "2"):
            return f"{scope}: {got}"
    d = here.daemon(files=None)
    d.declare(stored("a", "f"), inline("b", "2"))
    got = d.cat("/workspace/a"), d.cat("/workspace/b")
    d.stop()
    return None if got == (None, "2") else f"{got}"


def loaders(here):
    """Called only when the sandbox lacks that version, one at a time; 75 skips the file this time."""
    d = here.daemon()
    d.program("load", f"mkdir {d.dir}/busy || exit 1; sleep 0.1; rmdir {d.dir}/busy; [ $1 != skip ] || exit 75; echo $1")
    d.declare(*(loaded(f"f{i}", "./load", str(i)) for i in range(4)), loaded("s", "./load", "skip"))
    r = d.sh("true", run="1")
    if r.returncode or len(d.called()) != 5:
        return f"{r} {d.called()}"
    d.sh("true", run="2")
    got = [d.cat(f"/workspace/f{i}") for i in range(4)]
    d.stop()
    return None if got == ["0\n", "1\n", "2\n", "3\n"] and d.called()[5:] == ["load skip"] else f"{got} {d.called()}"


def a_reset_aborts_a_loader(here):
    """... with its whole process group; so does a kill."""
    for how in ("reset", "kill"):
        d = here.daemon()
        d.program("load", f"sleep 300 & echo $! $$ > {d.dir}/pids; sleep 300")
        d.declare(loaded("a", "./load"))
        waiting = subprocess.Popen(d.run_argv("true"), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        wait_for(lambda: os.path.exists(d.dir + "/pids") and len(open(d.dir + "/pids").read().split()) == 2)
        pids = [int(pid) for pid in open(d.dir + "/pids").read().split()]
        r = d.pai(how, "k")
        if r.returncode:
            return f"{how}: {r}"
        wait_for(lambda: all(world.is_over(pid) for pid in pids), what="the end of the loader's group")
        if waiting.wait(20) != 125:
            return f"{how}: {waiting.returncode}"
        d.stop()


def its_own_programs(here):
    """Seed code that uses the sandbox it is seeding is told so at once: 125, and EDEADLK."""
    d = here.daemon()
    d.program("load", f"{BUILD}/pai-exec -n {d.name} -s k true 2> {d.dir}/err; echo $? > {d.dir}/status\n"
                      f"cat {d.top}/k/x 2> {d.dir}/mount; {BUILD}/pai -n {d.name} tool bash -s k "
                      "--input '{\"reason\":\"r\",\"command\":\"true\"}' > " + d.dir + "/tool 2>&1; echo x")
    d.declare(loaded("a", "./load"))
    began = time.monotonic()
    r = d.sh("cat", "/workspace/a")
    took = time.monotonic() - began
    said = {name: open(f"{d.dir}/{name}").read() for name in ("status", "err", "mount", "tool")}
    d.stop()
    if r.stdout != "x\n" or took > 15:
        return f"{r} {took} {said}"
    good = said["status"] == "125\n" and "deadlock" in said["mount"].lower() and "must not" in said["err"]
    return None if good and '"error"' in said["tool"] else f"{said}"


# --- "When seeding fails" ---

def a_failure_is_the_first_ones(here):
    """Fails only the operation that triggered it; what is missing is named; the next run copies."""
    d = here.daemon()
    d.program("load", f"[ -e {d.dir}/good ] || exit 1; echo x")
    d.declare(inline("a", "1"), loaded("b", "./load"), inline("c", "3"), loaded("s", "sh", "-c", "exit 75"))
    code, out, err, status = d.run("--run", "1", "true")
    if code != 125 or out or b"missing: /workspace/b\n" not in err or b"(seed)" not in err:
        return f"{code} {err}"
    if status["error"]["kind"] != "seed" or status["error"]["missingPaths"] != ["/workspace/b"] or \
            status["outcome"] != "not-started":
        return f"{status}"
    got = [d.cat("/workspace/" + name, run="1") for name in "abc"]
    if got != ["1", None, "3"] or len(d.called()) != 1:
        return f"later ones go ahead: {got} {d.called()}"
    open(d.dir + "/good", "w").close()
    got = d.cat("/workspace/b", run="2")
    d.stop()
    return None if got == "x\n" else f"the next run: {got}"


def tools_name_them(here):
    """The model reads fixed text naming the missing files."""
    d = here.daemon()
    d.declare(loaded("b\n", "false"), loaded("c", "false"))
    r = d.tool("bash", {"reason": "r", "command": "true"})
    e = json.loads(r.stdout)["error"]
    if r.returncode != 1 or e["kind"] != "seed" or not e["message"].startswith("Files that the workspace"):
        return f"{r}"
    if not e["message"].endswith("Missing: /workspace/b\\x0a, /workspace/c.") or "false" in e["message"]:
        return f"{e}"
    r = d.tool("read", {"reason": "r", "path": "/workspace/x"})
    d.stop()
    return None if json.loads(r.stdout).get("status") else f"{r}"


def the_mount_tells(here):
    """EREMOTEIO and a line in the log; the next look goes ahead."""
    d = here.daemon()
    d.declare(loaded("b", "false"), inline("a", "1"))
    d.make()
    try:
        os.listdir(d.top + "/k")
        return "no failure"
    except OSError as e:
        if e.errno != 121:
            return f"{e}"
    got = os.listdir(d.top + "/k")
    said = d.said()
    d.stop()
    return None if "a" in got and "missing: /workspace/b" in said else f"{got} {said}"


def over_the_limit(here):
    """A stored file over the write limit loses only itself; a loader's is a failed write, which stops."""
    d = here.daemon()
    with open(d.dir + "/files/big", "wb") as f:
        f.truncate((50 << 20) + 1)
    d.declare(stored("a", "big"), inline("b", "2"), loaded("c", "head", "-c", str((50 << 20) + 1), "/dev/zero"),
              inline("d", "4"))
    missing = d.run("true")[3]["error"]["missingPaths"]
    got = [d.cat("/workspace/" + name) for name in "bd"]
    d.stop()
    wanted = ["/workspace/a"] * here.has_files + ["/workspace/c", "/workspace/d"]
    return None if missing == wanted and got == ["2", None] else f"{missing} {got}"


def a_failed_write_stops(here):
    """An existing directory, and a path through a link out of the workspace; of few files and of many."""
    for what, make, path in (("directory", ["mkdir", "/workspace/b"], "b"),
                             ("link", ["ln", "-s", "/tmp", "/workspace/l"], "l/b"),
                             ("file", ["touch", "/workspace/l"], "l/b")):
        for many in (1, 6):
            d = here.daemon()
            d.sh(*make)
            before = [f"d/a{i}" for i in range(many)]
            after = [f"d/c{i}" for i in range(many)]
            d.declare(*(inline(name, "1") for name in before), inline(path, "2"),
                      *(inline(name, "3") for name in after))
            code, _, err, status = d.run("--run", "1", "true")
            missing = ["/workspace/" + name for name in (path, *after)]
            if code != 125 or status["error"]["missingPaths"] != missing:
                return f"{what}, {many}: {code} {err} {status}"
            got = d.sh("ls", "-a", "/workspace/d").stdout.split()
            if sorted(set(got) - {".", ".."}) != [f"a{i}" for i in range(many)]:
                return f"{what}, {many}: what was copied is kept, what comes after is not: {got}"
            d.put("/workspace/d/a0", "mine")
            d.declare(inline("d/a0", "1"), *(inline(name, "3") for name in after))
            if d.cat("/workspace/d/c0", run="2") != "3" or d.cat("/workspace/d/a0") != "mine":
                return f"{what}, {many}: the next run"
            d.stop()


def many_at_once(here):
    """In one piece where the files are elsewhere: modes, owners and bytes are those of one."""
    d = here.daemon()
    big = "x" * (300 << 10)
    d.declare(inline("one/x", "1", executable=True))
    d.sh("true")
    files = [inline(f"many/{i % 3}/sub/{i}", f"{i}" * (i + 1), executable=i % 2 == 0) for i in range(40)]
    d.declare(*files, inline("many/empty", ""), inline("many/big", big), inline("top", "t"))
    r = d.sh("true", run="1")
    if r.returncode:
        return f"{r}"
    wrong = [f["path"] for f in files if d.top and open(d.top + "/k" + f["path"][10:]).read() != f["data"]]
    if wrong or open(d.top + "/k/many/big").read() != big or os.stat(d.top + "/k/many/empty").st_size:
        return f"{wrong}"
    stats = [os.stat(f"{d.top}/k/{name}") for name in ("one/x", "many/0/sub/0")]
    said = [(oct(s.st_mode), s.st_uid, s.st_gid) for s in stats]
    if said[0] != said[1]:
        return f"{said}"
    if os.stat(d.top + "/k/many/1/sub/1").st_mode & 0o777 != 0o644:
        return "the mode"
    # Of files that are there the contract keeps the modes; each alone.
    d.declare(*({**f, "data": "new"} for f in files))
    d.sh("true", run="2")
    got = {open(d.top + "/k" + f["path"][10:]).read() for f in files}
    d.stop()
    return None if got == {"new"} else f"{got}"


INVALID = [
    ({"path": "a", "data": ""}, "relative"),
    ({"path": "/workspace/a/../b", "data": ""}, "not normalised"),
    ({"path": "/etc/passwd", "data": ""}, "outside /workspace"),
    ({"path": "/workspace/.pai/x", "data": ""}, "inside /workspace/.pai"),
    ({"path": "/workspace/a", "fileId": ""}, "fileId is empty"),
    ({"path": "/workspace/a", "loader": ["x"], "version": ""}, "version is empty"),
    ({"path": "/workspace/a"}, "no source"),
    ({"path": "/workspace/a", "data": "", "fileId": "f"}, "more than one source"),
]


def an_invalid_list(here):
    """Fails the same way, each mistake with its own message; a path listed twice is one file, the last."""
    d = here.daemon()
    d.sh("true")
    for i, (entry, says) in enumerate(INVALID):
        d.declare(inline("ok", "1"), entry)
        code, _, err, status = d.run("--run", str(i), "true")
        if code != 125 or says not in err.decode() or status["error"]["missingPaths"] != ["/workspace/ok",
                                                                                         entry["path"]]:
            return f"{entry}: {code} {err} {status}"
        if d.cat("/workspace/ok", run=str(i)):
            return f"{entry}: something was copied"
    d.declare(inline("a", "1"), inline("b", "2"), inline("a", "3"))
    got = d.cat("/workspace/a", run="twice"), d.cat("/workspace/b")
    d.stop()
    return None if got == ("3", "2") else f"{got}"


def unreachable_is_no_seed_failure(here):
    """The operation fails as unavailable, and the run's next one checks again."""
    d = here.daemon("fault=write_file#1=error:unavailable:transport")
    d.declare(inline("a", "1"))
    status = d.run("--run", "1", "true")[3]
    if status["error"]["kind"] != "unavailable":
        return f"{status}"
    got = d.cat("/workspace/a", run="1")
    d.stop()
    return None if got == "1" else f"{got}"


def the_mount_waits_so_long(here):
    """At most seed_wait, killable, then EREMOTEIO while the check goes on."""
    d = here.daemon("seed_wait=1s")
    d.program("load", f"while [ ! -e {d.dir}/go ]; do sleep 0.05; done; echo x")
    d.declare(loaded("a", "./load"))
    d.make()
    began = time.monotonic()
    r = subprocess.run(["ls", d.top + "/k"], capture_output=True, text=True, timeout=30)
    took = time.monotonic() - began
    if r.returncode == 0 or "Remote I/O" not in r.stderr or not 0.8 < took < 8:
        return f"{took} {r}"
    began = time.monotonic()
    os.listdir(d.top)
    os.stat(d.top + "/k")
    if time.monotonic() - began > 0.5:
        return "the root waits"
    killed = subprocess.Popen(["ls", d.top + "/k"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.2)
    killed.send_signal(signal.SIGKILL)
    if killed.wait(5) != -9:
        return "it can't be killed"
    open(d.dir + "/go", "w").close()
    wait_for(lambda: subprocess.run(["cat", d.top + "/k/a"], capture_output=True, timeout=30).stdout == b"x\n")
    d.stop()
    return None if len(d.called()) == 1 else f"{d.called()}"


def commands_of_people(here):
    """pai seed check and status."""
    d = here.daemon()
    d.declare(inline("a", "1"), loaded("b", "false"))

    def pai(*words):
        r = d.pai("seed", *words, "k", "--json", text=True)
        return r.returncode, json.loads(r.stdout or "null")
    if pai("status") != (0, {"key": "k", "configured": True, "checked": False, "error": None, "missing": []}):
        return f"{pai('status')}"
    code, said = pai("check")
    if code != 1 or said["missing"] != ["/workspace/b"] or "status 1" not in said["error"]:
        return f"{code} {said}"
    d.declare(inline("a", "1"))
    if pai("check")[0] != 0 or pai("status")[1]["missing"] or d.cat("/workspace/a") != "1":
        return f"{pai('status')}"
    if d.pai("seed", "nonsense").returncode != 1:
        return "nonsense"
    d.stop()


# --- the ledger is the sandbox's to damage ---

HOSTILE = [
    "printf x > /workspace/.pai/seed.json",
    "printf '{\"files\":7}' > /workspace/.pai/seed.json",
    "printf '{\"files\":[{\"path\":\"/workspace/a\",\"version\":[1]}]}' > /workspace/.pai/seed.json",
    "ln -s seed.json /workspace/.pai/seed.json",
    "ln -s /etc/passwd /workspace/.pai/seed.json",
    "ln -s /dev/zero /workspace/.pai/seed.json",
    "mkdir /workspace/.pai/seed.json",
    "mkfifo /workspace/.pai/seed.json",
    "rmdir /workspace/.pai; ln -s /etc /workspace/.pai",
    "rmdir /workspace/.pai; printf x > /workspace/.pai",
    "head -c 70000000 /dev/zero > /workspace/.pai/seed.json",
    "head -c 20000000 /dev/zero | tr '\\000' '[' > /workspace/.pai/seed.json",
]


def hostile_ledgers(here):
    """Whatever lies there, the file is copied, and nothing outside is touched."""
    d = here.daemon()
    d.sh("true")
    before = os.stat("/etc/passwd").st_mtime_ns
    for i, make in enumerate(HOSTILE):
        if here.provider == "memory" and any(word in make for word in ("mkfifo", "head", "/dev/zero")):
            continue  # it has no such thing
        r = d.sh("-c", f"rm -rf /workspace/.pai; mkdir /workspace/.pai; {make}")
        if r.returncode:
            return f"{make}: {r}"
        d.declare(inline("a", str(i)))
        r = d.sh("cat", "/workspace/a", run=str(i))
        if r.stdout != str(i):
            return f"{make}: {r}"
    with open(f"/proc/{d.proc.pid}/status") as f:
        peak = int(next(line for line in f if line.startswith("VmHWM")).split()[1])
    d.stop()
    if os.stat("/etc/passwd").st_mtime_ns != before or os.path.exists("/etc/seed.json"):
        return "outside"
    return None if peak < 700000 else f"{peak} KiB"


def a_claim_is_believed_for_its_file_alone(here):
    """A file the ledger claims is not copied: the worst outcome."""
    d = here.daemon()
    d.program("load", "echo x")
    d.sh("true")
    d.put("/workspace/.pai/seed.json", json.dumps({"files": [{"path": "/workspace/a", "version": "loader:1"},
                                                             {"path": "/etc/passwd", "version": "loader:1"}]}))
    d.declare(loaded("a", "./load"), loaded("b", "./load"))
    got = d.cat("/workspace/a", run="1"), d.cat("/workspace/b")
    d.stop()
    return None if got == (None, "x\n") else f"{got}"


CASES = [before_the_agent, each_source, a_program_is_a_function, the_ids_of_each_scope, once_per_run,
         environments_new_to_the_process, parallel_ones_wait, looking_makes_nothing, what_is_a_run,
         only_what_is_lacking, changes_stay, inline_is_versioned_by_its_hash, stored_files,
         stored_files_have_a_scope, loaders, a_reset_aborts_a_loader, its_own_programs,
         a_failure_is_the_first_ones, tools_name_them, the_mount_tells, over_the_limit, a_failed_write_stops,
         many_at_once,
         an_invalid_list, unreachable_is_no_seed_failure, the_mount_waits_so_long, commands_of_people,
         hostile_ledgers, a_claim_is_believed_for_its_file_alone]


def main():
    names = [fn.__name__.replace("_", "-") for fn in CASES]
    only = sys.argv[1:] or os.environ.get("PAI_SEED_CASES", "").split() or [""]
    world.begin(*names)
    with over(TMP) as (provider, options):
        places = [Here(provider, options)]
        if provider == "local":
            places.insert(0, Here("memory", []))
        for here in places:
            for fn, name in zip(CASES, names):
                if any(word in f"{name}-{here.provider}" for word in only):
                    world.case(f"{name}-{here.provider}", fn, here)
                    for d in world.daemons:
                        if d.proc.poll() is None:
                            d.stop()
    return world.failed


if __name__ == "__main__":
    sys.exit(main())
