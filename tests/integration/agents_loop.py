"""What the tests of true agents share: the script that each is driven through, what is looked for afterwards, and
a machine without a way out. Not a test by itself."""
import ctypes
import fcntl
import http.client
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hold_world  # noqa: E402
from agents_model import Model  # noqa: E402
from hold_world import BUILD, TMP, Daemon, begin, case, not_ok, skip, wait_for  # noqa: E402

CONTRIB = os.path.dirname(os.path.abspath(__file__)) + "/../../contrib/agents"
PORT = 18765
WORD = f"{os.getpid()}.25"  # in the arguments of processes of ours alone
HANGS, CANARY = f"sleep 800{WORD}", f"sleep 900{WORD}"
LAUNCHER = TMP + "/launcher"
CANARIES = [f"/tmp/pai-canary-{os.getpid()}", os.environ["HOME"] + "/canary", LAUNCHER + "/canary"]
# What a command would do to this machine if it were here.
HARM = "; ".join(f"cat {c}; echo harmed >> {c}; unlink {c}" for c in CANARIES) + f"; pkill -f '[s]{CANARY[1:]}'"
KEYS = "env | grep dummy || echo no key"
SERVE = f"/usr/bin/python3 -m http.server --bind 127.0.0.1 {PORT}"
FETCH = f"curl -fsS --retry 20 --retry-delay 1 --retry-connrefused http://127.0.0.1:{PORT}/hello.txt"
EDITED = "from the agent's own tool"


class Script:
    """What an agent is made to do, in its own tools. write(path, text), edit(path, old, new) and
    shell(command, where) make calls of them; what an agent of a shell that remembers its last cd does with
    `where` is nothing. serve(command) is a shell that goes on in the background, search(text) a tool of its own.
    One that roams takes any directory of this machine for `where`."""

    def __init__(self, write, edit, shell, serve=None, search=None, roams=False):
        top, sub = "/workspace", "/workspace/sub"
        serve = serve or (lambda line: shell(f"{line} > server.log 2>&1 & echo on", sub))
        safe = [c + ": No such file" for c in CANARIES]
        rows = [(write("/workspace/hello.txt", "from the model\n"), []),
                (edit("/workspace/hello.txt", "the model", "the agent's own tool"), []),
                (shell(f"cat hello.txt /tmp/in-the-sandbox; grep -rl own .; pwd; {KEYS}; {HARM}; true", top),
                 [EDITED, "yes", "no key\n", "hello.txt", "/workspace\n", *safe])]
        rows += [(search("own tool"), ["hello.txt"])] if search else []
        rows += [(shell(f"pwd; {HARM}; true", LAUNCHER), ["/workspace\n", *safe])] if roams else []
        rows += [(shell("mkdir -p sub && cd sub && pwd", top), [sub]),
                 (shell("pwd; echo made > here; cp ../hello.txt .", sub), [sub]),
                 (serve(f"cd /workspace; {SERVE}"), []),
                 (shell(FETCH, sub), [EDITED]),
                 (shell(f"cd /workspace && echo going > going; {HANGS}", sub), [])]
        self.calls, self.wanted = [r[0] for r in rows], [r[1] for r in rows]


# --- a machine without a way out ---


def lone_loopback():
    """This process and what it starts have a loopback of their own and nothing else; why not, or None."""
    clone_newnet, siocsifflags, iff_up = 0x40000000, 0x8914, 1
    if ctypes.CDLL(None, use_errno=True).unshare(clone_newnet):
        return "outbound traffic can't be blocked here: no network namespace: " + os.strerror(ctypes.get_errno())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, siocsifflags, struct.pack("16sh14x", b"lo", iff_up))
    return None


