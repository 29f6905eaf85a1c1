"""A reverse proxy that serves a gateway below a path, as operators put one before it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web
from loopback_site import serve_site

PREFIX = "/tools/holodeck/"
_OWN_HEADERS = {"transfer-encoding", "content-length", "connection", "date", "server"}


@asynccontextmanager
async def serve_below_prefix(gateway_url: str) -> AsyncIterator[str]:
    """The URL of the gateway below `PREFIX`. Answers are passed on as they arrive; `Host` is that of the client."""
    async with aiohttp.ClientSession(auto_decompress=False) as session:

        async def pass_on(request: web.Request) -> web.StreamResponse:
            if not request.path.startswith(PREFIX):
                raise web.HTTPNotFound
            url = f"{gateway_url}/{request.raw_path.removeprefix(PREFIX)}"
            data = await request.read()
            async with session.request(request.method, url, headers=request.headers, data=data or None) as answer:
                headers = [(name, value) for name, value in answer.headers.items() if name.lower() not in _OWN_HEADERS]
                reply = web.StreamResponse(status=answer.status)
                reply.headers.extend(headers)
                await reply.prepare(request)
                async for chunk in answer.content.iter_any():
                    await reply.write(chunk)
                return reply

        async with serve_site(pass_on) as url:
            yield url.rstrip("/") + PREFIX
