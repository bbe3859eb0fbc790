"""What the agents-* scripts share: how coding agents call shells, as cases. Not a test by itself.

Run as a program, by `pai run` or in a session's directory: every case of the environment that it is
told of, one line each. PAI_CASES: "run" (inside `pai run`, shells by absolute path), "links" (a link
named like the shell is called, nothing else) or "plain" (true shells, which proves the cases).
PAI_SHELL: the one shell that is called for all of them, where there is nothing but busybox; what such a
sandbox can't answer is told as skipped, with what it lacks.
"""
import json
import os
import pty
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import fcntl
import termios

KIND = os.environ.pop("PAI_CASES", "plain")
CANARY = os.environ.pop("PAI_CANARY", "/nonexistent")  # a file of the host
LINKS = os.environ.pop("PAI_LINKS", "")
SHELL = os.environ.pop("PAI_SHELL", None)
TOP = os.getcwd()  # the workspace
SUB = TOP + "/sub"
THERE = "/workspace" if KIND == "links" else TOP  # the same for its shells
WAIT_S = 30
LONG = os.environ.get("PAI_LONG") == "1"
cases = []
BASH = "bash: ash ends at a script that '.' doesn't find, reads ahead of its commands, knows no PROMPT_COMMAND"


def case(*kinds, needs=None):
    """`needs`: what busybox has not."""
    def add(fn):
        if not kinds or KIND in kinds or KIND == "plain" and "run" in kinds and "sandbox" not in kinds:
            cases.append((fn, needs if SHELL else None))
        return fn
    return add


def shell(path):
    path = SHELL if SHELL and os.path.basename(path) in ("sh", "bash") else path
    return f"{LINKS}/{os.path.basename(path)}" if KIND == "links" else path


def run(argv, **kw):
    argv = [shell(argv[0]), *argv[1:]]
    if "input" not in kw:
        kw.setdefault("stdin", subprocess.DEVNULL)
    kw.setdefault("cwd", SUB)
    kw.setdefault("stdout", subprocess.PIPE)
    kw.setdefault("stderr", subprocess.PIPE)
    r = subprocess.run(argv, timeout=kw.pop("timeout", WAIT_S), **kw)
    return r.returncode, (r.stdout or b"").decode(), (r.stderr or b"").decode()


def expect(got, want):
    assert got == want, f"{got!r}, not {want!r}"


def wait_for(fn, seconds=10, what="it"):
    until = time.monotonic() + seconds
    while not fn():
        assert time.monotonic() < until, f"{what} did not come to pass in {seconds} s"
        time.sleep(0.02)


def write(path, text):
    with open(path, "w") as f:
        f.write(text)
    return path


def read(path):
    with open(path) as f:
        return f.read()


class Terminal:
    """A program on a pty of its own session."""

    def __init__(self, argv, rows=24, columns=80, env=None, cwd=SUB):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(cwd)
                self.set_size(0, rows, columns)
                os.execvpe(shell(argv[0]), [shell(argv[0]), *argv[1:]], env or os.environ)
            finally:
                os._exit(99)
        self.seen = ""

    @staticmethod
    def set_size(fd, rows, columns):
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, rows, columns):
        self.set_size(self.fd, rows, columns)

    def send(self, text):
        os.write(self.fd, text.encode())

    def until(self, text, seconds=WAIT_S):
        """Reads until `text` has come; what came before its end."""
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            left = deadline - time.monotonic()
            assert left > 0 and self.fill(left), f"no {text!r} in {self.seen!r}"
        at = self.seen.index(text) + len(text)
        seen, self.seen = self.seen[:at], self.seen[at:]
        return seen

    def fill(self, seconds):
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            data = b""
        self.seen += data.decode(errors="replace")
        return bool(data)

    def end(self):
        """(all that was left to see, exit status)"""
        deadline = time.monotonic() + WAIT_S
        while self.fill(max(0, deadline - time.monotonic())):
            pass
        status = os.waitpid(self.pid, 0)[1]
        os.close(self.fd)
        return self.seen, os.waitstatus_to_exitcode(status)


