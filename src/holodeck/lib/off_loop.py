"""Runs CPU-bound work in a small thread pool, outside the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def _create_pool() -> ThreadPoolExecutor:
    # Two threads: each one that computes takes interpreter time from the event loop. A pool of its own, because host
    # names are looked up in asyncio's default pool and must not wait for computations.
    return ThreadPoolExecutor(max_workers=2, thread_name_prefix="off-loop")


_pool = _create_pool()


def _replace_pool() -> None:
    """Make a pool anew in a forked child, which has no thread of its parent."""
    global _pool  # noqa: PLW0603 - one pool of the process
    _pool = _create_pool()


os.register_at_fork(after_in_child=_replace_pool)


async def run_off_loop(work: Callable[[], Result]) -> Result:
    """Run `work` in a thread and return its result. A cancelled caller still waits until `work` has ended.

    Until then `work` occupies memory, which a budget released on cancellation would no longer count.
    """
    task = asyncio.get_running_loop().run_in_executor(_pool, work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
