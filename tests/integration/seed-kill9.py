#!/usr/bin/env python3
# timeout 120
# timeout-long 600
"""kill -9 of the daemon at random points of a check, or over ssh of the helper: the next one ends with
exactly the right files, and what the agent has changed stays unless its version changes."""
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time

import hold_world as world
from hold_world import short_or_long, wait_for
from over_world import OVER, over, workers_below
from seed_world import Seeded, inline, loaded

FILES = 24
ROUNDS = short_or_long(10, 50)
SEED = random.randrange(1 << 30)


def wanted(round):
    """Every third comes from a loader; each round has other versions of all."""
    return {f"f{i}": f"{round}-{i}\n" * (1 + i * 200) for i in range(FILES)}


def declare(d, round):
    files = []
    for i, (name, text) in enumerate(wanted(round).items()):
        if i % 3 == 0:
            files.append(loaded(name, "cat", f"{d.dir}/{name}.{round}", version=str(round)))
            with open(f"{d.dir}/{name}.{round}", "w") as f:
                f.write(text)
        else:
            files.append(inline(name, text))
    d.declare(*files, inline("kept", "seeded\n"), inline("gone", "seeded\n"))


def differs(d, round):
    """The first file that is not as it should be, in one command."""
    names = [*wanted(round), "kept", "gone"]
    r = d.sh("-c", "cd /workspace; for f in " + " ".join(names) + "; do cat $f 2>/dev/null || echo none; echo ,; done")
    got = r.stdout.split(",\n")[:-1]
    right = [*wanted(round).values(), "mine\n", "none\n"]
    for name, g, w in zip(names, got, right):
        if g != w:
            return f"{name}: {g[:40]!r}, not {w[:40]!r}"
    return None if len(got) == len(names) else f"{r}"


def first_check_s(d):
    """What a check takes, once the agent has changed a file and removed one."""
    declare(d, 0)
    d.sh("true")
    d.put("/workspace/kept", "mine\n")
    d.sh("rm", "/workspace/gone")
    began = time.monotonic()
    declare(d, 1)
    d.sh("true", run="1")
    return time.monotonic() - began


def in_a_check(d, round, after_s):
    """A command that waits for its round's check, which has gone on for so long."""
    declare(d, round)
    waiting = subprocess.Popen(d.run_argv("--run", str(round), "true"), stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(after_s)
    return waiting


def killed_anywhere():
    rng = random.Random(SEED)
    d = Seeded("local", mount=False)
    length = first_check_s(d)
    caught = 0
    for round in range(2, 2 + ROUNDS):
        waiting = in_a_check(d, round, rng.random() * length)
        d.proc.kill()
        d.proc.wait()
        caught += waiting.wait(30) == 125
        d.start()
        why = differs(d, round)  # an environment that is new to the process: checked
        if why:
            return f"round {round} (seed {SEED}): {why}"
        ledger = json.loads(d.cat("/workspace/.pai/seed.json"))["files"]
        if len(ledger) != FILES + 2 or len({f["path"] for f in ledger}) != FILES + 2:
            return f"round {round} (seed {SEED}): {ledger}"
        # Back to what was there before: never skipped, though the ledger knew it once.
        if round % 3 == 0:
            declare(d, round - 1)
            d.sh("true", run=f"back {round}")
            why = differs(d, round - 1)
            if why:
                return f"back from {round} (seed {SEED}): {why}"
    d.stop()
    print(f"# {caught} of {ROUNDS} commands were cut off, checks of {length:.2f} s")
    return None if caught else f"no check was cut off in {ROUNDS} rounds of {length:.2f} s (seed {SEED})"


def several_at_once():
    """Processes that check one sandbox at once end with the right files and a ledger."""
    first = Seeded("local", mount=False)
    root = f"root={world.TMP}/root-{first.name}"
    first.make()
    others = []
    for i in range(2):
        d = Seeded("local", root, mount=False)
        d.argv[-1] = d.argv[-1].replace(d.dir + "/list.json", first.dir + "/list.json")
        d.stop()
        others.append(d.start())
    all = [first, *others]
    for round in range(4):
        declare(first, round)
        running = [subprocess.Popen(d.run_argv("--run", f"{round}", "true"), stdin=subprocess.DEVNULL)
                   for d in all for _ in range(2)]
        if any(p.wait(60) for p in running):
            return f"round {round}: {[p.returncode for p in running]}"
        if round == 0:
            first.put("/workspace/kept", "mine\n")
            first.sh("rm", "/workspace/gone")
        why = differs(first, round)
        if why:
            return f"round {round}: {why}"
        if len(json.loads(first.cat("/workspace/.pai/seed.json"))["files"]) != FILES + 2:
            return f"round {round}: the ledger"
    for d in all:
        d.stop()


def helper_killed(provider, options):
    """The worker on the other host, which serves files and calls."""
    rng = random.Random(SEED)
    d = Seeded(provider, *options, mount=False)
    length = first_check_s(d)
    caught = 0
    for round in range(2, 2 + ROUNDS):
        waiting = in_a_check(d, round, rng.random() * length)
        for pid in workers_below(world.TMP):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        caught += waiting.wait(60) != 0
        wait_for(lambda: d.sh("true").returncode == 0, 30, "the next line")
        r = d.sh("true", run=f"{round} again")
        why = differs(d, round) if r.returncode == 0 else f"{r}"
        if why:
            return f"round {round} (seed {SEED}): {why}"
    d.stop()
    print(f"# {caught} of {ROUNDS} commands were cut off, checks of {length:.2f} s")


def main():
    if OVER == "ssh":
        with over(world.TMP) as (provider, options):
            world.case("kill -9 of the helper in the middle of a check", helper_killed, provider, options)
            for d in world.daemons:
                if d.proc.poll() is None:
                    d.stop()
        return world.failed
    world.case("kill -9 of the daemon in the middle of a check", killed_anywhere)
    world.case("several processes check one sandbox at once", several_at_once)
    for d in world.daemons:
        if d.proc.poll() is None:
            d.stop()
    return world.failed


sys.exit(main())
