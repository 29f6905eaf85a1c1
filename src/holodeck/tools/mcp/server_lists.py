"""The lists of one server: its tools, prompts, resources and resource templates, cached and refreshed on changes."""

from __future__ import annotations

from urllib.parse import unquote

from holodeck.lib import log
from holodeck.lib.errors import MCPToolNotFoundError
from holodeck.lib.escape import one_line
from holodeck.lib.limits import MAX_SHOWN_CHARS
from holodeck.lib.net.uri_template import match_template
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.connection.connection import Connection
from holodeck.tools.mcp.discovery import MCPPromptInfo, MCPToolInfo, list_prompts, list_tools, text_or_none
from holodeck.tools.mcp.errors import ErrorFactory
from holodeck.tools.mcp.lock.drift import ServerLock, ToolDrift
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
        self._lock = lock
        self.tools: CachedList[MCPToolInfo] = CachedList(
            tool.name,
            lambda session: list_tools(session, tool, lock, self.tools.listing.items),
            lambda info: (info.name, info.model_name),
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
        self.instructions: str | None = None
        """The instructions of the server, with invisible characters escaped; None if they differ from the lock."""
        self._instructions_drift: ToolDrift | None = None

    def watch(self, connection: Connection) -> None:
        """Follow the changes of the lists on a new connection, and read the instructions that came with it."""
        text = None if connection.session.terms is None else text_or_none(connection.session.terms.instructions)
        drift = None if self._lock is None else self._lock.find_instructions_drift(text)
        if drift is not None and drift != self._instructions_drift:
            log.warning("mcp.withheld", server=self._config.name, reason=drift.reason)
        self.instructions, self._instructions_drift = None if drift is not None else text, drift
        self.watcher.watch(connection)

    @property
    def withheld_texts(self) -> list[ToolDrift]:
        """The prompts, resources, templates and instructions that are not passed on, as they differ from the lock."""
        lists = (self.prompts, self.resources, self.templates)
        drift = [each for cached in lists for each in cached.listing.withheld]
        return drift if self._instructions_drift is None else [*drift, self._instructions_drift]

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

    async def require_prompt(self, session: Session, name: str) -> str:
        """Return the server's own name of a prompt. Raises MCPProtocolError for one that is not as the lock has it."""
        if self._config.load_prompts or self._lock is not None:
            await self.prompts.get_current(session)
        known = self.prompts.find(session, name)
        if known is None and self._lock is not None and not self._lock.may_change("prompt"):
            text = f"the prompt '{name}' is not as holodeck.lock has it, or the server does not have it."
            raise self._errors.protocol("prompts/get", text, is_public=True)
        return known.name if known is not None else name

    async def check_resource(self, session: Session, uri: str) -> None:
        """Raise MCPProtocolError for a resource that the server lists, or has a template for, otherwise than the lock.

        One that no list has can be read: a tool may link to it.
        """
        if self._lock is None:
            return
        resources, templates = await self.resources.get_current(session), await self.templates.get_current(session)
        if self.resources.find(session, uri) is not None:
            return
        plain = _normalize(uri)
        is_withheld = any(_normalize(each.tool) == plain for each in resources.withheld)
        if not is_withheld and not any(match_template(each.uri_template, uri) is not None for each in templates.items):
            is_withheld = any(match_template(_normalize(each.tool), plain) is not None for each in templates.withheld)
        if is_withheld:
            text = f"the resource '{one_line(uri, MAX_SHOWN_CHARS)}' is not as holodeck.lock has it."
            raise self._errors.protocol("resources/read", text, is_public=True)


def _normalize(uri: str) -> str:
    """Return the spelling of a URI by which two that a server may take for the same are equal."""
    return unquote(uri).casefold()
