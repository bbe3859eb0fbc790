"""no_unix PROGRAM ARG...: runs it where connect(2) is refused, as an agent's own sandbox does. Not a test."""
import ctypes
import os
import platform
import struct
import sys

CONNECT = {"x86_64": 42, "aarch64": 203}[platform.machine()]
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
EPERM, ALLOW = 0x00050001, 0x7fff0000
# A filter of four steps: the number of the system call; connect is refused, all else allowed.
steps = b"".join(struct.pack("HBBI", *s) for s in (
    (LOAD, 0, 0, 0), (EQUAL, 0, 1, CONNECT), (RETURN, 0, 0, EPERM), (RETURN, 0, 0, ALLOW)))
room = ctypes.create_string_buffer(steps)
program = struct.pack("HxxxxxxP", 4, ctypes.addressof(room))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # no_new_privs
assert libc.prctl(22, 2, program, 0, 0) == 0, os.strerror(ctypes.get_errno())  # a filter
os.execvp(sys.argv[1], sys.argv[1:])
