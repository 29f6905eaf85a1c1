"""A pass-through as one writes it without a thought of speed: Starlette, aiohttp and asyncio's own event loop."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from bench.gateway_limit import PassThrough


async def main(model: str, mcp: str) -> None:
    passing = PassThrough(model, mcp)
    await passing.start()

    async def relay(body: bytes) -> AsyncIterator[bytes]:
        async with passing.ask(body) as answer:
            async for piece in answer.content.iter_any():
                yield piece

    async def complete(request: Request) -> Response:
        body = await request.json()
        if body["model"] == "tool":
            body = await passing.add_tool_result(body)
        if body["stream"]:
            return StreamingResponse(relay(orjson.dumps(body)), media_type="text/event-stream")
        async with passing.ask(orjson.dumps(body)) as answer:
            return Response(await answer.read(), answer.status, media_type="application/json")

    app = Starlette(routes=[Route("/v1/chat/completions", complete, methods=["POST"])])
    # asyncio turns Nagle's algorithm off only where a socket names its protocol.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(4096)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1)
    try:
        await uvicorn.Server(config).serve(sockets=[listener])
    finally:
        await passing.close()


if __name__ == "__main__":
    with asyncio.Runner() as runner:
        runner.run(main(*sys.argv[1:]))
