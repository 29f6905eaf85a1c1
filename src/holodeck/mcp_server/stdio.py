"""Serves one MCP client over standard input and output, in either era of the protocol.

Each line is a JSON-RPC message. The first request decides nothing: a modern request names its version, and all others
belong to the session that `initialize` begins. `run` ends when the client closes its end or does not read; requests
that are being answered are then cancelled, and so are their calls at the servers behind.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from holodeck.lib import log
from holodeck.lib.byte_budget import ByteBudget
from holodeck.lib.limits import MIB
from holodeck.lib.line_splitter import LineSplitter
from holodeck.lib.tasks import TaskSet
from holodeck.mcp_server.context import RequestContext
from holodeck.mcp_server.errors import INVALID_REQUEST, PARSE_ERROR, RPCError
from holodeck.mcp_server.legacy_session import LegacySession
from holodeck.mcp_server.list_changes import ListChanges
from holodeck.mcp_server.methods import Methods, Result
from holodeck.mcp_server.modern_requests import ModernRequests, is_modern
from holodeck.mcp_server.running_requests import CLOSE_TIMEOUT, RunningRequests
from holodeck.mcp_server.view import View
from holodeck.tools.mcp.protocol.jsonrpc import INTERNAL_ERROR, Message, RequestId, decode, encode, sniff_id
from holodeck.tools.mcp.protocol.peer import Params
from holodeck.tools.mcp.protocol.versions import mapping

# Bytes of one message of the client: as many as of one request of a gateway.
MAX_LINE = 32 * MIB
# Bytes that wait for the client to read them, before it is taken for gone.
MAX_UNREAD = 256 * MIB
# Seconds for the requests of an input that is a file, and has ended when it is read.
FILE_INPUT_TIMEOUT = 600.0
# Seconds for a client that has left to read the last answers; one that does not read must not keep us from ending.
FLUSH_TIMEOUT = 2.0
# Requests that are answered at the same time; further ones are refused.
MAX_RUNNING = 1_000


class _Output(asyncio.BaseProtocol):
    """Knows whether all that was written has reached the pipe to the client. Calls `on_lost` when the pipe is broken.

    Its transport must have a write buffer limit of 0, so that it says so of every byte.
    """

    def __init__(self, *, on_lost: Callable[[], None]) -> None:
        self.flushed = asyncio.Event()
        self.flushed.set()
        self._on_lost = on_lost

    def pause_writing(self) -> None:
        self.flushed.clear()

    def resume_writing(self) -> None:
        self.flushed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.flushed.set()
        self._on_lost()


class StdioServer:
    """The server of one client. Owns the session, the paused calls and the requests that are being answered."""

    def __init__(self, methods: Methods, changes: ListChanges, view: View, budget: ByteBudget) -> None:
        self._methods = methods
        self._view = view
        self._session = LegacySession(methods, changes, view, send=self._send)
        self._modern = ModernRequests(methods, changes, budget)
        self._running = RunningRequests()
        self._tasks = TaskSet()
        self._contacted = asyncio.Event()
        self._ended = asyncio.Event()
        self._output = _Output(on_lost=self._ended.set)
        self._writer: asyncio.WriteTransport | None = None
        self._stdout = -1

    def find_peer(self) -> RequestContext | None:
        """Return the client, for requests of servers that belong to no call; None before its handshake."""
        return self._session.build_context({}, self._send) if self._session.is_initialized else None

    async def wait_contact(self) -> None:
        """Wait until the client has made its first request: only then is known what servers may ask it."""
        await self._contacted.wait()

    async def run(self, stdin: int, stdout: int) -> None:
        """Serve until the client closes `stdin`. The file descriptors stay open."""
        loop = asyncio.get_running_loop()
        splitter = LineSplitter(
            limit=MAX_LINE, on_line=self._receive, on_dropped=self._refuse_long, on_end=self._ended.set
        )
        self._stdout = stdout
        # A file takes everything at once, and is no pipe for the loop.
        with suppress(ValueError, OSError):
            self._writer, _ = await loop.connect_write_pipe(lambda: self._output, os.fdopen(os.dup(stdout), "wb"))
            self._writer.set_write_buffer_limits(high=0)
        try:
            reading = await self._start_reading(splitter, stdin)
            try:
                await self._ended.wait()
            finally:
                if reading is not None:
                    reading.close()
        finally:
            await self.close()

    async def close(self) -> None:
        """Cancel what is being answered, and end the session."""
        await self._running.close()
        await self._tasks.close(CLOSE_TIMEOUT)
        await self._modern.close()
        await self._session.close()
        if self._writer is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_TIMEOUT):
                    await self._output.flushed.wait()
            self._writer.abort()

    async def _start_reading(self, splitter: LineSplitter, stdin: int) -> asyncio.ReadTransport | None:
        loop = asyncio.get_running_loop()
        file = os.fdopen(os.dup(stdin), "rb")
        if not _can_be_watched(stdin):
            with file:
                splitter.data_received(await loop.run_in_executor(None, file.read))
            # The last line may have no end. It ends the input, so that `run` waits for nothing else.
            splitter.connection_lost(None)
            await self._running.wait(FILE_INPUT_TIMEOUT)
            return None
        transport, _ = await loop.connect_read_pipe(lambda: splitter, file)
        return transport

    def _receive(self, line: bytes | bytearray) -> None:
        try:
            message = decode(line)
        except ValueError:
            self._send(RPCError(PARSE_ERROR, "This line is not valid JSON").to_response(None))
            return
        for each in message if isinstance(message, list) else (message,):
            self._dispatch(each)

    def _refuse_long(self, head: bytes, tail: bytes, size: int) -> None:
        text = f"This message has {size} bytes, and {MAX_LINE} are allowed"
        self._send(RPCError(INVALID_REQUEST, text).to_response(sniff_id(head, tail)))

    def _dispatch(self, message: Any) -> None:
        if not isinstance(message, dict):
            self._send(RPCError(INVALID_REQUEST, "A message must be an object").to_response(None))
            return
        method, request_id, params = message.get("method"), message.get("id"), mapping(message.get("params"))
        if not isinstance(method, str):
            self._session.handle_response(message)
        elif isinstance(request_id, int | str) and not isinstance(request_id, bool):
            if len(self._running) >= MAX_RUNNING or self._running.is_running(request_id):
                text = "Too many requests at once" if len(self._running) >= MAX_RUNNING else "This id is in use"
                self._send(RPCError(INVALID_REQUEST, text).to_response(request_id))
                return
            self._running.start(request_id, self._answer(request_id, method, params))
        elif "id" in message:
            self._send(RPCError(INVALID_REQUEST, "An id must be a text or a whole number").to_response(None))
        elif method == "notifications/cancelled":
            self._running.cancel(params.get("requestId"))
        elif method == "notifications/roots/list_changed":
            self._tasks.start(self._methods.announce_roots(self._view), name="announce roots")

    async def _answer(self, request_id: RequestId, method: str, params: Params) -> None:
        response: Message
        try:
            result = await self._handle(request_id, method, params)
            response = {"jsonrpc": "2.0", "id": request_id, "result": result}
        except RPCError as error:
            response = error.to_response(request_id)
        # The boundary: a bug here must not leave the client without an answer.
        except Exception as error:
            log.error("mcp_server.failed", method=method, error=repr(error))
            response = RPCError(INTERNAL_ERROR, "An unexpected error has happened; see the log").to_response(request_id)
        self._contacted.set()
        self._send(response)

    async def _handle(self, request_id: RequestId, method: str, params: Params) -> Result:
        if is_modern(params) or method == "server/discover":
            return await self._modern.handle_request(request_id, method, params, self._view, self._send)
        return await self._session.handle_request(method, params, self._send)

    def _send(self, message: Message) -> None:
        line = encode(message) + b"\n"
        if self._writer is None:
            os.write(self._stdout, line)
            return
        if self._writer.get_write_buffer_size() > MAX_UNREAD:
            log.warning("mcp_server.client_does_not_read", unread_bytes=self._writer.get_write_buffer_size())
            self._ended.set()
            return
        self._writer.write(line)


def _can_be_watched(descriptor: int) -> bool:
    """Return whether the loop can wait for more: not of a file or a device such as /dev/null, which have all."""
    kind = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or os.isatty(descriptor)
