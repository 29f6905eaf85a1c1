"""The legacy HTTP+SSE transport: a stream of events, and an address to post to that its first event names."""

from __future__ import annotations

import asyncio
import json
import uuid

from aiohttp import web

from holodeck.testing.duplex import Duplex
from holodeck.testing.faults import Fault
from holodeck.testing.http_faults import page
from holodeck.testing.http_outlet import HttpOutlet
from holodeck.testing.journal import ABANDONED, Received, received
from holodeck.testing.state import NOT_FOUND, ServerState

MESSAGES = "/messages"
_ACCEPTED = 202


class SseServer:
    """Answers the GET that opens a stream and the POSTs that belong to it."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._connections: dict[str, Duplex] = {}

    async def stream(self, request: web.BaseRequest, headers: dict[str, str]) -> web.StreamResponse:
        """Open a stream and keep it until one side closes it."""
        self._state.record.add(Received(method="GET", headers=headers, http_method="GET"))
        struck = self._state.plan.strike("GET")
        if struck is not None and (answer := page(struck, request)) is not None:
            return answer
        outlet = HttpOutlet(request, always_sse=True)
        await outlet.open()
        session = uuid.uuid4().hex
        connection = self._connections[session] = Duplex(self._state.conversation(), self._state.performer, outlet)
        try:
            if self._state.plan.fault is not Fault.NO_ENDPOINT:
                await outlet.event(f"event: endpoint\ndata: {MESSAGES}?session_id={session}\n\n")
            await asyncio.Event().wait()
        finally:
            del self._connections[session]
            self._state.record.add(Received(method=ABANDONED, params={"session": session}))
            await connection.close()
        return await outlet.finish()

    async def message(self, request: web.BaseRequest, headers: dict[str, str]) -> web.StreamResponse:
        """Take a message; its answer goes to the stream."""
        connection = self._connections.get(request.query.get("session_id", ""))
        message = json.loads(await request.content.read())
        self._state.record.add(received(message, headers, "POST"))
        fault = self._state.plan.strike_message(message)
        if fault is not None and (answer := page(fault, request)) is not None:
            return answer
        if connection is None:
            return web.Response(status=NOT_FOUND, text="Could not find session")
        connection.receive(message, fault)
        return web.Response(status=_ACCEPTED, text="Accepted")
