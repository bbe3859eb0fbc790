#!/usr/bin/env python3
# timeout 120
# timeout-long 300
"""Signals: a timer (SA_RESTART) is seen by no file call but a lock wait, and whoever is killed lets
go of what it waits for."""
import ctypes
import errno
import fcntl
import os
import signal
import subprocess
import time

import hold_world as w

LOOP_S = w.short_or_long(1.2, 15)
TIMER_S = 0.001
PROMPT_S = 1.0  # "at once", with a busy machine in mind

names = [
    "a 1 ms timer with SA_RESTART is seen by no call (local)",
    "a 1 ms timer without SA_RESTART is seen by no call but a lock wait (local)",
    "the same over the portable server (memory)",
    "a blocked fcntl lock gets EINTR at once from a handler without SA_RESTART",
    "a blocked flock gets EINTR at once from a handler without SA_RESTART",
    "a blocked lock goes on after a handler with SA_RESTART",
    "a blocked lock that was interrupted is not taken later",
    "a killed waiter for a lock lets go, and holds nothing",
    "a killed caller of a call that is never answered lets go",
    "so does one with a fatal signal of another kind",
    "one that is stopped or handles the signal goes on waiting",
    "what was told to let go leaves the daemon able to unmount",
    "a caller whom the daemon can't see (another PID namespace) is no dying one",
]
w.begin(*names)


def timer(restart):
    ticks = []
    signal.signal(signal.SIGALRM, lambda *_: ticks.append(1))
    signal.siginterrupt(signal.SIGALRM, not restart)
    signal.setitimer(signal.ITIMER_REAL, TIMER_S, TIMER_S)
    return ticks


# Python retries after EINTR by itself (PEP 475); a program in C sees it. So the loop is in C.
LOOP_C = r"""
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t ticks;
static long calls;
static void tick(int s) { (void)s; ticks++; }
#define DO(call) do { calls++; errno = 0; if ((call) < 0) { \
	printf("%s: %s\n", #call, strerror(errno)); return 1; } } while (0)

int main(int argc, char **argv)
{
	struct sigaction sa = {.sa_handler = tick};
	struct itimerval it = {{0, 1000}, {0, 1000}};
	struct timespec t0, t;
	char *buf = malloc(1 << 20);
	double seconds = atof(argv[1]);
	int links = argc > 3;
	long rounds = 0;

	sa.sa_flags = strcmp(argv[2], "restart") == 0 ? SA_RESTART : 0;
	sigaction(SIGALRM, &sa, NULL);
	memset(buf, 'x', 1 << 20);
	setitimer(ITIMER_REAL, &it, NULL);
	clock_gettime(CLOCK_MONOTONIC, &t0);
	do {
		struct stat st;
		struct statvfs vfs;
		struct dirent *e;
		DIR *d;
		int fd, n = 0;

		DO(mkdir("d", 0755));
		DO(fd = open("d/f", O_RDWR | O_CREAT | O_EXCL, 0644));
		for (int i = 0; i < 4; i++) {
			calls++;
			if (pwrite(fd, buf, 1 << 16, (off_t)i << 16) != 1 << 16) {
				printf("pwrite: short, %s\n", strerror(errno));
				return 1;
			}
		}
		DO(fsync(fd));
		DO(fdatasync(fd));
		calls++;
		if (pread(fd, buf, 1 << 18, 0) != 1 << 18) {
			printf("pread: short, %s\n", strerror(errno));
			return 1;
		}
		DO(ftruncate(fd, 100));
		DO(fstat(fd, &st));
		DO(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
		DO(lseek(fd, 0, SEEK_END));
		if (links) {
			DO(flock(fd, LOCK_EX | LOCK_NB));
			DO(flock(fd, LOCK_UN));
		}
		DO(close(fd));
		DO(rename("d/f", "d/g"));
		DO(chmod("d/g", 0600));
		DO(utimensat(AT_FDCWD, "d/g", NULL, 0));
		DO(truncate("d/g", 5));
		if (links) {
			DO(link("d/g", "d/h"));
			DO(unlink("d/h"));
			DO(setxattr("d/g", "user.a", "b", 1, 0));
			DO(getxattr("d/g", "user.a", buf, 10));
		}
		DO(symlink("g", "d/l"));
		DO(readlink("d/l", buf, 100));
		DO(stat("d/g", &st));
		DO(access("d/g", R_OK));
		DO(statvfs("d", &vfs));
		calls++;
		d = opendir("d");
		if (!d) {
			printf("opendir: %s\n", strerror(errno));
			return 1;
		}
		while (errno = 0, (e = readdir(d)) != NULL) {
			n++;
		}
		if (errno || n != 4) {
			printf("readdir: %d entries, %s\n", n, strerror(errno));
			return 1;
		}
		closedir(d);
		DO(unlink("d/l"));
		DO(unlink("d/g"));
		DO(rmdir("d"));
		rounds++;
		clock_gettime(CLOCK_MONOTONIC, &t);
	} while ((double)(t.tv_sec - t0.tv_sec) + (double)(t.tv_nsec - t0.tv_nsec) / 1e9 < seconds);
	printf("%ld rounds, %ld calls, %d signals\n", rounds, calls, (int)ticks);
	return ticks > 20 && rounds > 0 ? 0 : 2;
}
"""
loop = w.TMP + "/eintr-loop"
with open(loop + ".c", "w") as f:
    f.write(LOOP_C)
