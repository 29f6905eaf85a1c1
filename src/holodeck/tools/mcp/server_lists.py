"""The lists of one server: its tools, prompts, resources and resource templates, cached and refreshed on changes."""

from __future__ import annotations

from holodeck.lib.errors import MCPToolNotFoundError
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.discovery import MCPPromptInfo, MCPToolInfo, list_prompts, list_tools
from holodeck.tools.mcp.errors import ErrorFactory
from holodeck.tools.mcp.lock.drift import ServerLock
from holodeck.tools.mcp.names import normalize_tool_name
from holodeck.tools.mcp.protocol.server_requests import Callbacks
from holodeck.tools.mcp.protocol.session import Session
from holodeck.tools.mcp.resource_discovery import (
    MCPResourceInfo,
    MCPResourceTemplateInfo,
    list_resource_templates,
    list_resources,
)
from holodeck.tools.mcp.tool_cache import CachedList, ListChangeWatcher
from holodeck.tools.mcp.tool_patterns import is_allowed

# Seconds before the list is fetched again for a call of a tool that is not listed.
LIST_RECHECK = 5.0


class ServerLists:
    """The cached lists of one server, and the watcher that refreshes them."""

    def __init__(
        self, tool: MCPTool, callbacks: Callbacks, errors: ErrorFactory, lock: ServerLock | None = None
    ) -> None:
        """`lock`: the accepted entries of all lists; others are withheld. None: all are accepted."""
        self._config = tool
        self._errors = errors
        self.tools: CachedList[MCPToolInfo] = CachedList(
            tool.name, lambda session: list_tools(session, tool, lock), lambda info: (info.name, info.model_name)
        )
        self.prompts: CachedList[MCPPromptInfo] = CachedList(
            tool.name,
            lambda session: list_prompts(session, tool, lock),
            lambda info: (info.name, normalize_tool_name(info.name)),
        )
        self.resources: CachedList[MCPResourceInfo] = CachedList(
            tool.name, lambda session: list_resources(session, tool, lock), lambda info: (info.uri,)
        )
        self.templates: CachedList[MCPResourceTemplateInfo] = CachedList(
            tool.name, lambda session: list_resource_templates(session, tool, lock), lambda info: (info.uri_template,)
        )
        self.watcher = ListChangeWatcher(
            {"tools": [self.tools], "prompts": [self.prompts], "resources": [self.resources, self.templates]},
            callbacks.list_listeners(tool.name),
            server=tool.name,
        )

    async def require_tool(self, session: Session, name: str) -> MCPToolInfo:
        """Return a tool by the server's or the model's name of it, listed again if it is not known.

        Raises MCPToolNotFoundError, also for a tool that is not allowed.
        """
        known = self.tools.find(session, name)
        if known is not None:
            return known
        unlisted = MCPToolInfo(name=name, model_name=normalize_tool_name(name))
        if is_allowed(self._config, unlisted):
            if not self._config.load_tools:
                return unlisted
            if self.tools.age(session) > LIST_RECHECK:
                await self.tools.refresh(session)
            info = self.tools.find(session, name)
            if info is not None:
                return info
            reason = self.tools.listing.rejected.get(name)
            text = f"it has no tool '{name}'" + (f" that can be used: {reason}." if reason else ".")
        else:
            text = f"the tool '{name}' is not allowed ('allowed_tools', 'denied_tools')."
        raise self._errors.build(MCPToolNotFoundError, "call", text, tool=name)
