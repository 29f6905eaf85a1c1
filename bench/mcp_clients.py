"""The three clients under the same two verbs: ours with all its safety, the official SDK's, and the bare limit."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bench.bare_client import open_bare_http, open_bare_pipes
from holodeck.lib.secret import Secret
from holodeck.models.tool import CommandType, MCPTool, TransportType
from holodeck.testing import FaultyMCPServer, stand_in
from holodeck.tools.mcp.factory import create_mcp_plugin

TransportName = Literal["stdio", "http", "events"]
"""`events`: over HTTP, where each answer is a stream of events."""
NAMES = ("holodeck", "sdk", "limit")


@dataclass(frozen=True, kw_only=True)
class Client:
    """A client that is connected."""

    call: Callable[[str, dict[str, Any]], Awaitable[int]]
    """Calls a tool and returns the length of its text."""
    tools: Callable[[], Awaitable[int]]
    """Lists all tools, on all pages, and returns how many there are."""


Connect = Callable[[], AbstractAsyncContextManager[Client]]


@contextmanager
def serve(over: TransportName, mode: str = "normal") -> Iterator[dict[str, Connect]]:
    """How to connect each client to the same kind of server."""
    with tempfile.TemporaryDirectory() as folder:
        if over == "stdio":
            command = FaultyMCPServer.command(mode)
            path = stand_in(Path(folder), command)["PATH"]
            yield {
                "holodeck": lambda: _connect_ours(_stdio_tool(path)),
                "sdk": lambda: _connect_sdk_stdio(path),
                "limit": lambda: _connect_bare(open_bare_pipes([f"{folder}/npx", "-y", "bench"])),
            }
            return
        process = subprocess.Popen(
            FaultyMCPServer.command(mode, transport="http", sse=over == "events"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with process:
            url = process.stdout.readline().decode().strip() if process.stdout is not None else ""
            yield {
                "holodeck": lambda: _connect_ours(
                    MCPTool(name="bench", server="bench", transport=TransportType.HTTP, url=url)
                ),
                "sdk": lambda: _connect_sdk(url),
                "limit": lambda: _connect_bare(open_bare_http(url)),
            }


def _stdio_tool(path: str) -> MCPTool:
    env = {"PATH": Secret(path)}
    return MCPTool(
        name="bench", server="bench", command=CommandType.NPX, args=["-y", "bench"], env=env, allow_unsafe_args=True
    )


@asynccontextmanager
async def _connect_ours(tool: MCPTool) -> AsyncIterator[Client]:
    async with create_mcp_plugin(tool) as plugin:

        async def call(name: str, arguments: dict[str, Any]) -> int:
            result = await plugin.call_tool(name, **arguments)
            if result.error is not None:
                raise result.error
            return len(result.text)

        async def tools() -> int:
            return len(await plugin.list_tools())

        yield Client(call=call, tools=tools)


@asynccontextmanager
async def _connect_sdk_stdio(path: str) -> AsyncIterator[Client]:
    from mcp import StdioServerParameters

    env = {**os.environ, "PATH": path}
    async with _connect_sdk(StdioServerParameters(command="npx", args=["-y", "bench"], env=env)) as client:
        yield client


@asynccontextmanager
async def _connect_sdk(server: Any) -> AsyncIterator[Client]:
    from mcp import Client as SdkClient
    from mcp_types import TextContent

    # The handshake that ours ends up with, without the probe before it, which costs nothing per call.
    async with SdkClient(server, mode="legacy") as client:
        is_listed = False

        async def call(name: str, arguments: dict[str, Any]) -> int:
            nonlocal is_listed
            if not is_listed:  # or it would request the list with every call
                await tools()
                is_listed = True
            result = await client.call_tool(name, arguments)
            return sum(len(block.text) for block in result.content if isinstance(block, TextContent))

        async def tools() -> int:
            page = await client.list_tools()
            number = len(page.tools)
            while page.next_cursor is not None:
                page = await client.list_tools(cursor=page.next_cursor)
                number += len(page.tools)
            return number

        yield Client(call=call, tools=tools)


@asynccontextmanager
async def _connect_bare(connecting: AbstractAsyncContextManager[Any]) -> AsyncIterator[Client]:
    async with connecting as bare:

        async def call(name: str, arguments: dict[str, Any]) -> int:
            result = await bare.call(name, arguments)
            return sum(len(block["text"]) for block in result["content"])

        async def tools() -> int:
            return len(await bare.list_tools())

        yield Client(call=call, tools=tools)


def rss_mb() -> float:
    """The memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if sys.platform == "linux" else 0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
