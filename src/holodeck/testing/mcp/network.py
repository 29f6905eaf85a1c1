"""Network side of the faulty server: the router of its transports, and the port that it listens on.

Streamable HTTP, legacy SSE and WebSocket share one port. Other paths are traps: a request to one is recorded, because a
correct client never makes it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from aiohttp import web

from holodeck.testing.mcp.faults import Fault
from holodeck.testing.mcp.http_response import ELSEWHERE, MOVED
from holodeck.testing.mcp.http_server import MESSAGES, HttpServer, SSEServer
from holodeck.testing.mcp.journal import Received
from holodeck.testing.mcp.server_state import ServerState
from holodeck.testing.mcp.websocket_server import WebSocketServer

HTTP_PATH = "/mcp"
SSE_PATH = "/sse"
WEBSOCKET_PATH = "/ws"
SCHEMA_PATH = "/schema.json"
_UNAUTHORIZED = 401
_LOOPBACK = "127.0.0.1"

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class TransportRouter:
    """Passes each request to its transport."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self.http = HttpServer(state)
        self._sse = SSEServer(state)
        self._websocket = WebSocketServer(state)

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Respond to one HTTP request."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        if self._state.schedule.fault is Fault.REQUIRES_TOKEN and not self._has_token(headers):
            self._state.received_log.add(Received(method="(unauthorized)", headers=headers, http_method=request.method))
            challenge = {"WWW-Authenticate": 'Bearer realm="faulty", error="invalid_token"'}
            return web.Response(status=_UNAUTHORIZED, headers=challenge, text="Unauthorized")
        match request.path.removeprefix(MOVED), request.method:
            case (path, _) if path == HTTP_PATH:
                return await self.http.serve(request, headers)
            case (path, "GET") if path == SSE_PATH:
                return await self._sse.open_stream(request, headers)
            case (path, "POST") if path == MESSAGES:
                return await self._sse.receive_message(request, headers)
            case (path, "GET") if path == WEBSOCKET_PATH:
                return await self._websocket.serve(request, headers)
            case _:
                return self._record_trap(request, headers)

    def _has_token(self, headers: dict[str, str]) -> bool:
        return headers.get("authorization") == f"Bearer {self._state.token}"

    def _record_trap(self, request: web.BaseRequest, headers: dict[str, str]) -> web.Response:
        """Record a request that no client should make: a redirect that was followed, a schema that was fetched."""
        traps = {ELSEWHERE: "(elsewhere)", SCHEMA_PATH: "(schema)"}
        method = traps.get(request.path, f"(unknown path {request.path})")
        self._state.received_log.add(Received(method=method, headers=headers, http_method=request.method))
        return web.Response(status=404, text="Not Found")


class ReservedPort:
    """A loopback port that refuses connections until `open` and after `close`, and stays reserved until `release`."""

    def __init__(self, handler: Handler, number: int = 0) -> None:
        self._handler = handler
        self._socket = self._bind_socket(number)
        self.number: int = self._socket.getsockname()[1]
        self._server: web.Server | None = None
        self._listener: asyncio.Server | None = None

    @property
    def is_open(self) -> bool:
        """Whether connections are accepted."""
        return self._listener is not None

    async def open(self) -> None:
        """Accept connections."""
        if self._listener is not None:
            return
        self._server = web.Server(self._handler, handler_cancellation=True, access_log=None)
        self._listener = await asyncio.get_running_loop().create_server(self._server, sock=self._socket)

    async def close(self) -> None:
        """Abort all connections and refuse new ones, as the end of a process does."""
        if self._listener is None or self._server is None:
            return
        self._listener.close()
        for connection in list(self._server.connections):
            if connection.transport is not None:
                connection.transport.abort()
        await self._server.shutdown(0)
        self._listener, self._server = None, None
        self._socket = self._bind_socket(self.number)

    async def release(self) -> None:
        """Close, and free the port."""
        await self.close()
        self._socket.close()

    def _bind_socket(self, number: int) -> socket.socket:
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Bound but not listening: the kernel refuses connections, and assigns the port to no other process.
        bound.bind((_LOOPBACK, number))
        return bound
