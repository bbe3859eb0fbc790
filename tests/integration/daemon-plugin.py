#!/usr/bin/env python3
# timeout 60
"""A provider loaded from a shared object, on a mount: files and commands; with trace= every call of it
is a line of JSON that gives no secret away, with fault= it fails as the schedule says."""
import json
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hold_world import BUILD, TMP, Daemon, begin, case, errno_of, finish, get, in_child, put  # noqa: E402

MINE = BUILD + "/tests/libmine.so"
SECRET = "s3cret-of-the-environment"


def agrees(d):
    k = f"{d.top}/k"
    os.mkdir(k)
    in_child(put, f"{k}/f", b"bytes-of-a-file")
    code, out, err, status = d.run("-c", "cat f; echo more > g")
    if (code, out) != (0, b"bytes-of-a-file") or status["source"] != "command":
        return f"{code} {out} {err} {status}"
    if in_child(get, f"{k}/g") != b"more\n":
        return "the mount does not show what the command wrote"
    shown = d.ask("status", key="k")
    if shown["network"] != "none" or shown["session"]["network"] != "none":
        return str(shown)
    if shown["provider"] != "mine" or shown["session"]["provider"] != "mine":
        return str(shown)
    return None


def traced(d):
    path = f"{TMP}/trace"
    r = d.pai("create", "secret", "-o", f"env.TOKEN={SECRET},metadata.team=blue")
    if r.returncode:
        return str(r)
    d.run("-e", f"OTHER={SECRET}", "true", key="secret")
    calls = d.provider_calls()
    with open(path) as f:
        text = f.read()
    if os.stat(path).st_mode & 0o777 != 0o600:
        return f"mode {os.stat(path).st_mode:o}"
    if SECRET in text or "bytes-of-a-file" in text:
        return "the trace tells a secret"
    lines = [json.loads(line) for line in text.splitlines()]
    seen = {}
    for line in lines:
        seen[line["call"]] = seen.get(line["call"], 0) + 1
    wrong = {c: (n, seen.get(c, 0)) for c, n in calls.items()
             if c not in ("host_files", "open_exec", "open_files") and n != seen.get(c, 0)}
    if wrong:
        return f"calls and lines differ: {wrong}"
    if not {"create", "list", "run", "write_file"} <= seen.keys():
        return str(seen)
    return None


def fails():
    d = Daemon(MINE, "faulty", "fault=create#1=error:quota-exceeded; create#2=error:unavailable:transport;"
               "create#3=delay:50; probe=error:unavailable:auth", f"trace={TMP}/faults")
    os.mkdir(f"{d.top}/k")
    first, _ = errno_of(put, f"{d.top}/k/f")
    if first != "EDQUOT":
        return f"quota-exceeded came as {first}"
    code, _, err, status = d.run("true")
    if code != 125 or status["error"]["kind"] != "unavailable" or status["error"]["reason"] != "transport":
        return f"{code} {err} {status}"
    code, out, err, _ = d.run("echo", "third")
    if (code, out) != (0, b"third\n"):
        return f"{code} {out} {err}"
    r = d.pai("probe", "--json")
    if r.returncode != 1 or json.loads(r.stdout) != {"enabled": False, "error": "auth"}:
        return str(r)
    with open(f"{TMP}/faults") as f:
        lines = [json.loads(line) for line in f]
    failed = [line for line in lines if line["call"] in ("create", "probe") and "error" in line]
    return None if len(failed) == 3 else f"what was injected is not in the trace: {lines}"


begin("plugin")
mine = Daemon(MINE, "mine", f"trace={TMP}/trace")
case("a shared object's files and commands agree", agrees, mine)
case("every call is traced, and no secret", traced, mine)
case("faults come as they were ordered", fails)
sys.exit(finish())
