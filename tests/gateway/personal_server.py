"""An MCP server that knows its users by their tokens: each has a session and tools of its own, and nobody else's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from secrets import token_hex
from typing import Any

from aiohttp import web
from loopback_site import serve_site

_VERSION = "2025-06-18"
_SESSION = "mcp-session-id"


class PersonalServer:
    """`people` are its users by the whole value of their `Authorization` header."""

    def __init__(self, people: Mapping[str, str]) -> None:
        self.people = dict(people)
        self.sessions: dict[str, str] = {}
        self.request_headers: list[Mapping[str, str]] = []
        """The headers of every request."""
        self.calls_by_person: list[str] = []
        """Who has called `whoami`, in order."""
        self.url = ""
        self.answer_permits: asyncio.Semaphore | None = None
        """Each call is answered when there is one of these for it. None: at once."""
        self.pending_calls = 0
        """Calls that are waiting for their answer."""

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[PersonalServer]:
        async with serve_site(self._answer) as origin:
            self.url = f"{origin}/mcp"
            yield self

    async def _answer(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.request_headers.append(headers)
        person = self.people.get(headers.get("authorization", ""))
        if person is None:
            said = f"Unknown token: {headers.get('authorization')}"
            return web.Response(status=401, text=said, headers={"WWW-Authenticate": "Bearer"})
        if request.method == "DELETE":
            self.sessions.pop(headers.get(_SESSION, ""), None)
            return web.Response()
        message = await request.json()
        session = headers.get(_SESSION, "")
        if message["method"] == "initialize":
            session = token_hex(8)
            self.sessions[session] = person
        elif message["method"] != "server/discover" and self.sessions.get(session) != person:
            return web.Response(status=403, text="This session is another's.")
        if "id" not in message:
            return web.Response(status=202)
        result = self._result(message["method"], person)
        if message["method"] == "tools/call" and self.answer_permits is not None:
            self.pending_calls += 1
            try:
                await self.answer_permits.acquire()
            finally:
                self.pending_calls -= 1
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], **result}, headers={_SESSION: session})

    def _result(self, method: str, person: str) -> dict[str, Any]:
        if method == "initialize":
            about = {"name": "personal", "version": "1"}
            return {"result": {"protocolVersion": _VERSION, "capabilities": {"tools": {}}, "serverInfo": about}}
        if method == "tools/list":
            names = ("whoami", f"of_{person}")
            return {"result": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}}
        if method == "tools/call":
            self.calls_by_person.append(person)
            return {"result": {"content": [{"type": "text", "text": f"You are {person}."}]}}
        return {"error": {"code": -32601, "message": "Method not found"}}
