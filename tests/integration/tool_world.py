"""What the tools-* scripts share: sessions with a workspace of awkward files, and calls of tools.
Not a test by itself."""
import hashlib
import io
import json
import os
import re
import subprocess
import tarfile

from hold_world import BUILD, LONG, Daemon

PNG = b"\x89PNG\r\n\x1a\n"
JPEG = b"\xff\xd8\xff\xe0"
MANY = 300000 if LONG else 3000
SPOOL = re.compile(r"bash-[0-9a-f]{16}-")

# Every file is of the same content everywhere: answers are compared with what was recorded.
FILES = {
    "empty.txt": b"",
    "one.txt": b"one line\n",
    "nofinal.txt": b"first\nlast without end",
    "blank.txt": b"\n\n\n",
    "crlf.txt": b"alpha\r\nbeta\r\ngamma\r\n",
    "mixed.txt": b"a\r\nb\nc\r\nd\r\n",
    "lf.txt": b"red\ngreen\nblue\ngreen\n",
    "cr.txt": b"old\rmac\rlines",
    "repeat.txt": b"aaaa\nab ab\n",
    "unicode.txt": "gr\u00fc\u00df dich \u2603 \U0001f600\n\u65e5\u672c\u8a9e\n".encode(),
    "latin1.txt": b"caf\xe9 na\xefve\nplain\n",
    "broken.txt": b"\xff\xfe\x80 ok \xe2\x82 \xf0\x9f\x98\n",
    "lines.txt": b"".join(b"line %d\n" % i for i in range(1, 5001)),
    "wide.txt": b"short\n" + b"x" * 2000 + b"\n" + b"y" * 2001 + b"\n" + "\u00e9".encode() * 2500 + b"\nend\n",
    "page.txt": b"".join(b"%04d " % i + b"z" * 494 + b"\n" for i in range(300)),
    "huge-line.txt": b"h" * (10 << 20),
    "nul-8191.txt": b"t" * 8191 + b"\0tail\n",
    "nul-8192.txt": b"t" * 8192 + b"\0tail\n",
    "program.bin": b"\x7fELF\0\0needle\0\n",
    "tiny.png": b"\x89",
    "small.png": PNG + b"picture",
    "picture-called.txt": JPEG + b"photo",
    "exact.png": PNG + b"\0" * ((2 << 20) - 8),
    "over.png": PNG + b"\0" * ((2 << 20) - 7),
    "src/main.py": b"import util\n\ndef main():\n    return util.answer()\n",
    "src/util.py": b"# TASK: needle\ndef answer():\n    return 42\n",
    "src/deep/a/b/util.py": b"needle = 'deep'\n",
    "src/deep/a/b/notes.md": b"# Notes\nNeedle here\n",
    "src/xutil.py": b"x = 1\n",
    ".hidden/secret.txt": b"needle in hidden\n",
    ".git/config": b"[core]\n\tneedle = true\n",
    "sub/.git/HEAD": b"needle\n",
    "docs/a b.txt": b"space needle\n",
    "names/it's.txt": b"quote\n",
    "names/\"double\".txt": b"quotes\n",
    "names/$(touch pwned).txt": b"dollar\n",
    "names/`touch pwned`.txt": b"tick\n",
    "names/-rf": b"dash\n",
    "names/--help": b"dashes\n",
    "names/new\nline.txt": b"newline\n",
    "names/tab\there.txt": b"tab\n",
    "names/star*.txt": b"star\n",
    "names/q?.txt": b"question\n",
    "names/[x].txt": b"bracket\n",
    "names/{a,b}.txt": b"brace\n",
    "names/!bang.txt": b"bang\n",
    "names/\u00fc\u00f1\u00ef.txt": b"accents\n",
    "names/trail ": b"trailing blank\n",
    "names/back\\slash.txt": b"backslash\n",
    "case/README.md": b"readme\n",
    "case/config.yaml": b"yaml\n",
    "case/config.yml": b"yml\n",
    "case/confg.yaml": b"typo\n",
    "long-matches.txt": b"match " + b"m" * 1000 + b"\nmatch short\n",
}
LINKS = {"link-to-file": "one.txt", "link-to-dir": "src", "dangling": "nowhere", "loop-a": "loop-b",
         "loop-b": "loop-a", "outside": "/etc/hostname", "absolute": "/workspace/one.txt"}