def temp():
    """Where agents keep files that shells share with them."""
    return os.environ.get("TMPDIR") if KIND == "run" else TOP


# --- facts/agents: replayable cases, in their order ---

CLAUDE = "shopt -u extglob 2>/dev/null || true && eval '%s' < /dev/null && pwd -P >| %s"


@case()
def claude_reads_the_directory_that_a_command_went_to():
    os.makedirs(SUB + "/d", exist_ok=True)
    path = f"{temp()}/claude-ab12-cwd"
    there = ("$TMPDIR" if KIND == "run" else THERE) + "/claude-ab12-cwd"
    expect(run(["/bin/bash", "-c", "-l", CLAUDE % ("cd d && pwd", there)])[0], 0)
    said = read(path).strip()
    if KIND != "links":
        expect(os.path.realpath(said), SUB + "/d")
    os.unlink(path)
    expect(run(["/bin/bash", "-c", "-l", CLAUDE % ("false", there)])[0], 1)
    assert not os.path.exists(path)


@case(needs=BASH)
def a_missing_snapshot_and_quotes():
    argv = ["/bin/bash", "-c", "source /nonexistent/snap.sh 2>/dev/null || true && eval "
            "'echo \"it'\"'\"'s\"' < /dev/null"]
    expect(run(argv), (0, "it's\n", ""))


@case()
def one_file_for_both_streams_keeps_their_order():
    path = SUB + "/both"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    a, b = socket.socketpair()
    begun = time.monotonic()
    run(["/bin/bash", "-c", "for i in 1 2 3;do echo o$i;echo e$i >&2;done"], stdin=a, stdout=fd, stderr=fd)
    assert time.monotonic() - begun < 10
    os.close(fd)
    a.close(), b.close()
    expect(read(path), "o1\ne1\no2\ne2\no3\ne3\n")


@case("run", "sandbox")
def no_directory_leads_to_the_host():
    gone = tempfile.mkdtemp(dir="/tmp")
    inside = tempfile.mkdtemp(dir=SUB)
    for cwd in ("/tmp", "/", os.environ.get("HOME", "/"), gone, inside, "/usr"):
        prepare = (lambda: os.rmdir(cwd)) if cwd in (gone, inside) else None
        code, out, err = run(["/bin/bash", "-lc", f"cat {CANARY}; pwd; cat /tmp/in-the-sandbox"],
                             cwd=cwd, preexec_fn=prepare)
        expect((cwd, code, out), (cwd, 0, "/workspace\nyes\n"))
        assert "No such file" in err, err


@case()
def a_snapshot_of_the_host_fails_at_once():
    begun = time.monotonic()
    code, _, err = run(["/bin/bash", "-c", 'set -e; . "/host/only/snap"'])
    assert code != 0 and "/host/only/snap" in err, (code, err)
    assert time.monotonic() - begun < 5


@case(needs=BASH)
def codex_execs_a_shell_within_its_wrapper():
    argv = ["/bin/bash", "-c", "if . '/host/only' >/dev/null 2>&1; then :; fi\n\nexec '/bin/bash' -c 'echo z'"]
    expect(run(argv), (0, "z\n", ""))


@case()
def a_terminal_echoes_once_and_is_resized():
    t = Terminal(["/bin/bash", "-c", "read x; echo got $x; stty size; read y; stty size"])
    time.sleep(0.5)
    t.send("hi\n")
    seen = t.until("24 80")
    expect(seen.count("hi"), 2)
    assert "got hi" in seen, seen
    t.resize(30, 100)
    time.sleep(0.5)
    t.send("\n")
    seen, code = t.end()
    assert "30 100" in seen and code == 0, (seen, code)


