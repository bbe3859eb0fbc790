#!/usr/bin/env python3
# timeout 120
"""pai mcp, message by message: revisions, calls, their order, progress, cancelling, logging, ends, bad
input, sessions by directory. Official clients and checkers: mcp-checkers.py."""
import base64
import json
import signal
import subprocess
import sys
import time

import jsonschema

import hold_world as world
from hold_world import BUILD, LONG, TMP, case, skip, wait_for
from mcp_client import META, Server, modern
from tool_world import FILES, PNG, Daemon, Session, os, schemas

LEGACY = ("2025-03-26", "2025-06-18", "2025-11-25")
NEWEST = "2026-07-28"
READ_ONLY = {"read", "grep", "glob", "listDirectory"}


def server(*argv, revision="2025-11-25", key="k", **kw):
    return Server("-s", key, *argv, daemon=DAEMON.name, revision=revision, **kw)


def code(answer):
    return answer.get("error", {}).get("code")


def runs(mark):
    """Whether a command with this word runs, in the sandbox or anywhere."""
    me = str(os.getpid())
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                line = f.read()
        except OSError:
            continue
        if mark.encode() in line and pid != me and not line.startswith(b"python3"):
            return True
    return False


# --- revisions ---

def handshakes():
    for asked, given in [(r, r) for r in LEGACY] + [("2024-11-05", "2025-11-25"), (NEWEST, "2025-11-25"),
                                                    ("nonsense", "2025-11-25")]:
        s = server(revision=asked)
        hello = s.hello
        tools = s.ask("tools/list")["result"]["tools"]
        again = s.ask("initialize", {"protocolVersion": asked, "capabilities": {},
                                     "clientInfo": {"name": "x", "version": "1"}})
        result = s.call("listDirectory", path="/workspace")
        s.close()
        if hello["protocolVersion"] != given or set(hello) != {"protocolVersion", "capabilities",
                                                               "serverInfo", "instructions"}:
            return f"{asked}: {hello}"
        if code(again) != -32600:
            return f"{asked}: a second handshake: {again}"
        structured = given != "2025-03-26"
        if any(("outputSchema" in t) != structured for t in tools) or \
                ("structuredContent" in result) != structured or "resultType" in result:
            return f"{asked}: {result}"
    return None


def before_the_handshake():
    s = Server("-s", "k", daemon=DAEMON.name)
    got = [code(s.ask(m)) for m in ("tools/list", "logging/setLevel", "server/discover", "nonsense")]
    pong = s.ask("ping")
    bad = s.ask("initialize", {})
    s.close()
    if got != [-32602, -32602, -32602, -32601] or pong.get("result") != {} or code(bad) != -32602:
        return f"{got} {pong} {bad}"
    return None


def without_a_handshake():
    s = Server("-s", "k", daemon=DAEMON.name)
    found = s.ask("server/discover", {"_meta": modern()})["result"]
    wanted = {"supportedVersions": [NEWEST, *reversed(LEGACY)], "resultType": "complete",
              "cacheScope": "private", "capabilities": {"tools": {}, "logging": {}}}
    if any(found.get(k) != v for k, v in wanted.items()) or not found["instructions"] or \
            found["ttlMs"] < 0 or found["_meta"][META + "serverInfo"]["name"] != "paifs":
        return f"{found}"
    tools = s.ask("tools/list", {"_meta": modern()})["result"]
    if tools["resultType"] != "complete" or tools["cacheScope"] != "public" or len(tools["tools"]) != 7:
        return f"{tools}"
    result = s.call("bash", command="echo hi", meta=modern())
    if result["resultType"] != "complete" or result["structuredContent"]["stdout"] != "hi\n":
        return f"{result}"
    for meta, wanted in ((None, -32602), ({}, -32602), ({META + "protocolVersion": NEWEST}, -32602),
                         ({META + "clientCapabilities": {}}, -32602), (modern("v999"), -32022),
                         (modern(logLevel="loud"), -32602), (modern(logLevel=7), -32602)):
        got = s.ask("server/discover", {"_meta": meta} if meta is not None else {})
        if code(got) != wanted:
            return f"{meta}: {got}"
        if wanted == -32022 and got["error"]["data"] != {"supported": [NEWEST, *reversed(LEGACY)],
                                                         "requested": "v999"}:
            return f"{got}"
    for method in ("initialize", "ping", "logging/setLevel", "subscriptions/listen", "prompts/list",
                   "resources/list", "unknown/method"):
        if code(s.ask(method, {"_meta": modern()})) != -32601:
            return method
    # Both ways of speaking on one connection.
    hello = s.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {},
                                 "clientInfo": {"name": "x", "version": "1"}})
    if hello["result"]["protocolVersion"] != "2025-06-18" or s.ask("ping")["result"] != {}:
        return f"{hello}"
    s.close()
    return None


