"""The official SDK's client at the MCP endpoint of a gateway, in either era of the protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx2
from gateway.running_gateway import ANY_KEY, RunningGateway
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

Mode = Literal["legacy", "auto"]
MODES: tuple[Mode, ...] = ("legacy", "auto")
"""The client's names for the eras: with `auto` it speaks the modern one, since the gateway does."""


@asynccontextmanager
async def connect(
    gateway: RunningGateway | str, mode: Mode = "auto", *, key: str = ANY_KEY, path: str = "/mcp", **options: Any
) -> AsyncIterator[Client]:
    """A client that has connected to a gateway, or to a URL. `options`: its callbacks."""
    url = gateway if isinstance(gateway, str) else gateway.url
    headers = {"authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        transport = streamable_http_client(f"{url}{path}", http_client=http)
        async with Client(transport, mode=mode, read_timeout_seconds=60, **options) as client:
            yield client


def text_of(result: Any) -> str:
    """The text of a result of a tool."""
    return "\n".join(block.text for block in result.content)