@case("run")
def gemini_finds_the_pids_of_background_jobs():
    folder = tempfile.mkdtemp(prefix="gemini-shell-")
    path = folder + "/bgpids.tmp"
    script = ("_bgpids_file=%s; ( trap 'jobs -p > \"$_bgpids_file\"' EXIT; sleep 60 >/dev/null 2>&1 & echo on ); "
              "__code=$?; exit $__code" % path)
    expect(run(["bash", "-c", script]), (0, "on\n", ""))
    pid = read(path).strip()
    assert pid.isdigit(), pid
    run(["/bin/sh", "-c", f"kill {pid}"])
    shutil.rmtree(folder)


@case("run")
def opencode_passes_the_directory_as_an_argument():
    argv = ["/bin/bash", "-l", "-c", 'cd -- "$1"\neval "pwd"', "opencode", SUB]
    expect(run(argv, cwd="/tmp")[:2], (0, SUB + "\n"))


@case(needs="make")
def aider_runs_interactive_shells_on_a_terminal():
    write(SUB + "/Makefile", "test:\n\t@echo made; exit 3\n")
    t = Terminal(["/bin/bash", "-i", "-c", "make test"])
    seen, code = t.end()
    expect(code, 2)
    assert "made" in seen and "job control" not in seen, seen


# Printed by the shell, so that the echo of the line that sets it is no answer.
PROMPT = "PS1=; PROMPT_COMMAND='printf \"\\n##%s##\\n\" \"#{\\\"exit\\\": $?, \\\"cwd\\\": \\\"$PWD\\\"}#\"'\n"


def answer(t):
    t.until("###{")
    return json.loads("{" + t.until("###")[:-3])


@case("run", "links", needs=BASH)
def openhands_keeps_one_shell_and_reads_its_prompt():
    t = Terminal(["/bin/bash", "-i"])
    t.send(PROMPT)
    first = answer(t)
    expect(first, {"exit": 0, "cwd": THERE + "/sub"})
    t.send("cd ..\n")
    expect(answer(t)["cwd"], THERE)
    t.send("false\n")
    expect(answer(t), {"exit": 1, "cwd": THERE})
    t.send("exit 5\n")
    expect(t.end()[1], 5)


@case("run", "sandbox")
def openhands_in_tmux_stays_in_the_sandbox():
    out = temp() + "/tmux-said"
    # A server of before runs outside; this one must be another.
    subprocess.run(["tmux", "new-session", "-d", "-x", "100", "-y", "30", shell("/bin/bash") + " -i"], check=True,
                   timeout=WAIT_S, cwd=TOP)
    subprocess.run(["tmux", "send-keys", f"cat {CANARY} /tmp/in-the-sandbox > {out} 2>&1; pwd >> {out}", "Enter"],
                   check=True, timeout=WAIT_S)
    wait_for(lambda: os.path.exists(out) and "/workspace" in read(out), 10, "tmux's answer")
    said = read(out)
    subprocess.run(["tmux", "kill-server"], timeout=WAIT_S)
    assert "No such file" in said and "yes" in said, said


def lives(pid):
    return run(["/bin/sh", "-c", f"kill -0 {pid} && ! grep -q '^State:.Z' /proc/{pid}/status"])[0] == 0


def sandbox_has(word):
    return run(["/bin/sh", "-c", f"for p in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$p; echo; done | "
                f"grep -v grep | grep -q '^sleep {word}'"])[0] == 0