# --- tools ---

def lists_the_schemas(s):
    published = schemas()
    tools = s.ask("tools/list")["result"]["tools"]
    if [t["name"] for t in tools] != list(published):
        return f"{[t['name'] for t in tools]}"
    for t in tools:
        wanted = published[t["name"]]
        for one in wanted["outputSchema"]["oneOf"]:
            if "base64" in one["properties"]:  # which is content of its own kind here
                del one["properties"]["base64"]
                one["required"].remove("base64")
        if t["inputSchema"] != wanted["inputSchema"] or t["outputSchema"] != wanted["outputSchema"] or \
                t["description"] != wanted["description"]:
            return f"{t}"
        a = t["annotations"]
        if a["readOnlyHint"] != (t["name"] in READ_ONLY) or a["destructiveHint"] == a["readOnlyHint"] or \
                a["openWorldHint"] != (t["name"] == "bash") or not a["title"] or a["title"] != t["title"]:
            return f"{a}"
        jsonschema.Draft202012Validator.check_schema(t["inputSchema"])
        jsonschema.Draft202012Validator.check_schema(t["outputSchema"])
    return None if code(s.ask("tools/list", {"cursor": "2"})) == -32602 else "a cursor of ours"


def every_tool_answers(s):
    outputs = {t["name"]: t["outputSchema"] for t in s.ask("tools/list")["result"]["tools"]}
    for tool, fields, status in (
            ("write", {"path": "/workspace/new/n.txt", "content": "a\u00e9\u2603\nb\n"}, "written"),
            ("read", {"path": "/workspace/new/n.txt"}, "text"), ("read", {"path": "/workspace/no"}, "not_found"),
            ("edit", {"path": "/workspace/new/n.txt", "oldString": "b", "newString": "c"}, "edited"),
            ("edit", {"path": "/workspace/new/n.txt", "oldString": "b", "newString": "c"}, "no_match"),
            ("grep", {"pattern": "c"}, "ok"), ("grep", {"pattern": "("}, "error"),
            ("glob", {"pattern": "*.txt"}, "ok"), ("listDirectory", {"path": "/workspace"}, "ok"),
            ("bash", {"command": "exit 3"}, None), ("bash", {"command": "sleep 9", "timeoutMs": 50}, None),
            ("read", {"path": "relative"}, "invalid")):
        result = s.call(tool, **fields)
        value, content = result["structuredContent"], result["content"]
        jsonschema.validate(value, outputs[tool])
        if value.get("status") != status or result["isError"] or \
                [c["type"] for c in content] != ["text"] or json.loads(content[0]["text"]) != value:
            return f"{tool} {fields}: {result}"
    text = s.call("read", path="/workspace/new/n.txt")["content"][0]["text"]
    if "\u2603" not in text:
        return f"escapes that cost a model: {text}"
    for tool, fields in (("bash", {}), ("bash", {"command": 7}), ("read", {"path": "/x", "more": 1}),
                         ("bash", {"command": "x", "cwd": "/none"})):
        result = s.call(tool, **fields)
        jsonschema.validate(result["structuredContent"], outputs[tool])
        if not result["isError"] or result["structuredContent"]["error"]["kind"] != "input":
            return f"{tool} {fields}: {result}"
    result = s.answer(s.begin("tools/call", {"name": "bash"}))["result"]  # no arguments at all
    return None if result["isError"] else f"{result}"


