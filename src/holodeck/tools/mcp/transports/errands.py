"""What a connection does on the side, such as reading and telling a server to stop: owned, and ended with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from holodeck.lib.errors import MCPError
from holodeck.lib.limits import NOTICE_TIMEOUT
from holodeck.tools.mcp.protocol.jsonrpc import Message


class SideTasks:
    """The side tasks of one connection."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def send_in_background(self, send: Callable[[Message], Awaitable[None]], message: Message) -> None:
        """Send a message that nobody waits for. Whether it arrived is not known."""
        self.start(_send_quietly(send, message))

    async def close(self) -> None:
        """End them all; one that does not end is not waited for."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=NOTICE_TIMEOUT)


async def _send_quietly(send: Callable[[Message], Awaitable[None]], message: Message) -> None:
    with suppress(TimeoutError, MCPError):
        async with asyncio.timeout(NOTICE_TIMEOUT):
            await send(message)
