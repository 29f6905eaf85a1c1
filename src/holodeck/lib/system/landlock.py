"""A process restricted with Landlock and seccomp, in which a program then runs. Linux only.

Run as a program, with the standard library only: `python -I -S landlock.py RULES PATH ARGV...`. RULES is JSON:
`browse` (folders), `read` and `write` are lists of files and folders, `network` is a boolean. It exits with `FAILURE`
if it cannot restrict itself or run the program. The program and its children

- read and execute only what is in `read` or `write`, and change only what is in `write`;
- see the names, but not the content, of what is in `browse`;
- have no capabilities of root but those for the permissions of files;
- signal no process outside, from Landlock version 6 on;
- open no Unix socket, which could ask a service of the user to read a file for them, but for pairs of streams;
- have no keyrings, no new namespaces and no shared memory of System V;
- open no socket at all without `network`, except those that ask the kernel for its interfaces.

Landlock does not cover what is not content: `stat` and `chmod` still work on every file of the user.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import socket
import stat
import struct
import sys
from collections.abc import Iterable, Sequence
from errno import EACCES, ENOSYS
from typing import NamedTuple

# Version 3 (Linux 6.2) is the first one that also refuses to truncate a file.
MIN_VERSION = 3
FAILURE = 126

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_RULE_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL_DEV = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
_VERSION_OF_IOCTL, _VERSION_OF_SCOPE = 5, 6
_SCOPE_ALL = 0b11
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_FILTER = 38, 22, 2
_CAPABILITY_VERSION = 0x20080522
# CHOWN, DAC_OVERRIDE, FOWNER and FSETID: root in a container works in mounted folders of other users.
_KEPT_CAPABILITIES = 0b11011
_X32_BIT = 0x40000000
_CLONE_NEW_USER = 0x10000000
# The bits of the second argument of `socketpair` that are the type.
_SOCKET_TYPES = 0xF
# io_uring_setup: a ring opens sockets without a system call that a filter sees. clone3: its flags are in memory, which
# a filter does not see. Programs do without both where the kernel does not know them.
_UNKNOWN_CALLS = (425, 435)


class _Machine(NamedTuple):
    """Numbers of the system calls of a processor."""

    audit_id: int
    socket: int
    socketpair: int
    clone: int
    refused: tuple[int, ...]
    """add_key, request_key, keyctl: the keys of the user. unshare, setns: namespaces, in which it is root again. bpf,
    perf_event_open, userfaultfd: tools of attacks on the kernel. shmget, semget, msgget: memory and queues of others.
    """


_MACHINES = {
    "x86_64": _Machine(0xC000003E, 41, 53, 56, (248, 249, 250, 272, 308, 321, 298, 323, 29, 64, 68)),
    "aarch64": _Machine(0xC00000B7, 198, 199, 220, (217, 218, 219, 97, 268, 280, 241, 282, 194, 190, 186)),
}
_LOAD, _AND, _JUMP_EQUAL, _JUMP_NOT_BELOW, _JUMP_IF_SET, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_NUMBER, _MACHINE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24
_ALLOW, _FAIL_WITH = 0x7FFF0000, 0x00050000


def find_missing() -> str | None:
    """Return what this machine lacks to restrict a process, or None."""
    if sys.platform != "linux":
        return "it needs Landlock, which only Linux has"
    if platform.machine() not in _MACHINES:
        return f"it is not written for this processor ({platform.machine()}), only for {' and '.join(_MACHINES)}"
    version = _landlock_version()
    if version < 1:
        return "this kernel has no Landlock, or it is turned off (see /sys/kernel/security/lsm)"
    if version < MIN_VERSION:
        return f"it needs Landlock version {MIN_VERSION} (Linux 6.2), and this kernel has version {version}"
    return None


def restrict(*, browse: Iterable[str], read: Iterable[str], write: Iterable[str], network: bool) -> None:
    """Restrict this process and its future children, for good. Raises OSError."""
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _drop_capabilities()
    _restrict_files(browse, read, write)
    _restrict_calls(network)


def _landlock_version() -> int:
    return int(ctypes.CDLL(None).syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION))


def _drop_capabilities() -> None:
    """Give up what lets root pass by Landlock, such as to read the memory of processes or to create devices."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    data = ctypes.create_string_buffer(24)
    _call("capget", header, data)
    sets = [bits & _KEPT_CAPABILITIES for bits in struct.unpack("=3I", data.raw[:12])]
    _call("capset", header, struct.pack("=6I", *sets, 0, 0, 0))