def pictures():
    d = Daemon("local", "mcp-pictures", mount=False)
    k = Session(d, fill=False)
    k.exec("/bin/sh", "-c", "cat >small.png", input=FILES["small.png"])
    s = Server("-s", "k", daemon=d.name, revision="2025-11-25")
    schema = {t["name"]: t for t in s.ask("tools/list")["result"]["tools"]}["read"]["outputSchema"]
    for reset in (False, True):
        result = s.call("read", path="/workspace/small.png")
        words, picture = result["content"]
        if base64.b64decode(picture["data"]) != FILES["small.png"] or \
                (picture["type"], picture["mimeType"]) != ("image", "image/png"):
            return f"{picture}"
        if not words["text"].startswith("/workspace/small.png (image/png)") or \
                ("replaced" in words["text"]) != reset:
            return f"{words}"
        jsonschema.validate(result["structuredContent"], schema)
        if result["structuredContent"] != {"status": "image", "path": "/workspace/small.png",
                                           "mediaType": "image/png", "environmentReset": reset}:
            return f"{result['structuredContent']}"
        d.pai("reset", "k")
        k.exec("/bin/sh", "-c", "cat >small.png", input=PNG + b"picture")
    d.pai("reset", "k")
    k.exec("/bin/sh", "-c", "cat >exact.png", input=FILES["exact.png"])
    result = s.call("read", path="/workspace/exact.png")
    s.close()
    d.stop()
    return None if base64.b64decode(result["content"][1]["data"]) == FILES["exact.png"] else "2 MiB"


def some_tools():
    for argv, wanted in ((("--include", "bash,read"), ["bash", "read"]),
                         (("--exclude", "edit,write,bash"), ["read", "grep", "glob", "listDirectory"])):
        s = server(*argv)
        names = [t["name"] for t in s.ask("tools/list")["result"]["tools"]]
        refused = s.ask("tools/call", {"name": "edit", "arguments": {}})
        s.close()
        if names != wanted or code(refused) != -32602 or "Unknown tool: edit" not in refused["error"]["message"]:
            return f"{argv}: {names} {refused}"
    for argv in (("--include", "bash", "--exclude", "read"), ("--include", "cat"), ("--include", ""),
                 ("--root", "/", "-s", "k"), ("--root", "/nonexistent"), ("--root", "/tmp"), ()):
        r = subprocess.run([BUILD + "/pai", "-n", DAEMON.name, "mcp", *argv], input=b"", capture_output=True,
                           timeout=20)
        if r.returncode not in (1, 2) or r.stdout or len(r.stderr.splitlines()) != 1:
            return f"{argv}: {r}"
    return None


# --- order, progress, cancelling ---

def order(s):
    """Sequential calls alone and in order, the others together; pings meanwhile."""
    s.value("bash", command="rm -f log")
    begun = time.monotonic()
    first = s.begin_call("bash", command="echo 1 >>log; sleep 1; echo 1 >>log")
    more = [s.begin_call("bash", command="cat log; echo 2 >>log"),
            s.begin_call("write", path="/workspace/w", content="w"),
            s.begin_call("read", path="/workspace/log"), s.begin_call("read", path="/workspace/w"),
            s.begin_call("bash", command="cat log w")]
    s.ask("ping")
    ponged = time.monotonic() - begun
    s.answer(first)
    got = [s.answer(n)["result"]["structuredContent"] for n in more]
    if ponged > 0.9:
        return f"a ping waited {ponged:.1f} s"
    if got[0]["stdout"] != "1\n1\n" or got[2]["content"] != "1: 1\n2: 1\n3: 2" or \
            got[3]["content"] != "1: w" or got[4]["stdout"] != "1\n1\n2\nw":
        return f"{got}"
    # Those that may, run together: each waits for the other to begin.
    s.value("bash", command="mkfifo f 2>/dev/null; rm -f a b; printf 'needle\\n' >t")
    numbers = [s.begin_call("grep", pattern="needle", path="/workspace/t") for _ in range(20)]
    return None if all(s.answer(n)["result"]["structuredContent"]["count"] == 1 for n in numbers) else "grep"


def what_stops(s):
    """One that fails stops what waits behind it, and no later call."""
    for tool, fields in (("bash", {"command": "sleep 0.3; exit 1"}), ("bash", {"command": "sleep 9", "timeoutMs": 300}),
                         ("bash", {"command": "sleep 0.3; kill -9 $$"})):
        first = s.begin_call(tool, **fields)
        behind = [s.begin_call("read", path="/workspace/w"), s.begin_call("bash", command="touch never")]
        s.answer(first)
        got = [s.answer(n)["result"] for n in behind]
        if [g["structuredContent"] for g in got] != [{"status": "skipped", "after": 1,
                                                      "environmentReset": False}] * 2 or got[0]["isError"]:
            return f"{fields}: {got}"
        if s.value("read", path="/workspace/never")["status"] != "not_found":
            return "a stopped call was made"
    first = s.begin_call("bash", command="sleep 0.2")
    edit = s.begin_call("edit", path="/workspace/w", oldString="none", newString="x")
    last = s.begin_call("read", path="/workspace/w")
    s.answer(first)
    s.answer(edit)
    got = s.answer(last)["result"]["structuredContent"]
    return None if got == {"status": "skipped", "after": 2, "environmentReset": False} else f"{got}"


