"""An event loop in a thread of its own, for code without one that calls coroutines and waits for their results.

One loop serves the whole process. It starts with its first use and ends with the interpreter: what runs in it then is
cancelled, and has `STOP_TIMEOUT` seconds to end. A forked child has no thread of its parent, so it starts a loop of its
own.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# Seconds at the end of the interpreter for what still runs: MCP servers are ended in less.
STOP_TIMEOUT = 10.0

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_loops_of_parents: list[asyncio.AbstractEventLoop] = []
"""Loops from before a fork. Closing one, or its garbage collection, would take the readers of the parent away: both
processes have the same epoll object."""


def _leave_loop_to_parent() -> None:
    """Forget the loop and the lock of the parent in a forked child: its thread is not there, and may hold the lock."""
    global _loop, _lock
    if _loop is not None:
        _loops_of_parents.append(_loop)
    _loop, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_leave_loop_to_parent)


def run_in_background(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the background loop and wait for its result, also where this thread has a running loop.

    An interruption of the wait (Ctrl-C) cancels the coroutine and waits for its end. Raises `RuntimeError` in the
    thread of the background loop, which would wait for itself.
    """
    loop = _start_loop()
    if _is_running_in(loop):
        coroutine.close()
        raise RuntimeError("This code runs in an event loop already: await the coroutine instead.")
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        return future.result()
    except BaseException:
        if not future.done():
            future.cancel()
            _wait_until_idle(loop)
        raise


def _start_loop() -> asyncio.AbstractEventLoop:
    global _loop  # noqa: PLW0603 - one loop of the process, behind a lock
    with _lock:
        if _loop is None or _loop.is_closed():
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="holodeck", daemon=True).start()
            atexit.register(_stop_loop)
        return _loop


def _is_running_in(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _wait_until_idle(loop: asyncio.AbstractEventLoop) -> None:
    """Wait until the tasks that were cancelled have ended, in bounded time."""
    asyncio.run_coroutine_threadsafe(_end_cancelled_tasks(), loop).result(STOP_TIMEOUT)


async def _end_cancelled_tasks() -> None:
    cancelled = [task for task in asyncio.all_tasks() if task.cancelling()]
    if cancelled:
        await asyncio.wait(cancelled, timeout=STOP_TIMEOUT)


def _stop_loop() -> None:
    loop = _loop
    if loop is None or loop.is_closed():
        return

    async def cancel_tasks() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_TIMEOUT)

    try:
        asyncio.run_coroutine_threadsafe(cancel_tasks(), loop).result(STOP_TIMEOUT + 1)
    finally:
        loop.call_soon_threadsafe(loop.stop)
