"""The ways to the server under test, and the official SDK's client as the judge of its conformance."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias

from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client

from holodeck.testing import Era, Fault, FaultyMCPServer

TransportVariant: TypeAlias = Literal["stdio", "http", "http-sse", "sse"]

TRANSPORT_VARIANTS: list[tuple[TransportVariant, Era]] = [
    ("stdio", "legacy"),
    ("stdio", "modern"),
    ("http", "legacy"),
    ("http", "modern"),
    ("http-sse", "legacy"),
    ("http-sse", "modern"),
    ("sse", "legacy"),
]


@asynccontextmanager
async def open_sdk_client(
    transport: TransportVariant, era: Era, mode: Fault = Fault.NORMAL, **options: Any
) -> AsyncIterator[Client]:
    """Connect the SDK's own client to a server that is started for it."""
    if transport == "stdio":
        command, *arguments = FaultyMCPServer.command(mode, era=era)
        async with Client(StdioServerParameters(command=command, args=arguments), **options) as client:
            yield client
        return
    async with FaultyMCPServer(mode, era=era, sse=transport == "http-sse") as server:
        target = sse_client(server.url_for("sse")) if transport == "sse" else server.url
        async with Client(target, **options) as client:
            yield client
