#!/usr/bin/env python3
# timeout 150
"""The seven tools beyond single answers: every kind of error, steps, streams, resets, edits of several
processes, a mount, arguments of random bytes, bad input, signals."""
import json
import mmap
import random
import signal
import subprocess
import sys
import threading

import hold_world as world
from hold_world import BUILD, TMP, case, get, put, wait_for
from pai_fake import Daemon as FakeDaemon
from tool_world import Daemon, Session, os

FIXED = {"sandbox-lost": "The sandbox was lost", "unavailable": "The sandbox can't be reached",
         "busy": "The sandbox service is busy", "refused": "This is refused by the policy",
         "file-too-large": "The file is larger than", "seed": "Files that the workspace should begin",
         "input": "The call is not one", "cancelled": "The call was cancelled",
         "output-too-large": "The output is larger", "write-failed": "Something that was written"}
# What a provider fails with, and what a model is told of it.
KINDS = {"unavailable:transport": "unavailable", "unavailable:backend": "unavailable",
         "unavailable:auth": "unavailable", "unavailable:not-served": "unavailable",
         "command-timeout": "unavailable", "output-limit": "output-too-large",
         "file-too-large": "file-too-large", "policy-mismatch": "refused", "quota-exceeded": "busy",
         "seed": "seed", "cancelled": "cancelled", "timeout": "unavailable", "protocol": "unavailable",
         "unsupported": "refused", "no-memory": "unavailable", "internal": "unavailable",
         "not-found": "sandbox-lost"}
FIELDS = {"read": {"path": "/workspace/x"}, "listDirectory": {"path": "/workspace"},
          "write": {"path": "/workspace/x", "content": "1"},
          "edit": {"path": "/workspace/x", "oldString": "1", "newString": "2"},
          "bash": {"command": "true"}, "grep": {"pattern": "x"}, "glob": {"pattern": "x"}}
CALLS = {"read": "read_file", "listDirectory": "list_dir", "write": "write_file", "edit": "read_file",
         "bash": "open_exec", "grep": "open_exec", "glob": "open_exec"}
number = 0


def daemon(provider="local", *options, **kw):
    global number
    number += 1
    return Daemon(provider, f"calls-{number}", *options, mount=kw.pop("mount", False), **kw)


def is_fixed(answer, kind):
    error = answer.get("error")
    return (set(answer) == {"error", "environmentReset"} and set(error) == {"kind", "message"} and
            error["kind"] == kind and error["message"].startswith(FIXED[kind]))


def every_kind():
    """No word of a provider, no host name, id or path of this machine."""
    for fault, kind in KINDS.items():
        schedule = ";".join(f"{call}#1+=error:{fault}" for call in sorted(set(CALLS.values())))
        d = daemon("local", "fault=" + schedule)
        for tool, fields in FIELDS.items():
            if fault == "unsupported" and CALLS[tool] == "open_exec":
                continue  # commands go another way then
            status, out, err = Session(d, fill=False).raw(
                tool, json.dumps({"reason": "r", **fields}).encode())
            answer = json.loads(out)
            # A write asks first whether there is a file, which fails as well for what is no answer.
            if status != 1 or err or not is_fixed(answer, kind):
                d.stop()
                return f"{fault}, {tool}: {status} {answer} {err}"
            text = out.decode()
            for word in (TMP, os.uname().nodename, "inject", "fault", "local", str(d.proc.pid)):
                if word in text:
                    return f"{fault}, {tool}: '{word}' in {text}"
        d.stop()
    return None


def no_daemon():
    r = subprocess.run([BUILD + "/pai", "-n", "nosuch", "tool", "bash", "-s", "k"], capture_output=True,
                       input=b'{"reason":"r","command":"true"}', timeout=30)
    answer = json.loads(r.stdout)
    return None if r.returncode == 1 and is_fixed(answer, "unavailable") else f"{r}"


def a_daemon_that_lies():
    """Frames that may not come end the call, with the text of their kind."""
    def script(conn):
        conn.hello()
        conn.frame()
        conn.send(0x27, b"x" * 1000, 9)  # DATA of no request

    with FakeDaemon(script):
        r = subprocess.run([BUILD + "/pai", "-n", "fake", "tool", "read", "-s", "k"], capture_output=True,
                           input=b'{"reason":"r","path":"/workspace/a"}', timeout=30)
    return None if is_fixed(json.loads(r.stdout), "unavailable") else f"{r}"


