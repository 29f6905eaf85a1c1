"""An MCP server whose tools come and go, and which says so to nobody."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

_VERSION = "2025-06-18"
_INVALID_PARAMS = -32602


class ChangingServer:
    """Has the tools of `tools`, which a test changes; calls of others are refused as the protocol says."""

    def __init__(self, *tools: str) -> None:
        self.tools = list(tools)
        self.url = ""

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[ChangingServer]:
        app = web.Application()
        app.router.add_post("/mcp", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
        try:
            yield self
        finally:
            await runner.cleanup()

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
            return {"result": {"content": [{"type": "text", "text": "done"}]}}
        return {"error": {"code": _INVALID_PARAMS, "message": f"Unknown tool: {params.get('name')}"}}
