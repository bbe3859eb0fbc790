#!/usr/bin/env python3
# timeout 120
"""pai-exec against daemons that do what a real one doesn't on demand: garbage, silence, death in
mid-stream; and what it sends and grants, frame by frame."""
import fcntl
import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import pai_fake as fake  # noqa: E402

PAI_EXEC = os.path.abspath(os.path.join(os.environ.get("PAI_BUILD", "build/debug"), "pai-exec"))
BASE = [PAI_EXEC, "-n", "fake", "-s", "k"]
WAIT_S = 30
tests = []


def test(fn):
    tests.append(fn)
    return fn


def run(script, *args, **kw):
    """Runs pai-exec against script(conn)."""
    kw.setdefault("stdin", subprocess.DEVNULL)
    with fake.Daemon(script):
        return subprocess.run(BASE + list(args), capture_output=True, timeout=WAIT_S, **kw)


def spawn(*args, **kw):
    kw.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.Popen(BASE + list(args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)


def served(conn, body):
    """hello, exec, then body(conn, exec)."""
    conn.hello()
    body(conn, conn.exec())


def on_exec(body):
    return lambda conn: served(conn, body)


def hang(conn):
    """Until the client goes."""
    while True:
        conn.frame()


def says(result, code, *words):
    text = result.stderr.decode()
    assert result.returncode == code, (result.returncode, text)
    for word in words:
        assert word in text, text
    assert text.count("\n") == 1, text


@test
def a_restart_that_was_not_asked_for_is_refused():
    def body(conn, _):
        conn.started()
        conn.send(fake.STDOUT, b"x")
        conn.send(fake.NOTICE, b'{"restarted":true}')
        hang(conn)

    r = run(on_exec(body), "true")
    says(r, 125, "outcome unknown", "(protocol)")
    assert r.stdout == b"x", r


@test
def a_greeting_that_is_none_is_refused():
    says(run(lambda c: c.sock.sendall(b"SSH-2.0-OpenSSH_9.2\r\n" * 9), "true"), 125,
         "nothing ran", "(protocol)")
    says(run(lambda c: c.send(fake.HELLO, b"PAIC\x00\x00{}", 0), "true"), 125, "(protocol)")
    says(run(lambda c: c.send(fake.HELLO, struct.pack("<IH", fake.MAGIC, 9) + b"{}", 0), "true"),
         125, "version 9", "(unsupported)")
    says(run(lambda c: c.send(fake.HELLO, struct.pack("<IH", fake.MAGIC, 1) + b"[" * 99, 0), "true"),
         125, "(protocol)")
    says(run(lambda c: c.hello(name="other"), "true"), 125, "served by 'other'")


@test
def a_refusal_in_place_of_a_greeting_is_told():
    def script(conn):
        conn.send(fake.ERROR, json.dumps({"kind": "policy-mismatch", "message": "not you",
                                          "retryable": False, "errno": "EPERM"}).encode(), 0)
    says(run(script, "true"), 125, "nothing ran: not you (policy-mismatch)")


@test
def silence_in_place_of_a_greeting_has_a_deadline():
    begin = time.monotonic()
    says(run(hang, "true"), 125, "nothing ran", "(timeout)")
    assert time.monotonic() - begin < 10


@test
def death_before_the_start_is_unknown():
    says(run(on_exec(lambda c, e: None), "true"), 125, "outcome unknown", "closed the connection")


@test
def death_in_mid_stream_is_unknown_and_what_came_is_shown():
    def body(conn, _):
        conn.started()
        conn.send(fake.STDOUT, b"half")
    result = run(on_exec(body), "--status-fd", "1", "true")
    says(result, 125, "outcome unknown")
    assert result.stdout.startswith(b"half{"), result.stdout
    status = json.loads(result.stdout[4:])
    assert status["source"] == "pai" and status["outcome"] == "unknown", status
    assert status["exitCode"] is None and status["error"]["kind"] == "unavailable", status
    assert status["bytes"]["stdout"] == 4, status


@test
def an_exit_without_its_status_is_not_success():
    def body(conn, _):
        conn.started()
        conn.exit()
    says(run(on_exec(body), "true"), 125, "outcome unknown")


@test
def an_exit_that_counts_other_bytes_is_not_success():
    def body(conn, _):
        conn.started()
        conn.send(fake.STDOUT, b"abc")
        conn.exit(out=4)
        conn.status()
    says(run(on_exec(body), "true"), 125, "outcome unknown", "counts other bytes", "(protocol)")


@test
def what_may_not_come_ends_it():
    def after(*frames):
        def body(conn, _):
            conn.started()
            for kind, payload in frames:
                conn.send(kind, payload)
            hang(conn)
        return run(on_exec(body), "true")

    say = (125, "outcome unknown", "(protocol)")
    says(after((fake.STARTED, bytes(8))), *say)
    says(after((fake.STDIN, b"x")), *say)
    says(after((fake.CREDIT, b"\x01\x00\x01\x00\x00")), *say)
    says(after((fake.EXIT, b"")), *say)
    says(after((fake.EXIT, struct.pack("<BiQQQB", 9, 0, 0, 0, 0, 0))), *say)
    says(after((fake.STATUS, b"{}")), *say)
    says(after((fake.ERROR, b"not json")), *say)
    says(after((fake.NOTICE, b"[" * 50)), *say)
    says(after((0x99, b"")), *say)
    def long_frame(conn, _):
        conn.started()
        conn.sock.sendall(b"\xff\xff\xff\xff" + bytes(64))
        hang(conn)
    says(run(on_exec(long_frame), "true"), *say)

    def other_id(conn, _):
        conn.send(fake.STARTED, bytes(8), 2)
        hang(conn)
    says(run(on_exec(other_id), "true"), *say)


@test
def more_output_than_was_granted_ends_it():
    def body(conn, _):
        conn.started()
        for _ in range(16):  # four windows; a pipe that nobody reads takes one
            conn.send(fake.STDOUT, bytes(256 << 10))
        hang(conn)
    with fake.Daemon(on_exec(body)):
        child = spawn("true")
        assert select.select([child.stderr], [], [], 1)[0] == []  # it still owes us its stdout
        out, err = child.communicate(timeout=WAIT_S)
    assert child.returncode == 125 and b"more than it may" in err, (child.returncode, err)
    assert len(out) < 4 << 20, len(out)


@test
def credit_follows_what_was_written_out():
    total = 0
    ended = threading.Event()

    def body(conn, _):
        nonlocal total
        conn.started()
        sent, credit = 0, 1 << 20
        while sent < 8 << 20:
            while credit < 256 << 10:
                kind, _, payload = conn.frame()
                assert kind == fake.CREDIT, kind
                stream, count = struct.unpack("<BI", payload)
                assert stream == 1
                credit += count
            conn.send(fake.STDOUT, bytes(256 << 10))
            sent, credit = sent + (256 << 10), credit - (256 << 10)
            total = sent
        conn.exit(out=sent)
        conn.status()
        ended.set()
    with fake.Daemon(on_exec(body)):
        child = spawn("true")
        assert not ended.wait(0.7), "granted to a reader that does not read"
        stalled = total
        assert stalled <= (1 << 20) + (1 << 20) + (256 << 10), stalled  # a window, and the pipe
        out, err = child.communicate(timeout=WAIT_S)
        assert (child.returncode, len(out), err) == (0, 8 << 20, b""), (child.returncode, err)


@test
def a_stalled_stdout_stops_neither_stderr_nor_the_exit():
    def body(conn, _):
        conn.started()
        for _ in range(4):
            conn.send(fake.STDOUT, bytes(256 << 10))
        conn.send(fake.STDERR, b"still here\n")
        hang(conn)
    with fake.Daemon(on_exec(body)):
        child = spawn("true")
        readable, _, _ = select.select([child.stderr], [], [], 10)
        assert readable and child.stderr.readline() == b"still here\n"
        child.kill()
        child.communicate()


@test
def stdin_is_not_read_before_its_credit():
    reader, writer = os.pipe()
    os.write(writer, b"abcdefgh")
    got = []

    def body(conn, e):
        assert e["flags"] & 4, e  # START_STDIN
        conn.started(credit=0)
        time.sleep(0.3)
        assert select.select([reader], [], [], 0)[0], "read without credit"
        conn.send(fake.CREDIT, struct.pack("<BI", 0, 3))
        got.append(conn.frame())
        time.sleep(0.3)
        conn.send(fake.CREDIT, struct.pack("<BI", 0, 100))
        got.append(conn.frame())
        os.close(writer)
        got.append(conn.frame())
        conn.exit()
        conn.status()
    assert run(on_exec(body), "cat", stdin=reader).returncode == 0
    os.close(reader)
    assert got == [(fake.STDIN, 1, b"abc"), (fake.STDIN, 1, b"defgh"), (fake.STDIN_EOF, 1, b"")], got


@test
def no_stdin_is_asked_for_dev_null_or_a_closed_one():
    def body(conn, e):
        flags.append(e["flags"] & 4)
        conn.started()
        conn.exit()
        conn.status()
    flags = []
    run(on_exec(body), "true")
    with fake.Daemon(on_exec(body)):
        subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh"] + BASE + ["true"], timeout=WAIT_S)
    assert flags == [0, 0], flags


@test
def closed_descriptors_never_become_the_socket():
    def body(conn, _):
        conn.started()
        conn.send(fake.STDOUT, b"nowhere")
        conn.send(fake.STDERR, b"nowhere")
        conn.exit(out=7, err=7)
        conn.status()
        try:
            kind = conn.frame()[0]
        except fake.Gone:
            return
        raise AssertionError(f"the client sent {kind} after the end")
    with fake.Daemon(on_exec(body)):
        result = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"] + BASE + ["true"],
                                timeout=WAIT_S)
    assert result.returncode == 0