# --- resets ---

def lost_in_the_middle():
    """Each tool, when its sandbox goes in mid-call: once more in the new one, which is told, once."""
    for tool, fields in FIELDS.items():
        d = daemon("local", f"fault={CALLS[tool]}#1=lose")
        s = Session(d, fill=False)
        if tool == "edit":
            # Between its read and its write.
            d.stop()
            d = daemon("local", "fault=write_file#2=lose")
            s = Session(d, fill=False)
            s.call("write", path="/workspace/x", content="1")
        status, answer = s.call(tool, **fields)
        again = s.call("listDirectory", path="/workspace")[1]
        d.stop()
        if "error" in answer or answer["environmentReset"] is not True:
            return f"{tool}: {status} {answer}"
        if again["environmentReset"]:
            return f"{tool}: told twice"
    return None


def a_reset_between_calls():
    """Every tool says so once, whichever comes first, and nothing of the old one is seen."""
    d = daemon()
    s = Session(d, fill=False)
    for tool, fields in FIELDS.items():
        s.call("write", path="/workspace/old", content="old")
        assert d.pai("reset", "k").returncode == 0
        _, answer = s.call(tool, **fields)
        _, after = s.call("read", path="/workspace/old")
        if not answer["environmentReset"] or after["environmentReset"] or after["status"] != "not_found":
            return f"{tool}: {answer}, then {after}"
        if tool == "bash" and s.call("bash", command="true")[1]["environmentReset"]:
            return "bash tells twice"
    d.stop()
    return None


def a_reset_in_the_middle_of_a_step():
    d = daemon("local", "fault=read_file#4=lose")
    s = Session(d, fill=False)
    read = ("read", {"path": "/workspace/a"})
    touch = ("bash", {"command": "true"})
    # A write asks with a read: #1; then #2, #3, #4.
    _, answers = s.batch(("write", {"path": "/workspace/a", "content": "1"}), read, touch, read, touch,
                         read, touch, read)
    got = [(a["result"].get("status"), a["result"]["environmentReset"]) for a in answers]
    wanted = [("written", False), ("text", False), (None, False), ("text", False), (None, False),
              ("not_found", True), (None, False), ("not_found", False)]
    d.stop()
    return None if got == wanted else f"{got}"


def run_again(lines):
    """A command whose sandbox goes when it has already said something: run once more in the next one,
    as if the first had never been; the bytes of the first are none of its answer."""
    d = daemon()
    s = Session(d, fill=False)
    s.call("write", path="/workspace/old", content="1")
    command = f"seq {lines}; seq {lines} >&2; if test -e old; then touch begun; sleep 60; fi; echo done"
    thread = threading.Thread(target=lambda: (
        wait_for(lambda: s.call("read", path="/workspace/begun")[1]["status"] == "text"),
        d.pai("kill", "--sandbox", d.session()["sandboxId"])))
    thread.start()
    status, answer = s.call("bash", command=command)
    thread.join()
    d.stop()
    if status or answer["exitCode"] != 0 or not answer["environmentReset"]:
        return f"{status} {str(answer)[:300]}"
    numbers = "".join(f"{i}\n" for i in range(1, lines + 1))
    for channel, wanted in (("stdout", numbers + "done\n"), ("stderr", numbers)):
        got = answer[channel]
        if got != wanted and got.split("]\n", 1)[-1] != wanted[-30000:]:
            return f"{channel}: {got[:200]} ... {got[-100:]}"
        if got != wanted and f"of {len(wanted):,} bytes" not in got:
            return f"{channel}: {got[:100]}"
    return None


def a_command_that_is_lost():
    """It may have run: then nobody says that it did not, and the calls after it are not made."""
    d = daemon()
    s = Session(d, fill=False)
    s.call("bash", command="true")
    thread = threading.Thread(target=lambda: (
        wait_for(lambda: s.call("read", path="/workspace/begun")[1]["status"] == "text"),
        d.pai("kill", "k")))
    thread.start()
    status, answers = s.batch(("bash", {"command": "echo begun | tee begun; sleep 60"}),
                              ("bash", {"command": "echo second"}))
    thread.join()
    d.stop()
    first, second = answers[0]["result"], answers[1]["result"]
    if status != 1 or not is_fixed(first, "sandbox-lost"):
        return f"{status} {first}"
    return None if second["status"] == "skipped" and second["after"] == 1 else f"{second}"


