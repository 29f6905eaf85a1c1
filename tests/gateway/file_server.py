"""A server with a file that requests name by its URL, and with addresses that lead elsewhere or nowhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

PDF = b"%PDF-1.7 a report"


@asynccontextmanager
async def serve_files() -> AsyncIterator[tuple[str, list[str]]]:
    """The address of a server with files, and the paths that were asked for."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        if request.path == "/moved.pdf":
            raise web.HTTPFound("/report.pdf")
        if request.path == "/away.pdf":
            raise web.HTTPFound(f"http://127.0.0.2:{request.url.port}/report.pdf")
        if request.path == "/silent.pdf":
            await asyncio.Event().wait()
        if request.path != "/report.pdf":
            return web.Response(status=404)
        return web.Response(body=PDF, content_type="application/pdf")

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", asked
    finally:
        await runner.cleanup()
