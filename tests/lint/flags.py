#!/usr/bin/env python3
# fast
"""Two flags of one enum are two bits: nobody else says so when a number is taken twice."""
import re
import subprocess
import sys

ENUM = re.compile(r"\benum(?:\s+\w+)?\s*\{(.*?)\}", re.S)
COMMENT = re.compile(r"/\*.*?\*/", re.S)
FLAG = re.compile(r"(\w+)\s*=\s*1u?l*\s*<<\s*(\d+)\b")


def faults(path):
    with open(path, errors="replace") as f:
        text = COMMENT.sub("", f.read())
    for enum in ENUM.findall(text):
        seen = {}
        for name, bit in FLAG.findall(enum):
            if bit in seen:
                yield f"{path}: {name} is the bit of {seen[bit]}"
            seen[bit] = name


def main():
    files = subprocess.run(["git", "ls-files", "*.c", "*.h"], capture_output=True, text=True,
                           check=True).stdout.split()
    found = [fault for path in files for fault in faults(path)]
    if found:
        print(*found, sep="\n")
        print(f"not ok flags: {found[0]}")
        return 1
    print(f"ok flags ({len(files)} files)")
    return 0


sys.exit(main())
