"""Network side of the faulty server: the router of its transports, and the port that it listens on.

Streamable HTTP, legacy SSE and WebSocket share one port. Other paths are traps: a request to one is recorded, because a
correct client never makes it.

Streamable HTTP has one endpoint; the legacy era adds sessions and a stream for notifications. HTTP+SSE is a stream of
events, whose first event names the URL to which a client posts. A WebSocket has the subprotocol `mcp`, and one message
per text frame, in both eras.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import socket
import uuid
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import WSMsgType, web

from holodeck.testing.mcp.action_runner import DuplexConnection, Listener
from holodeck.testing.mcp.actions import Action, Message, encode
from holodeck.testing.mcp.faults import MAX_MESSAGE_BYTES, Fault
from holodeck.testing.mcp.http_response import (
    ELSEWHERE,
    HEADER_MISMATCH,
    MOVED,
    NO_SESSION,
    HTTPMessageWriter,
    error_response,
    find_fault_response,
    send_half_answer,
    send_trickle,
)
from holodeck.testing.mcp.journal import ABANDONED, Received, to_received
from holodeck.testing.mcp.protocol import META, ServerSession
from holodeck.testing.mcp.server_state import NOT_FOUND, ServerState
from holodeck.testing.mcp.tools import list_tool_entries

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


_NAME_PARAMS = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
_ENCODED, _END = "=?base64?", "?="
_SESSION = "Mcp-Session-Id"
_BAD_REQUEST = 400
_METHOD_NOT_ALLOWED = 405
_PARSE_ERROR = -32700
_EXPIRED = {Fault.SESSION_EXPIRES_400: _BAD_REQUEST, Fault.SESSION_EXPIRES_404: NOT_FOUND}

MESSAGES = "/messages"
_ACCEPTED = 202


class HttpServer:
    """Handles the requests to the endpoint."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._sessions_of_streams: dict[asyncio.Event, str] = {}

    async def serve(self, request: web.BaseRequest, headers: dict[str, str]) -> web.StreamResponse:
        """Respond to a POST; in the legacy era also to GET and DELETE."""
        if request.method == "POST":
            return await self._answer_post(request, headers)
        self._state.received_log.add(Received(method=request.method, headers=headers, http_method=request.method))
        if self._state.era == "modern" or request.method not in ("GET", "DELETE"):
            return web.Response(status=_METHOD_NOT_ALLOWED, headers={"Allow": "POST"})
        session = request.headers.get(_SESSION, "")
        if session not in self._state.sessions:
            return self._unknown_session_response(session)
        if request.method == "DELETE":
            self.drop_session(session)
            return web.Response()
        return await self._serve_stream(request, session)

    def drop_session(self, session: str) -> None:
        """Delete a session, and end its streams."""
        self._state.sessions.pop(session, None)
        for end, owner in self._sessions_of_streams.items():
            if owner == session:
                end.set()

    async def _answer_post(self, request: web.BaseRequest, headers: dict[str, str]) -> web.StreamResponse:
        try:
            message = json.loads(await request.content.read())
        except ValueError:
            return error_response(_BAD_REQUEST, None, _PARSE_ERROR, "Parse error")
        self._state.received_log.add(to_received(message, headers, "POST"))
        fault = self._state.schedule.strike_message(message)
        if fault is not None and (answer := find_fault_response(fault, request)) is not None:
            return answer
        if self._state.era == "modern":
            return await self._answer_modern(request, message, fault)
        return await self._answer_legacy(request, message, fault)

    async def _answer_modern(
        self, request: web.BaseRequest, message: Message, fault: Fault | None
    ) -> web.StreamResponse:
        if "id" not in message:
            return web.Response(status=202)
        why = (
            "The server has changed its mind."
            if fault is Fault.HEADER_MISMATCH
            else find_header_mismatch(request.headers, message)
        )
        if why is not None:
            return error_response(_BAD_REQUEST, message["id"], HEADER_MISMATCH, why)
        return await self._answer_request(request, self._state.stateless, message, fault, {})

    async def _answer_legacy(
        self, request: web.BaseRequest, message: Message, fault: Fault | None
    ) -> web.StreamResponse:
        session = request.headers.get(_SESSION, "")
        if fault in _EXPIRED:
            self.drop_session(session)
            self._state.stale_status = _EXPIRED[fault]
        if message.get("method") == "initialize":
            session = self._state.open_session()
        if session not in self._state.sessions:
            return self._unknown_session_response(session)
        if "method" not in message:
            self._state.action_runner.receive_answer(message)
        if "method" not in message or "id" not in message:
            return web.Response(status=202)
        return await self._answer_request(request, self._state.sessions[session], message, fault, {_SESSION: session})

    async def _answer_request(
        self,
        request: web.BaseRequest,
        server_session: ServerSession,
        message: Message,
        fault: Fault | None,
        headers: dict[str, str],
    ) -> web.StreamResponse:
        if fault is Fault.TRICKLE:
            return await self._record_if_abandoned(send_trickle(request, always_sse=self._state.always_sse), message)
        in_http = fault in (Fault.CUT_STREAM, Fault.STREAM_ENDS)
        actions = server_session.actions_for(message, None if in_http else fault)
        writer = HTTPMessageWriter(
            request,
            always_sse=self._state.always_sse or fault in (Fault.BIG_EVENT, Fault.STREAM_ENDS),
            content_type="application/octet-stream" if fault is Fault.WRONG_CONTENT_TYPE else None,
            headers=headers,
            modern=self._state.era == "modern",
        )
        return await self._record_if_abandoned(self._send_actions(writer, actions, fault), message)

    async def _send_actions(
        self, writer: HTTPMessageWriter, actions: list[Action], fault: Fault | None
    ) -> web.StreamResponse:
        if fault is Fault.CUT_STREAM:
            await send_half_answer(actions, writer)
        elif fault is Fault.STREAM_ENDS:
            if self._state.era == "legacy":
                await writer.send_event(f"id: {self._state.store_unsent(actions)}\nretry: 10\ndata:\n\n")
        else:
            await self._state.action_runner.run(actions, writer)
        return await writer.finish()

    async def _record_if_abandoned(self, answer: Awaitable[web.StreamResponse], message: Message) -> web.StreamResponse:
        try:
            return await answer
        except (asyncio.CancelledError, ConnectionError):
            self._state.received_log.add(Received(method=ABANDONED, params={"request": message}))
            raise

    async def _serve_stream(self, request: web.BaseRequest, session: str) -> web.StreamResponse:
        writer = HTTPMessageWriter(request, always_sse=True)
        unsent = self._state.resumable.pop(request.headers.get("Last-Event-ID", ""), None)
        if unsent is not None:
            await self._state.action_runner.run(unsent, writer)
            return await writer.finish()
        listener, end = Listener(writer, self._state.sessions[session].subscribed), asyncio.Event()
        await writer.open_stream()
        self._sessions_of_streams[end] = session
        self._state.action_runner.add_listener(listener)
        try:
            await end.wait()
        finally:
            self._state.action_runner.remove_listener(listener)
            del self._sessions_of_streams[end]
        return await writer.finish()

    def _unknown_session_response(self, session: str) -> web.Response:
        if not session:
            return error_response(_BAD_REQUEST, None, NO_SESSION, "Bad Request: Missing session ID")
        why = "Session not found" if self._state.stale_status == NOT_FOUND else "No valid session ID provided"
        return error_response(self._state.stale_status, None, NO_SESSION, why)


