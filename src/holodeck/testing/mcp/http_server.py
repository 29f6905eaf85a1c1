"""HTTP transports of the faulty server: streamable HTTP, and the older HTTP+SSE.

Streamable HTTP has one endpoint; the legacy era adds sessions and a stream for notifications. HTTP+SSE is a stream of
events, whose first event names the URL to which a client posts.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import uuid
from collections.abc import Awaitable, Mapping

from aiohttp import web

from holodeck.testing.mcp.action_runner import DuplexConnection, Listener
from holodeck.testing.mcp.actions import Action, Message
from holodeck.testing.mcp.faults import Fault
from holodeck.testing.mcp.http_response import (
    HEADER_MISMATCH,
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
