#!/usr/bin/env python3
# timeout 240
"""The tools and what becomes of the sandbox behind the daemon's back: gone between two calls, within
one, in the middle of a step, with a mount whose cache is warm; every call keeps it alive; nothing
that is not for a model is in an answer."""
import json
import os
import sys
import threading
import time

import hold_world as world
from hold_world import BUILD, TMP, Daemon, case, get, wait_for
from tool_world import Session

# "old" is in every file of the first environment and in none of the next.
FIELDS = {"read": {"path": "/workspace/d/f"}, "listDirectory": {"path": "/workspace/d"},
          "write": {"path": "/workspace/d/f", "content": "new\n"},
          "edit": {"path": "/workspace/d/f", "oldString": "old", "newString": "new"},
          "bash": {"command": "cat /workspace/d/f 2>/dev/null; echo done"},
          "grep": {"pattern": "old", "path": "/workspace"}, "glob": {"pattern": "f", "path": "/workspace"}}
# What each says in an environment that has nothing yet.
EMPTY = {"read": {"status": "not_found"}, "listDirectory": {"status": "not_found", "entries": []},
         "write": {"status": "written", "existed": False}, "edit": {"status": "not_found"},
         "bash": {"stdout": "done\n", "exitCode": 0}, "grep": {"status": "ok", "count": 0},
         "glob": {"status": "ok", "paths": []}}
number = 0


class Pair:
    """A daemon with a warm session, and another one of the same sandboxes, which ends them."""

    def __init__(self, *options, mount=os.path.exists("/dev/fuse")):
        global number
        number += 1
        root = f"root={TMP}/shared-{number}"
        self.daemon = Daemon("local", f"reset-{number}", root, *options, mount=mount)
        self.other = Daemon("local", f"behind-{number}", root, mount=False)
        self.session = Session(self.daemon, fill=False)
        self.warm()

    def warm(self):
        s = self.session
        s.call("write", path="/workspace/d/f", content="old\n")
        for tool, fields in FIELDS.items():
            if tool not in ("write", "edit"):
                s.call(tool, **fields)
        if self.daemon.top:  # the kernel's own pages and names
            assert get(f"{self.daemon.top}/k/d/f") == b"old\n"
            assert os.listdir(f"{self.daemon.top}/k/d") == ["f"]

    def lose(self):
        r = self.other.pai("kill", "--sandbox", self.daemon.session()["sandboxId"])
        assert r.returncode == 0, r

    def lose_once_begun(self):
        """While a command runs that has made /workspace/begun. Seen where the sandbox is: not by us."""
        sandbox = self.daemon.session()["sandboxId"]

        def wait():
            c = self.other.client()
            wait_for(lambda: any(os.path.exists(f"{d}/begun") for d, _, _ in os.walk(f"{TMP}/shared-{number}")), 60)
            assert c.ask({"op": "kill", "sandboxId": sandbox})[0]
        thread = threading.Thread(target=wait)
        thread.start()
        return thread

    def stop(self):
        self.daemon.stop()
        self.other.stop()


def differs(tool, answer, wanted, is_reset):
    got = {name: answer.get(name) for name in wanted}
    return got != wanted or answer["environmentReset"] is not is_reset


def between_calls(tool):
    """The call tells, and answers from the new environment; those after it do not tell again."""
    p = Pair()
    p.lose()
    _, answer = p.session.call(tool, **FIELDS[tool])
    if differs(tool, answer, EMPTY[tool], True):
        p.stop()
        return f"{answer}"
    for other, fields in FIELDS.items():
        if other in ("write", "edit") or tool == "write":
            continue
        _, after = p.session.call(other, **fields)
        if differs(other, after, EMPTY[other], False):
            p.stop()
            return f"{other} after it: {after}"
    _, answer = p.session.call("write", path="/workspace/d/f", content="next\n")
    seen = get(f"{p.daemon.top}/k/d/f") if p.daemon.top else b"next\n"
    p.stop()
    return None if answer["existed"] is (tool == "write") and seen == b"next\n" else f"{answer} {seen}"


STEP_COMMAND = "if test -e /workspace/d/f; then touch /workspace/begun; sleep 60; fi; ls /workspace; echo again"


