"""The interface between the protocol and a transport.

A transport carries JSON-RPC messages to one server. It is built for one connection, opened and closed by the task that
owns that connection, and not opened again. `failure` is done when no more messages will come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from holodeck.lib.byte_budget import ByteBudget, Reservation
from holodeck.lib.errors import MCPConnectionError, MCPError
from holodeck.lib.limits import MIB, NOTICE_TIMEOUT
from holodeck.lib.record import record
from holodeck.tools.mcp.protocol.jsonrpc import Message, RequestId

if TYPE_CHECKING:
    from holodeck.lib.net.ip_policy import IPPolicy
    from holodeck.models.tool import MCPTool
    from holodeck.tools.mcp.auth.provider import MCPAuthProvider
    from holodeck.tools.mcp.errors import ErrorFactory

# Bytes that one message may have at least, however small `max_result_bytes` is: a list of 10,000 tools has 10 MiB.
MIN_MESSAGE_BYTES = 16 * MIB


class OnMessage(Protocol):
    """Called with each notification and request of the server. Must not block."""

    def __call__(self, message: Message, related: RequestId | None = None) -> None:
        """Take a message. `related`: the request of ours that it belongs to, where the transport knows it."""
        ...


@dataclass(slots=True, eq=False)
class Delivery:
    """The delivery of one request: options of the transport on its way out, and what is known about its arrival."""

    headers: Mapping[str, str] | None = None
    """Additional HTTP headers; other transports ignore them."""
    reserved: Reservation | None = None
    """Reserves the bytes of the answer; released by its owner. None: released when the request returns."""
    is_open_ended: bool = False
    """True for a request that is answered only when a stream ends."""
    request_id: RequestId | None = None
    """The JSON-RPC id with which it was last sent; the log of the server has the same id."""
    may_have_been_sent: bool = False
    """True once any byte may have reached the server: the call must then not be repeated silently."""


@record
class TransportSetup:
    """The settings that a transport is built from, the same for every kind."""

    tool: MCPTool
    base_dir: Path
    """The folder that relative paths of the tool start from."""
    errors: ErrorFactory
    budget: ByteBudget
    """Holds the bytes of answers in memory; shared with other servers."""
    auth: MCPAuthProvider | None = None
    ip_policy: IPPolicy | None = None
    """The addresses that may be dialled. None: all."""
    build: Callable[[TransportSetup, OnMessage], Transport] | None = None
    """Builds the transport in place of the one that the definition names, such as one that records or replays."""
    is_offline: bool = False
    """True: no process is started and no address dialled for this server, also not for checks of its answers."""
    on_stderr: Callable[[str], None] | None = None
    """Called with each line that the process of the server writes to standard error. Must not block."""

    @property
    def message_limit(self) -> int:
        """Bytes of one message. Escapes and base64 make a message larger than its content."""
        return max(MIN_MESSAGE_BYTES, 2 * self.tool.max_result_bytes)


class Transport(Protocol):
    """A transport to one server. One task opens and closes it; any task may use it in between."""

    failure: asyncio.Future[MCPConnectionError]
    """Done when no more messages will come. Streamable HTTP has no connection to lose: there only `fail` sets it."""

    async def open(self) -> None:
        """Start the process or connect. Raises MCPConnectionError that names the phase."""

    def set_protocol_version(self, version: str, *, is_modern: bool) -> None:
        """Use the negotiated protocol version from now on."""

    async def request(self, message: Message, delivery: Delivery) -> Message:
        """Send a request and return its response, a result or an error. Cancelling the wait abandons the response."""

    def cancel(self, request_id: RequestId, reason: str) -> None:
        """Notify the server that the response of a request is no longer needed. Does not block; may do nothing."""

    def end_request(self, request_id: RequestId, reason: str) -> None:
        """Fail a pending request: the server has announced that it will not answer."""

    async def send(self, message: Message) -> None:
        """Send a notification, or the response to a request of the server."""

    def is_stuck(self, since: float) -> bool:
        """Return True in the middle of a message of which no byte has come since this loop time."""

    def last_received_at(self) -> float:
        """Return the loop time of the latest bytes from the server."""

    def stderr_tail(self) -> str:
        """Return the last lines that the process wrote to standard error; empty for a remote server."""

    def stray_output(self) -> str:
        """Return the first line of the process on standard output that is no message; empty for a remote server."""

    def fail(self, error: MCPConnectionError) -> None:
        """Set `failure` to this error and fail every pending request at once."""

    async def close(self) -> None:
        """Release everything, in bounded time. May be called at any time, also before `open` or after a loss.

        Raises MCPError when the server did not shut down cleanly; all resources are released nevertheless.
        """


async def send_quietly(send: Callable[[Message], Awaitable[None]], message: Message) -> None:
    """Send a message within `NOTICE_TIMEOUT`, ignoring failure: whether it arrives does not matter."""
    with suppress(TimeoutError, MCPError):
        async with asyncio.timeout(NOTICE_TIMEOUT):
            await send(message)
