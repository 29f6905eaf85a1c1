"""Connections to MCP servers before a request needs them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.server_tools import ServerTools

# Servers that are connected at the same time: a process that starts takes much of a core.
MAX_CONNECTING = 4


async def connect_servers(server_tools: Iterable[ServerTools]) -> None:
    """Connect servers and list their tools, a few at a time. Each one logs how that went.

    A request that needs one meanwhile does not wait for its turn here. Cancelling this starts no further server; those
    that are being connected belong to their `ServerTools`.
    """
    slots = asyncio.Semaphore(MAX_CONNECTING)

    async def connect(offer: ServerTools) -> None:
        async with slots:
            listing = offer.request_listing()
            if listing is not None:
                await asyncio.wait({listing})

    async with asyncio.TaskGroup() as group:
        for offer in server_tools:
            if _has_own_connection(offer.server.config):
                group.create_task(connect(offer))


def _has_own_connection(tool: MCPTool) -> bool:
    """Return whether a server can be connected without a request, and is asked for something by that."""
    needs_caller = tool.caller_authorization and not tool.headers and tool.auth is None
    return not needs_caller and (tool.load_tools or tool.load_resources)
