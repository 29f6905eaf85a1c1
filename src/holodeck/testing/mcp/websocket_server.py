"""MCP over WebSocket: the subprotocol `mcp`, one message per text frame, in both eras."""

from __future__ import annotations

import asyncio
import json

from aiohttp import WSMsgType, web

from holodeck.testing.mcp.actions import Message, encode
from holodeck.testing.mcp.faults import MAX_MESSAGE_BYTES
from holodeck.testing.mcp.http_faults import find_fault_response
from holodeck.testing.mcp.journal import ABANDONED, Received, to_received
from holodeck.testing.mcp.server_state import ServerState
from holodeck.testing.mcp.stdio_server import DuplexConnection

_TEXT_FRAME = 0x81
_LENGTH_IN_TWO_BYTES = 126


class WebSocketMessageWriter:
    """A socket to one client."""

    def __init__(self, socket: web.WebSocketResponse, request: web.BaseRequest) -> None:
        self._socket = socket
        self._request = request

    async def send_message(self, message: Message) -> None:
        """Send a message in a frame."""
        await self._socket.send_frame(encode(message), WSMsgType.TEXT)

    async def send_raw(self, data: bytes, *, ended: bool) -> None:
        """Send bytes in a text frame, or the first half of such a frame."""
        if ended:
            await self._socket.send_frame(data, WSMsgType.TEXT)
            return
        promised = (2 * len(data)).to_bytes(2, "big")
        if self._request.transport is not None:
            self._request.transport.write(bytes([_TEXT_FRAME, _LENGTH_IN_TWO_BYTES]) + promised + data)

    async def write_stderr(self, data: bytes) -> None:
        """Do nothing: a network server has no stderr that its client can see."""

    async def die(self, code: int, stderr: str) -> None:
        """Cut the connection without a closing handshake."""
        if self._request.transport is not None:
            self._request.transport.abort()
        await asyncio.Event().wait()


class WebSocketServer:
    """Answers over one socket per client."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def serve(self, request: web.BaseRequest, headers: dict[str, str]) -> web.StreamResponse:
        """Speak until the socket is closed."""
        self._state.received_log.add(Received(method="GET", headers=headers, http_method="GET"))
        struck = self._state.schedule.strike("GET")
        if struck is not None and (answer := find_fault_response(struck, request)) is not None:
            return answer
        socket = web.WebSocketResponse(protocols=("mcp",), max_msg_size=MAX_MESSAGE_BYTES, compress=False)
        await socket.prepare(request)
        outlet = WebSocketMessageWriter(socket, request)
        connection = DuplexConnection(self._state.new_session(), self._state.action_runner, outlet)
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
