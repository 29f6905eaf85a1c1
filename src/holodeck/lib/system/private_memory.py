"""Hides the environment and the memory of this process from other processes of the same user, on Linux.

MCP servers run as the same user: without this, each could read every key in `/proc/<ppid>/environ`. A process that is
not dumpable leaves no core dump, and only root can read its memory; its own access to files does not change.
"""

from __future__ import annotations

import sys
from functools import cache

_PR_SET_DUMPABLE = 4


@cache
def hide_memory() -> None:
    """Make this process non-dumpable. Children inherit it with `fork`, and lose it with `exec`."""
    if sys.platform != "linux":
        return
    # Imported late: the import takes longer than the rest of a short command.
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