def in_a_step():
    """A command of the step is what was running: it is done again, tells, and the rest goes on there."""
    p = Pair()
    thread = p.lose_once_begun()
    step = [("read", FIELDS["read"]), ("grep", FIELDS["grep"]), ("bash", {"command": STEP_COMMAND})]
    step += [(tool, FIELDS[tool]) for tool in ("read", "listDirectory", "grep", "glob", "bash")]
    step += [("write", FIELDS["write"]), ("read", FIELDS["read"]),
             ("edit", {"path": "/workspace/d/f", "oldString": "new", "newString": "newer"}),
             ("bash", FIELDS["bash"])]
    status, answers = p.session.batch(*step, timeout=120)
    thread.join()
    results = [a["result"] for a in answers]
    p.stop()
    if status or [r["environmentReset"] for r in results] != [False, False, True] + [False] * 9:
        return f"{status} {[(a['tool'], a['result']['environmentReset']) for a in answers]} {results[2]}"
    if results[0]["content"] != "1: old" or results[1]["count"] != 1 or results[2]["stdout"] != "again\n":
        return f"before: {results[:3]}"
    for (tool, _), r in list(zip(step, results))[3:9]:
        if differs(tool, r, EMPTY[tool], False):
            return f"{tool}: {r}"
    if results[9]["content"] != "1: new" or results[11]["stdout"] != "newer\ndone\n":
        return f"after: {results[9:]}"
    return None


def first_of_a_step_to_meet_it():
    """Each tool in turn finds that the sandbox of the calls before it is gone; those after it know it."""
    for tool in FIELDS:
        name = {"read": "read_file#2", "listDirectory": "list_dir#1", "write": "write_file#2",
                "edit": "read_file#2"}.get(tool, "open_exec#1")
        d = Daemon("local", f"step-{tool}", f"fault={name}=lose", mount=False)
        s = Session(d, fill=False)
        _, answers = s.batch(("write", {"path": "/workspace/d/f", "content": "old\n"}), (tool, FIELDS[tool]),
                             ("write", {"path": "/workspace/g", "content": "1"}), ("read", {"path": "/workspace/g"}),
                             ("listDirectory", {"path": "/workspace"}))
        d.stop()
        results = [a["result"] for a in answers]
        if results[0]["environmentReset"] or differs(tool, results[1], EMPTY[tool], True):
            return f"{tool}: {results[:2]}"
        if tool == "edit":  # not done: the rest of the step is not made
            if any(r["status"] != "skipped" or not r["environmentReset"] for r in results[2:]):
                return f"after {tool}: {results[2:]}"
            continue
        names = [e["name"] for e in results[4]["entries"]]
        if any(r["environmentReset"] for r in results[2:]) or names != (["d", "g"] if tool == "write" else ["g"]):
            return f"after {tool}: {results[2:]}"
    return None


def within_a_call(tool):
    """Before each call of the provider that it makes; and after its last one, which the next call tells."""
    calls = {"read": ["read_file"], "listDirectory": ["list_dir"], "write": ["read_file", "write_file"],
             "edit": ["read_file", "write_file"]}[tool]
    p = Pair(mount=False)
    done = p.daemon.provider_calls()
    p.stop()
    for name, how in [(name, "lose") for name in calls] + [(calls[-1], "lose-after")]:
        p = Pair(f"fault={name}#{done[name] + 1}={how}", mount=False)
        status, answer = p.session.call(tool, **FIELDS[tool])
        _, after = p.session.call("read", **FIELDS["read"])
        p.stop()
        if how == "lose" and differs(tool, answer, EMPTY[tool], True):
            return f"{name}, {how}: {status} {answer}"
        if how == "lose-after" and (status or answer["environmentReset"]):
            return f"{name}, {how}: {status} {answer}"
        is_there = tool == "write" and how == "lose"
        if after["environmentReset"] is (how == "lose") or (after["status"] == "text") != is_there:
            return f"{name}, {how}: then {after}"
    return None


def within_a_search():
    """An engine that is at work: what it was to search is not in the next environment."""
    p = Pair()
    p.session.exec("mkfifo", "/workspace/pipe")
    answers = []
    thread = threading.Thread(target=lambda: answers.append(
        p.session.call("grep", pattern="old", path="/workspace/pipe")[1]))
    thread.start()
    wait_for(engine_runs, 60)
    p.lose()
    thread.join()
    _, after = p.session.call("grep", **FIELDS["grep"])
    p.stop()
    if answers[0]["status"] != "not_found" or not answers[0]["environmentReset"]:
        return f"{answers}"
    return f"{after}" if differs("grep", after, EMPTY["grep"], False) else None


