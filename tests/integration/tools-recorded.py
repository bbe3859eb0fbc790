#!/usr/bin/env python3
# timeout 150
# timeout-long 1200
"""The recorded calls of tool_calls.jsonl, in order, each with the answer that it must have: with
ripgrep, with GNU tools and with busybox alone; what needs no command over `memory` too. Every input
and every answer is held to the published schemas. With --record the answers are written anew.
PAI_OVER: as over_world.py has it. PAI_ENGINES: some of rg,gnu,busybox alone."""
import json
import re
import shutil
import sys

import hold_world as world
from over_world import OVER, over
from tool_world import Daemon, Session, brief, os, schemas

RECORD = "--record" in sys.argv
HERE = os.path.dirname(os.path.abspath(__file__))
PATH = HERE + "/tool_calls.jsonl"
FILE_TOOLS = ("read", "write", "edit", "listDirectory")


def load():
    with open(PATH) as f:
        return [json.loads(line) for line in f]


class Checker:
    """Schemas by python3-jsonschema."""

    def __init__(self):
        import jsonschema
        kind = jsonschema.Draft202012Validator
        self.all = {}
        for name, s in schemas().items():
            kind.check_schema(s["inputSchema"])
            kind.check_schema(s["outputSchema"])
            self.all[name] = (kind(s["inputSchema"]), kind(s["outputSchema"]))

    def faults(self, case, status, answer):
        takes, gives = self.all[case["tool"]]
        fits = takes.is_valid(case["input"])
        if fits != (status != 2):
            yield f"the input schema {'takes' if fits else 'refuses'} it, the tool answered {status}"
        for e in list(gives.iter_errors(answer))[:1]:
            yield "the output schema: " + e.message[:200]


def is_plain(case):
    """Whether it is about files alone: memory has neither links nor modes nor engines, and what
    lies outside of its trees is its own."""
    where = str(case["input"].get("path", "")) if isinstance(case["input"], dict) else ""
    return case["tool"] in FILE_TOOLS and not re.search(
        "link-to|loop|dangling|outside|absolute|fifo|/etc|/dev|nowhere$|one.txt|script|empty-dir|n{99}",
        where) and not re.search("/tmp", where)


def run(engine, session, checker, cases):
    """Plays the calls; what differs is a failure of that call alone."""
    wrong = []
    for case in cases:
        if session.engine not in case.get("only", [session.engine]):
            continue
        status, out, _ = session.raw(case["tool"], json.dumps(case["input"]).encode())
        answer = json.loads(out)
        for fault in checker.faults(case, status, answer):
            wrong.append(f"{case['name']}: {fault}")
        got = {"exit": status, "answer": brief(answer)}
        if RECORD:
            if engine == "rg":
                case.update(got)
                case.pop("others", None)
            elif got != {"exit": case["exit"], "answer": case["answer"]}:
                case.setdefault("others", {})[engine] = got
            continue
        wanted = case.get("others", {}).get(engine, {"exit": case["exit"], "answer": case["answer"]})
        if got != wanted:
            wrong.append(f"{case['name']}: {json.dumps(got)[:300]} instead of {json.dumps(wanted)[:300]}")
    for w in wrong[:20]:
        print("   " + w, flush=True)
    return f"{len(wrong)} of {len(cases)}: {wrong[0]}" if wrong else ""


def play(provider, options, engine):
    cases = load()
    daemon = Daemon(provider, f"{provider}-{engine}", *options, mount=False)
    if provider == "memory":
        cases = [c for c in cases if is_plain(c)]
    session = Session(daemon, engine=engine)
    why = run(engine, session, Checker(), cases)
    if RECORD and provider == "local":
        by_name = {c["name"]: c for c in cases}
        with open(PATH + ".new", "w") as f:
            for case in load():
                f.write(json.dumps(by_name[case["name"]], ensure_ascii=True) + "\n")
        os.rename(PATH + ".new", PATH)
    daemon.pai("kill", "k")
    daemon.stop()
    return why


def main():
    engines = os.environ.get("PAI_ENGINES", "rg,gnu,busybox").split(",")
    with over(world.TMP) as (provider, options):
        for engine in engines:
            name = f"the recorded calls on {OVER}: {engine}"
            if engine == "rg" and not shutil.which("rg"):
                world.skip(name, "no ripgrep here")
            elif engine == "busybox" and not os.path.exists("/bin/busybox"):
                world.skip(name, "no busybox here")
            else:
                world.case(name, play, provider, options, engine)
        if OVER == "local":
            world.case("the recorded file calls on memory", play, "memory", [], "memory")
        status = world.finish()
    sys.exit(status)


main()
