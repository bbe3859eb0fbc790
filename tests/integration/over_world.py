"""Which way PAI_OVER leads to the sandboxes, as lib.sh has it: local (the default), ssh (a host that is
this machine), docker and docker-helper (by docker_world.py run). Not a test by itself."""
import contextlib
import os
import time

OVER = os.environ.get("PAI_OVER", "local")
SECONDS = 20


def is_below(pid, scratch):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            line = f.read()
    except OSError:
        return False
    return b"\0serve\0" in line and scratch.encode() in line


def workers_below(scratch):
    return [pid for pid in filter(str.isdigit, os.listdir("/proc")) if is_below(pid, scratch)]


@contextlib.contextmanager
def over(scratch, git="trust"):
    """(provider, options): the host that it leads to is there meanwhile. `git`: -o git= but for local."""
    e = os.environ
    if OVER == "ssh":
        from ssh_world import World  # its sshd is this process's child
        world = World(os.path.join(scratch, "sshd")).start()
        try:
            yield "ssh", ["host=box", "root=boxes", "line_grace=4", "config=" + world.config, "git=" + git]
        finally:
            until = time.monotonic() + SECONDS
            while workers_below(scratch) and time.monotonic() < until:
                time.sleep(0.01)
            world.stop()
    elif OVER in ("docker", "docker-helper"):
        yield "docker", ["socket=" + e["PAI_DOCKER_SOCKET"], "image=" + e["PAI_DOCKER_HOST_IMAGE"],
                         "git=" + git, "runtime=" + e["PAI_DOCKER_HOST_RUNTIME"],
                         f"uid={os.geteuid()}", f"root={scratch}/boxes" if OVER == "docker"
                         else "workspace=helper"]
    else:
        yield "local", []  # the rest is up to who asks