@case()
def term_and_kill_leave_nothing_in_the_sandbox():
    word = f"6{os.getpid()}"
    p = subprocess.Popen([shell("/bin/bash"), "-c", f"sleep {word} & wait"], cwd=SUB, start_new_session=True,
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    wait_for(lambda: sandbox_has(word))
    os.killpg(p.pid, signal.SIGTERM)
    time.sleep(0.2)
    try:
        os.killpg(p.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    p.wait(WAIT_S)
    wait_for(lambda: not sandbox_has(word), 2, "the end of the command")


@case()
def a_kill_arrives_within_200_ms():
    # No child in the background: one that has not begun when the signal comes would stay.
    p = subprocess.Popen([shell("/bin/bash"), "-c", "trap 'read t x </proc/uptime; echo $t; exit 9' TERM; echo up; "
                          "while :; do sleep 0.02; done"],
                         cwd=SUB, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)
    expect(p.stdout.readline(), b"up\n")
    sent = time.clock_gettime(time.CLOCK_BOOTTIME)  # the sandbox's kernel is this one
    os.killpg(p.pid, signal.SIGTERM)
    came = float(p.stdout.readline())
    assert came - sent < 0.2, came - sent
    expect(p.wait(WAIT_S), 9)
    p.stdout.close()


@case()
def a_background_child_goes_on_and_is_heard():
    argv = [shell("/bin/bash"), "-c", "sh -c 'while :; do echo x; sleep 0.3; done' & echo $!"]
    p = subprocess.Popen(argv, cwd=SUB, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)
    lines = {p.stdout.readline() for _ in range(2)}
    begun = time.monotonic()
    expect(p.wait(5), 0)
    assert time.monotonic() - begun < 2
    lines |= {p.stdout.readline() for _ in range(4)}
    assert b"x\n" in lines and len(lines) == 2, lines
    pid = (lines - {b"x\n"}).pop().decode().strip()
    time.sleep(10 if LONG else 0)
    assert lives(pid)
    os.killpg(p.pid, signal.SIGKILL)  # as an agent that ends its command's group
    wait_for(lambda: not lives(pid), 5, "its end")
    p.stdout.close()


@case()
def a_background_child_whose_reader_has_gone_lives():
    argv = [shell("/bin/bash"), "-c", "sh -c 'trap \"\" PIPE; while :; do echo x; sleep 0.1; done' & echo $!"]
    p = subprocess.Popen(argv, cwd=SUB, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)
    pid = ({p.stdout.readline(), p.stdout.readline()} - {b"x\n"}).pop().decode().strip()
    expect(p.wait(5), 0)
    p.stdout.close()
    time.sleep(1)
    assert lives(pid)
    os.killpg(p.pid, signal.SIGKILL)


@case("run", needs="git")
def what_the_agent_added_is_passed_and_nothing_else():
    added = {"GIT_EDITOR": "true", "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.pager",
             "GIT_CONFIG_VALUE_0": "cat", "NO_COLOR": "1", "AGENT_HOME": "/home/somebody/x",
             "MY_API_KEY": "k-added", "https_proxy": "http://p", "GIT_CONFIG_GLOBAL": "/dev/null"}
    code, out, _ = run(["/bin/bash", "-c", "env"], env={**os.environ, **added})
    seen = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
    expect(code, 0)
    for name in ("GIT_EDITOR", "GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_0", "GIT_CONFIG_VALUE_0", "NO_COLOR",
                 "GIT_CONFIG_GLOBAL"):
        expect((name, seen.get(name)), (name, added[name]))
    if KIND == "plain":
        return
    for name in ("ANTHROPIC_API_KEY", "SECRET_TOKEN", "PLAIN_OF_THE_HOST", "AGENT_HOME", "MY_API_KEY",
                 "https_proxy", "XDG_STATE_HOME", "SSH_AUTH_SOCK"):
        assert name not in seen, (name, seen[name])
    expect(seen["TMPDIR"], os.environ["TMPDIR"])
    setup = ("git init -q g && cd g && git config user.email a@b && git config user.name n && echo 1 > f && "
             "git add f && git commit -qm one && git commit --amend && git log --format=%s")
    code, out, err = run(["/bin/bash", "-c", setup], env={**os.environ, **added})
    assert code == 0 and out.endswith("one\n"), (code, out, err)


@case("run")
def what_git_tells_its_own_shells_is_passed():
    top = os.path.dirname(SUB)
    run(["git", "init", "-q", "own"], cwd=top)
    code, out, err = run(["git", f"--git-dir={top}/own/.git", "-c", "alias.x=!echo dir=$GIT_DIR", "x"], cwd=top)
    assert (code, out) == (0, f"dir={top}/own/.git\n"), (code, out, err)


@case("run")
def what_an_agent_unpacks_for_itself_runs_here():
    """Programs made by Bun load their libraries from there, and nobody in a sandbox may change them."""
    if KIND == "plain":
        return
    folder = os.environ["BUN_TMPDIR"]
    assert not folder.startswith(TOP), folder
    copy = shutil.copy(shutil.which("true"), f"{folder}/unpacked-{os.getpid()}")
    try:
        expect(subprocess.run([copy], timeout=WAIT_S).returncode, 0)
        expect(run(["/bin/sh", "-c", f"test -e {copy}; echo $? $BUN_TMPDIR"])[1], "1\n")
    finally:
        os.remove(copy)


@case("run")
def the_shell_that_the_environment_names_is_there():
    r = subprocess.run([os.environ.get("SHELL", "/bin/sh"), "-c", "echo there"], stdin=subprocess.DEVNULL,
                       stdout=subprocess.PIPE, cwd=SUB, timeout=WAIT_S)
    expect((r.returncode, r.stdout), (0, b"there\n"))


@case()
def options_may_follow_c_and_a_name_and_arguments_the_command():
    expect(run(["/bin/bash", "-l", "-c", "echo $0,$1,$#", "zero", "one", "two words"]), (0, "zero,one,2\n", ""))
    expect(run(["/bin/sh", "-c", "-e", "false; echo no"])[:2], (1, ""))
    expect(run(["/bin/bash", "-e", "-u", "-o", "pipefail", "-c", "false | true; echo no"])[:2], (1, ""))


@case(needs=BASH)
def commands_on_stdin_read_it_too():
    expect(run(["/bin/bash"], input=b"echo a; read x; echo $x\nrest\nexit 4\n"), (4, "a\nrest\n", ""))


@case()
def commands_on_stdin_and_scripts():
    expect(run(["/bin/bash"], input=b"echo a\nexit 4\n"), (4, "a\n", ""))
    expect(run(["/bin/bash", "-s", "one"], input=b"echo $1\n"), (0, "one\n", ""))
    write(SUB + "/s.sh", "echo script $1; exit 6\n")
    expect(run(["/bin/bash", "s.sh", "arg"]), (6, "script arg\n", ""))
    if KIND != "links":
        expect(run(["/bin/sh", SUB + "/s.sh", "arg"], cwd="/tmp"), (6, "script arg\n", ""))


@case()
def statuses_and_deaths_are_told_apart():
    for code in (0, 1, 125, 126, 127, 255):
        expect(run(["/bin/bash", "-c", f"exit {code}"])[0], code)
    expect(run(["/bin/bash", "-c", "no-such-program-here"])[0], 127)
    expect(run(["/bin/bash", "-c", "kill -9 $$"])[0], -9)
    expect(run(["/bin/bash", "-c", "kill -TERM $$"])[0], -15)


@case()
def commands_share_a_file_on_stdin():
    with open(write(SUB + "/list", "one\ntwo\nthree\n")) as f:
        expect(run(["/bin/bash", "-c", "read x; echo $x"], stdin=f)[1], "one\n")
        expect(run(["/bin/bash", "-c", "true"], stdin=f)[0], 0)
        expect(run(["/bin/sh", "-c", "read x; echo $x"], stdin=f)[1], "two\n")
        expect(f.read(), "three\n")


@case()
def large_output_and_input_pass_whole():
    data = os.urandom(3 << 20)
    r = subprocess.run([shell("/bin/bash"), "-c", "cat"], input=data, stdout=subprocess.PIPE, cwd=SUB, timeout=WAIT_S)
    assert r.stdout == data


def main():
    os.makedirs(SUB, exist_ok=True)
    failed = 0
    for fn, needs in cases:
        if needs:
            print("skip", f"{KIND}: {fn.__name__}: no {needs}", flush=True)
            continue
        try:
            fn()
            print("ok", f"{KIND}: {fn.__name__}", flush=True)
        except Exception as e:
            traceback.print_exc(file=sys.stdout)
            print("not ok", f"{KIND}: {fn.__name__}: {type(e).__name__}: {' '.join(str(e).split())[:400]}", flush=True)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