@test
def what_is_sent_is_what_was_asked():
    seen = []

    def body(conn, e):
        seen.append(e)
        conn.started()
        conn.exit()
        conn.status()
    run(on_exec(body), "-e", "A=1", "-e", "NOT_SET_HERE", "-C", "sub/../d e", "--timeout", "1.5",
        "--max-output", "2K", "--no-retry", "prog", "a b", "")
    e = seen[0]
    assert e["key"] == "k" and e["argv"] == ["prog", "a b", ""] and e["env"] == ["A=1"], e
    assert e["cwd"] == "/workspace/d e" and e["timeout_ms"] == 1500 and e["max_output"] == 2048, e
    assert e["marks"] == 1 and e["sid"] == os.getsid(0) and e["sid_started"] > 0, e
    with open("/dev/null", "w") as null:
        with fake.Daemon(on_exec(body)):
            for err in (subprocess.STDOUT, subprocess.PIPE):
                subprocess.run(BASE + ["true"], stdin=null, stdout=subprocess.PIPE, stderr=err)
    assert [x["flags"] & 8 for x in seen[1:]] == [8, 0], seen[1:]


@test
def errors_of_the_daemon_are_printed_harmlessly():
    status = {"source": "pai", "x": [1, 2]}

    def body(conn, _):
        conn.send(fake.ERROR, json.dumps(
            {"kind": "quota-exceeded", "message": "bad \x1b]0;title\x07 \u202e name\n2nd",
             "retryable": False, "errno": "EDQUOT"}).encode())
        conn.status(**status)
    result = run(on_exec(body), "--status-fd", "1", "true")
    says(result, 125, "nothing ran", "\\x1b]0;title\\x07", "\\xe2\\x80\\xae", "\\x0a2nd",
         "(quota-exceeded)")
    assert json.loads(result.stdout)["x"] == [1, 2], result.stdout


