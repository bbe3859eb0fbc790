#!/bin/bash
# How often threads are woken for one request, counted: the ones on its way, and nobody else.
# fast
# timeout 60
PAI_LOCAL_OPTS=workspace=helper
. "$(dirname "$0")/lib.sh"
begin switches
[ "$PAI_ON" = paifs ] || { skip switches "only our own threads are known"; exit 0; }
start || { not_ok switches "no mount"; exit 1; }
worker=$(pgrep -f "^$PAI_TMP/.*pai-helper.* serve" | while read -r pid; do
	[ "$(cat "/proc/$pid/comm")" != pai-worker ] || echo "$pid"
done)
timeout 50 python3 - "$BOX" "$daemon_pid" $worker <<'END' || failed=1
import os
import sys

N = 400
box, processes = sys.argv[1], sys.argv[2:]
bad = 0


def switches():
    """Voluntary ones so far, by the threads' names."""
    found = {}
    for process in processes:
        for task in os.listdir(f"/proc/{process}/task"):
            with open(f"/proc/{process}/task/{task}/status", encoding="ascii") as f:
                fields = dict(line.split(":", 1) for line in f)
            name = fields["Name"].strip()
            found[name] = found.get(name, 0) + int(fields["voluntary_ctxt_switches"])
    return found


def check(name, call, allowed):
    """A thread that finds its work there doesn't sleep, so that load makes these fewer."""
    global bad
    before = switches()
    for i in range(N):
        call(i)
    got = {k: v - before.get(k, 0) for k, v in switches().items()}
    got.pop("paifs", None)  # the main thread ticks, by time
    over = {k: v for k, v in got.items() if v > allowed.get(k, 0.1) * N + 40}
    if over:
        bad = 1
        print(f"not ok {name}: {over} of {N} requests; all: {got}")
    else:
        print(f"ok {name} ({got})")


os.mkdir("d")
for i in range(N):
    with open(f"{box}/d/{i}", "w", encoding="ascii") as out:
        out.write("words")
os.stat("d/0")
ON_ITS_WAY = {"fuse": 1.2, "pai-exec-line": 1.2, "pai-worker": 1.2}
check("stat-wakes-those-on-its-way", lambda i: os.stat(f"d/{i}"), ON_ITS_WAY)
if os.environ.get("PAI_OVER") == "ssh" and len(processes) != 2:
    bad = 1
    print(f"not ok worker: {processes}")
sys.exit(bad)
END
cd /
stop
exit $failed