def environment(**more):
    """Nothing of the person's who runs the tests: no key of theirs, no setting."""
    names = ("PATH", "HOME", "LANG", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")
    return {"TERM": "xterm-256color", **{n: os.environ[n] for n in names if n in os.environ}, **more}


# --- the run ---


def is_running(d, word):
    """In the sandbox."""
    line = f"cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -q '[{word[0]}]{word[1:]}'"
    return d.run("sh", "-c", line)[0] == 0


def fetch_by_port(d):
    """The server's file, asked for on this machine."""
    with subprocess.Popen([BUILD + "/pai", "-n", d.name, "port", "k", str(PORT)], stdout=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, text=True) as p:
        try:
            c = http.client.HTTPConnection(p.stdout.readline().split()[0], timeout=10)
            c.request("GET", "/hello.txt")
            return c.getresponse().read().decode()
        finally:
            p.terminate()


class Agent:
    """One that was started in session k, on a terminal; its model is on loopback."""

    def __init__(self, d, model, argv, env):
        self.d, self.model, self.said, self.at = d, model, b"", 0
        self.terminal, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
        self.p = subprocess.Popen([BUILD + "/pai", "-n", d.name, "run", "-s", "k", "--", *argv], cwd=LAUNCHER,
                                  env=environment(**env), stdin=slave, stdout=slave, stderr=slave,
                                  start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        try:
            while data := os.read(self.terminal, 1 << 16):
                self.said += data
        except OSError:  # nobody has the other end any more
            pass

    def type(self, line):
        os.write(self.terminal, line.encode())

    def until(self, word, seconds=60):
        """Waits for `word` on the terminal, after what was waited for last; what came before it."""
        wait_for(lambda: word.encode() in self.said[self.at:] or self.p.poll() is not None, seconds, repr(word))
        before, found, _ = self.said[self.at:].partition(word.encode())
        assert found, f"it ended before it said {word!r}"
        self.at += len(before) + len(found)
        return before.decode(errors="replace")

    def stop(self):
        self.type("\x03")

    def end(self):
        """What it said, of late."""
        try:
            if self.p.poll() is None:
                self.stop()
            self.p.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.p.pid, signal.SIGKILL)
            self.p.wait()
        self.reader.join(5)
        os.close(self.terminal)
        return self.said[-600:]


def is_harmed(canary):
    for path in CANARIES:
        if not os.path.exists(path) or hold_world.get(path) != b"canary\n":
            return path
    return "a process" if canary.poll() is not None else None


def go_through(d, agent, script, interrupt):
    """What is wrong, or None. The agent is interrupted in its last call."""
    going = d.top + "/k/going"
    wait_for(lambda: agent.p.poll() is not None or os.path.exists(going) and is_running(d, HANGS), 240, "the last call")
    said = list(agent.model.answers)
    for i, wanted in enumerate(script.wanted[:-1]):
        missing = wanted if i >= len(said) else [w for w in wanted if w not in said[i]]
        if i >= len(said) or missing:
            return f"call {i}: {said[i:i + 1]} lacks {missing}"
    with open(d.top + "/k/sub/here") as f, open(d.top + "/k/hello.txt") as g:
        if f.read() != "made\n" or g.read() != EDITED + "\n":
            return "the files differ"
    if fetch_by_port(d) != EDITED + "\n":
        return "pai port brings something else"
    interrupt(agent)
    wait_for(lambda: not is_running(d, HANGS), 10, "the end of the command that was interrupted")
    return None


def talked_to(d, agent, model, talk):
    """What `talk` finds wrong, with what the agent said; both are ended."""
    try:
        why = talk(d, agent)
    except Exception as e:
        why = repr(e)
    said = agent.end()
    model.close()
    return f"{why}; it said {said!r}" if why else None


def loop(d, script, argv, env, ask=None, interrupt=Agent.stop):
    """argv and env are made of the model; ask(agent) is what a person does first, where argv isn't all."""
    model = Model(script.calls)
    agent = Agent(d, model, argv(model), env(model))

    def talk(d, agent):
        if ask:
            ask(agent)
        return go_through(d, agent, script, interrupt)
    why = talked_to(d, agent, model, talk)
    return f"{why}; after {len(model.answers)} answers; was asked {model.others}" if why else None


def canaries():
    os.makedirs(LAUNCHER)
    for path in CANARIES:
        hold_world.put(path, b"canary\n")
    return subprocess.Popen(CANARY.split())


def test(name, install, *cases, is_slow=False):
    """install() gives what each of `cases`, (what, fn(daemon, program)), is called with."""
    begin(name)
    if is_slow and not hold_world.LONG:
        skip(name, "it may take over half a minute: at full length only (PAI_LONG=1)")
        return
    canary = None
    try:
        program = install()
        why = lone_loopback()
    except RuntimeError as e:
        why = str(e)
    try:
        if why:
            skip(name, why)
            return
        canary = canaries()
        d = Daemon("local", "agents")
        os.mkdir(d.top + "/k")
        assert d.run("sh", "-c", "git init -q && echo yes > /tmp/in-the-sandbox")[0] == 0
        for what, fn in cases:
            case(f"{name} {what}", fn, d, program)
        case(f"{name}: no command of it has touched this machine", is_harmed, canary)
        d.pai("kill", "k")  # and with it the server that the agent left running
    except Exception as e:
        not_ok(name, repr(e))
        raise
    finally:
        if canary:
            canary.kill()
            canary.wait()
            os.path.exists(CANARIES[0]) and os.remove(CANARIES[0])
        code = hold_world.finish()
        sys.exit(code)
