"""The faces of one network server on one port: streamable HTTP, legacy SSE, WebSocket, and the traps beside them."""

from __future__ import annotations

from aiohttp import web

from holodeck.testing.mcp.faults import Fault
from holodeck.testing.mcp.http_faults import ELSEWHERE, MOVED
from holodeck.testing.mcp.http_server import HttpServer
from holodeck.testing.mcp.journal import Received
from holodeck.testing.mcp.server_state import ServerState
from holodeck.testing.mcp.sse_server import MESSAGES, SSEServer
from holodeck.testing.mcp.websocket_server import WebSocketServer

HTTP_PATH = "/mcp"
SSE_PATH = "/sse"
WEBSOCKET_PATH = "/ws"
SCHEMA_PATH = "/schema.json"
_UNAUTHORIZED = 401


class TransportRouter:
    """Sends each request to the face that it is for."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self.http = HttpServer(state)
        self._sse = SSEServer(state)
        self._websocket = WebSocketServer(state)

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one HTTP request."""
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
        """Record what nobody should have asked for: a redirect that was followed, a schema that was fetched."""
        traps = {ELSEWHERE: "(elsewhere)", SCHEMA_PATH: "(schema)"}
        method = traps.get(request.path, f"(unknown path {request.path})")
        self._state.received_log.add(Received(method=method, headers=headers, http_method=request.method))
        return web.Response(status=404, text="Not Found")
