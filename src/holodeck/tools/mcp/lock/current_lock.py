"""The lock of a server as the server is now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from holodeck.lib.errors import MCPProtocolError
from holodeck.tools.mcp.lock.drift import ServerLock, lock_entry, lock_instructions, lock_tool

if TYPE_CHECKING:
    from holodeck.tools.mcp.client import MCPClient

T = TypeVar("T")


async def build_current_lock(client: MCPClient) -> ServerLock:
    """Return everything that a lock has of a server, as the server lists it now. Raises MCPError.

    The client must have no lock itself: what its lock withholds would be missing.
    """
    tools = await client.list_tools()
    prompts = await _list_or_none(client.list_prompts)
    resources = await _list_or_none(client.list_resources)
    templates = await _list_or_none(client.list_resource_templates)
    info, instructions = client.server_info, client.instructions
    return ServerLock(
        tools={each.name: lock_tool(each) for each in tools},
        prompts={each.name: lock_entry("prompt", each.raw) for each in prompts},
        resources={each.uri: lock_entry("resource", each.raw) for each in resources},
        templates={each.uri_template: lock_entry("template", each.raw) for each in templates},
        instructions=None if instructions is None else lock_instructions(instructions),
        version=" ".join(info[key] for key in ("name", "version") if isinstance(info.get(key), str)),
    )


async def _list_or_none(fetch: Callable[[], Awaitable[list[T]]]) -> list[T]:
    """Return a list of the server. One that it refuses is empty: what it lists later is not accepted."""
    try:
        return await fetch()
    except MCPProtocolError:
        return []