def find_header_mismatch(headers: Mapping[str, str], message: Message) -> str | None:
    """Return why the headers of a modern request do not match its body; None if they do."""
    method, params = str(message.get("method")), message.get("params") or {}
    expected = {
        "MCP-Protocol-Version": (params.get("_meta") or {}).get(f"{META}protocolVersion"),
        "Mcp-Method": method,
        **_expected_headers(method, params),
    }
    for name, value in expected.items():
        if _decode_header(headers.get(name)) != value:
            return f"Header mismatch: {name} is {headers.get(name)!r}, the body says {value!r}"
    return None


def _expected_headers(method: str, params: Message) -> dict[str, str | None]:
    expected: dict[str, str | None] = {}
    if method in _NAME_PARAMS:
        expected["Mcp-Name"] = params.get(_NAME_PARAMS[method])
    if method == "tools/call":
        for name, header in _header_annotations(str(params.get("name"))).items():
            value = (params.get("arguments") or {}).get(name)
            expected[f"Mcp-Param-{header}"] = None if value is None else str(value)
    return expected


def _header_annotations(tool: str) -> dict[str, str]:
    schemas = [each["inputSchema"]["properties"] for each in list_tool_entries("modern") if each["name"] == tool]
    return {
        name: schema["x-mcp-header"]
        for properties in schemas
        for name, schema in properties.items()
        if "x-mcp-header" in schema
    }


def _decode_header(value: str | None) -> str | None:
    if value is None or not (value.startswith(_ENCODED) and value.endswith(_END)):
        return value
    try:
        return base64.b64decode(value[len(_ENCODED) : -len(_END)], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


class SSEServer:
    """Handles the GET that opens a stream, and the POSTs that belong to it."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._connections: dict[str, DuplexConnection] = {}

    async def open_stream(self, request: web.BaseRequest, headers: dict[str, str]) -> web.StreamResponse:
        """Serve a stream until one side closes it."""
        self._state.received_log.add(Received(method="GET", headers=headers, http_method="GET"))
        fault = self._state.schedule.strike("GET")
        if fault is not None and (answer := find_fault_response(fault, request)) is not None:
            return answer
        writer = HTTPMessageWriter(request, always_sse=True)
        await writer.open_stream()
        session = uuid.uuid4().hex
        connection = self._connections[session] = DuplexConnection(
            self._state.new_session(), self._state.action_runner, writer
        )
        try:
            if self._state.schedule.fault is not Fault.NO_ENDPOINT:
                await writer.send_event(f"event: endpoint\ndata: {MESSAGES}?session_id={session}\n\n")
            await asyncio.Event().wait()
        finally:
            del self._connections[session]
            self._state.received_log.add(Received(method=ABANDONED, params={"session": session}))
            await connection.close()
        return await writer.finish()

    async def receive_message(self, request: web.BaseRequest, headers: dict[str, str]) -> web.StreamResponse:
        """Receive a message; its answer goes to the stream."""
        connection = self._connections.get(request.query.get("session_id", ""))
        message = json.loads(await request.content.read())
        self._state.received_log.add(to_received(message, headers, "POST"))
        fault = self._state.schedule.strike_message(message)
        if fault is not None and (answer := find_fault_response(fault, request)) is not None:
            return answer
        if connection is None:
            return web.Response(status=NOT_FOUND, text="Could not find session")
        connection.receive(message, fault)
        return web.Response(status=_ACCEPTED, text="Accepted")


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