def archive():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        def add(name, kind, data=b"", target="", mode=0o644):
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname, info.mode = kind, len(data), target, mode
            tar.addfile(info, io.BytesIO(data))
        for name, data in FILES.items():
            add(name, tarfile.REGTYPE, data)
        for name, target in LINKS.items():
            add(name, tarfile.SYMTYPE, target=target)
        add("fifo", tarfile.FIFOTYPE)
        add("empty-dir", tarfile.DIRTYPE, mode=0o755)
        add("script.sh", tarfile.REGTYPE, b"echo run\n", mode=0o750)
    return out.getvalue()


# What a session's commands find on their PATH, set when its sandbox is made.
PATHS = {"memory": None, "rg": None, "gnu": "/tmp/bin", "busybox": "/tmp/bin"}
INSTALL = {
    "gnu": "/bin/mkdir /tmp/bin && cd /tmp/bin && for f in /usr/bin/* /bin/*; do "
           "case $f in */rg) ;; *) /bin/ln -s \"$f\" . 2>/dev/null ;; esac; done; true",
    "busybox": "/bin/mkdir /tmp/bin && /bin/busybox --install -s /tmp/bin",
}


class Session:
    """A session of a daemon, filled with the files above; `engine` says by which tools."""

    def __init__(self, daemon, key="k", engine="rg", fill=True):
        self.daemon, self.key, self.engine = daemon, key, engine
        path = PATHS[engine]
        if engine == "memory":
            self.fill_by_calls()
            return
        if path:
            r = daemon.pai("create", key, "-o", "env.PATH=" + path)
            assert r.returncode == 0, r.stderr
            self.exec("/bin/sh", "-c", INSTALL[engine])
        if fill:
            self.exec("/bin/tar", "xf", "-", input=archive())
            self.exec("/bin/sh", "-c", f"/bin/mkdir many && cd many && /usr/bin/seq -f %06.0f {MANY} | "
                                       "/usr/bin/xargs /bin/touch")

    def fill_by_calls(self):
        """Without a command: the files alone."""
        client = self.daemon.client()
        empty = {"many/%06d" % i: b"" for i in range(1, MANY + 1)}
        for name, data in {**FILES, **empty, "empty-dir/x": b""}.items():
            good, answer, _ = client.ask_files(
                {"op": "write", "key": self.key, "path": "/workspace/" + name}, data)
            assert good, (name, answer)
        client.sock.close()

    def exec(self, *argv, **kw):
        kw.setdefault("input", b"")
        r = subprocess.run(self.daemon.run_argv(*argv, key=self.key), capture_output=True,
                           timeout=kw.pop("timeout", 100), **kw)
        assert r.returncode == 0, (argv, r.returncode, r.stderr[-500:])
        return r.stdout

    def raw(self, tool, text, *options, timeout=60):
        """(exit status, stdout, stderr)"""
        r = subprocess.run([BUILD + "/pai", "-n", self.daemon.name, "tool", *([tool] if tool else []),
                            "-s", self.key, *options], input=text, capture_output=True, timeout=timeout)
        return r.returncode, r.stdout, r.stderr

    def call(self, name, /, **fields):
        """(exit status, answer)"""
        fields.setdefault("reason", "a test")
        status, out, err = self.raw(name, json.dumps(fields).encode())
        lines = out.splitlines()
        assert len(lines) == 1, (status, out[-500:], err[-500:])
        return status, json.loads(lines[0])

    def batch(self, *calls, timeout=60):
        text = "\n".join(json.dumps({"tool": tool, "input": {"reason": "a step", **fields}})
                         for tool, fields in calls)
        status, out, err = self.raw(None, text.encode(), "--batch", timeout=timeout)
        assert not err, err
        return status, [json.loads(line) for line in out.splitlines()]


def brief(value):
    """An answer as it is recorded: what differs from run to run is named, long texts are digests."""
    if isinstance(value, dict):
        return {k: brief(v) for k, v in value.items()}
    if isinstance(value, list):
        return [brief(v) for v in value]
    if isinstance(value, str):
        value = SPOOL.sub("bash-ID-", value).replace(str(MANY), "MANY").replace(f"{MANY:,}", "MANY")
        if len(value) > 400:
            return {"chars": len(value), "head": value[:120], "tail": value[-160:],
                    "sha256": hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:16]}
    return value


def schemas():
    r = subprocess.run([BUILD + "/pai", "tool", "--schema"], capture_output=True, check=True)
    return {s["name"]: s for s in map(json.loads, r.stdout.splitlines())}


__all__ = ["BUILD", "Daemon", "FILES", "MANY", "Session", "brief", "os", "schemas"]
