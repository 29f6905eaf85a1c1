"""Finds the processes of a server by a variable that only they have, whoever started or adopted them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

MARK = "HOLODECK_TEST_MARK"
SECONDS = 10
"""The longest that an end may take to be seen on a busy machine."""


def new_mark() -> str:
    """A value for `MARK` that no other process has."""
    return uuid4().hex


def pids(mark: str) -> set[int]:
    """Every living process that was given the mark, or inherited it."""
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
    end = time.monotonic() + SECONDS
    while (left := pids(mark)) and time.monotonic() < end:
        time.sleep(0.02)
    return left


def dead_children() -> list[int]:
    """Children of ours that ended and were never waited for."""
    listing = subprocess.run(["ps", "-axo", "pid=,ppid=,stat="], capture_output=True, text=True, check=True).stdout
    rows = (line.split() for line in listing.splitlines())
    return [int(pid) for pid, parent, state in rows if int(parent) == os.getpid() and state.startswith("Z")]
