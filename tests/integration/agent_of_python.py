"""An agent that knows nothing of paifs, in python: its tools are plain file calls and /bin/bash by
absolute path. Prints what it saw, without what differs from run to run. Not a test by itself.

    agent_of_python.py CANARY PORT_COMMAND...   "{}" in the command is the port; it prints where to connect
"""
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
import urllib.request

CANARY, PORT_COMMAND = sys.argv[1], sys.argv[2:]
TOP = os.getcwd()
BASH = "/bin/bash"


def say(what, *words):
    print(what + ":", *(str(w).replace(TOP, "TOP") for w in words), flush=True)


def sh(line, **kw):
    r = subprocess.run([BASH, "-c", line], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30,
                       stdin=subprocess.DEVNULL, **kw)
    return r.returncode, r.stdout.decode()


def wait_for(fn):
    until = time.monotonic() + 15
    while time.monotonic() < until:
        value = fn()
        if value:
            return value
        time.sleep(0.05)
    return None


os.makedirs("src/deep")
with open("src/a.txt", "w") as f:
    f.write("one\n")
say("read there", sh("cat src/a.txt; echo two >> src/a.txt"))
with open("src/a.txt") as f:
    say("read here", f.read())
with open("src/a.new", "w") as f:
    f.write("three\n")
os.rename("src/a.new", "src/a.txt")
say("renamed", sh("cat a.txt", cwd="src"))
say("moved there", sh("mv src/a.txt src/deep/b.txt && ls src src/deep"), sorted(os.listdir("src/deep")))
say("error", sh("cat nothing; exit 3"))
say("stats", os.stat("src/deep/b.txt").st_size, oct(os.stat("src/deep/b.txt").st_mode & 0o777))
say("no host", sh(f"cat {CANARY} 2>/dev/null")[1])
say("stdin", subprocess.run([BASH, "-c", "tr a-z A-Z"], input=b"loud\n", stdout=subprocess.PIPE, timeout=30).stdout)

# What changes there is seen by who looks here, again and again.
before = os.stat("src").st_mtime_ns
sh("sleep 0.1; touch src/seen")
say("watched", wait_for(lambda: os.stat("src").st_mtime_ns != before and "seen" in os.listdir("src")))

# A server in the background, and a client of it here.
with open("page.txt", "w") as f:
    f.write("page\n")
PORT = 20000 + os.getpid() % 20000
server = subprocess.Popen([BASH, "-c", f"exec python3 -u -m http.server --bind 127.0.0.1 {PORT}"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
say("serving", b"Serving HTTP" in server.stdout.readline())
forward = subprocess.Popen([w.replace("{}", str(PORT)) for w in PORT_COMMAND], stdout=subprocess.PIPE)
where = re.search(rb"127\.0\.0\.1:(\d+)", forward.stdout.readline())
say("fetched", urllib.request.urlopen(f"http://127.0.0.1:{int(where[1])}/page.txt", timeout=20).read())
forward.terminate(), forward.wait(), forward.stdout.close()
server.send_signal(signal.SIGTERM)
say("server's end", server.wait(20))
server.stdout.close()

# A terminal that is resized.
pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    os.execv(BASH, [BASH, "-c", "stty size; read x; echo got $x; stty size"])
seen = b""


def until(text):
    global seen
    deadline = time.monotonic() + 20
    while text not in seen and time.monotonic() < deadline and select.select([fd], [], [], 1)[0] is not None:
        try:
            seen += os.read(fd, 4096)
        except OSError:
            break


until(b"80\r\n")
fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
time.sleep(0.5)
os.write(fd, b"word\n")
until(b"30 100\r\n")
say("terminal", seen.decode().split("\r\n"), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

# Interrupted.
# What stays behind would hold our stderr, as it does without paifs.
LINE = "trap 'echo int; kill $! 2>/dev/null; exit 130' INT; echo up; sleep 100 & wait"
p = subprocess.Popen([BASH, "-c", LINE], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)
p.stdout.readline()
os.killpg(p.pid, signal.SIGINT)
said = p.stdout.readline()
say("interrupted", said, p.wait(20))
p.stdout.close()
shutil.rmtree("src")
say("gone", sh("ls -A | grep -v '^\\.pai$'"))
