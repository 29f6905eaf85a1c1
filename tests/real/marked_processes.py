"""Finds the processes of a server by a variable that only they have, however they were started or adopted."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

T = TypeVar("T")

MARK = "HOLODECK_TEST_MARK"
SECONDS = 90
"""The longest that an end may take to be seen on a busy machine."""


def new_mark() -> str:
    """A value for `MARK` that no other process has."""
    return uuid4().hex


def pids_with_mark(mark: str) -> set[int]:
    """Every living process that has the mark, its own or inherited."""
    if sys.platform != "linux":
        listing = subprocess.run(["ps", "-axEww", "-o", "pid=,command="], capture_output=True, text=True, check=True)
        return {int(line.split()[0]) for line in listing.stdout.splitlines() if f"{MARK}={mark}" in line}
    wanted = f"{MARK}={mark}\0".encode()
    found = set()
    for folder in Path("/proc").iterdir():
        with suppress(OSError):  # it ended while we looked, or is not ours
            if folder.name.isdigit() and wanted in folder.joinpath("environ").read_bytes():
                found.add(int(folder.name))
    return found - {os.getpid()}


def wait_until_none(mark: str) -> set[int]:
    """The processes that are still there when the time is over: none, if all is well."""
    return wait_until(lambda: pids_with_mark(mark), is_done=lambda left: not left)


def wait_until(look: Callable[[], T], *, is_done: Callable[[T], bool]) -> T:
    """Poll until the value is as wanted, or the time is over: the end of another process's child has no event."""
    end = time.monotonic() + SECONDS
    while not is_done(seen := look()) and time.monotonic() < end:
        time.sleep(0.02)
    return seen


def zombie_children() -> list[int]:
    """Children of ours that ended and were never waited for."""
    listing = subprocess.run(["ps", "-axo", "pid=,ppid=,stat="], capture_output=True, text=True, check=True).stdout
    rows = (line.split() for line in listing.splitlines())
    return [int(pid) for pid, parent, state in rows if int(parent) == os.getpid() and state.startswith("Z")]
