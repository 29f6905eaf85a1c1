"""Legacy HTTP+SSE transport: a stream of events, whose first event names the URL to which a client posts."""

from __future__ import annotations

import asyncio
import json
import uuid

from aiohttp import web

from holodeck.testing.mcp.action_runner import DuplexConnection
from holodeck.testing.mcp.faults import Fault
from holodeck.testing.mcp.http_response import HTTPMessageWriter, find_fault_response
from holodeck.testing.mcp.journal import ABANDONED, Received, to_received
from holodeck.testing.mcp.server_state import NOT_FOUND, ServerState

MESSAGES = "/messages"
_ACCEPTED = 202


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
