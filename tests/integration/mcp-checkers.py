#!/usr/bin/env python3
# timeout 420
"""pai mcp before official checkers and clients: the conformance suite (which knows HTTP alone: mcp_bridge.py
is in between), the inspector's command line, the TypeScript and the Python SDK. They are installed by npm
and pip once a version, into the cache of the tests."""
import concurrent.futures
import fnmatch
import glob
import json
import shutil
import subprocess
import sys

import hold_world as world
from hold_world import BUILD, TMP, case, not_ok, ok, skip
from installs import installed
from mcp_bridge import Bridge
from tool_world import PNG, Daemon, os

PACKAGES = {"conformance": "0.2.0-alpha.12", "inspector": "2.12.0", "client": "2.3.1", "sdk": "1.32.2"}
PYTHON_SDK = "2.3.0"
HERE = os.path.dirname(os.path.abspath(__file__))
JS = TMP + "/js"
TOOLS = ["bash", "read", "write", "edit", "grep", "glob", "listDirectory"]

# --- installing ---


def npm_packages():
    names = [f"@modelcontextprotocol/{name}@{version}" for name, version in PACKAGES.items()]
    return installed("mcp-npm-" + "-".join(PACKAGES.values()), "npm", "install", "--prefix", "DIR", "--no-audit",
                     "--no-fund", "--ignore-scripts", "--no-save", *names)


def python_packages():
    tag = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return installed(f"mcp-python{tag}-{PYTHON_SDK}", sys.executable, "-m", "pip", "install", "--quiet", "--target",
                     "DIR", f"mcp=={PYTHON_SDK}")


# --- the conformance suite ---

# The suite calls tools of its own fixture; these do what it looks for.
STANDS_FOR = {
    "test_simple_text": {"name": "bash", "arguments": {"reason": "Text", "command": "echo text"}},
    "test_image_content": {"name": "read", "arguments": {"reason": "Picture", "path": "/workspace/picture.png"}},
    "test_error_handling": {"name": "bash", "arguments": {"reason": "Fail", "command": "true", "cwd": "/none"}},
    "test_tool_with_progress": {"name": "bash", "arguments": {
        "reason": "Progress", "command": "for i in 1 2 3; do echo $i; sleep 0.3; done"}},
    "test_tool_with_logging": {"name": "bash", "arguments": {
        "reason": "Logging", "command": "for i in 1 2 3; do echo $i; sleep 0.2; done"}},
    "test_logging_tool": {"name": "bash", "arguments": {"reason": "Log", "command": "echo log"}},
}
# What can't apply, by scenario and check, and why.
NOT_OURS = [
    ("prompts-*", "*", "no prompts are served, nor declared"),
    ("resources-*", "*", "no resources are served, nor declared"),
    ("caching", "sep-2549-prompts-*", "no prompts are served, nor declared"),
    ("caching", "sep-2549-resources-*", "no resources are served, nor declared"),
    ("completion-complete", "*", "no completion is served, nor declared"),
    ("input-required-result-*", "*", "no tool asks the client for anything"),
    ("tools-call-sampling", "*", "no tool asks the client for anything"),
    ("tools-call-elicitation", "*", "no tool asks the client for anything"),
    ("elicitation-*", "*", "no tool asks the client for anything"),
    ("server-stateless", "sep-2575-server-rejects-undeclared-capability", "no tool asks the client for anything"),
    ("server-stateless", "sep-2575-missing-capability-http-400", "no tool asks the client for anything"),
    ("server-stateless", "sep-2575-http-server-no-independent-requests-on-stream",
     "no tool asks the client for anything"),
    ("tools-call-audio", "*", "no tool answers with sounds or resources"),
    ("tools-call-embedded-resource", "*", "no tool answers with sounds or resources"),
    ("tools-call-mixed-content", "*", "no tool answers with sounds or resources"),
    ("tasks-*", "*", "an extension that is not served: tasks"),
    ("http-*", "*", "headers of HTTP, which stdio has not"),
    ("json-schema-2020-12", "*", "asks for a tool of the suite's own by its name"),
]
# What has to be among what was checked: that nothing has been passed over.
MUST_PASS = {
    "2026-07-28": {"sep-2575-server-implements-discover", "sep-2575-server-unsupported-version-error",
                   "sep-2575-discover-capabilities-match-handlers", "sep-2575-request-meta-client-info-optional",
                   "sep-2575-request-meta-invalid-missing-meta", "sep-2575-server-no-log-without-loglevel",
                   "sep-2549-tools-list-caching-hints", "tools-list", "tools-name-format",
                   "tools-list-deterministic-order", "tools-call-simple-text", "tools-call-image",
                   "tools-call-error", "tools-call-with-progress", "wire-schema-valid"},
    "2025-11-25": {"server-initialize", "ping", "logging-set-level", "tools-list", "tools-call-simple-text",
                   "tools-call-image", "tools-call-error", "tools-call-with-progress", "tools-call-with-logging",
                   "wire-schema-valid"},
}
MUST_PASS["2025-06-18"] = MUST_PASS["2025-11-25"]


