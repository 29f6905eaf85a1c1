"""CPU work outside the event loop, little of it at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

# Each thread that computes takes its share of the interpreter from the loop. And the threads of asyncio itself, which
# look up host names, are not kept waiting.
_THREADS = ThreadPoolExecutor(max_workers=2, thread_name_prefix="off-loop")


async def run_off_loop(work: Callable[[], Result]) -> Result:
    """Run `work` in a thread. A cancelled caller still waits for its end.

    Until then `work` holds memory, and a budget that is released on cancellation would not count it.
    """
    task = asyncio.get_running_loop().run_in_executor(_THREADS, work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