def progress(s):
    for token in ("a \"token\"", 7, 0):
        s.aside.clear()
        number = s.begin_call("bash", command="echo a; sleep 0.5; echo b; sleep 1.3", token=token, reason="Watch it")
        s.answer(number)
        told = s.notes("notifications/progress")
        values = [p["progress"] for p in told]
        if len(told) < 3 or any(p["progressToken"] != token or p["message"] != "Watch it" for p in told) or \
                values != sorted(set(values)):
            return f"{token}: {told}"
        s.ask("ping")
        if len(s.notes("notifications/progress")) != len(told):
            return "progress behind the answer"
    s.aside.clear()
    s.answer(s.begin("tools/call", {"name": "bash", "arguments": {}, "_meta": {"progressToken": 1}}))
    if any("message" in p for p in s.notes("notifications/progress")):
        return f"without a reason: {s.aside}"
    s.aside.clear()
    s.call("bash", command="echo a; sleep 0.3")
    s.call("bash", command="echo a; sleep 0.3", token=1.5)
    s.call("bash", command="echo a; sleep 0.3", token={"x": 1})
    return f"{s.aside}" if s.notes("notifications/progress") else None


def cancelling(s):
    number = s.begin_call("bash", command="trap '' TERM; sleep 61.27101", token="c")
    waits = s.begin_call("read", path="/workspace/w")
    also = s.begin_call("bash", command="touch never")
    wait_for(lambda: runs("61.27101"), what="the command")
    s.tell("notifications/cancelled", {"requestId": also, "reason": "no need"})
    s.tell("notifications/cancelled", {"requestId": "no such"})
    s.tell("notifications/cancelled", {})
    s.tell("notifications/cancelled", {"requestId": number})
    wait_for(lambda: not runs("61.27101"), what="its end")
    skipped = s.answer(waits)["result"]["structuredContent"]
    if skipped.get("status") != "skipped" or skipped["after"] != 1:
        return f"{skipped}"
    after = s.value("bash", command="ls never 2>/dev/null; echo alive")
    if after["stdout"] != "alive\n":
        return f"{after}"
    if any(m.get("id") in (number, also) for m in s.aside):
        return "a cancelled call was answered"
    # One that has been answered, or has just begun, or waits for its turn: none of it does harm.
    for delay in (0, 0.001, 0.005, 0.02, 0.05):
        number = s.begin_call("bash", command="sleep 61.27102")
        time.sleep(delay)
        s.tell("notifications/cancelled", {"requestId": number})
    s.tell("notifications/cancelled", {"requestId": number})
    if s.value("bash", command="echo still")["stdout"] != "still\n":
        return "nothing runs any more"
    wait_for(lambda: not runs("61.27102"), what="the end of all")
    return None


def logging(s):
    s.aside.clear()
    if code(s.ask("logging/setLevel", {"level": "loud"})) != -32602 or code(s.ask("logging/setLevel")) != -32602:
        return "a level that is none"
    s.call("bash", command="echo a")
    if s.notes("notifications/message"):
        return f"by default: {s.aside}"
    s.ask("logging/setLevel", {"level": "info"})
    s.call("bash", command="echo a", reason="Look")
    told = s.notes("notifications/message")
    if [(m["level"], m["logger"], m["data"]["event"], m["data"]["tool"], m["data"]["reason"]) for m in told] != \
            [("info", "paifs", "begin", "bash", "Look"), ("info", "paifs", "end", "bash", "Look")] or \
            told[1]["data"]["outcome"] != "answered":
        return f"{told}"
    s.ask("logging/setLevel", {"level": "debug"})
    s.aside.clear()
    s.call("bash", command="echo out; echo err >&2; sleep 0.3; echo more")
    said = [(m["data"]["channel"], m["data"]["text"]) for m in s.notes("notifications/message")
            if m["data"]["event"] == "output"]
    if ("stdout", "out\n") not in said or ("stderr", "err\n") not in said:
        return f"{said}"
    s.ask("logging/setLevel", {"level": "warning"})
    s.aside.clear()
    s.call("bash", command="exit 1")
    s.call("bash", command=7)
    told = s.notes("notifications/message")
    if [(m["level"], m["data"]["outcome"]) for m in told] != [("warning", "bad-input")]:
        return f"{told}"
    # From 2026-07-28 on it is each request's own.
    s.aside.clear()
    s.call("bash", command=7, meta=modern())
    if s.notes("notifications/message"):
        return "without a level in the request"
    s.call("bash", command="true", meta=modern(logLevel="info"))
    return None if len(s.notes("notifications/message")) == 2 else f"{s.aside}"


