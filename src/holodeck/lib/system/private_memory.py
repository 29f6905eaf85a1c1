"""Keeps the environment and the memory of this process from other processes of the same user, on Linux.

MCP servers run as our user: without this, each could read every key we were started with in `/proc/<ppid>/environ`.
A process that is not dumpable leaves no core dump and is readable by root only; it reads its own files as before.
"""

from __future__ import annotations

import sys
from functools import cache

_PR_SET_DUMPABLE = 4


@cache
def hide_memory() -> None:
    """Make this process non-dumpable. Once: `fork` keeps it so, and `exec` ends it for the program that follows."""
    if sys.platform != "linux":
        return
    # Imported late: it takes longer than the rest of a short command.
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