subprocess.run(["cc", "-O1", "-D_GNU_SOURCE", "-o", loop, loop + ".c"], check=True)


def loops(where, mode, *more):
    os.makedirs(where, exist_ok=True)
    r = subprocess.run([loop, str(LOOP_S), mode, *more], cwd=where, capture_output=True, text=True,
                       timeout=LOOP_S + 40)
    print("#", r.stdout.strip())
    return "" if r.returncode == 0 else f"exit {r.returncode}: {r.stdout} {r.stderr}"


local = w.Daemon("local", "sig")
os.mkdir(local.top + "/k")
K = local.top + "/k"
w.case(names[0], loops, K, "restart", "links")
w.case(names[1], loops, K, "interrupt", "links")
memory = w.Daemon("memory", "sigmem")
os.mkdir(memory.top + "/k")
w.case(names[2], loops, memory.top + "/k", "interrupt")

w.put(K + "/lock")
holder = os.open(K + "/lock", os.O_RDWR)


class Told(Exception):
    pass


def waits(kind, restart):
    """Takes the lock; a signal that the kernel reports as EINTR becomes Told by its handler."""
    def handler(*_):
        if not restart:
            raise Told  # PEP 475 runs the handler only once the call has returned EINTR
    signal.signal(signal.SIGUSR1, handler)
    signal.siginterrupt(signal.SIGUSR1, not restart)
    fd = os.open(K + "/lock", os.O_RDWR)
    try:
        if kind == "fcntl":
            fcntl.lockf(fd, fcntl.LOCK_EX)
        else:
            fcntl.flock(fd, fcntl.LOCK_EX)
        return "taken"
    except Told:
        return "told"


def hold(kind):
    (fcntl.lockf if kind == "fcntl" else fcntl.flock)(holder, fcntl.LOCK_EX)


def let_go(kind):
    (fcntl.lockf if kind == "fcntl" else fcntl.flock)(holder, fcntl.LOCK_UN)


def blocked_in(pid, *words):
    """The process waits in the kernel, on our mount."""
    try:
        with open(f"/proc/{pid}/stack") as f:
            stack = f.read()
        return any(word in stack for word in words or ["fuse"])
    except OSError:
        return False


def waiting(kind, restart):
    child = w.Child(waits, kind, restart)
    w.wait_for(lambda: blocked_in(child.pid, "fuse_file_lock", "fuse_file_flock", "fuse_setlk"), 10,
               "a lock wait")  # not in the open before it
    return child


def interrupted(kind):
    hold(kind)
    try:
        child = waiting(kind, False)
        begun = time.monotonic()
        os.kill(child.pid, signal.SIGUSR1)
        answer = child.wait(10)
        took = time.monotonic() - begun
        return "" if answer == (True, "told") and took < PROMPT_S else f"{answer} after {took:.2f} s"
    finally:
        let_go(kind)


w.case(names[3], interrupted, "fcntl")
w.case(names[4], interrupted, "flock")


def goes_on():
    for kind in ("fcntl", "flock"):
        hold(kind)
        child = waiting(kind, True)
        for _ in range(5):
            os.kill(child.pid, signal.SIGUSR1)
            time.sleep(0.02)
        if child.wait(0.3) is not None:
            return f"{kind}: it did not go on waiting"
        let_go(kind)
        if child.wait(5) != (True, "taken"):
            return f"{kind}: not taken"
    return ""


w.case(names[5], goes_on)


