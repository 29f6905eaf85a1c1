"""Event loops of a program: one in a thread of its own, objects that they do not share, and a lock for several of them.

`run_in_background` is for code without an event loop that calls coroutines and waits for their results. One loop serves
the whole process. It starts with its first use and ends with the interpreter: what runs in it then is cancelled, and
has `STOP_TIMEOUT` seconds to end. A forked child has no thread of its parent, so it starts a loop of its own.

`SharedInstance` is an object that counted users share, one for each event loop. `CrossLoopLock` is a lock for tasks of
several event loops, which are in several threads: each gets it in the order of asking.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")

# Seconds at the end of the interpreter for what still runs: MCP servers are ended in less.
STOP_TIMEOUT = 10.0

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_loops_of_parents: list[asyncio.AbstractEventLoop] = []
"""Loops from before a fork. Closing one, or its garbage collection, would take the readers of the parent away: both
processes have the same epoll object."""
_has_ended = False
"""Whether the interpreter ends, and the loop has."""
_Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


def _leave_loop_to_parent() -> None:
    """Forget the loop and the lock of the parent in a forked child: its thread is not there, and may hold the lock."""
    global _loop, _lock, _has_ended
    if _loop is not None:
        _loops_of_parents.append(_loop)
    _loop, _lock, _has_ended = None, threading.Lock(), False


os.register_at_fork(after_in_child=_leave_loop_to_parent)


def run_in_background(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the background loop and wait for its result, also where this thread has a running loop.

    An interruption of the wait (Ctrl-C) cancels the coroutine and waits for its end. Raises `RuntimeError` in the
    thread of the background loop, which would wait for itself, and where that loop has ended with the interpreter.
    """
    try:
        loop = _start_loop("await the coroutine")
    except RuntimeError:
        coroutine.close()
        raise
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        return future.result()
    except BaseException:
        if not future.done():
            future.cancel()
            _wait_until_idle(loop)
        raise


def close_in_background(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that closes something, as `run_in_background` does. Once that loop has ended, all is closed."""
    if _has_ended:
        coroutine.close()
    else:
        run_in_background(coroutine)


def iterate_in_background(items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    """Yield the items of an asynchronous generator that runs in the background loop.

    One task runs all of it, and does not wait for the reader. Closing this generator cancels it, and waits for its end.
    Raises what it raises, and `RuntimeError` as `run_in_background` does.
    """
    loop = _start_loop("use 'async for'")
    arrived: SimpleQueue[tuple[T] | None] = SimpleQueue()

    async def follow() -> None:
        try:
            async with aclosing(items) as followed:
                async for item in followed:
                    arrived.put((item,))
        finally:
            arrived.put(None)

    future = asyncio.run_coroutine_threadsafe(follow(), loop)
    try:
        while (item := arrived.get()) is not None:
            yield item[0]
        future.result()
    finally:
        if not future.done():
            future.cancel()
            _wait_until_idle(loop)


def _start_loop(instead: str) -> asyncio.AbstractEventLoop:
    """Return the background loop, started. Raises `RuntimeError` in its own thread, with what to do instead, and where
    it has ended."""
    global _loop  # noqa: PLW0603 - one loop of the process, behind a lock
    if _has_ended:
        raise RuntimeError("This program is ending: its agents and MCP servers are closed.")
    with _lock:
        if _loop is None or _loop.is_closed():
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="holodeck", daemon=True).start()
            atexit.register(_stop_loop)
        loop = _loop
    if _is_running_in(loop):
        raise RuntimeError(f"This code runs in an event loop already: {instead} instead.")
    return loop


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
    global _has_ended  # noqa: PLW0603 - as the loop that has ended
    loop = _loop
    # A forked child has registered it once more.
    if loop is None or loop.is_closed() or _has_ended:
        return
    _has_ended = True

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


@dataclass
class _Counted(Generic[T]):
    instance: T
    users: int = 0


class SharedInstance(Generic[T]):
    """Owns an instance of T in each event loop that uses one: built for its first user, closed after its last.

    Tasks and connections belong to the event loop in which they were made, so loops share nothing.
    """

    def __init__(self, close: Callable[[T], Awaitable[None]]) -> None:
        """`close` is awaited in the event loop of the instance."""
        self._close = close
        self._open: dict[asyncio.AbstractEventLoop, _Counted[T]] = {}

    def acquire(self, build: Callable[[], T]) -> T:
        """Return the instance of this event loop, which `build` makes for its first user. One `release` must follow."""
        loop = asyncio.get_running_loop()
        counted = self._open.get(loop)
        if counted is None:
            self._forget_closed_loops()
            counted = self._open[loop] = _Counted(build())
        counted.users += 1
        return counted.instance

    async def release(self) -> None:
        """Close the instance of this event loop after its last user."""
        loop = asyncio.get_running_loop()
        counted = self._open[loop]
        counted.users -= 1
        if not counted.users:
            # A user that comes while it is being closed gets another one.
            del self._open[loop]
            await self._close(counted.instance)

    def find(self) -> T | None:
        """Return the instance of this event loop, if there is one."""
        counted = self._open.get(asyncio.get_running_loop())
        return None if counted is None else counted.instance

    def _forget_closed_loops(self) -> None:
        """Drop the instances of loops that were closed before their users had released them."""
        for loop in [each for each in tuple(self._open) if each.is_closed()]:
            del self._open[loop]


class CrossLoopLock:
    """Used as `async with lock.hold()`. A task that waits can be cancelled, and blocks no thread.

    A forked child has the lock as a new one: what held it, or waited for it, is in the parent.
    """

    def __init__(self) -> None:
        self._start_anew()

    def _start_anew(self) -> None:
        self._process = os.getpid()
        self._guard = threading.Lock()
        self._is_held = False
        self._waiters: deque[_Waiter] = deque()

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        await self._acquire()
        try:
            yield
        finally:
            self._release()

    async def _acquire(self) -> None:
        loop = asyncio.get_running_loop()
        granted = loop.create_future()
        if self._process != os.getpid():
            self._start_anew()
        with self._guard:
            if not self._is_held:
                self._is_held = True
                return
            self._waiters.append((loop, granted))
        try:
            await granted
        except asyncio.CancelledError:
            with self._guard:
                is_waiting = (loop, granted) in self._waiters
                if is_waiting:
                    self._waiters.remove((loop, granted))
            # Otherwise `_release` has given the lock to this task, which leaves without it.
            if not is_waiting:
                self._release()
            raise

    def _release(self) -> None:
        """Give the lock to the next task that waits, and skip those whose event loops are closed."""
        with self._guard:
            while self._waiters:
                loop, granted = self._waiters.popleft()
                try:
                    loop.call_soon_threadsafe(_grant, granted)
                except RuntimeError:
                    continue
                return
            self._is_held = False


def _grant(granted: asyncio.Future[None]) -> None:
    # A task that was cancelled in the meantime releases the lock itself.
    if not granted.done():
        granted.set_result(None)
