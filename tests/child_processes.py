"""The processes that a test's own process has started."""

from __future__ import annotations

import os
from pathlib import Path


def running_children(program: str) -> list[int]:
    """The ids of those that still run and have this in their command line."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            command = (folder / "cmdline").read_bytes() if folder.name.isdigit() else b""
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1]) if command else 0
        except OSError:  # it has just ended
            continue
        if parent == os.getpid() and program.encode() in command:
            found.append(int(folder.name))
    return found
