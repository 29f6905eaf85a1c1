"""All that the protocol knows of a transport: it is opened, carries messages, may be lost, and is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Protocol

from holodeck.lib.byte_budget import Reservation
from holodeck.lib.errors import MCPConnectionError, MCPError
from holodeck.lib.limits import NOTICE_TIMEOUT
from holodeck.tools.mcp.protocol.jsonrpc import Message, RequestId

OnMessage = Callable[[Message], None]
"""Takes a notification or a request of the server. Must not block."""


class Delivery:
    """What happened to one request on its way out, and what only HTTP carries along with it."""

    __slots__ = ("headers", "is_open_ended", "may_have_been_sent", "request_id", "reserved")

    def __init__(
        self,
        headers: Mapping[str, str] | None = None,
        *,
        is_open_ended: bool = False,
        reserved: Reservation | None = None,
    ) -> None:
        self.headers = headers
        self.reserved = reserved
        """Holds the bytes of the answer until its owner has made use of it. None: until the request has returned."""
        self.is_open_ended = is_open_ended
        """True for a request that is answered when a stream ends, and not before."""
        self.request_id: RequestId | None = None
        """The number under which it was last sent; the server's own log has the same."""
        self.may_have_been_sent = False
        """True once any byte may have reached the server: from then on the call must not be repeated silently."""


class Transport(Protocol):
    """A transport to one server. One task opens and closes it; any task may use it in between."""

    failure: asyncio.Future[MCPConnectionError]
    """Done when nothing more will come. Never, for HTTP: there each request stands alone."""

    async def open(self) -> None:
        """Start or dial. Raises MCPConnectionError that names the phase."""

    def set_protocol_version(self, version: str, *, is_modern: bool) -> None:
        """The protocol version is agreed from here on."""

    async def request(self, message: Message, delivery: Delivery) -> Message:
        """Send a request and wait for its response, a result or an error. Cancelling the wait abandons it."""

    def cancel(self, request_id: RequestId, reason: str) -> None:
        """Tell the server that nobody waits any more. Does not block; may do nothing."""

    def end_request(self, request_id: RequestId, reason: str) -> None:
        """The server itself said that this request will not be answered."""

    async def send(self, message: Message) -> None:
        """Send a notification, or our answer to the server's request."""

    def is_stuck(self, since: float) -> bool:
        """True in the middle of a message of which nothing has come since that time of the loop."""

    def last_received_at(self) -> float:
        """The loop's time when anything last came from the server."""

    def stderr_tail(self) -> str:
        """What a process last wrote to standard error; empty for everything else."""

    def fail(self, error: MCPConnectionError) -> None:
        """Give it up, for this reason; who still waits is told at once."""

    async def close(self) -> None:
        """Bounded; may be called at any time, also before `open` or after a loss.

        Raises MCPError when the server did not take part in its end; everything of ours is gone all the same.
        """


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
