"""Return of freed memory to the system, while nothing else is to be done.

A program that has handled large bodies keeps their memory: Python finds dead cycles only after many more objects were
made, and the C library keeps freed pages for later. `MemoryReturn` collects and returns both, after enough bytes went
through a budget and while none of them is held.

`hide_memory` hides it, with the environment, from other processes of the same user, on Linux. MCP servers run as the
same user: without this, each could read every key in `/proc/<ppid>/environ`. A process that is not dumpable leaves no
core dump, and only root can read its memory; its own access to files does not change.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
from collections.abc import Callable
from functools import cache

from holodeck.lib import log
from holodeck.lib.byte_budget import ByteBudget
from holodeck.lib.limits import MIB

# Bytes after which memory is returned: less is not worth the search for cycles, which takes some milliseconds.
RETURN_AFTER_BYTES = 8 * MIB
# Seconds between two looks at whether there is something to return. It is idle if nothing happens at two of them.
IDLE_CHECK_INTERVAL = 2.0
_PR_SET_DUMPABLE = 4


class MemoryReturn:
    """Returns memory whenever `RETURN_AFTER_BYTES` went through a budget and the program is idle."""

    def __init__(
        self, budget: ByteBudget, *, is_idle: Callable[[], bool], interval: float = IDLE_CHECK_INTERVAL
    ) -> None:
        """`is_idle`: whether there are no requests at this moment."""
        self._budget = budget
        self._is_idle = is_idle
        self._interval = interval

    async def run(self) -> None:
        """Look again and again. Runs until it is cancelled."""
        returned_at = seen = self._budget.released
        while True:
            await asyncio.sleep(self._interval)
            is_quiet = seen == self._budget.released and self._budget.used == 0 and self._is_idle()
            seen = self._budget.released
            if is_quiet and seen - returned_at >= RETURN_AFTER_BYTES:
                returned_at = seen
                found = gc.collect()
                # It may take long, and lets other threads run.
                has_trimmed = await asyncio.to_thread(return_free_pages)
                log.debug("memory.returned", objects=found, pages=has_trimmed)


def return_free_pages() -> bool:
    """Return the freed pages of the C library to the system. False where the library has no function for that."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        # musl and macOS return pages by themselves.
        return False
    return bool(trim(0))


@cache
def hide_memory() -> None:
    """Make this process non-dumpable. Children inherit it with `fork`, and lose it with `exec`."""
    if sys.platform != "linux":
        return
    # Imported late: the import takes longer than the rest of a short command.
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
