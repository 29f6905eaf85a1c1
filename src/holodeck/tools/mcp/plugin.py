"""An MCP server as a plugin: `async with create_mcp_plugin(tool) as server: await server.call_tool("add", a=2)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from holodeck.lib.errors import MCPError
from holodeck.lib.secret import Secret
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.call_limit import CallLimit
from holodeck.tools.mcp.client import MCPClient
from holodeck.tools.mcp.connection.supervisor import StartLimits
from holodeck.tools.mcp.lock.drift import ServerLock
from holodeck.tools.mcp.protocol.server_requests import Callbacks
from holodeck.tools.mcp.transports.base import TransportSetup

if TYPE_CHECKING:
    from holodeck.tools.mcp.auth.provider import MCPAuthProvider

__all__ = [
    "MCPError",
    "MCPPlugin",
    "MCPPluginWrapper",
    "MCPSsePlugin",
    "MCPStdioPlugin",
    "MCPStreamableHttpPlugin",
    "MCPWebsocketPlugin",
]


class BuildSimilar(Protocol):
    """Builds the plugin of another definition with the settings of the first one; the server is then untrusted.

    `own`: what the plugin has for itself, as parameters of `create_mcp_plugin`.
    """

    def __call__(self, other: MCPTool, secrets: tuple[Secret, ...], **own: Any) -> MCPPlugin: ...


class MCPPlugin(MCPClient):
    """One MCP server, whatever its transport. Nothing is started before the first use."""

    def __init__(
        self,
        setup: TransportSetup,
        *,
        callbacks: Callbacks | None = None,
        limits: StartLimits | None = None,
        call_limit: CallLimit | None = None,
        lock: ServerLock | None = None,
        build_similar: BuildSimilar | None = None,
    ) -> None:
        super().__init__(setup, callbacks=callbacks, limits=limits, call_limit=call_limit, lock=lock)
        self._build_similar = build_similar
        self.name = self.config.name

    @property
    def description(self) -> str | None:
        """The description in the definition, or else the instructions of the server."""
        return self.config.description or self.instructions

    @property
    def auth(self) -> MCPAuthProvider | None:
        """The credentials that its connections send; None: only the headers of the definition."""
        return self._setup.auth

    def with_headers(self, headers: Mapping[str, Secret], secrets: Sequence[Secret] = ()) -> MCPPlugin:
        """Return a plugin of the same server with these headers and without the credentials of the definition.

        It shares the call limit and the budget with this plugin, and no connection. `secrets` are masked in errors, in
        addition to the headers.
        """
        assert self._build_similar is not None  # noqa: S101 - every plugin of a remote server is built by the factory
        tool = self.config.model_copy(update={"headers": dict(headers), "auth": None})
        return self._build_similar(tool, tuple(secrets), call_limit=self.call_limit, budget=self.budget)

    def with_auth(self, auth: MCPAuthProvider) -> MCPPlugin:
        """Return a plugin of the same server with other credentials, as `with_headers`."""
        assert self._build_similar is not None  # noqa: S101 - as in `with_headers`
        return self._build_similar(self.config, (), call_limit=self.call_limit, budget=self.budget, auth=auth)

    def has_same_definition(self, other: MCPPlugin) -> bool:
        """Return whether two plugins are of the same server in every respect: definition, folder and accepted tools."""
        return self.config == other.config and self.base_dir == other.base_dir and self.lock == other.lock

    def share_limit(self, other: MCPPlugin) -> None:
        """Share the call limit with another plugin of the same server."""
        self.call_limit = other.call_limit

    async def disconnect(self) -> None:
        """End the connection, and the process of the server if there is one. Bounded; may be called twice."""
        await self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.disconnect()


class MCPStdioPlugin(MCPPlugin):
    """A server that is a child process, reached over its standard input and output."""


class MCPSsePlugin(MCPPlugin):
    """A server at a URL that answers on one event stream."""


class MCPWebsocketPlugin(MCPPlugin):
    """A server at a WebSocket URL."""


class MCPStreamableHttpPlugin(MCPPlugin):
    """A server at a URL that answers each request by itself."""


MCPPluginWrapper = MCPPlugin
"""The name of `MCPPlugin` in the data model."""
