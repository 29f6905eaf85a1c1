"""An MCP server whose tools come and go, and which says so to nobody."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

from aiohttp import web
from loopback_site import serve_site

_VERSION = "2025-06-18"
_INVALID_PARAMS = -32602


class ChangingServer:
    """Has the tools of `tools`, which a test changes; calls of others are refused as the protocol says."""

    def __init__(self, *tools: str) -> None:
        self.tools = list(tools)
        self.calls: list[str] = []
        self.url = ""

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Self]:
        async with serve_site(self._answer) as origin:
            self.url = f"{origin}/mcp"
            yield self

    async def _answer(self, request: web.Request) -> web.Response:
        message = await request.json()
        if "id" not in message:
            return web.Response(status=202)
        answer = {"jsonrpc": "2.0", "id": message["id"], **self._result(message["method"], message.get("params", {}))}
        return web.json_response(answer)

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "initialize":
            about = {"name": "changing", "version": "1"}
            return {"result": {"protocolVersion": _VERSION, "capabilities": {"tools": {}}, "serverInfo": about}}
        if method == "tools/list":
            return {"result": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in self.tools]}}
        if method == "tools/call" and params["name"] in self.tools:
            self.calls.append(params["name"])
            return {"result": {"content": [{"type": "text", "text": "done"}]}}
        return {"error": {"code": _INVALID_PARAMS, "message": f"Unknown tool: {params.get('name')}"}}