def free_for_others():
    r = subprocess.run(["flock", "-n", K + "/lock", "true"], timeout=10)
    fd = os.open(K + "/lock", os.O_RDWR)
    try:
        # Another process: POSIX locks of our own never conflict.
        w.in_child(lambda: fcntl.lockf(os.open(K + "/lock", os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB))
    finally:
        os.close(fd)
    return "" if r.returncode == 0 else "the lock is held"


def not_later():
    for kind in ("fcntl", "flock"):
        hold(kind)
        child = waiting(kind, False)
        os.kill(child.pid, signal.SIGUSR1)
        if child.wait(5) != (True, "told"):
            return f"{kind}: not told"
        let_go(kind)
        why = free_for_others()
        if why:
            return f"{kind}: {why}"
    return ""


w.case(names[6], not_later)


def killed_waiter():
    for kind in ("fcntl", "flock"):
        hold(kind)
        child = waiting(kind, True)
        took = child.kill()
        let_go(kind)
        why = free_for_others() or (took > PROMPT_S and f"gone after {took:.2f} s")
        if why:
            return f"{kind}: {why}"
    return ""


w.case(names[7], killed_waiter)
os.close(holder)

# Nothing is answered: the first use of the session waits for its sandbox.
hung = w.Daemon("memory", "sighang", "fault=*=hang", "create_timeout=60s", "timeout=60s")
os.mkdir(hung.top + "/k")


def blocked(fn, *args):
    child = w.Child(fn, *args)
    w.wait_for(lambda: blocked_in(child.pid), 10, "a blocked caller")
    return child


CALLS = {
    "create": lambda: os.open(hung.top + "/k/f", os.O_CREAT | os.O_WRONLY),
    "mkdir": lambda: os.mkdir(hung.top + "/k/d"),
    "rename": lambda: os.rename(hung.top + "/k/a", hung.top + "/k/b"),
    "symlink": lambda: os.symlink("x", hung.top + "/k/l"),
}


def killed_callers():
    for name, fn in CALLS.items():
        took = blocked(fn).kill()
        if took > PROMPT_S:
            return f"{name}: after {took:.2f} s"
    many = [blocked(CALLS["create"])] + [w.Child(CALLS["create"]) for _ in range(30)]
    time.sleep(0.3)
    for child in many:
        os.kill(child.pid, signal.SIGKILL)
    begun = time.monotonic()
    for child in many:
        w.wait_for(lambda: w.is_over(child.pid), 10, "the end of one of many")
        os.waitpid(child.pid, 0)
        child.over = True
    took = time.monotonic() - begun
    return "" if took < 3 * PROMPT_S else f"31 callers took {took:.2f} s"


w.case(names[8], killed_callers)


def fatal():
    for signo in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        def default(signo=signo):
            signal.signal(signo, signal.SIG_DFL)
            CALLS["mkdir"]()
        child = blocked(default)
        begun = time.monotonic()
        os.kill(child.pid, signo)
        w.wait_for(lambda: w.is_over(child.pid), 10, f"the end by {signo.name}")
        os.waitpid(child.pid, 0)
        child.over = True
        if time.monotonic() - begun > PROMPT_S:
            return f"{signo.name}: after {time.monotonic() - begun:.2f} s"
    return ""


w.case(names[9], fatal)


def handled():
    def catches():
        signal.signal(signal.SIGUSR1, lambda *_: None)
        signal.siginterrupt(signal.SIGUSR1, True)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        CALLS["mkdir"]()
    child = blocked(catches)
    for signo in (signal.SIGUSR1, signal.SIGINT, signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH):
        os.kill(child.pid, signo)
        time.sleep(0.1)
    if child.wait(0.3) is not None or w.is_over(child.pid):
        return "it gave up"
    took = child.kill()
    return "" if took < PROMPT_S else f"killed after {took:.2f} s"


w.case(names[10], handled)


class Apart(w.Daemon):
    """In a PID namespace of its own: the kernel tells it no caller's number."""

    def is_up(self):
        assert self.proc.poll() is None, f"{self.name} ended: {self.proc.returncode}"
        return w.is_mounted(self.top)


def unseen():
    apart = Apart("memory", "sigapart", "fault=*=hang", "create_timeout=4s", "timeout=4s",
                  before=["unshare", "--pid", "--fork", "--kill-child"])
    os.mkdir(apart.top + "/k")

    def catches():
        signal.signal(signal.SIGUSR1, lambda *_: None)
        signal.siginterrupt(signal.SIGUSR1, True)
        libc = ctypes.CDLL(None, use_errno=True)  # os.mkdir() goes on after EINTR
        libc.mkdir((apart.top + "/k/d").encode(), 0o755)
        return errno.errorcode[ctypes.get_errno()]
    child = blocked(catches)
    os.kill(child.pid, signal.SIGUSR1)
    answer = child.wait(10)
    apart.stop()
    return "" if answer == (True, "ETIMEDOUT") else f"{answer}"


if os.geteuid() == 0:
    w.case(names[12], unseen)
else:
    w.skip(names[12], "needs root to make a PID namespace")


def umounts():
    begun = time.monotonic()
    status = hung.stop()
    took = time.monotonic() - begun
    return "" if status == 0 and took < 10 else f"exit {status} after {took:.1f} s"


w.case(names[11], umounts)
raise SystemExit(w.finish())