def calls_counted(s):
    """What a warm call asks of the provider: one thing, where one is enough."""
    s.call("bash", command="true")
    for tool, wanted in (("write", {"read_file": 1, "write_file": 1}), ("read", {"read_file": 1}),
                         ("listDirectory", {"list_dir": 1}), ("bash", {}), ("grep", {}), ("glob", {}),
                         ("edit", {"read_file": 1, "write_file": 1})):
        before = s.daemon.provider_calls()
        s.call(tool, **{**FIELDS[tool], "reason": "counted"})
        after = s.daemon.provider_calls()
        got = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
        if got != wanted:
            return f"{tool}: {got}"
    return None


# --- steps ---

def stops(s):
    ok_read = ("read", {"path": "/workspace/lf"})
    s.call("write", path="/workspace/lf", content="a\nb\n")
    for stopper, status in ((("bash", {"command": "exit 2"}), 3),
                            (("bash", {"command": "sleep 9", "timeoutMs": 100}), 3),
                            (("edit", {"path": "/workspace/lf", "oldString": "no", "newString": "x"}), 3),
                            (("edit", {"path": "/workspace/none", "oldString": "no", "newString": "x"}), 3),
                            (("edit", {"path": "/workspace/lf", "oldString": "", "newString": "x"}), 3),
                            (("write", {"path": "relative", "content": ""}), 3),
                            (("bash", {"command": 7}), 2), (("bash", {"command": "x", "cwd": "/none"}), 1)):
        got, answers = s.batch(ok_read, stopper, ok_read, ("bash", {"command": "touch /workspace/ran"}))
        results = [a["result"].get("status") for a in answers]
        if got != status or results[0] != "text" or results[2:] != ["skipped"] * 2:
            return f"{stopper}: {got} {results}"
        if [a["result"]["after"] for a in answers[2:]] != [2, 2]:
            return f"{stopper}: {answers[2:]}"
    if s.call("read", path="/workspace/ran")[1]["status"] != "not_found":
        return "a skipped call was made"
    got, answers = s.batch(ok_read, ("read", {"path": 7}), ok_read, ("bash", {"command": "true"}), ok_read)
    results = [a["result"].get("status", "error") for a in answers]
    if got != 2 or results != ["text", "error", "text", "skipped", "skipped"]:
        return f"an error among those that run together: {got} {results}"
    got, answers = s.batch(("read", {"path": "/workspace/none"}), ("grep", {"pattern": "("}),
                           ("glob", {"pattern": "*", "path": "/workspace/none"}),
                           ("read", {"path": "relative"}), ("bash", {"command": "true"}))
    if got or answers[-1]["result"]["exitCode"] != 0:
        return f"what is no failure stopped a step: {got} {answers[-1]}"
    return None


def in_order(s):
    """What a step writes it can run later; reads see what was before them in the order written."""
    _, answers = s.batch(("write", {"path": "/workspace/run.sh", "content": "echo one > out"}),
                         ("bash", {"command": "sh run.sh"}), ("read", {"path": "/workspace/out"}),
                         ("edit", {"path": "/workspace/run.sh", "oldString": "one", "newString": "two"}),
                         ("bash", {"command": "sh run.sh"}), ("read", {"path": "/workspace/out"}))
    got = [a["result"]["content"] for a in answers if a["tool"] == "read"]
    numbers = [a["call"] for a in answers]
    return None if got == ["1: one", "1: two"] and numbers == [1, 2, 3, 4, 5, 6] else f"{answers}"


