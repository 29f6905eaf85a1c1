"""An MCP proxy of the official Python SDK's parts: its server, whose handlers ask its client.

`python -m bench.sdk_proxy http URL` serves at an address that it prints; `stdio COMMAND ...` serves its standard input.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from typing import Any

import mcp_types as types
import uvicorn
from mcp import Client, StdioServerParameters
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

# Seconds that a connection stays open while the others are measured.
KEEP_ALIVE = 600


def build_proxy(client: Client) -> Server[Any]:
    """A server that asks another one for everything."""

    async def list_tools(context: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return await client.list_tools(cursor=None if params is None else params.cursor)

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        return await client.call_tool(params.name, params.arguments)

    return Server("proxy", on_list_tools=list_tools, on_call_tool=call_tool)


async def serve_http(proxy: Server[Any]) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    # Plain JSON costs it less than the event streams that it would send by default.
    app = proxy.streamable_http_app(json_response=True)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_keep_alive=KEEP_ALIVE, timeout_graceful_shutdown=1
    )
    await uvicorn.Server(config).serve(sockets=[listener])


async def serve_stdio(proxy: Server[Any]) -> None:
    async with stdio_server() as (reading, writing):
        await proxy.run(reading, writing, proxy.create_initialization_options())


async def main(over: str, *behind: str) -> None:
    # A name of a tool that it does not like is a warning with each list.
    logging.disable(logging.WARNING)
    server: Any = behind[0] if over == "http" else StdioServerParameters(command=behind[0], args=[*behind[1:]])
    async with Client(server, mode="legacy") as client:
        # Or it would request the list with every call.
        await client.list_tools()
        await (serve_http if over == "http" else serve_stdio)(build_proxy(client))


if __name__ == "__main__":
    if sys.argv[1] == "http":
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main(*sys.argv[1:]))
    else:
        asyncio.run(main(*sys.argv[1:]))