@test
def an_error_may_say_that_the_outcome_is_unknown():
    def body(conn, _):
        conn.send(fake.ERROR, json.dumps({"kind": "internal", "message": "m", "retryable": False,
                                          "errno": "EIO", "outcome": "unknown"}).encode())
        conn.status()
    says(run(on_exec(body), "true"), 125, "outcome unknown: m")


@test
def a_reset_is_one_line_unless_quiet():
    def body(conn, _):
        conn.send(fake.NOTICE, b'{"environmentReset":true,"generation":2}')
        conn.started()
        conn.exit()
        conn.status()
    says(run(on_exec(body), "true"), 0, "pai-exec: the environment was reset")
    result = run(on_exec(body), "-q", "true")
    assert (result.returncode, result.stderr) == (0, b""), result


@test
def every_way_a_start_fails_has_its_status():
    for phase, code, word in ((0, 127, "not found"), (1, 126, "why"), (2, 125, "nothing ran"),
                              (3, 125, "nothing ran")):
        def body(conn, _, phase=phase):
            conn.send(fake.FAILED, struct.pack("<BI", phase, 6) + b"ENOENT" +
                      struct.pack("<I", 3) + b"why")
            conn.status()
        says(run(on_exec(body), "prog"), code, "prog", word)


@test
def every_way_a_command_ends_has_its_status():
    for kind, value, code, word in ((0, 0, 0, ""), (0, 124, 124, ""), (0, 255, 255, ""),
                                    (1, 15, 143, ""), (2, 0, 124, "timeout"),
                                    (3, 0, 125, "limit"), (4, 0, 125, "cancelled"),
                                    (5, 0, 125, "outcome unknown")):
        def body(conn, _, kind=kind, value=value):
            conn.started()
            conn.exit(kind, value)
            conn.status()
        result = run(on_exec(body), "--timeout", "9", "true")
        assert result.returncode == code, (kind, value, result)
        assert (word in result.stderr.decode()) and (bool(word) == bool(result.stderr)), result