def together(s):
    """Those that may run together do: an engine that waits for four of its kind meets them."""
    d = daemon()
    meeting = Session(d, engine="gnu", fill=False)
    meeting.exec("/bin/sh", "-c", "/bin/rm -f /tmp/bin/rg; /bin/cat > /tmp/bin/rg; "
                 "/bin/chmod 755 /tmp/bin/rg; /bin/mkdir /workspace/.met",
                 input=b"#!/bin/sh\n: > /workspace/.met/$$; n=0\n"
                       b"while [ $(ls /workspace/.met | wc -l) -lt 4 ]; do sleep 0.05; n=$((n+1)); "
                       b"[ $n -lt 200 ] || { echo alone >&2; exit 2; }; done\nexit 1\n")
    _, answers = meeting.batch(*[("grep", {"pattern": "x"}), ("glob", {"pattern": "x"})] * 2)
    d.stop()
    if [a["result"]["status"] for a in answers] != ["ok"] * 4:
        return f"{answers}"
    calls = [("grep", {"pattern": "x"}), ("glob", {"pattern": "*"}),
             ("listDirectory", {"path": "/workspace"}), ("read", {"path": "/workspace/lf"})] * 8
    got, answers = s.batch(*calls)
    if got or [a["call"] for a in answers] != list(range(1, 33)):
        return f"{got} {[a['call'] for a in answers]}"
    return None if all(a["result"]["status"] in ("ok", "text") for a in answers) else f"{answers}"


def bad_lines(s):
    text = b'{"tool":"bash","input":{"reason":"r","command":"true"}}\n\nnot JSON\n' \
           b'{"tool":"bash","input":{"reason":"r","command":"true"}}'
    status, out, _ = s.raw(None, text, "--batch")
    answers = [json.loads(line) for line in out.splitlines()]
    if status != 2 or [a["call"] for a in answers] != [1, 2, 3] or answers[1]["tool"] is not None:
        return f"{status} {answers}"
    if answers[1]["result"]["error"]["kind"] != "input" or answers[2]["result"]["status"] != "skipped":
        return f"{answers}"
    status, out, _ = s.raw(None, b"", "--batch")
    if status or out:
        return f"an empty step: {status} {out}"
    many = b'{"tool":"read","input":{"reason":"r","path":"x"}}\n' * 1001
    status, out, _ = s.raw(None, many, "--batch")
    return None if status == 2 and b"at most 1000" in out else f"1,001 calls: {status} {out[:200]}"


# --- streams ---

def events(s):
    status, out, _ = s.raw("bash", json.dumps({"reason": "r", "command":
                           "for i in 1 2 3; do echo out$i; echo err$i >&2; sleep 0.2; done; "
                           "head -c 70000 /dev/zero | tr '\\0' x"}).encode(), "--stream")
    lines = [json.loads(line) for line in out.splitlines()]
    result = lines[-1]["result"]
    seen = [line for line in lines if line["event"] == "output"]
    if status or lines[-1]["event"] != "result" or any(e["id"] not in ("stdout", "stderr") for e in seen):
        return f"{status} {lines}"
    for channel in ("stdout", "stderr"):
        last = [e for e in seen if e["id"] == channel and not e["transient"]]
        interim = [e for e in seen if e["id"] == channel and e["transient"]]
        if [e["text"] for e in last] != [result[channel]]:
            return f"{channel}: the last text is not the answer's"
        if len(interim) < 2 or any(len(e["text"]) > 30000 for e in interim):
            return f"{channel}: {[len(e['text']) for e in interim]}"
    return None if result["truncated"] else "not truncated"


def interrupted(s):
    """^C: the command is dead, the answer says so, and we die of it as any program."""
    text = json.dumps({"reason": "r", "command": "echo $$ > pid; sleep 600"})
    p = subprocess.Popen([BUILD + "/pai", "-n", s.daemon.name, "tool", "bash", "-s", "k", "--input", text],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    wait_for(lambda: s.call("read", path="/workspace/pid")[1].get("content", "") != "")
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=30)
    if p.returncode != -signal.SIGINT or err or not is_fixed(json.loads(out), "cancelled"):
        return f"{p.returncode} {out} {err}"
    _, answer = s.call("bash", command="kill -0 $(cat pid) 2>/dev/null && echo alive")
    return "the command lives on" if answer["stdout"] else None


