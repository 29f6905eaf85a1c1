"""Runs CPU-bound work in a small thread pool, outside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

# Two threads: each one that computes takes interpreter time from the event loop. A pool of its own, because host names
# are looked up in asyncio's default pool and must not wait for computations.
_THREADS = ThreadPoolExecutor(max_workers=2, thread_name_prefix="off-loop")


async def run_off_loop(work: Callable[[], Result]) -> Result:
    """Run `work` in a thread and return its result. A cancelled caller still waits until `work` has ended.

    Until then `work` occupies memory, which a budget released on cancellation would no longer count.
    """
    task = asyncio.get_running_loop().run_in_executor(_THREADS, work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
