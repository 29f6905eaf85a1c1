"""An MCP server as a plugin: `async with create_mcp_plugin(tool) as server: await server.call_tool("add", a=2)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from holodeck.lib.byte_budget import ByteBudget
from holodeck.lib.errors import MCPError
from holodeck.lib.secret import Secret
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.client import MCPClient
from holodeck.tools.mcp.connection.connection import ConnectionState
from holodeck.tools.mcp.content import MCPToolResult, PromptResult, prompt_of
from holodeck.tools.mcp.discovery import MCPPromptInfo, MCPToolInfo
from holodeck.tools.mcp.protocol.session import OnProgress
from holodeck.tools.mcp.protocol.versions import ProtocolEra

BuildPlugin = Callable[[MCPTool, tuple[Secret, ...]], "MCPPlugin"]


class MCPPlugin:
    """One MCP server, whatever its transport. Nothing is started before the first use."""

    def __init__(self, tool: MCPTool, client: MCPClient, build_similar: BuildPlugin | None = None) -> None:
        """`build_similar` makes a plugin of a definition as this one was made."""
        self.config = tool
        self._client = client
        self._build_similar = build_similar

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def description(self) -> str | None:
        """What the file says of the server, or else what it says of itself."""
        return self.config.description or self.instructions

    def with_headers(self, headers: Mapping[str, Secret], secrets: Sequence[Secret] = ()) -> MCPPlugin:
        """The same server under the same rules, reached with these headers and with no credentials of its file.

        Nothing is shared with this one but how many calls the server gets at once. `secrets` are what no error may
        show, beside the headers.
        """
        assert self._build_similar is not None  # noqa: S101 - every plugin of a remote server is made by the factory
        return self._build_similar(
            self.config.model_copy(update={"headers": dict(headers), "auth": None}), tuple(secrets)
        )

    def explain(self, error: MCPError) -> str:
        """What of an error of this server a caller is told who may not operate it."""
        return self._client.explain(error)

    def share_limit(self, other: MCPPlugin) -> None:
        """This is the same server as another: together they call it no more often at once than one may."""
        self._client.call_limit = other._client.call_limit

    def use_budget(self, budget: ByteBudget) -> None:
        """Count what this server answers in a budget that others share. Holds for connections made from now on."""
        self._client.budget = budget

    @property
    def state(self) -> ConnectionState:
        return self._client.supervisor.state

    @property
    def era(self) -> ProtocolEra | None:
        """Which generation of the protocol the server speaks; None before the first connection."""
        terms = self._client.supervisor.terms
        return terms.era if terms is not None else None

    @property
    def protocol_version(self) -> str | None:
        terms = self._client.supervisor.terms
        return terms.version if terms is not None else None

    @property
    def server_info(self) -> Mapping[str, Any]:
        """Name and version, as the server gives them; it may give none."""
        terms = self._client.supervisor.terms
        return terms.server_info if terms is not None else {}

    @property
    def instructions(self) -> str | None:
        terms = self._client.supervisor.terms
        return terms.instructions if terms is not None else None

    async def connect(self) -> None:
        """Connect now instead of on first use. Raises MCPError."""
        await self._client.connect()

    async def disconnect(self) -> None:
        """End the connection, and the server if we started it. Bounded; may be called twice."""
        await self._client.close()

    close = disconnect

    async def list_tools(self) -> list[MCPToolInfo]:
        """What the server offers now. Raises MCPError."""
        return await self._client.list_tools()

    async def list_prompts(self) -> list[MCPPromptInfo]:
        """What prompts the server has now. Raises MCPError."""
        return await self._client.list_prompts()

    async def call_tool(self, name: str, /, **arguments: Any) -> MCPToolResult:
        """Call a tool. A failure is a result with `success=False`; only cancellation is raised."""
        return await self._client.call(name, arguments)

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        on_progress: OnProgress | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it is the call's own deadline, which progress extends
        key: str = "",
        caller_id: str = "",
    ) -> MCPToolResult:
        """`call_tool` for arguments that are already a mapping. `key`: the same for every attempt at one call.

        `caller_id`: for whom; where calls must wait, callers take turns.
        """
        return await self._client.call(
            name, arguments, on_progress=on_progress, seconds=timeout, key=key, caller_id=caller_id
        )

    def may_repeat(self, tool: MCPToolInfo) -> bool:
        """True for a tool that the operator calls idempotent."""
        return self._client.may_repeat(tool)

    @property
    def unmatched_patterns(self) -> Sequence[str]:
        """A sentence for each pattern of the file that matched no tool when they were listed last."""
        return self._client.unmatched

    async def get_prompt(self, name: str, /, **arguments: str) -> PromptResult:
        """A prompt, filled in. Raises MCPError."""
        return prompt_of(await self._client.get_prompt(name, arguments))

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Any request of the protocol that has no method of its own here. Gives its result. Raises MCPError."""
        return await self._client.request(method, params)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.disconnect()


class MCPStdioPlugin(MCPPlugin):
    """A server that we start, and talk to over its standard input and output."""


class MCPSsePlugin(MCPPlugin):
    """A server at a URL that answers on one event stream."""


class MCPWebsocketPlugin(MCPPlugin):
    """A server at a WebSocket URL."""


class MCPStreamableHttpPlugin(MCPPlugin):
    """A server at a URL that answers each request by itself."""


MCPPluginWrapper = MCPPlugin
"""The name by which the data model knows it."""

__all__ = [
    "MCPError",
    "MCPPlugin",
    "MCPPluginWrapper",
    "MCPSsePlugin",
    "MCPStdioPlugin",
    "MCPStreamableHttpPlugin",
    "MCPWebsocketPlugin",
]