def node_version():
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    return int(version[1:].split(".")[0])


def old_node():
    """Options that a node before 22 needs to load the suite."""
    return ["--import", f"{HERE}/mcp_old_node.mjs"] if node_version() < 22 else []


def conformance(revision, npm):
    bridge = Bridge([BUILD + "/pai", "-n", "mcp-checkers", "mcp", "-s", "k"], STANDS_FOR)
    out = f"{TMP}/conformance-{revision}"
    which = ["--requirements", revision] if revision != "2025-06-18" else ["--suite", "all", "--spec-version", revision]
    r = subprocess.run(["node", *old_node(), npm + "/node_modules/@modelcontextprotocol/conformance/dist/index.js", "server",
                        "--url", bridge.url, "-o", out, *which], capture_output=True, text=True, timeout=200, cwd=TMP)
    bridge.close()
    passed, why_not, bad = set(), {}, []
    for path in sorted(glob.glob(out + "/**/checks.json", recursive=True)):
        scenario = os.path.basename(os.path.dirname(path)).removeprefix("server-")[:-len("-2026-12-01T12-24-24-994Z")]
        with open(path) as f:
            checks = json.load(f)
        for c in checks:
            row = next((n for n in NOT_OURS if fnmatch.fnmatchcase(scenario, n[0]) and
                        fnmatch.fnmatchcase(c["id"], n[1])), None)
            if c["status"] == "SUCCESS":
                passed.add(c["id"])
            elif row and c["id"] != "wire-schema-valid":
                why_not.setdefault(row[2], {})[scenario] = True
            elif c["status"] == "FAILURE":
                bad.append(f"{scenario}: {c['id']}: {c.get('errorMessage')}")
    for why, scenarios in why_not.items():
        skip(f"conformance {revision}: {', '.join(scenarios)}", why)
    missing = MUST_PASS[revision] - passed
    if bad or missing:
        return f"{bad or ''} {'not passed: ' + str(missing) if missing else ''} {r.stderr[-300:]}"
    print(f"# conformance {revision}: {len(passed)} kinds of checks passed", flush=True)
    return None


# --- the inspector ---

def inspect(npm, *argv):
    # It hands on no environment but what it is told to.
    r = subprocess.run(["node", npm + "/node_modules/.bin/mcp-inspector", "--cli", "-e",
                        "XDG_RUNTIME_DIR=" + os.environ["XDG_RUNTIME_DIR"], BUILD + "/pai", "-n", "mcp-checkers",
                        "mcp", "-s", "i", *argv], capture_output=True, text=True, timeout=120, cwd=TMP)
    return json.loads(r.stdout) if r.returncode == 0 else f"{r.returncode}: {r.stdout[-300:]} {r.stderr[-300:]}"


CALLS = [("write", ["path=/workspace/i.txt", "content=one"], "written"),
         ("edit", ["path=/workspace/i.txt", "oldString=one", "newString=two"], "edited"),
         ("read", ["path=/workspace/i.txt"], "text"), ("grep", ["pattern=two"], "ok"), ("glob", ["pattern=i.*"], "ok"),
         ("listDirectory", ["path=/workspace"], "ok"), ("bash", ["command=cat i.txt"], None)]


