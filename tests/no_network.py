"""Runs a program that cannot open a socket to any network: `python no_network.py program arguments...`.

The kernel refuses `socket(2)` for IPv4 and IPv6, in whatever language: hooks in Python do not see what
libraries in Rust or C do. It takes no rights, and what the program starts is bound by it as well.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct
import sys
from pathlib import Path

_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 22, 38
_SECCOMP_MODE_FILTER = 2
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16
"""Offsets in what a filter sees of a system call."""
_MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
"""How the kernel calls the machine, and which system call is `socket` there."""


def without_network(*command: str) -> list[str]:
    """The command line that runs another one so."""
    return [sys.executable, str(Path(__file__)), *command]


def refuse_network() -> None:
    """From now on, this process and its children get EPERM for a socket of IPv4 or IPv6."""
    machine, socket_call = _MACHINES[platform.machine()]
    steps = [
        (_LOAD_WORD, 0, 0, _MACHINE),
        (_JUMP_IF_EQUAL, 0, 5, machine),
        (_LOAD_WORD, 0, 0, _NUMBER),
        (_JUMP_IF_EQUAL, 0, 3, socket_call),
        (_LOAD_WORD, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_IF_EQUAL, 2, 0, socket.AF_INET),
        (_JUMP_IF_EQUAL, 1, 0, socket.AF_INET6),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = struct.pack("HP", len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program)):
        if libc.prctl(*arguments):
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    refuse_network()
    os.execvp(sys.argv[1], sys.argv[1:])
