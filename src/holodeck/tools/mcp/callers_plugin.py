"""A server that each caller calls with a login of its own, as a plugin.

The plugin itself only lists the tools, with the login of an operator. Each call goes through the connection of its
caller, once the program in front has said how those are opened; until then, the plugin is like any other. Neither
resources nor prompts are listed: they are those of the operator's login.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from holodeck.lib.byte_budget import Reservation
from holodeck.lib.errors import MCPError
from holodeck.models.auth import OAuthAuthorizationCode
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.content import CallRecord, MCPToolResult
from holodeck.tools.mcp.discovery import READ_RESOURCE_TOOL, MCPPromptInfo
from holodeck.tools.mcp.plugin import MCPPlugin
from holodeck.tools.mcp.protocol.jsonrpc import Message
from holodeck.tools.mcp.protocol.peer import Peer
from holodeck.tools.mcp.resource_discovery import MCPResourceInfo, MCPResourceTemplateInfo


class OpenConnection(Protocol):
    """Opens a caller's own connection to a server for one call. Raises `MCPError`, as where the caller has no login."""

    def __call__(self, caller_id: str, peer: Peer | None) -> AbstractAsyncContextManager[MCPPlugin]: ...


def is_per_caller(tool: MCPTool) -> bool:
    """Return whether each caller calls a server with a login of its own."""
    return isinstance(tool.auth, OAuthAuthorizationCode) and tool.auth.per == "caller"


class CallersPlugin(MCPPlugin):
    """A server whose calls are made with the connections of their callers."""

    _find_connections: Callable[[], OpenConnection | None] | None = None

    def use_caller_connections(self, find: Callable[[], OpenConnection | None]) -> None:
        """Make each call with a connection of its caller, while `find` returns what opens one.

        This plugin then lists the tools, and neither resources nor prompts: they are those of another login.
        """
        self._find_connections = find

    @property
    def _open_own(self) -> OpenConnection | None:
        return None if self._find_connections is None else self._find_connections()

    @property
    def has_resources(self) -> bool:
        return self._open_own is None and super().has_resources

    async def list_prompts(self) -> list[MCPPromptInfo]:
        return await super().list_prompts() if self._open_own is None else []

    async def list_resources(self) -> list[MCPResourceInfo]:
        return await super().list_resources() if self._open_own is None else []

    async def list_resource_templates(self) -> list[MCPResourceTemplateInfo]:
        return await super().list_resource_templates() if self._open_own is None else []

    async def call(
        self, name: str, arguments: Mapping[str, Any], *, caller_id: str = "", peer: Peer | None = None, **options: Any
    ) -> MCPToolResult:
        open_own = self._open_own
        if open_own is None:
            return await super().call(name, arguments, caller_id=caller_id, peer=peer, **options)
        try:
            async with open_own(caller_id, peer) as own:
                return await own.call(name, arguments, caller_id=caller_id, peer=peer, **options)
        except MCPError as error:
            return self._build_unsent(name, error)

    async def request_call(
        self, name: str, arguments: Mapping[str, Any], *, caller_id: str = "", peer: Peer | None = None, **options: Any
    ) -> Message:
        open_own = self._open_own
        if open_own is None:
            return await super().request_call(name, arguments, caller_id=caller_id, peer=peer, **options)
        async with open_own(caller_id, peer) as own:
            return await own.request_call(name, arguments, caller_id=caller_id, peer=peer, **options)

    async def request_resource(self, uri: str, *, caller_id: str = "", peer: Peer | None = None) -> Mapping[str, Any]:
        open_own = self._open_own
        if open_own is None:
            return await super().request_resource(uri, caller_id=caller_id, peer=peer)
        async with open_own(caller_id, peer) as own:
            return await own.request_resource(uri, caller_id=caller_id, peer=peer)

    async def read_resource(self, uri: str, *, caller_id: str = "") -> MCPToolResult:
        open_own = self._open_own
        if open_own is None:
            return await super().read_resource(uri, caller_id=caller_id)
        try:
            async with open_own(caller_id, None) as own:
                return await own.read_resource(uri, caller_id=caller_id)
        except MCPError as error:
            return self._build_unsent(READ_RESOURCE_TOOL.name, error)

    def _build_unsent(self, name: str, error: MCPError) -> MCPToolResult:
        """Return the result of a call that was not sent."""
        return self._result_builder.build_failure(error, CallRecord(name, "", Reservation(self.budget)))