# --- ends ---

def ends():
    for how in ("stdin", signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL, "stdout"):
        s = server(stderr=subprocess.PIPE)
        s.begin_call("bash", command="trap '' TERM; sleep 61.27103; true", token=1)
        s.begin_call("bash", command="true")
        wait_for(lambda: runs("61.27103"), what="the command")
        begun = time.monotonic()
        if how == "stdin":
            s.proc.stdin.close()
        elif how == "stdout":
            s.deaf.set()  # what it says next, nobody hears
            s.begin("ping")
            s.begin("ping")
        else:
            s.proc.send_signal(how)
        status = s.proc.wait(10)
        took = time.monotonic() - begun
        if status != (-how if isinstance(how, signal.Signals) else 0) or took > 5:
            return f"{how}: {status} after {took:.1f} s"
        wait_for(lambda: not runs("61.27103"), what=f"the end of the command ({how})")
    return None


def resets():
    """Told once, to this server, whoever else is told."""
    d = Daemon("local", "mcp-reset", mount=False)
    Session(d, fill=False).call("bash", command="true")
    s = Server("-s", "k", daemon=d.name, revision="2025-11-25")
    other = Server("-s", "k", daemon=d.name, revision="2025-11-25")
    got = [s.value("bash", command="true")["environmentReset"],
           other.value("bash", command="true")["environmentReset"]]
    d.pai("reset", "k")
    subprocess.run(d.run_argv("true", key="k"), stderr=subprocess.DEVNULL)
    got += [s.value("read", path="/workspace/x")["environmentReset"],
            other.value("bash", command="true")["environmentReset"],
            s.value("bash", command="true")["environmentReset"]]
    s.close()
    other.close()
    d.stop()
    return None if got == [False, False, True, True, False] else f"{got}"


def no_daemon():
    s = Server("-s", "k", daemon="nosuch", revision="2025-11-25")
    result = s.call("bash", command="true")
    text = json.dumps([result, s.hello])
    s.close()
    if not result["isError"] or result["structuredContent"]["error"]["kind"] != "unavailable":
        return f"{result}"
    return "names the daemon" if "nosuch" in text else None


def instructions():
    d = Daemon("local", "mcp-network", "network=full", mount=False)
    s = Server("-s", "k", daemon=d.name, revision="2025-11-25")
    full = s.hello["instructions"]
    s.close()
    d.pai("create", "j", "-o", "network=none")
    s = Server("-s", "j", daemon=d.name, revision="2025-11-25")
    none = s.hello["instructions"]
    s.close()
    d.stop()
    for text, word in ((full, "have network access"), (none, "have no network"), (full, "/workspace")):
        if word not in text:
            return f"'{word}' is not in: {text}"
    return None


# --- bad input ---