def inspector(npm):
    listed = inspect(npm, "--method", "tools/list")
    if not isinstance(listed, dict) or [t["name"] for t in listed["tools"]] != TOOLS:
        return f"{listed}"
    for tool, fields, status in CALLS:
        args = [a for f in ["reason=Inspect", *fields] for a in ("--tool-arg", f)]
        got = inspect(npm, "--method", "tools/call", "--tool-name", tool, *args)
        if not isinstance(got, dict) or got["structuredContent"].get("status") != status or got.get("isError"):
            return f"{tool}: {got}"
        if tool == "bash" and got["structuredContent"]["stdout"] != "two":
            return f"{got}"
    return None


# --- the SDKs ---

def client(key, version, *argv, env=None):
    r = subprocess.run([*argv, BUILD + "/pai", "-n", "mcp-checkers", "mcp", "-s", key], capture_output=True, text=True,
                       timeout=120, env={**os.environ, **(env or {})})
    if r.returncode:
        return f"{r.returncode}: {r.stderr[-600:]}"
    said = json.loads(r.stdout)
    calls = said["calls"]
    if said["tools"] != TOOLS or said["server"] != "paifs" or "/workspace" not in said["instructions"]:
        return f"{said}"
    if said["version"] not in (version, None):
        return f"speaks {said['version']}, not {version}"
    if calls["bash"]["stdout"] != "hello\n" or calls["read"]["content"] != "1: two" or calls["grep"]["count"] != 1 or \
            calls["glob"]["paths"] != ["/workspace/sdk.txt"] or calls["edit"]["status"] != "edited" or \
            calls["write"]["bytes"] != 4 or len(calls["listDirectory"]["entries"]) < 2:
        return f"{calls}"
    if said["picture"] != ["text", "image"] or said["wrong"] is not True:
        return f"{said}"
    if len(said["progress"]) < 2 or len(set(said["progress"])) != 1 or not said["progress"][0].startswith("As "):
        return f"progress: {said['progress']}"
    if not said["cancelled"] or said["after"].get("stdout") != "none\n":
        return f"cancelled: {said['cancelled']}, then {said['after']}"
    return None


def typescript(which, mode, version):
    return client(f"ts-{which}-{mode}", version, "node", JS + "/mcp_sdk.mjs", which, mode)


def python(mode, version, site):
    return client(f"py-{mode}", version, sys.executable, HERE + "/mcp_sdk.py", mode, env={"PYTHONPATH": site})


def cases(npm, site):
    """Two at a time: the suite mostly waits."""
    os.makedirs(JS)
    shutil.copy(HERE + "/mcp_sdk.mjs", JS)
    os.symlink(npm + "/node_modules", JS + "/node_modules")
    revisions = [(f"conformance {r}", conformance, r, npm) for r in MUST_PASS]
    others = [("inspector", inspector, npm),
              *((f"typescript sdk {v}", typescript, w, m, v) for w, m, v in (
                  ("v1", "legacy", "2025-11-25"), ("v2", "legacy", "2025-11-25"), ("v2", "auto", "2026-07-28"))),
              *((f"python sdk {v}", python, m, v, site) for m, v in (
                  ("legacy", "2025-11-25"), ("auto", "2026-07-28")))]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for f in [pool.submit(lambda some: [case(*c) for c in some], some) for some in (revisions, others)]:
            f.result()


def main():
    if not shutil.which("npm") or node_version() < 20:
        skip("mcp-checkers", "needs npm, and node from 20 on")
        return
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        wanted = [pool.submit(npm_packages), pool.submit(python_packages)]
        try:
            npm, site = (w.result() for w in wanted)
        except Exception as e:
            not_ok("install", e)
            return
    ok("install")
    d = Daemon("local", "mcp-checkers", mount=False)
    for key in ("k", "i", "ts-v1-legacy", "ts-v2-legacy", "ts-v2-auto", "py-legacy", "py-auto"):
        subprocess.run(d.run_argv("sh", "-c", "cat >picture.png", key=key), input=PNG + b"picture", check=True)
    cases(npm, site)


try:
    main()
finally:
    status = world.finish()
sys.exit(status)