@test
def detach_prints_the_process_and_leaves():
    gone = threading.Event()

    def body(conn, e):
        assert e["flags"] & 2 and not e["flags"] & 4, e
        conn.started(pid=4711)
        try:
            hang(conn)
        except fake.Gone:
            gone.set()
    with fake.Daemon(on_exec(body)):
        result = subprocess.run(BASE + ["--detach", "--status-fd", "2", "srv"], input=b"data",
                                capture_output=True, timeout=WAIT_S)
        assert gone.wait(5)
    assert (result.returncode, result.stdout) == (0, b"4711\n"), result
    assert json.loads(result.stderr)["outcome"] == "detached", result


def frames_until_gone(conn, into):
    try:
        while True:
            into.append(conn.frame())
    except fake.Gone:
        pass


@test
def an_interrupt_before_the_start_cancels():
    frames, asked = [], threading.Event()

    def body(conn, _):
        asked.set()
        frames.append(conn.frame())
        conn.send(fake.ERROR, b'{"kind":"cancelled","message":"c","retryable":false,'
                              b'"errno":"ECANCELED"}')
        conn.status()
    with fake.Daemon(on_exec(body)):
        child = spawn("true")
        assert asked.wait(5)
        for harmless in (signal.SIGWINCH, signal.SIGCONT):
            child.send_signal(harmless)
        child.send_signal(signal.SIGTERM)
        err = child.communicate(timeout=WAIT_S)[1]
    assert child.returncode == -signal.SIGTERM and err == b"", (child.returncode, err)
    assert frames == [(fake.CANCEL, 1, b"")], frames


@test
def a_second_interrupt_before_the_start_does_not_wait():
    asked = threading.Event()

    def body(conn, _):
        asked.set()
        hang(conn)
    with fake.Daemon(on_exec(body)):
        child = spawn("true")
        assert asked.wait(5)
        begin = time.monotonic()
        child.send_signal(signal.SIGINT)
        time.sleep(0.2)
        assert child.poll() is None
        child.send_signal(signal.SIGINT)
        err = child.communicate(timeout=WAIT_S)[1].decode()
    assert time.monotonic() - begin < 5
    assert child.returncode == -signal.SIGINT and "outcome unknown" in err, (child.returncode, err)


