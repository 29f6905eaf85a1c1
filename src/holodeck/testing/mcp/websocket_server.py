"""WebSocket transport: the subprotocol `mcp`, one message per text frame, in both eras."""

from __future__ import annotations

import asyncio
import json

from aiohttp import WSMsgType, web

from holodeck.testing.mcp.action_runner import DuplexConnection
from holodeck.testing.mcp.actions import Message, encode
from holodeck.testing.mcp.faults import MAX_MESSAGE_BYTES
from holodeck.testing.mcp.http_response import find_fault_response
from holodeck.testing.mcp.journal import ABANDONED, Received, to_received
from holodeck.testing.mcp.server_state import ServerState

_TEXT_FRAME = 0x81
_LENGTH_IN_TWO_BYTES = 126


class WebSocketMessageWriter:
    """Writes messages to the socket of one client."""

    def __init__(self, socket: web.WebSocketResponse, request: web.BaseRequest) -> None:
        self._socket = socket
        self._request = request

    async def send_message(self, message: Message) -> None:
        """Send a message in a text frame."""
        await self._socket.send_frame(encode(message), WSMsgType.TEXT)

    async def send_raw(self, data: bytes, *, ended: bool) -> None:
        """Send bytes in a text frame; if not `ended`, as the first half of a frame."""
        if ended:
            await self._socket.send_frame(data, WSMsgType.TEXT)
            return
        promised = (2 * len(data)).to_bytes(2, "big")
        if self._request.transport is not None:
            self._request.transport.write(bytes([_TEXT_FRAME, _LENGTH_IN_TWO_BYTES]) + promised + data)

    async def write_stderr(self, data: bytes) -> None:
        """Do nothing: a network server has no stderr that its client can see."""

    async def die(self, code: int, stderr: str) -> None:
        """Close the connection without a closing handshake."""
        if self._request.transport is not None:
            self._request.transport.abort()
        await asyncio.Event().wait()


class WebSocketServer:
    """Serves one socket per client."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def serve(self, request: web.BaseRequest, headers: dict[str, str]) -> web.StreamResponse:
        """Serve a client until its socket is closed."""
        self._state.received_log.add(Received(method="GET", headers=headers, http_method="GET"))
        fault = self._state.schedule.strike("GET")
        if fault is not None and (answer := find_fault_response(fault, request)) is not None:
            return answer
        socket = web.WebSocketResponse(protocols=("mcp",), max_msg_size=MAX_MESSAGE_BYTES, compress=False)
        await socket.prepare(request)
        writer = WebSocketMessageWriter(socket, request)
        connection = DuplexConnection(self._state.new_session(), self._state.action_runner, writer)
        try:
            async for frame in socket:
                if frame.type is not WSMsgType.TEXT:
                    continue
                message = json.loads(frame.data)
                self._state.received_log.add(to_received(message, headers))
                connection.receive(message, self._state.schedule.strike_message(message))
        finally:
            self._state.received_log.add(Received(method=ABANDONED))
            await connection.close()
        return socket
