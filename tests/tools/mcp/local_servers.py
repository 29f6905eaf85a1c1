"""Real servers for tests: HTTP in process, a WebSocket around the SDK's server, a program behind `uvx`."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server import MCPServer
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from websockets.asyncio.server import ServerConnection, serve

from holodeck.lib.secret import Secret
from holodeck.models.tool import CommandType, MCPTool, TransportType


@asynccontextmanager
async def serve_app(app: Any) -> AsyncIterator[str]:
    """An ASGI app on a free port of this machine; yields its URL without a path."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        server.force_exit = True
        await task


@asynccontextmanager
async def serve_websocket(server: MCPServer) -> AsyncIterator[str]:
    """The SDK's server, once for each WebSocket; yields its URL."""

    async def talk(connection: ServerConnection) -> None:
        to_server, server_reads = anyio.create_memory_object_stream[SessionMessage | Exception](64)
        server_writes, from_server = anyio.create_memory_object_stream[SessionMessage](64)

        async def read() -> None:
            async with to_server:
                async for frame in connection:
                    await to_server.send(SessionMessage(jsonrpc_message_adapter.validate_json(frame, by_name=False)))

        async def write() -> None:
            async for item in from_server:
                await connection.send(item.message.model_dump_json(by_alias=True, exclude_unset=True))

        low = server._lowlevel_server
        async with server_reads, from_server, asyncio.TaskGroup() as tasks:
            tasks.create_task(read())
            writing = tasks.create_task(write())
            async with server_writes:
                await low.run(server_reads, server_writes, low.create_initialization_options())
            writing.cancel()

    async with serve(talk, "127.0.0.1", 0, subprotocols=["mcp"]) as listening:  # type: ignore[list-item]
        port = next(iter(listening.sockets)).getsockname()[1]
        yield f"ws://127.0.0.1:{port}"


def uvx_tool(folder: Path, program: str | Path, *args: str, **fields: Any) -> MCPTool:
    """A tool with a fake `uvx` that runs this Python program."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "uvx"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"
    return MCPTool(
        **{
            "name": "local",
            "server": "local",
            "command": CommandType.UVX,
            "args": [str(program), *args],
            "env": {"PATH": Secret(path), "PYTHONPATH": Secret(os.pathsep.join(sys.path))},
            "allow_unsafe_args": True,
            **fields,
        }
    )


def remote_tool(url: str, transport: TransportType = TransportType.HTTP, **fields: Any) -> MCPTool:
    """A tool at a URL."""
    return MCPTool(**{"name": "remote", "server": "remote", "transport": transport, "url": url, **fields})
