"""Background tasks with an owner.

A component that starts tasks owns a `TaskSet`. The set refers to each task until it has ended, so that none is
garbage-collected while it runs, and `close` cancels the remaining ones and awaits them for a bounded time.

A task that ends with the code that started it is a `ScopedTask`. Work that no request waits for, and that must not end
before it is done, is started with `supervise`: an exception that nothing foresaw is logged, and the work starts again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context
from typing import Any, Generic, TypeVar

from holodeck.lib import log
from holodeck.lib.backoff import backoff_pause

# Seconds before supervised work starts again, doubled while it keeps failing.
RESTART_FIRST_PAUSE = 1.0
# The longest such pause: a cause that has gone is noticed within this time.
RESTART_MAX_PAUSE = 60.0
# Seconds that restarted work must run before it counts as recovered: longer than one round of each of our loops, except
# for those that do their work first and sleep for an hour after it.
RECOVERED_AFTER = 5.0

T = TypeVar("T")


class ScopedTask(Generic[T]):
    """A task that runs during an `async with` block. At its end the task is cancelled, unless it is done, and awaited.

    An exception of the task is raised there. The task is not cancelled before its first step: it would never run.
    """

    __slots__ = ("_name", "_work", "task")

    def __init__(self, work: Coroutine[Any, Any, T], *, name: str | None = None) -> None:
        self._work = work
        self._name = name
        self.task: asyncio.Task[T]

    async def __aenter__(self) -> asyncio.Task[T]:
        self.task = asyncio.get_running_loop().create_task(self._work, name=self._name)
        return self.task

    async def __aexit__(self, *_: object) -> None:
        task = self.task
        if not task.done():
            asyncio.get_running_loop().call_soon(task.cancel)
            await asyncio.wait({task})
        if not task.cancelled():
            task.result()


class TaskSet:
    """The tasks of one component. Not bound to an event loop before the first `start`."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failing: set[str] = set()

    def start(
        self, work: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        """Run `work` as a task of this set. The caller handles its result and its exception."""
        task = asyncio.get_running_loop().create_task(work, name=name, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def supervise(self, work: Callable[[], Coroutine[Any, Any, None]], *, name: str) -> asyncio.Task[None]:
        """Run `work()` as a task of this set until it returns, and start it again after each exception.

        The exception is logged as `process.task_failed`, and `failing` has the name until the work has run again for
        `RECOVERED_AFTER` seconds. The name is one for the log, and unique in this set.
        """
        return self.start(self._run_until_done(work, name), name=name)

    @property
    def failing(self) -> list[str]:
        """The names of supervised work that has raised an exception and has not recovered."""
        return sorted(self._failing)

    async def _run_until_done(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        loop, failures = asyncio.get_running_loop(), 0
        try:
            while True:
                recovery = loop.call_later(RECOVERED_AFTER, self._failing.discard, name)
                try:
                    await work()
                except Exception as error:
                    failures = failures + 1 if name in self._failing else 1
                    self._failing.add(name)
                    pause = backoff_pause(failures, first=RESTART_FIRST_PAUSE, longest=RESTART_MAX_PAUSE)
                    log.error("process.task_failed", task=name, error=repr(error), next_try_seconds=pause)
                else:
                    return
                finally:
                    recovery.cancel()
                await asyncio.sleep(pause)
        finally:
            self._failing.discard(name)

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        """Iterate over a snapshot of the tasks that have not ended."""
        return iter(list(self._tasks))

    def cancel(self) -> None:
        """Cancel every task, without waiting for it."""
        for task in self:
            task.cancel()

    async def wait(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - `asyncio.wait` takes it as well
        """Wait until the current tasks have ended, at most `timeout` seconds. Returns whether they have."""
        tasks = list(self._tasks)
        if not tasks:
            return True
        _, pending = await asyncio.wait(tasks, timeout=timeout)
        return not pending

    async def close(self, timeout: float) -> None:  # noqa: ASYNC109 - `asyncio.wait` takes it as well
        """Cancel every task and wait until they have ended, at most `timeout` seconds."""
        self.cancel()
        await self.wait(timeout)
