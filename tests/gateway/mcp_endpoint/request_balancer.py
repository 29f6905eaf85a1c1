"""A balancer without stickiness: nginx with the shipped file where it is there, else one of our own."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import cycle
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

SHIPPED = Path(__file__).parents[3] / "deploy/compose/nginx.conf"
_OF_A_CONNECTION = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "host"})


@asynccontextmanager
async def run_balancer(folder: Path, urls: Sequence[str]) -> AsyncIterator[str]:
    """The URL of a balancer in front of gateways."""
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    async with _run_nginx(nginx, folder, urls) if nginx else _run_own(urls) as url:
        yield url


@asynccontextmanager
async def _run_nginx(nginx: str, folder: Path, urls: Sequence[str]) -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    servers = "\n".join(f"server {urlsplit(url).netloc} max_fails=0;" for url in urls)
    text = re.sub(r"(server gateway-\d:8080 max_fails=0;\s*)+", servers, SHIPPED.read_text())
    text = text.replace("listen 8080;", f"listen 127.0.0.1:{port};").replace("/tmp/", f"{folder}/")
    file = folder / "nginx.conf"
    file.write_text(text)
    process = await asyncio.create_subprocess_exec(nginx, "-c", str(file), "-g", "daemon off;")
    try:
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            await asyncio.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def _run_own(urls: Sequence[str]) -> AsyncIterator[str]:
    """One that goes to the next gateway with each request, also within a connection, and tries none twice."""
    turns = cycle(urls)
    async with aiohttp.ClientSession(auto_decompress=False, timeout=aiohttp.ClientTimeout()) as http:

        async def pass_on(request: web.Request) -> web.StreamResponse:
            body = await request.read()
            try:
                async with http.request(
                    request.method, next(turns) + request.path_qs, data=body or None, headers=_select(request.headers)
                ) as answer:
                    kept = [
                        (name, value) for name, value in answer.headers.items() if name.lower() not in _OF_A_CONNECTION
                    ]
                    reply = web.StreamResponse(status=answer.status)
                    reply.headers.extend(kept)
                    await reply.prepare(request)
                    async for chunk in answer.content.iter_any():
                        await reply.write(chunk)
                    return reply
            except aiohttp.ClientConnectionError:
                return web.Response(status=502)

        application = web.Application(client_max_size=2**30)
        application.router.add_route("*", "/{path:.*}", pass_on)
        runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


def _select(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """The headers that are not of one connection."""
    return [(name, value) for name, value in headers.items() if name.lower() not in _OF_A_CONNECTION]