def _restrict_files(browse: Iterable[str], read: Iterable[str], write: Iterable[str]) -> None:
    version = _landlock_version()
    handled = (_IOCTL_DEV << 1) - 1 if version >= _VERSION_OF_IOCTL else _IOCTL_DEV - 1
    scope = _SCOPE_ALL if version >= _VERSION_OF_SCOPE else 0
    attributes = struct.pack("=QQQ", handled, 0, scope)
    ruleset = _call("syscall", _CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    for paths, access in ((browse, _READ_DIR), (read, _READ), (write, handled)):
        for path in paths:
            _allow_path(ruleset, path, access & handled)
    _call("syscall", _RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _allow_path(ruleset: int, path: str, access: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            access &= _ON_FILES
        _call("syscall", _ADD_RULE, ruleset, _RULE_PATH_BENEATH, struct.pack("=Qi", access, descriptor), 0)
    finally:
        os.close(descriptor)


def _restrict_calls(network: bool) -> None:
    """Install the filter of system calls."""
    steps = _build_filter(_MACHINES[platform.machine()], network)
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = struct.pack("@HP", len(steps), ctypes.addressof(code))
    _call("prctl", _PR_SET_SECCOMP, _SECCOMP_FILTER, program, 0, 0)


def _build_filter(machine: _Machine, network: bool) -> list[tuple[int, int, int, int]]:
    """Return the instructions of the filter: operation, steps to skip if it holds and if not, operand."""
    families = [socket.AF_NETLINK, *([socket.AF_INET, socket.AF_INET6] if network else [])]
    # Each step: operation, operand, and the label to go to if it holds, and if not; "" is the next step.
    program: list[tuple[str, list[tuple[int, int, str, str]]]] = [
        (
            "start",
            [
                (_LOAD, _MACHINE, "", ""),
                (_JUMP_EQUAL, machine.audit_id, "", "unknown"),
                (_LOAD, _NUMBER, "", ""),
                (_JUMP_NOT_BELOW, _X32_BIT, "unknown", ""),
                *((_JUMP_EQUAL, number, "unknown", "") for number in _UNKNOWN_CALLS),
                *((_JUMP_EQUAL, number, "refuse", "") for number in machine.refused),
                (_JUMP_EQUAL, machine.socket, "socket", ""),
                (_JUMP_EQUAL, machine.socketpair, "socketpair", ""),
                (_JUMP_EQUAL, machine.clone, "clone", "allow"),
            ],
        ),
        (
            "socket",
            [
                (_LOAD, _FIRST_ARGUMENT, "", ""),
                *((_JUMP_EQUAL, family, "allow", "") for family in families[:-1]),
                (_JUMP_EQUAL, families[-1], "allow", "refuse"),
            ],
        ),
        # A datagram socket of a pair can send to any other socket. Programs connect their children by streams.
        (
            "socketpair",
            [
                (_LOAD, _SECOND_ARGUMENT, "", ""),
                (_AND, _SOCKET_TYPES, "", ""),
                (_JUMP_EQUAL, socket.SOCK_STREAM, "allow", "refuse"),
            ],
        ),
        ("clone", [(_LOAD, _FIRST_ARGUMENT, "", ""), (_JUMP_IF_SET, _CLONE_NEW_USER, "refuse", "allow")]),
        ("refuse", [(_RETURN, _FAIL_WITH | EACCES, "", "")]),
        ("unknown", [(_RETURN, _FAIL_WITH | ENOSYS, "", "")]),
        ("allow", [(_RETURN, _ALLOW, "", "")]),
    ]
    positions, at = {}, 0
    for label, steps in program:
        positions[label] = at
        at += len(steps)
    flat = [step for _, steps in program for step in steps]
    return [
        (
            operation,
            positions[if_so] - index - 1 if if_so else 0,
            positions[if_not] - index - 1 if if_not else 0,
            operand,
        )
        for index, (operation, operand, if_so, if_not) in enumerate(flat)
    ]


def _call(function: str, *arguments: object) -> int:
    result = int(getattr(ctypes.CDLL(None, use_errno=True), function)(*arguments))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _main(rules: str, path: str, *argv: str) -> int:
    try:
        restrict(**json.loads(rules))
    except OSError as error:
        print(f"The sandbox could not be set up: {error}.", file=sys.stderr)  # noqa: T201
        return FAILURE
    # Python ignores these two, and a program inherits what is ignored.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execv(path, argv)  # noqa: S606 - the purpose of this program
    except OSError as error:
        print(f"'{path}' could not be run in the sandbox: {error}.", file=sys.stderr)  # noqa: T201
    return FAILURE


def build_command(
    path: str,
    argv: Sequence[str],
    *,
    browse: Sequence[str],
    read: Sequence[str],
    write: Sequence[str],
    network: bool,
) -> tuple[str, ...]:
    """Return the command that restricts itself and then runs the program at `path`. All paths must exist."""
    rules = json.dumps({"browse": list(browse), "read": list(read), "write": list(write), "network": network})
    return (sys.executable, "-I", "-S", __file__, rules, path, *argv)


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
