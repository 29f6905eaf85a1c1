"""The transport to a server that is an object of this program, built with the official SDK or as it does.

Such a server runs over a pair of streams of anyio, which carry the message objects of the SDK. Both libraries are
imported when a connection opens: a program that has such a server has them, and nothing else needs them.

One task runs the server, another one reads what it sends. The end of the server is the loss of the connection. `close`
ends the input of the server, which then ends by itself; after `NOTICE_TIMEOUT` it is cancelled.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from importlib import import_module
from typing import Any, Protocol

from pydantic import TypeAdapter

from holodeck.lib.errors import MCPConfigError
from holodeck.lib.limits import NOTICE_TIMEOUT
from holodeck.lib.tasks import TaskSet
from holodeck.models.tool import InMemoryTool
from holodeck.tools.mcp.protocol.jsonrpc import Message, RequestId, build_cancellation, encode, sniff_id
from holodeck.tools.mcp.transports.base import Delivery, OnMessage, TransportSetup, send_quietly
from holodeck.tools.mcp.transports.duplex import DuplexTransport

# Attributes in which `MCPServer` of version 2 of the SDK and `FastMCP` of version 1 have their `Server`. There is no
# public way to it, and the SDK's own transport in memory takes it from there.
_INNER_SERVERS = ("_lowlevel_server", "_mcp_server")


class RunsOverStreams(Protocol):
    """A server that can be run over a pair of streams, such as `mcp.server.Server`."""

    def create_initialization_options(self) -> Any: ...

    async def run(self, read_stream: Any, write_stream: Any, initialization_options: Any, /) -> None: ...


def require_server(server: object) -> RunsOverStreams:
    """Return what runs the server. Raises `MCPConfigError` for an object that is none."""
    for candidate in (server, *(getattr(server, name, None) for name in _INNER_SERVERS)):
        if callable(getattr(candidate, "create_initialization_options", None)):
            found: RunsOverStreams = candidate  # type: ignore[assignment] # it has what the SDK's servers have
            return found
    raise MCPConfigError(
        f"{server!r} is no MCP server: give MCPServer.in_memory an 'MCPServer', 'FastMCP' or 'Server' object of the "
        "package 'mcp'."
    )


class InMemoryTransport(DuplexTransport):
    """Runs a server of this program, and hands it messages in the process."""

    def __init__(self, setup: TransportSetup, on_message: OnMessage) -> None:
        super().__init__(setup, on_message)
        assert isinstance(setup.tool, InMemoryTool)  # noqa: S101 - only such a definition has this transport
        self._server = require_server(setup.tool.server_object)
        self._to_server: Any = None
        """The stream on which the server reads; None before `open`. Of anyio, which is no dependency."""
        self._tasks = TaskSet()
        self._serving: asyncio.Task[None] | None = None

    async def open(self) -> None:
        anyio = import_module("anyio")
        self._wrap = import_module("mcp.shared.message").SessionMessage
        form: Any = import_module("mcp.types").JSONRPCMessage
        self._form: TypeAdapter[Any] = TypeAdapter(form)
        self._closed_errors = (anyio.ClosedResourceError, anyio.BrokenResourceError)
        self._to_server, server_input = anyio.create_memory_object_stream(1)
        server_output, from_server = anyio.create_memory_object_stream(1)
        self._tasks.start(self._read(from_server))
        self._serving = self._tasks.start(self._serve(server_input, server_output))

    async def close(self) -> None:
        self.fail(self._errors.connection("close", "the connection was closed"))
        if self._to_server is not None:
            self._to_server.close()
        if self._serving is not None:
            await asyncio.wait({self._serving}, timeout=NOTICE_TIMEOUT)
        await self._tasks.close(NOTICE_TIMEOUT)

    def cancel(self, request_id: RequestId, reason: str) -> None:
        self._tasks.start(send_quietly(self.send, build_cancellation(request_id, reason)))

    async def _deliver(self, message: Message, delivery: Delivery) -> None:
        if self._to_server is None:
            raise self._errors.connection("call", "there is no connection")
        sent = self._wrap(self._form.validate_json(encode(message)))
        delivery.may_have_been_sent = True
        # A server that no longer reads is about to end, and `_serve` says why.
        with suppress(*self._closed_errors):
            await self._to_server.send(sent)

    async def _serve(self, server_input: Any, server_output: Any) -> None:
        text = "the server was cancelled"
        try:
            await self._server.run(server_input, server_output, self._server.create_initialization_options())
            text = "the server has ended"
        # The server is code of the program; whatever it raises ends its connection, and nothing else.
        except Exception as error:
            text = f"the server has ended with {_describe(error)}"
        finally:
            self.fail(self._errors.connection("call", text))
            server_input.close()
            server_output.close()

    async def _read(self, from_server: Any) -> None:
        try:
            async for received in from_server:
                raw = received.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
                if len(raw) > self._limit:
                    problem = f"it has {len(raw)} bytes and the limit is {self._limit}; see 'max_result_bytes'"
                    self._fail_answer(sniff_id(raw), problem, raw)
                else:
                    self.receive(raw)
        except Exception as error:
            text = f"a message of the server could not be read: {_describe(error)}"
            self.fail(self._errors.connection("call", text))
        finally:
            from_server.close()


def _describe(error: BaseException) -> str:
    """Return an exception in words: of a group, the first one that is none."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