def bad_lines(s):
    s.aside.clear()
    for line, wanted, number in (
            (b"nonsense", -32700, None), (b"{", -32700, None), (b"7", -32600, None), (b"[]", -32600, None),
            (b"[1]", -32600, None), (b"{}", -32600, None), (b'"x"', -32600, None),
            (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
            (b'{"jsonrpc":"2.0","id":901,"method":"ping","params":[]}', -32600, 901),
            (b'{"jsonrpc":"1.0","id":902,"method":"ping"}', -32600, 902),
            (b'{"jsonrpc":"2.0","id":903,"method":5}', -32600, 903),
            (b'{"jsonrpc":"2.0","id":904,"method":"ping","id":904}', -32700, 904),
            (b'{"jsonrpc":"2.0","id":905,"method":"\xff\xfe"}', -32700, 905),
            (b'{"jsonrpc":"2.0","id":"n06","method":"tools/call","params":{"name":"write","arguments":{"content":"\\u0000"}}}',
             -32700, "n06"),
            (b'{"jsonrpc":"2.0","id":907,"method":"no/such"}', -32601, 907),
            (b'{"jsonrpc":"2.0","id":908,"method":"tools/call"}', -32602, 908),
            (b'{"jsonrpc":"2.0","id":909,"method":"tools/call","params":{"name":"bash","arguments":[]}}', -32602, 909),
            (b'{"jsonrpc":"2.0","id":910,"method":"tools/call","params":{"name":7}}', -32602, 910),
            (b'{"jsonrpc":"2.0","id":911,"method":"tools/call","params":{"name":"../../bin/sh"}}', -32602, 911)):
        s.raw(line + b"\n")
        got = s.next()
        if code(got) != wanted or got["id"] != number or "result" in got:
            return f"{line}: {got}"
    for line in (b"\n", b" \r\n", b'{"jsonrpc":"2.0","method":"no/such"}\n', b'{"jsonrpc":"2.0","id":1,"result":{}}\n',
                 b'{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}\n',
                 b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}\n'):
        s.raw(line)
    pong = s.ask("ping")
    return None if pong.get("result") == {} and not s.aside else f"{pong} {s.aside}"


def peak_kib(s):
    with open(f"/proc/{s.proc.pid}/status") as f:
        return int(next(line for line in f if line.startswith("VmHWM")).split()[1])


def large_lines():
    s = server()
    head = b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"bash","arguments":{"reason":"r","command":"'
    s.raw(head)
    for _ in range(100):
        s.raw(b"x" * (1 << 20))
    s.raw(b'"}},"id":"big"}\n')
    got = s.next(60)
    if code(got) != -32700 or got["id"] != "big":
        return f"100 MB: {got}"
    for depth, line in ((31, b'{"jsonrpc":"2.0","id":50,"method":"ping","params":{"x":' + b"[" * 28 + b"]" * 28 + b"}}"),
                        (100000, b'{"jsonrpc":"2.0","id":51,"method":"ping","params":{"x":' + b"[" * 100000 +
                         b"]" * 100000 + b"}}"),
                        (1000000, b'{"a":' * 1000000 + b"1" + b"}" * 1000000)):
        s.raw(line + b"\n")
        got = s.next()
        if (code(got) == -32700) != (depth > 32):
            return f"{depth} deep: {got}"
    begun = time.monotonic()
    s.raw(b'{"jsonrpc":"2.0","id":52,"method":"ping","params":{"x":[' + b"0," * (30 << 20) + b"0]}}\n")
    got = s.next(60)
    if code(got) != -32700 or got["id"] != 52:
        return f"31 million values: {got}"
    took = time.monotonic() - begun
    if took > 20:
        return f"31 million values: {took:.0f} s"
    peak = peak_kib(s)
    content = "line\n" * 800000
    written = s.value("write", path="/workspace/large", content=content)
    if written.get("bytes") != len(content):
        return f"4 MB: {written}"
    s.call("bash", command="rm large")
    s.close()
    # A sanitizer keeps what was freed for a while.
    return f"{peak} KiB at most for what was refused" if peak > (400 if "san" in BUILD else 200) << 10 else None


def many_calls():
    """More than may wait are told so; those that were taken are made."""
    s = server()
    s.begin_call("bash", command="sleep 1")
    numbers = [s.begin_call("listDirectory", path="/workspace") for _ in range(1010)]
    got = [s.answer(n, 60)["result"] for n in numbers]
    busy = sum(r["isError"] and r["structuredContent"]["error"]["kind"] == "busy" for r in got)
    s.close()
    return None if busy == 11 and sum(r["isError"] for r in got) == 11 else f"{busy} refused"


def slow_reader():
    """A client that reads nothing for a while: everything comes in the end, and nothing is kept twice."""
    r, w = os.pipe()
    proc = subprocess.Popen([BUILD + "/pai", "-n", DAEMON.name, "mcp", "-s", "k"], stdin=subprocess.PIPE, stdout=w)
    os.close(w)
    lines = [{"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}]
    lines += [{"jsonrpc": "2.0", "id": i, "method": "tools/list"} for i in range(1, 400)]
    proc.stdin.write("".join(json.dumps(m) + "\n" for m in lines).encode())
    proc.stdin.flush()
    time.sleep(0.5)
    with os.fdopen(r) as out:
        got = [json.loads(out.readline())["id"] for _ in lines]
        proc.stdin.close()
        rest = out.read()
    return None if got == list(range(400)) and not rest and proc.wait(10) == 0 else f"{got[-3:]} {rest[:99]}"


def reader_behind():
    """A client that reads, and always has more to read: what it has read is not kept."""
    proc = subprocess.Popen([BUILD + "/pai", "-n", DAEMON.name, "mcp", "-s", "k"], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE)

    def say(number, method, **params):
        proc.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() +
                         b"\n")
        proc.stdin.flush()
    say(0, "initialize", protocolVersion="2025-11-25")
    for number in range(1, 100):
        say(number, "tools/list")
    passed = 0
    for number in range(100, 5000):
        passed += len(proc.stdout.readline())
        say(number, "tools/list")
    with open(f"/proc/{proc.pid}/status") as f:
        peak = int(next(line for line in f if line.startswith("VmHWM")).split()[1])
    proc.kill()
    proc.communicate()
    if passed < 50 << 20:
        return f"only {passed} bytes"
    return f"{peak} KiB of {passed >> 10} passed" if peak > (400 if "san" in BUILD else 40) << 10 else None


def many_sessions():
    """More than are kept: those of calls whose processes are just ending stay. A sanitizer sees it."""
    d = Daemon("local", "mcp-many")
    top = os.path.realpath(d.top)
    s = Server("--root", top, revision="2025-11-25")

    def wrong(key):  # answered without a word to the daemon
        return s.begin("tools/call", {"name": "read", "arguments": {"path": f"{top}/{key}/x"}})
    for first in range(0, 1000, 100):
        for number in [wrong(key) for key in range(first, first + 100)]:
            if not s.answer(number)["result"]["isError"]:
                return "it was taken"
    for i in range(150):
        s.answer(wrong(i))  # the oldest
        s.answer(wrong(1000 + i))
    pong = s.ask("ping")
    code = s.close()
    d.stop()
    return None if pong.get("result") == {} and not code else f"{pong} {code}"


def batches():
    s = server(revision="2025-03-26")
    s.raw(json.dumps([
        {"jsonrpc": "2.0", "id": 1001, "method": "ping"}, {"jsonrpc": "2.0", "method": "notifications/x"}, 5,
        {"jsonrpc": "2.0", "id": 1002, "method": "tools/call", "params": {
            "name": "bash", "arguments": {"reason": "r", "command": "sleep 0.2; echo one"}}},
        {"jsonrpc": "2.0", "id": 1003, "method": "no/such"},
        {"jsonrpc": "2.0", "id": 1004, "method": "initialize", "params": {"protocolVersion": "2025-03-26"}},
        {"jsonrpc": "2.0", "id": 1005, "method": "tools/call", "params": {
            "name": "bash", "arguments": {"reason": "r", "command": "sleep 61.27104"}}},
    ]).encode() + b"\n")
    pong = s.ask("ping")
    wait_for(lambda: runs("61.27104"), what="the last of the batch")
    s.tell("notifications/cancelled", {"requestId": 1005})
    got = s.next()
    if pong.get("result") != {} or not isinstance(got, list):
        return f"{pong} {got}"
    ids = {m["id"]: m for m in got}
    if set(ids) != {1001, None, 1002, 1003, 1004} or "one" not in ids[1002]["result"]["content"][0]["text"] or \
            (code(ids[None]), code(ids[1003]), code(ids[1004])) != (-32600, -32601, -32600):
        return f"{got}"
    s.raw(b'[{"jsonrpc":"2.0","method":"notifications/x"}]\n')  # nothing to say
    s.raw(b"[]\n")
    if code(s.next()) != -32600:
        return "an empty batch"
    s.close()
    s = server(revision="2025-06-18")
    s.raw(b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]\n')
    got = s.next()
    s.close()
    return None if code(got) == -32600 and got["id"] is None else f"{got}"


# --- sessions by directory ---

def by_directory():
    d = Daemon("local", "mcp-root")
    for key in ("a", "b/c"):
        d.pai("create", key)
        Session(d, key, fill=False).call("write", path="/workspace/sub/here.txt", content=key + "\n")
    top = os.path.realpath(d.top)
    other = f"{top}/b%2Fc"
    s = Server("--root", top, revision="2025-11-25")
    got = s.value("read", path=f"{top}/a/sub/here.txt")
    if got.get("content") != "1: a":
        return f"{got}"
    if s.value("bash", command="cat here.txt", cwd=f"{other}/sub")["stdout"] != "b/c\n":
        return "cwd"
    if s.value("glob", pattern="*.txt", path=other)["paths"] != [f"{other}/sub/here.txt"] or \
            s.value("grep", pattern=".", path=f"{top}/a")["matches"] != f"{top}/a/sub/here.txt:1:a" or \
            s.value("write", path=f"{other}/w", content="x").get("path") != f"{other}/w" or \
            s.value("read", path=f"{other}/sub/Here.txt")["didYouMean"] != [f"{other}/sub/here.txt"]:
        return "paths of an answer"
    # What a banner says can be done.
    head = s.value("bash", command="seq 99999", cwd=other)["stdout"].split("\n")[0]
    spool = head.split(" is in ")[1].split(":")[0]
    if "with bash" not in head or s.value("bash", command=f"tail -n 1 {spool}", cwd=other)["stdout"] != "99999\n":
        return head
    # Each session has its own order.
    slow = s.begin_call("bash", command="sleep 2", cwd=f"{top}/a")
    begun = time.monotonic()
    s.value("bash", command="true", cwd=other)
    took = time.monotonic() - begun
    s.answer(slow)
    if took > 1.8:
        return f"a session waits for another: {took:.1f} s"
    for tool, fields in (("bash", {"command": "true"}), ("bash", {"command": "true", "cwd": "/workspace"}),
                         ("read", {"path": top}), ("read", {"path": f"{top}/../x"}), ("grep", {"pattern": "x"}),
                         ("read", {"path": f"{top}/%61/x"})):
        result = s.call(tool, **fields)
        if not result["isError"] or result["structuredContent"]["error"]["kind"] != "input":
            return f"{tool} {fields}: {result}"
    instructions = s.hello["instructions"]
    s.close()
    inside = Server("--root", f"{top}/a/sub", revision="2025-11-25")
    got = [inside.value("bash", command="pwd")["stdout"], inside.value("glob", pattern="*")["paths"],
           inside.value("read", path=f"{top}/a/sub/here.txt")["content"],
           inside.value("read", path="/workspace/sub/here.txt")["content"]]
    stands = Server(revision="2025-11-25", cwd=f"{top}/a/sub")
    got.append(stands.value("bash", command="pwd; ls")["stdout"])
    stands.close()
    busy = subprocess.run(["fusermount3", "-u", top], capture_output=True).returncode  # nobody stands in it
    inside.close()
    d.stop()
    if got != ["/workspace/sub\n", ["/workspace/sub/here.txt"], "1: a", "1: a", "/workspace\nsub\n"]:
        return f"{got}"
    return "the mount is busy" if busy else None if top in instructions else instructions


def start_up():
    """To the answer to the first request; the least of many, since others run here too."""
    times = []
    for _ in range(30):
        begun = time.monotonic()
        s = server()
        times.append((time.monotonic() - begun) * 1000)
        s.close()
    times.sort()
    print(f"# start-up to the handshake's answer: least {times[0]:.1f} ms, median {times[15]:.1f} ms", flush=True)
    return None if times[0] < 20 else f"{times[0]:.1f} ms"


DAEMON = Daemon("local", "mcp", mount=False)
for name, fn in (("handshakes", handshakes), ("before-the-handshake", before_the_handshake),
                 ("without-a-handshake", without_a_handshake), ("some-tools", some_tools), ("ends", ends),
                 ("resets", resets), ("no-daemon", no_daemon), ("instructions", instructions),
                 ("pictures", pictures), ("large-lines", large_lines), ("many-calls", many_calls),
                 ("slow-reader", slow_reader), ("reader-behind", reader_behind), ("batches", batches), ("start-up", start_up)):
    case(name, fn)
S = server()
for name, fn in (("lists-the-schemas", lists_the_schemas), ("every-tool-answers", every_tool_answers),
                 ("order", order), ("what-stops", what_stops), ("progress", progress),
                 ("cancelling", cancelling), ("bad-lines", bad_lines), ("logging", logging)):
    case(name, fn, S)
S.close()
DAEMON.stop()
if os.path.exists("/dev/fuse"):
    case("by-directory", by_directory)
    case("many-sessions", many_sessions)
else:
    skip("by-directory", "no /dev/fuse here")
    skip("many-sessions", "no /dev/fuse here")
sys.exit(world.finish())
