#!/usr/bin/env python3
# fast
"""Functions of at most 100 lines and braces nested at most 4 deep inside (3 is the rule, 4 the stop);
files of at most 800 lines. Columns are clang-format's."""
import json
import subprocess
import sys

FUNCTION_LINES = 100
NEST = 4
FILE_LINES = 800


def depth_of(lines):
    """How deep braces go inside a function's own; strings, characters and comments are skipped."""
    depth = deepest = 0
    quote = None
    comment = False
    for line in lines:
        i = 0
        while i < len(line):
            c = line[i]
            if comment:
                if line.startswith("*/", i):
                    comment = False
                    i += 1
            elif quote:
                if c == "\\":
                    i += 1
                elif c == quote:
                    quote = None
            elif line.startswith("/*", i):
                comment = True
                i += 1
            elif c in "\"'":
                quote = c
            elif c == "{":
                depth += 1
                deepest = max(deepest, depth)
            elif c == "}":
                depth -= 1
            i += 1
    return deepest - 1


def main():
    files = subprocess.run(["git", "ls-files", "*.c", "*.h"], capture_output=True, text=True,
                           check=True).stdout.split()
    found = []
    functions = 0
    text = {}
    for path in files:
        with open(path, errors="replace") as f:
            text[path] = f.read().split("\n")
        if len(text[path]) - 1 > FILE_LINES:
            found.append(f"{path}: {len(text[path]) - 1} lines, over {FILE_LINES}")
    tags = subprocess.run(
        ["ctags", "-f", "-", "--output-format=json", "--fields=+ne", "--kinds-C=f",
         "--languages=C", "--langmap=C:.c.h"] + files,
        capture_output=True, text=True, check=True).stdout
    for line in tags.splitlines():
        tag = json.loads(line)
        first, last = tag["line"], tag.get("end")
        if last is None:
            continue
        functions += 1
        body = text[tag["path"]][first - 1:last]
        where = f"{tag['path']}:{first}: {tag['name']}"
        if len(body) > FUNCTION_LINES:
            found.append(f"{where}: {len(body)} lines, over {FUNCTION_LINES}")
        if depth_of(body) > NEST:
            found.append(f"{where}: braces {depth_of(body)} deep, over {NEST}")
    for fault in found:
        print("not ok " + fault)
    if not found and functions:
        print(f"ok sizes ({len(files)} files, {functions} functions)")
    return 1 if found or not functions else 0


sys.exit(main())
