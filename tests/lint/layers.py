#!/usr/bin/env python3
# fast
"""The layer law: what each folder may include, and where each third-party header may be named."""
import os
import re
import subprocess
import sys

# folder: folders it may include besides itself. The longest matching folder counts.
TOP = "providers"  # provider.h, provider_ops.h and the decorators, not what lies below
BELOW_PROVIDERS = [TOP, "providers/base", "providers/wire", "providers/transport",
                   "providers/workspace", "providers/helper"]
MAY = {
    "providers/base": [],
    "providers/wire": ["providers/base"],
    "providers/transport": ["providers/base", "providers/wire"],
    TOP: ["providers/base", "providers/wire"],
    "providers/workspace": [TOP, "providers/base", "providers/wire"],
    "providers/helper": [TOP, "providers/base", "providers/wire", "providers/workspace"],
    "providers/session": [TOP, "providers/base", "providers/wire", "providers/workspace",
                          "providers/helper"],
    "ledger": [TOP, "providers/base", "providers/session"],
    "providers/conformance": [TOP, "providers/base", "providers/workspace", "providers/session"],
    "fusefs": [TOP, "providers/base", "providers/wire", "providers/workspace",
               "providers/helper", "providers/session", "ledger"],
    "execshim": ["providers/base", "providers/wire"],
}
for name in ("memory", "local", "docker", "ssh", "e2b", "gke"):
    MAY["providers/" + name] = BELOW_PROVIDERS

# header: where it may be named.
THIRD_PARTY = {
    r"cjson/|cJSON": "providers/base/json.c",
    r"sha[12]\.h|md5\.h": "providers/base/",
    r"fuse": "fusefs/",
    r"sqlite3": "ledger/",
    r"curl/|libssh2": "providers/transport/",
    r"criterion/": "tests/",
}
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')


def folder_of(path):
    return os.path.dirname(path)


def layer_of(path):
    folder = folder_of(path)
    while folder and folder not in MAY:
        folder = os.path.dirname(folder)
    return folder


def faults(path):
    layer = layer_of(path)
    with open(path, errors="replace") as f:
        for number, line in enumerate(f, 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            quote, header = match.groups()
            where = f"{path}:{number}"
            for pattern, home in THIRD_PARTY.items():
                if quote == "<" and re.match(pattern, header) and not path.startswith(
                        (home, "tests/")):
                    yield f"{where}: <{header}> belongs in {home} only"
            if quote != '"' or path.startswith("tests/"):
                continue
            if not os.path.exists(header):
                yield f"{where}: \"{header}\" is not a path from the root"
            elif not layer:
                yield f"{where}: {folder_of(path)} has no place in the layers"
            elif layer_of(header) != layer and layer_of(header) not in MAY[layer]:
                yield f"{where}: {layer} may not include {layer_of(header) or header}"


def main():
    files = subprocess.run(["git", "ls-files", "*.c", "*.h"], capture_output=True, text=True,
                           check=True).stdout.split()
    found = [fault for path in files if os.path.exists(path) for fault in faults(path)]
    for fault in found:
        print("not ok " + fault)
    if not found and files:
        print(f"ok layers ({len(files)} files)")
    return 1 if found else 0


sys.exit(main())
