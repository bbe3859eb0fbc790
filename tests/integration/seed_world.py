"""What the seed-* scripts share: daemons with a list, a file provider and programs that say when they
were called. Not a test by itself."""
import json
import os
import subprocess

import hold_world as world
from hold_world import BUILD, TMP, Daemon

number = 0
os.environ["PATH"] = BUILD + ":" + os.environ["PATH"]


class Seeded(Daemon):
    """A daemon whose directory `dir` has list.json, files/ and log, which programs write to."""

    def __init__(self, provider, *options, seed="list.json", files=True, mount=True, name=None):
        global number
        number += 1
        self.provider = provider
        name = name or f"seed-{number}"
        self.dir = f"{TMP}/{name}.d"
        os.makedirs(self.dir + "/files", exist_ok=True)
        if not os.path.exists(f"{self.dir}/list.json"):
            self.declare()
        options = [f"seed={self.dir}/{seed}", *options]
        if files:
            options.append(f"file_provider={self.dir}/{files if isinstance(files, str) else 'files'}")
        if provider == "local":
            super().__init__("local", name, *options, mount=mount)
        else:
            super().__init__(provider, name, *options, mount=mount)

    def stop(self, keep=False):
        """Containers are of one engine, and keep what they are mounted on."""
        if self.provider == "docker" and not keep and self.proc.poll() is None:
            for session in self.ask("ls")["sessions"]:
                self.pai("kill", session["key"])
        return super().stop()

    def declare(self, *files):
        with open(self.dir + "/new.json", "w") as f:
            json.dump(list(files), f)
        os.rename(self.dir + "/new.json", self.dir + "/list.json")

    def program(self, name, body):
        """A shell script; each call of it is a line of the log."""
        path = f"{self.dir}/{name}"
        with open(path + ".new", "w") as f:
            f.write(f'#!/bin/sh\necho "{name} $*" >> {self.dir}/log\n{body}\n')
        os.chmod(path + ".new", 0o755)
        os.rename(path + ".new", path)
        return path

    def called(self):
        try:
            with open(self.dir + "/log") as f:
                return f.read().splitlines()
        except FileNotFoundError:
            return []

    def stored(self, name, data):
        with open(f"{self.dir}/files/{name}", "wb") as f:
            f.write(data)

    def cat(self, path, key="k", run=None):
        """What a command sees; None: no such file."""
        r = self.sh("cat", path, key=key, run=run)
        return r.stdout if r.returncode == 0 else None

    def sh(self, *argv, key="k", run=None, **kw):
        words = [*(["--run", run] if run else []), *argv]
        kw.setdefault("timeout", 60)
        return subprocess.run(self.run_argv(*words, key=key), capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, **kw)

    def put(self, path, data, key="k"):
        """As an agent's tool writes it."""
        r = self.tool("write", {"reason": "r", "path": path, "content": data}, key=key)
        assert r.returncode == 0, r

    def tool(self, name, value, key="k", env=None):
        return subprocess.run([BUILD + "/pai", "-n", self.name, "tool", name, "-s", key, "--input",
                               json.dumps(value)], capture_output=True, text=True, timeout=60,
                              env={**os.environ, **(env or {})})

    def make(self, key="k"):
        """A sandbox of that key, not checked yet."""
        r = self.pai("create", key)
        assert r.returncode == 0, r

    def said(self):
        with open(self.log, errors="replace") as f:
            return f.read()


def inline(path, data, **more):
    return {"path": "/workspace/" + path, "data": data, **more}


def stored(path, file_id):
    return {"path": "/workspace/" + path, "fileId": file_id}


def loaded(path, *argv, version="1"):
    return {"path": "/workspace/" + path, "loader": list(argv), "version": version}


case = world.case
