"""Background tasks with an owner.

A component that starts tasks owns a `TaskSet`. The set refers to each task until it has ended, so that none is
garbage-collected while it runs, and `close` cancels the remaining ones and awaits them for a bounded time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")


class TaskSet:
    """The tasks of one component. Not bound to an event loop before the first `start`."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(
        self, work: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        """Run `work` as a task of this set. The caller handles its result and its exception."""
        task = asyncio.get_running_loop().create_task(work, name=name, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

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
