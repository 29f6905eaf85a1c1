"""One MCP client in a process of its own: `python -m bench.client_worker NAME COMMAND ...`, for `bench.mcp_client`.

It connects to the server that the command starts. For each line on standard input, a number of calls, it makes them
one after the other and prints the seconds of CPU that they took. It is run by the Python of the client's environment.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Call = Callable[[], Awaitable[object]]


@asynccontextmanager
async def connect_holodeck(command: str, *args: str) -> AsyncIterator[Call]:
    from holodeck import MCPServer

    async with MCPServer.stdio(command, *args, name="bench") as server:
        yield lambda: server.call("echo", text="hello")


@asynccontextmanager
async def connect_sdk(command: str, *args: str) -> AsyncIterator[Call]:
    from mcp import Client, StdioServerParameters

    async with Client(StdioServerParameters(command=command, args=[*args]), mode="legacy") as client:
        # Or it would request the list with every call.
        await client.list_tools()
        yield lambda: client.call_tool("echo", {"text": "hello"})


@asynccontextmanager
async def connect_fastmcp(command: str, *args: str) -> AsyncIterator[Call]:
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport

    async with Client(StdioTransport(command, [*args]), mode="legacy") as client:
        await client.list_tools()
        yield lambda: client.call_tool("echo", {"text": "hello"})


CLIENTS = {"holodeck": connect_holodeck, "sdk": connect_sdk, "fastmcp": connect_fastmcp}


async def main(name: str, *command: str) -> None:
    logging.disable(logging.WARNING)
    async with CLIENTS[name](*command) as call:
        while line := await asyncio.to_thread(sys.stdin.readline):
            gc.collect()
            before = time.process_time()
            for _ in range(int(line)):
                await call()
            print(time.process_time() - before, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
