#!/usr/bin/env python3
# A provider that never answers: what reads local state answers at once, the rest by its deadline.
# timeout 120
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from pai_ask import Client, frame  # noqa: E402
from pai_fake import REQUEST  # noqa: E402

BUILD = os.path.realpath(os.environ.get("PAI_BUILD", "build/debug"))
NAME = "hang"
AT_ONCE_S = 0.1
TRIES = 5  # the machine may be busy: the best of these counts
failed = False
tmp = os.environ.get("PAI_TMP") or tempfile.mkdtemp(prefix="pai-test-")
os.environ.update(HOME=tmp, XDG_RUNTIME_DIR=tmp + "/run", XDG_STATE_HOME=tmp + "/state",
                  XDG_CONFIG_HOME=tmp + "/config")
os.makedirs(tmp + "/run", mode=0o700, exist_ok=True)
TOP = tmp + "/top"
os.makedirs(TOP, exist_ok=True)
PATH = tmp + "/run/paifs/" + NAME + ".sock"


def case(name, fn):
    global failed
    try:
        why = fn()
    except Exception as e:  # whatever it is, it fails this case alone
        why = f"{type(e).__name__}: {e}"
    if why:
        failed = True
    print(f"not ok {name}: {why}" if why else f"ok {name}", flush=True)


def start(*options):
    daemon = subprocess.Popen([BUILD + "/paifs", "memory", TOP, "-n", NAME, "-f", "-o",
                               ",".join(options)])
    for _ in range(500):
        if os.path.ismount(TOP) or daemon.poll() is not None:
            break
        time.sleep(0.02)
    return daemon


def at_once(fn):
    best = 9e9
    for _ in range(TRIES):
        begun = time.monotonic()
        fn()
        best = min(best, time.monotonic() - begun)
    return "" if best < AT_ONCE_S else f"{best * 1000:.0f} ms"


def client():
    c = Client(PATH, timeout=30)
    c.hello()
    return c


def ask_later(request):
    c = client()
    c.sock.sendall(frame(REQUEST, json.dumps(request).encode()))
    return c


def answered(c, kinds, least_s, most_s, begun):
    """Ends with one of these errors, in time."""
    kind, _, payload = c.next()
    answer = json.loads(payload)
    took = time.monotonic() - begun
    if answer.get("kind") not in kinds:
        return f"type {kind}: {answer}"
    return "" if least_s <= took <= most_s else f"after {took:.1f} s: {answer}"


def ask(request):
    c = client()
    good, answer = c.ask(request)
    assert good, answer


daemon = start("fault=create=hang;probe=hang;list=hang;connect=hang", "create_timeout=4s",
               "timeout=2s")
os.makedirs(TOP + "/one", exist_ok=True)
begun = time.monotonic()
creating = ask_later({"op": "create", "key": "one"})
probing = ask_later({"op": "probe"})
# As many as the pool that waits for providers has threads, and more.
crowd = [ask_later({"op": "create", "key": f"k{i}"}) for i in range(100)]
gone = ask_later({"op": "create", "key": "one"})
gone.sock.close()
run = subprocess.Popen([BUILD + "/pai-exec", "-n", NAME, "-s", "two", "true"],
                       stderr=subprocess.PIPE, text=True)
time.sleep(0.3)
case("ls of the root answers at once", lambda: at_once(lambda: os.listdir(TOP)))
case("df answers at once", lambda: at_once(lambda: os.statvfs(TOP)))
case("stat of a session answers at once", lambda: at_once(lambda: os.stat(TOP + "/one")))
case("status answers at once", lambda: at_once(lambda: ask({"op": "status"})))
case("status of the key answers at once", lambda: at_once(lambda: ask({"op": "status",
                                                                       "key": "one"})))
case("ls answers at once", lambda: at_once(lambda: ask({"op": "ls"})))
case("log answers at once", lambda: at_once(lambda: ask({"op": "log"})))
case("counters answer at once", lambda: at_once(lambda: ask({"op": "counters"})))
case("probe ends by its deadline",
     lambda: answered(probing, ("timeout", "unavailable"), 1.5, 5, begun))
case("create ends by its deadline",
     lambda: answered(creating, ("timeout", "unavailable"), 3, 9, begun))


def exec_ends():
    _, err = run.communicate(timeout=30)
    return "" if run.returncode == 125 and "nothing ran" in err else f"{run.returncode}: {err}"


case("pai-exec ends by its deadline, 125", exec_ends)
for c in crowd:
    c.sock.close()
crowd = [ask_later({"op": "create", "key": f"n{i}"}) for i in range(20)]
time.sleep(0.2)


def umounts():
    started = time.monotonic()
    subprocess.run(["fusermount3", "-u", TOP], check=True, timeout=10)
    took = time.monotonic() - started
    return "" if took < 1 else f"{took:.1f} s"


case("umount answers at once", umounts)
case("and the daemon ends", lambda: "" if daemon.wait(20) == 0 else f"exit {daemon.returncode}")
daemon = start("fault=create=hang;list=hang")
crowd = [ask_later({"op": "create", "key": f"t{i}"}) for i in range(20)]
time.sleep(0.2)


def terminates():
    started = time.monotonic()
    daemon.terminate()
    status = daemon.wait(30)
    took = time.monotonic() - started
    return "" if status == 0 and took < 10 else f"exit {status} after {took:.1f} s"


case("SIGTERM ends it while creations hang", terminates)
case("nothing stays mounted", lambda: "it does" if os.path.ismount(TOP) else "")
sys.exit(1 if failed else 0)
