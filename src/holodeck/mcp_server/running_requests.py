"""The requests of one client that are being answered, by their ids."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from holodeck.lib.tasks import TaskSet
from holodeck.tools.mcp.protocol.jsonrpc import RequestId

# Seconds for cancelled requests to end: a server behind is told that their answers are not needed.
CLOSE_TIMEOUT = 5.0


class RunningRequests:
    """Tasks by the id of the request that each answers. `close` cancels all of them and waits for a bounded time."""

    def __init__(self) -> None:
        self._tasks = TaskSet()
        self._by_id: dict[RequestId, asyncio.Task[Any]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def start(self, request_id: RequestId, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Answer a request in a task."""
        task = self._tasks.start(work, name=f"MCP request {request_id}")
        self._by_id[request_id] = task
        task.add_done_callback(lambda ended: self._forget(request_id, ended))
        return task

    def is_running(self, request_id: RequestId) -> bool:
        return request_id in self._by_id

    def cancel(self, request_id: object) -> None:
        """Cancel a request, if it is still running."""
        task = self._by_id.get(request_id) if isinstance(request_id, int | str) else None
        if task is not None:
            task.cancel()

    async def wait(self, timeout: float) -> None:  # noqa: ASYNC109 - `asyncio.wait` takes it as well
        """Wait until the current requests are answered, at most `timeout` seconds."""
        await self._tasks.wait(timeout)

    async def close(self) -> None:
        await self._tasks.close(CLOSE_TIMEOUT)

    def _forget(self, request_id: RequestId, ended: asyncio.Task[Any]) -> None:
        if self._by_id.get(request_id) is ended:
            del self._by_id[request_id]