def step_killed(s):
    """The calls of a step that run together end with it, here and in the sandbox."""
    s.call("bash", command="mkfifo p1 p2")
    mark = f"zz{os.getpid()}"
    text = "".join(json.dumps({"tool": "grep", "input": {"reason": "r", "pattern": mark, "path": "/workspace/" + p}}) +
                   "\n" for p in ("p1", "p2"))
    count = f"grep -la '[z]{mark[1:]}' /proc/[0-9]*/cmdline 2>/dev/null | wc -l"

    def running():
        return int(s.call("bash", command=count)[1]["stdout"])
    p = subprocess.Popen([BUILD + "/pai", "-n", s.daemon.name, "tool", "--batch", "-s", "k", "--input", text],
                         stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    wait_for(lambda: running() > 0, what="the searches")
    with open(f"/proc/{p.pid}/task/{p.pid}/children") as f:
        children = f.read().split()
    p.terminate()
    p.wait(10)
    p.stdout.close()
    try:
        wait_for(lambda: all(world.is_over(int(c)) for c in children) and running() == 0)
    except AssertionError as e:
        for c in children:
            subprocess.run(["kill", "-9", c], stderr=subprocess.DEVNULL)
        return f"{children} {e}"
    return None if len(children) == 2 else f"{children}"


# --- several processes, a mount ---

def edits_at_once(s):
    """None is lost, whoever makes them."""
    s.call("write", path="/workspace/list", content="".join(f"<{i}>\n" for i in range(12)))
    threads = [threading.Thread(target=s.call, args=("edit",), kwargs={
        "path": "/workspace/list", "oldString": f"<{i}>", "newString": f"done {i}"}) for i in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    content = s.call("read", path="/workspace/list")[1]["content"]
    wanted = "\n".join(f"{i + 1}: done {i}" for i in range(12))
    return None if content == wanted else content


def through_a_mount():
    """The mount and the tools are one place, at once; a path in the mount is a sandbox path."""
    d = daemon(mount=True)
    s = Session(d, fill=False)
    s.call("write", path="/workspace/a/f", content="one\n")
    top = f"{d.top}/k"
    if get(top + "/a/f") != b"one\n":  # cached from here on
        return "a tool's write is not in the mount"
    s.call("edit", path="/workspace/a/f", oldString="one", newString="two")
    if get(top + "/a/f") != b"two\n":
        return "a tool's edit is not in the mount"
    put(top + "/a/f", b"three\n")
    if s.call("read", path=top + "/a/f")[1].get("content") != "1: three":
        return f"by its path in the mount: {s.call('read', path=top + '/a/f')}"
    with open(top + "/a/f", "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
        m[0:5] = b"THREE"
        if s.call("read", path="/workspace/a/f")[1].get("content") != "1: THREE":
            return "a store through a mapping was not seen"
    status, answer = s.call("bash", command="pwd", cwd=top + "/a")
    if answer.get("stdout") != "/workspace/a\n":
        return f"cwd in the mount: {answer}"
    status, answer = s.call("grep", pattern="three", path=top, ignoreCase=True)
    if answer.get("matches") != "/workspace/a/f:1:THREE":
        return f"grep in the mount: {answer}"
    d.pai("create", "other")
    _, answer = s.call("read", path=f"{d.top}/other/x")
    if answer.get("status") != "invalid":
        return f"another session's: {answer}"
    r = subprocess.run([BUILD + "/pai", "tool", "read", "--input",
                        '{"reason":"r","path":"/workspace/a/f"}'], cwd=top, capture_output=True, timeout=30)
    if json.loads(r.stdout).get("content") != "1: THREE":
        return f"the session stood in: {r}"
    # A warm cache, and the sandbox is gone.
    d.pai("reset", "k")
    _, answer = s.call("read", path="/workspace/a/f")
    if answer["status"] != "not_found" or not answer["environmentReset"]:
        return f"after a reset: {answer}"
    return None


def where_tmp_is_elsewhere():
    """Without namespaces the sandbox's /tmp is another directory: its spool is read all the same."""
    d = daemon("local", "network=full")
    s = Session(d, fill=False)
    _, answer = s.call("bash", command="seq 1 20000")
    path = answer["stdout"].split(" is in ")[1].split(":")[0]
    last = s.call("read", path=path, offset=19999)[1]
    found = s.call("grep", pattern="^19999$", path=path)[1]
    d.stop()
    if last.get("content") != "19999: 19999\n20000: 20000":
        return f"{path}: {last}"
    return None if found.get("count") == 1 else f"{path}: {found}"


# --- arguments ---

ALPHABET = [chr(c) for c in range(1, 128)] + list("éü☃😀\u202e\u2028\u0085")
SHELL = ["'", '"', "`", "$(touch pwned)", ";touch pwned;", "\n", "\\", "${IFS}", "&&", "||", "|", ">pwned", "<",
         "*", "?", "[", "]", "{", "}", "!", "#", "~", "-", "--", " ", "\t", "%s", "\r", "\x01", "\x7f"]


def noise(rng):
    return "".join(rng.choice(SHELL if rng.random() < 0.5 else ALPHABET) for _ in range(rng.randrange(1, 24)))


def random_arguments(engine):
    """They are never code, and the engine sees exactly them: it is one that writes them down."""
    d = daemon()
    s = Session(d, engine="gnu", fill=False)
    spy = ("#!/bin/sh\nfor a; do printf '%s\\0' \"$a\"; done >> /workspace/.seen\nexit 1\n")
    for name in ("rg",) if engine == "rg" else ("find",):
        s.exec("/bin/sh", "-c", f"/bin/rm -f /tmp/bin/{name}; /bin/cat > /tmp/bin/{name}; "
                                f"/bin/chmod 755 /tmp/bin/{name}", input=spy.encode())
    rng = random.Random(20 + len(engine))
    for i in range(40):
        name, pattern, glob = noise(rng).replace("/", "_"), noise(rng), noise(rng)
        folder = "/workspace/" + ("d" + name)
        s.call("write", path=folder + "/f", content="x")
        s.call("write", path="/workspace/.seen", content="")
        tool = rng.choice(("grep", "glob"))
        fields = {"pattern": pattern, "path": folder}
        if tool == "grep":
            fields["glob"] = glob
        status, answer = s.call(tool, **fields)
        if answer.get("status") not in ("ok", "error"):
            return f"{tool} {fields}: {status} {answer}"
        if answer["status"] == "error" and engine == "find":
            continue  # an expression that grep refuses is not looked for
        seen = s.daemon.client().ask_files({"op": "read", "key": "k", "path": "/workspace/.seen"})[2]
        words = seen.decode().split("\0")
        if folder not in words:
            return f"{tool} {fields}: the path is not among {words}"
        if tool == "grep" and engine == "rg" and "--regexp=" + pattern not in words:
            return f"{tool} {fields}: the pattern is not among {words}"
        wanted = glob if tool == "grep" else pattern
        if engine == "find" and "/" not in wanted and "*" not in wanted and wanted not in words and \
                not answer.get("message"):
            return f"{tool} {fields}: the name is not among {words}"
        _, answer = s.call("bash", command="pwd; ls -d pwned */pwned 2>/dev/null", cwd=folder)
        if answer.get("stdout") != folder + "\n":
            return f"cwd {folder!r}: {answer}"
        _, answer = s.call("listDirectory", path=folder)
        if answer.get("entries") != [{"name": "f", "type": "file"}]:
            return f"listDirectory {folder!r}: {answer}"
    d.stop()
    return None


def real_engines(engine):
    """The same with the true engines: files are found by their names, nothing is run."""
    d = daemon()
    s = Session(d, engine=engine, fill=False)
    rng = random.Random(7)
    for i in range(25):
        name = "n" + noise(rng).replace("/", "_")
        s.call("write", path=f"/workspace/t/{i}/{name}", content="needle\n")
        escaped = "".join("\\" + c if c in "*?[]{}\\!" else c for c in name)
        _, answer = s.call("glob", pattern=escaped, path=f"/workspace/t/{i}")
        if answer.get("paths") != [f"/workspace/t/{i}/{name}"]:
            return f"glob {name!r}: {answer}"
        _, answer = s.call("grep", pattern="needle", path=f"/workspace/t/{i}/{name}")
        if answer.get("count") != 1 and "\n" not in name:
            return f"grep {name!r}: {answer}"
        s.call("grep", pattern=noise(rng), path="/workspace/t", glob=noise(rng))
    _, answer = s.call("bash", command="find / -xdev -name 'pwned*' 2>/dev/null | head -3")
    d.stop()
    return answer["stdout"] or None


# --- bad input ---

def bad_input(s):
    s.call("write", path="/workspace/keep", content="kept")
    deep = b'{"reason":"r","path":' + b"[" * 100000
    big = b'{"reason":"r","path":"/workspace/keep","content":"' + b"x" * 100_000_000 + b'"}'
    for what, tool, text in (("no JSON", "write", b"hello"), ("nothing", "write", b""),
                             ("a cut object", "write", b'{"reason":"r"'), ("two", "write", b"{}{}"),
                             ("bad UTF-8", "write", b'{"reason":"r","path":"/workspace/keep","content":"\xff"}'),
                             ("a NUL", "write", b'{"reason":"r","path":"/workspace/keep","content":"a\\u0000b"}'),
                             ("a key twice", "write", b'{"reason":"r","reason":"s","path":"/workspace/keep","content":""}'),
                             ("deep nesting", "read", deep), ("100 MB", "write", big)):
        status, out, err = s.raw(tool, text)
        answer = json.loads(out)
        if status != 2 or answer.get("error", {}).get("kind") != "input" or out.count(b"\n") != 1:
            return f"{what}: {status} {out[:200]}"
    if s.call("read", path="/workspace/keep")[1]["content"] != "1: kept":
        return "something was written"
    status, answer = s.call("write", path="/workspace/keep", content="x" * ((50 << 20) + 1))
    if not is_fixed(answer, "file-too-large"):
        return f"over 50 MiB: {answer}"
    s.call("bash", command=f"truncate -s {(50 << 20) + 1} /workspace/huge")
    for tool, fields in (("read", {}), ("edit", {"oldString": "a", "newString": "b"})):
        status, answer = s.call(tool, path="/workspace/huge", **fields)
        if not is_fixed(answer, "file-too-large"):
            return f"{tool} of over 50 MiB: {answer}"
    return None


def output_without_end(s):
    """The end is shown; of the rest the last 50 MiB at most are kept, and the banner says so."""
    _, answer = s.call("bash", command="head -c 70000000 /dev/zero | tr '\\0' y; echo; echo end")
    head = answer["stdout"].split("]")[0]
    if not answer["truncated"] or not answer["stdout"].endswith("\nend\n") or "Its last" not in head:
        return f"{answer['stdout'][:200]}"
    path = head.split(" are in ")[1].split(":")[0]
    _, size = s.call("bash", command=f"test $(wc -c < {path}) -ge 25000000 && tail -n 1 {path}")
    return None if size["stdout"] == "end\n" else f"{path}: {size}"


def main():
    case("every kind of error is one fixed text", every_kind)
    case("no daemon", no_daemon)
    case("a daemon that lies", a_daemon_that_lies)
    case("lost in the middle of a call", lost_in_the_middle)
    case("a reset between calls", a_reset_between_calls)
    case("a reset in the middle of a step", a_reset_in_the_middle_of_a_step)
    case("a command run again, little said", run_again, 3)
    case("a command run again, much said", run_again, 600000)
    case("a command that is lost", a_command_that_is_lost)
    d = daemon()
    s = Session(d, fill=False)
    case("calls of the provider, counted", calls_counted, s)
    case("what stops a step", stops, s)
    case("a step in order", in_order, s)
    case("calls that run together", together, s)
    case("bad lines of a step", bad_lines, s)
    case("events of a stream", events, s)
    case("interrupted", interrupted, s)
    case("a step that is killed", step_killed, s)
    case("edits of many processes at once", edits_at_once, s)
    case("bad input", bad_input, s)
    case("output without end", output_without_end, s)
    d.stop()
    if os.path.exists("/dev/fuse"):
        case("through a mount", through_a_mount)
    else:
        world.skip("through a mount", "no /dev/fuse here")
    case("a spool where /tmp is elsewhere", where_tmp_is_elsewhere)
    for engine in ("rg", "find"):
        case(f"arguments of random bytes: {engine} sees them", random_arguments, engine)
    for engine in ("rg", "gnu", "busybox"):
        case(f"names of random bytes: {engine}", real_engines, engine)
    sys.exit(world.finish())


main()