@test
def signals_go_to_the_command():
    frames, started = [], threading.Event()

    def body(conn, _):
        conn.started()
        conn.send(fake.STDOUT, b".")
        for _ in range(6):
            frames.append(conn.frame())
        conn.exit(1, 2, out=1)
        conn.status()
        started.set()
    wanted = [(signal.SIGTERM, 2), (signal.SIGHUP, 3), (signal.SIGUSR1, 5), (signal.SIGUSR2, 6),
              (signal.SIGWINCH, 10), (signal.SIGINT, 1)]
    with fake.Daemon(on_exec(body)):
        child = spawn("true")
        assert child.stdout.read(1) == b"."
        for i, (signo, _) in enumerate(wanted):
            child.send_signal(signo)
            deadline = time.monotonic() + 5
            while len(frames) <= i and time.monotonic() < deadline:
                time.sleep(0.01)
        child.communicate(timeout=WAIT_S)
    assert frames == [(fake.SIGNAL, 1, bytes([wire])) for _, wire in wanted], frames
    # It died of the INT that we had too: a shell's loop ends.
    assert child.returncode == -signal.SIGINT, child.returncode


@test
def ignored_signals_stay_ignored():
    frames = []

    def body(conn, _):
        conn.started()
        conn.send(fake.STDOUT, b".")
        frames.append(conn.frame())
        conn.exit(out=1)
        conn.status()
    with fake.Daemon(on_exec(body)):
        child = subprocess.Popen(["sh", "-c", 'trap "" HUP; exec "$@"', "sh"] + BASE + ["true"],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert child.stdout.read(1) == b"."
        child.send_signal(signal.SIGHUP)
        time.sleep(0.1)
        child.send_signal(signal.SIGUSR1)
        child.communicate(timeout=WAIT_S)
    assert frames == [(fake.SIGNAL, 1, b"\x05")], frames


@test
def a_stop_stops_both_and_continues_both():
    frames = []

    def body(conn, _):
        conn.started()
        conn.send(fake.STDOUT, b".")
        frames.append(conn.frame())
        while frames[-1] != (fake.SIGNAL, 1, b"\x08"):
            frames.append(conn.frame())
        conn.exit(out=1)
        conn.status()
    with fake.Daemon(on_exec(body)):
        # A process group with a parent in the session: an orphaned one does not stop.
        child = spawn("true", preexec_fn=lambda: os.setpgid(0, 0))
        assert child.stdout.read(1) == b"."
        child.send_signal(signal.SIGTSTP)
        deadline = time.monotonic() + 5
        state = ""
        while state != "T" and time.monotonic() < deadline:
            with open(f"/proc/{child.pid}/stat") as f:
                state = f.read().rsplit(")", 1)[1].split()[0]
        assert state == "T", state
        child.send_signal(signal.SIGCONT)
        child.communicate(timeout=WAIT_S)
    assert child.returncode == 0
    assert frames[:2] == [(fake.SIGNAL, 1, b"\x07"), (fake.SIGNAL, 1, b"\x08")], frames


@test
def two_interrupts_to_a_hung_daemon_end_the_client():
    first = threading.Event()

    def script(conn):
        if first.is_set():
            hang(conn)  # the probe: no greeting
        first.set()
        served(conn, lambda c, e: (c.started(), c.send(fake.STDOUT, b"."), hang(c)))
    with fake.Daemon(script):
        child = spawn("true")
        assert child.stdout.read(1) == b"."
        begin = time.monotonic()
        child.send_signal(signal.SIGINT)
        time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        err = child.communicate(timeout=WAIT_S)[1].decode()
    assert child.returncode == 125 and "outcome unknown" in err, (child.returncode, err)
    assert time.monotonic() - begin < 10


@test
def two_interrupts_to_a_patient_command_change_nothing():
    frames = []

    def body(conn, _):
        conn.started()
        conn.send(fake.STDOUT, b".")
        for _ in range(3):
            frames.append(conn.frame())
        conn.exit(0, 5, out=1)
        conn.status()
    with fake.Daemon(on_exec(body)):
        child = spawn("true")
        assert child.stdout.read(1) == b"."
        for _ in range(3):
            child.send_signal(signal.SIGINT)
            time.sleep(0.1)
        child.communicate(timeout=WAIT_S)
    assert child.returncode == 5 and len(frames) == 3, (child.returncode, frames)


@test
def a_reader_that_leaves_ends_both_sides():
    frames = []

    def body(conn, _):
        conn.started()
        conn.send(fake.STDOUT, b"y\n" * 1000)
        try:
            while True:
                conn.send(fake.STDOUT, b"y\n" * 1000)
                if select.select([conn.sock], [], [], 0.05)[0]:
                    frames.append(conn.frame())
                    if frames[-1][0] == fake.CANCEL:
                        break
        finally:
            pass
        conn.send(fake.EXIT, struct.pack("<BiQQQB", 5, 0, 0, 0, 0, 0))
        conn.status()
    with fake.Daemon(on_exec(body)):
        child = spawn("yes", restore_signals=True)
        assert child.stdout.readline() == b"y\n"
        child.stdout.close()
        child.wait(WAIT_S)
        err = child.stderr.read()
    assert child.returncode == -signal.SIGPIPE, (child.returncode, err)
    assert frames[-1][0] == fake.CANCEL


@test
def a_full_disk_is_ours_to_tell():
    def body(conn, _):
        conn.started()
        conn.send(fake.STDOUT, b"data")
        assert conn.frame()[0] == fake.CANCEL
        conn.exit(4, 0, out=4)
        conn.status()
    with fake.Daemon(on_exec(body)), open("/dev/full", "w") as full:
        result = subprocess.run(BASE + ["--status-fd", "2", "true"], stdin=subprocess.DEVNULL,
                                stdout=full, stderr=subprocess.PIPE, timeout=WAIT_S)
    assert result.returncode == 125, result
    assert b"write to stdout: No space left" in result.stderr, result
    assert json.loads(result.stderr.splitlines()[-1])["source"] == "pai", result


@test
def a_stdin_that_fails_is_ours_to_tell():
    """The command would take it for the end of what it was given."""
    frames = []

    def body(conn, _):
        conn.started()
        while not frames or frames[-1][0] not in (fake.CANCEL, fake.STDIN_EOF):
            frames.append(conn.frame())
        conn.exit(4, 0)
        conn.status()
    # What reads of it fail with, once the three bytes are gone, is ECONNRESET.
    ours, other = socket.socketpair()
    ours.send(b"unread")
    other.sendall(b"abc")
    with open("/proc/self/mem", "rb") as mem:
        for stdin, sent, errno in ((mem, [], b"Input/output error"), (ours, [b"abc"], b"reset by peer")):
            frames.clear()
            if stdin is ours:
                other.close()
            with fake.Daemon(on_exec(body)):
                result = subprocess.run(BASE + ["--status-fd", "2", "cat"], stdin=stdin, timeout=WAIT_S,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            assert result.returncode == 125 and b"read from stdin: " in result.stderr, result
            assert errno in result.stderr, result
            assert json.loads(result.stderr.splitlines()[-1])["source"] == "pai", result
            assert [f[2] for f in frames[:-1]] == sent and frames[-1][0] == fake.CANCEL, frames
    ours.close()


@test
def a_stdin_that_can_not_be_read_is_refused_or_none():
    with tempfile.TemporaryDirectory() as top, open(top + "/f", "wb") as written:
        directory = os.open(top, os.O_RDONLY)
        says(run(lambda conn: conn.hello(), "cat", stdin=directory), 125, "nothing ran: stdin is a directory")
        os.close(directory)
        flags = []

        def body(conn, e):
            flags.append(e["flags"] & 4)
            conn.started()
            conn.exit()
            conn.status()
        path = os.open(top + "/f", os.O_PATH)
        for stdin in (written, path):
            result = run(on_exec(body), "true", stdin=stdin)
            assert (result.returncode, result.stderr) == (0, b""), result
        os.close(path)
    assert flags == [0, 0], flags


@test
def a_status_that_can_not_be_written_is_said():
    def body(conn, _):
        conn.started()
        conn.exit(0, 3)
        conn.status()
    with open("/dev/full", "w") as full:
        result = run(on_exec(body), "--status-fd", str(full.fileno()), "true", pass_fds=[full.fileno()])
    says(result, 3, "write to --status-fd: No space left")


@test
def a_killed_client_closes_its_connection():
    gone, up = threading.Event(), threading.Event()

    def body(conn, _):
        conn.started()
        up.set()
        try:
            hang(conn)
        except fake.Gone:
            gone.set()
    with fake.Daemon(on_exec(body)):
        child = spawn("true")
        assert up.wait(5)
        child.kill()
        child.communicate()
        assert gone.wait(5)


def terminal_run(body, act):
    """pai-exec -t on a terminal of its own; act(child, master) while it runs. Returns whether the
    terminal is as it was, and the exit status."""
    master, slave = pty.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
    before = termios.tcgetattr(slave)

    def own_terminal():
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    with fake.Daemon(on_exec(body)):
        child = subprocess.Popen(BASE + ["-t", "prog"], stdin=slave, stdout=slave, stderr=slave,
                                 preexec_fn=own_terminal)
        act(child, master, slave)
        child.wait(WAIT_S)
    same = termios.tcgetattr(slave) == before
    os.close(master)
    os.close(slave)
    return same, child.returncode


def is_raw(fd):
    return not termios.tcgetattr(fd)[3] & (termios.ICANON | termios.ECHO | termios.ISIG)


def wait_for(what):
    deadline = time.monotonic() + 5
    while not what():
        assert time.monotonic() < deadline, "did not come"
        time.sleep(0.01)


@test
def a_terminal_is_raw_meanwhile_and_restored_after():
    frames, asked = [], []

    def body(conn, e):
        asked.append(e)
        conn.started()
        conn.send(fake.STDOUT, b"$ ")
        while not frames or frames[-1][0] != fake.RESIZE:
            frames.append(conn.frame())
        conn.send(fake.STDOUT, b"bye\r\n")
        conn.exit(out=7)
        conn.status()

    def act(child, master, slave):
        wait_for(lambda: is_raw(slave))
        os.write(master, b"\x03")
        wait_for(lambda: frames)
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 100, 0, 0))
        child.wait(WAIT_S)
        assert os.read(master, 100) == b"$ bye\r\n"
    assert terminal_run(body, act) == (True, 0)
    assert asked[0]["flags"] & 1 and (asked[0]["rows"], asked[0]["columns"]) == (33, 99), asked
    assert frames == [(fake.STDIN, 1, b"\x03"), (fake.RESIZE, 1, struct.pack("<HH", 50, 100))], frames


@test
def a_terminal_is_restored_whatever_ends_us():
    def body(conn, _):
        conn.started()
        hang(conn)

    def dead_daemon(conn, _):
        conn.started()
        time.sleep(0.2)

    for signo in (signal.SIGSEGV, signal.SIGABRT):
        def act(child, _, slave, signo=signo):
            wait_for(lambda: is_raw(slave))
            child.send_signal(signo)
        assert terminal_run(body, act) == (True, -signo), signo
    assert terminal_run(dead_daemon, lambda c, m, s: wait_for(lambda: is_raw(s))) == (True, 125)


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as runtime:
        os.environ["XDG_RUNTIME_DIR"] = runtime
        os.environ.pop("NOT_SET_HERE", None)
        for fn in tests:
            name = fn.__name__.replace("_", " ")
            if len(sys.argv) > 1 and sys.argv[1] not in name:
                continue
            try:
                fn()
                print("ok " + name, flush=True)
            except Exception as e:
                failed += 1
                print(f"not ok {name}: {type(e).__name__} {str(e)[:300]!r}", flush=True)
    return failed > 0


sys.exit(main())
