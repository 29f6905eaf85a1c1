"""The limit for a gateway: a pass-through on the same server and HTTP client, with the one loop written by hand."""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import aiohttp
import orjson
import uvicorn
import uvloop

from bench.bare_client import BareClient, open_bare_http

_JSON = {"content-type": "application/json"}
_FORWARDED_HEADERS = (b"content-type",)


class PassThrough:
    """An ASGI application that checks nothing, stores nothing and knows one tool."""

    def __init__(self, model: str, mcp: str) -> None:
        self._url = f"{model}/v1/chat/completions"
        self._mcp_url = mcp
        self._stack = AsyncExitStack()
        self._client: aiohttp.ClientSession
        self._mcp: BareClient
        self._tools: list[dict[str, Any]] = []

    async def start(self) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        self._client = await self._stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        self._mcp = await self._stack.enter_async_context(open_bare_http(self._mcp_url))
        self._tools = [_function_of(tool) for tool in await self._mcp.list_tools()]

    async def close(self) -> None:
        await self._stack.aclose()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = await _read_body(receive)
        if b'"model":"tool"' in body:
            body = orjson.dumps(await self.add_tool_result(orjson.loads(body)))
        await self._relay(body, send)

    async def _relay(self, body: bytes, send: Any) -> None:
        async with self.ask(body) as answer:
            headers = [
                (name.lower(), value) for name, value in answer.raw_headers if name.lower() in _FORWARDED_HEADERS
            ]
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            async for piece in answer.content.iter_any():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    def ask(self, body: bytes) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send a body to the model."""
        return self._client.post(self._url, data=body, headers=_JSON)

    async def add_tool_result(self, request: dict[str, Any]) -> dict[str, Any]:
        """Request a tool call from the model, run it, and append its output to the conversation."""
        request["tools"] = self._tools
        async with self.ask(orjson.dumps(request)) as answer:
            message = orjson.loads(await answer.read())["choices"][0]["message"]
        request["messages"].append(message)
        for call in message["tool_calls"]:
            function = call["function"]
            result = await self._mcp.call(function["name"], orjson.loads(function["arguments"]))
            text = "".join(block["text"] for block in result["content"])
            request["messages"].append({"role": "tool", "tool_call_id": call["id"], "content": text})
        return request


def _function_of(tool: dict[str, Any]) -> dict[str, Any]:
    about = {"name": tool["name"], "description": tool["description"], "parameters": tool["inputSchema"]}
    return {"type": "function", "function": about}


async def _read_body(receive: Any) -> bytes:
    message = await receive()
    body: bytes = message["body"]
    while message["more_body"]:
        message = await receive()
        body += message["body"]
    return body


async def main(model: str, mcp: str) -> None:
    app = PassThrough(model, mcp)
    await app.start()
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    # It does not see that a client has left, so its end must not wait for the streams of those.
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", server_header=False, timeout_graceful_shutdown=1
    )
    try:
        await uvicorn.Server(config).serve(sockets=[listener])
    finally:
        await app.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(*sys.argv[1:]))