def engine_runs():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
            if words[0].rsplit(b"/", 1)[-1] in (b"rg", b"grep") and b"/workspace/pipe" in words:
                return True
        except OSError:
            pass
    return False


# --- keepalive, identity ---

def kept_alive():
    """Each call extends the lifetime, whatever it is, once half of it has gone; a busy one waits for none."""
    p = Pair("keepalive_ttl=2s", mount=False)
    for tool, fields in FIELDS.items():
        time.sleep(1.1)
        before = p.daemon.provider_calls().get("keep_alive", 0)
        _, answer = p.session.call(tool, **fields)
        after = p.daemon.provider_calls().get("keep_alive", 0)
        if after <= before or answer["environmentReset"]:
            p.stop()
            return f"{tool}: {before} to {after}, {answer}"
    p.stop()
    return None


def a_lifetime_that_ends():
    """Left alone it ends by itself, and the next call says so."""
    p = Pair("ttl=3s,keepalive_ttl=3s", mount=False)
    time.sleep(6)
    _, answer = p.session.call("read", **FIELDS["read"])
    p.stop()
    return None if answer["status"] == "not_found" and answer["environmentReset"] else f"{answer}"


# --- what a model may read ---

def words_of(d):
    s = d.session()
    found = [TMP, os.uname().nodename, "inject", "fault", str(d.proc.pid), d.name, BUILD]
    return found + ([s["sandboxId"]] if s and s["sandboxId"] else [])


def leaks(d, answer, words):
    text = json.dumps(answer)
    return [w for w in words if w in text]


def other_kinds():
    """Those of every_kind in tools-calls.py are one fixed text each; these are structured, or are said
    of a call that has been made."""
    for fault in ("error:input", "error:reset", "error:system", "error:write-failed", "after:internal",
                  "after:unavailable:backend", "after:system", "after:timeout", "after:quota-exceeded"):
        schedule = ";".join(f"{call}#1+={fault}" for call in ("read_file", "write_file", "list_dir", "open_exec"))
        d = Daemon("local", f"kind-{fault.replace(':', '-')}", "fault=" + schedule, mount=False)
        s = Session(d, fill=False)
        for tool, fields in FIELDS.items():
            status, out, err = s.raw(tool, json.dumps({"reason": "r", **fields}).encode())
            answer = json.loads(out)
            bad = leaks(d, answer, words_of(d))
            if bad or err or status not in (0, 1, 3) or not ("error" in answer or "status" in answer or
                                                             "exitCode" in answer):
                d.stop()
                return f"{fault}, {tool}: {bad} {status} {answer} {err}"
        d.stop()
    return None


def hostile_words():
    """A provider whose errors are every byte there is, in a batch as well."""
    d = Daemon(BUILD + "/tests/hostile.so", "hostile-tools", mount=False)
    s = Session(d, key="said", fill=False)
    for tool, fields in FIELDS.items():
        status, answer = s.call(tool, **fields)
        text = json.dumps(answer)
        if status != 1 or answer["error"]["kind"] not in ("unavailable", "refused") or "2J" in text or "id" == text:
            d.stop()
            return f"{tool}: {answer}"
    _, answers = s.batch(("read", FIELDS["read"]), ("bash", FIELDS["bash"]))
    d.stop()
    return None if "2J" not in json.dumps(answers) else f"{answers}"


def main():
    for tool in FIELDS:
        case(f"gone between two calls: {tool}", between_calls, tool)
    case("gone while a command of a step runs", in_a_step)
    case("gone between the calls of a step", first_of_a_step_to_meet_it)
    for tool in ("read", "listDirectory", "write", "edit"):
        case(f"gone within a call: {tool}", within_a_call, tool)
    case("gone while an engine searches", within_a_search)
    case("every call keeps it alive", kept_alive)
    case("a lifetime that ends", a_lifetime_that_ends)
    case("no words of a provider: other kinds", other_kinds)
    if os.path.exists(BUILD + "/tests/hostile.so"):
        case("no words of a provider: hostile", hostile_words)
    else:
        world.skip("no words of a provider: hostile", "tests/hostile.so is not built here")
    sys.exit(world.finish())


main()
