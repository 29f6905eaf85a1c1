"""The tools, prompts and resources of several servers, and agents, as one list each.

Servers start when they are first needed, and a list waits for one that is starting as long as its `startup_timeout`.
One that is down, slow or broken is missing from a list and does not fail it: the list names it, and clients are told
that it has changed when the server is there. Tools have the names that models see (`tools.mcp.names`). Of two prompts
with the same name, and of two resources with the same address, the one of the server that is configured first is found
by it; the other prompt is offered as `server__prompt`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from holodeck.lib import log
from holodeck.lib.errors import MCPError
from holodeck.lib.net.uri_template import match_template
from holodeck.lib.record import record
from holodeck.mcp_server.agent_tools import AgentTool
from holodeck.mcp_server.view import View
from holodeck.tools.mcp.connection.connection import ConnectionState
from holodeck.tools.mcp.discovery import READ_RESOURCE_TOOL, MCPPromptInfo
from holodeck.tools.mcp.executor import MCPExecutor, ToolRoute
from holodeck.tools.mcp.plugin import MCPPlugin
from holodeck.tools.mcp.resource_discovery import MCPResourceInfo, MCPResourceTemplateInfo
from holodeck.tools.mcp.tool_patterns import is_allowed, is_denied

# Seconds that a list of prompts or resources waits for one server that is connected.
PART_TIMEOUT = 10.0
# Seconds between two reports that a list waits for servers.
REPORT_INTERVAL = 5.0
# Fields of a tool that say how it can be run behind; a call through this server is an ordinary one.
_HIDDEN_FIELDS = frozenset({"execution"})
# Selections of servers that are remembered: one for each scope of a key, and each server alone.
MAX_SELECTIONS = 1_000

T = TypeVar("T")
Part = tuple[MCPPlugin, Sequence[T]]
OnWait = Callable[[str], None]
"""Called with a line of text, again and again, while a list waits for servers."""


@record
class Listing:
    """A list for a client, and the servers that are missing from it."""

    entries: Sequence[Mapping[str, Any]]
    missing: Mapping[str, str]
    """By server, why it is missing."""
    asked: int
    """The number of servers that the list is of."""

    @property
    def is_void(self) -> bool:
        """Whether there is nothing in it because no server is there."""
        return not self.entries and bool(self.missing) and len(self.missing) == self.asked


class Catalogue:
    """Everything that clients can list and use. The executor and the agents belong to the caller of the constructor."""

    def __init__(self, executor: MCPExecutor, agents: Sequence[AgentTool] = ()) -> None:
        self.executor = executor
        self._agents = {agent.name: agent for agent in agents}
        self._selections: dict[frozenset[str], MCPExecutor] = {}

    async def list_tools(self, view: View, on_wait: OnWait | None = None) -> Listing:
        """Return the tools that a client may use, those of agents last."""
        executor = self._select(view)
        await self._list_servers(executor, on_wait)
        entries = [_tool_entry(route) for route in executor.routes.values() if view.has_tool(*route.target)]
        agents = ((self._agent_name(agent), agent) for agent in self._agents.values())
        entries += [agent.to_entry(name) for name, agent in agents if view.has_agent(agent.agent)]
        return Listing(entries=entries, missing=_find_missing(executor), asked=len(executor.selected))

    def find_missing(self, view: View) -> Mapping[str, str]:
        """Return by server why the tools of a client are not there, as of the latest list."""
        return _find_missing(self._select(view))

    async def find_tool(self, name: str, view: View) -> ToolRoute | AgentTool | None:
        """Return the tool or agent of a name, or None if the client has none of this name."""
        executor = self._select(view)
        route = executor.find_route(name)
        if route is None:
            await self._list_servers(executor)
            route = executor.find_route(name)
        if route is not None:
            return route if view.has_tool(*route.target) else None
        agents = (agent for agent in self._agents.values() if self._agent_name(agent) == name)
        return next((agent for agent in agents if view.has_agent(agent.agent)), None)

    async def refresh_tools(self, view: View) -> None:
        """Use the latest lists of the servers from now on: a tool was found to be changed."""
        await self._select(view).specs()

    async def list_prompts(self, view: View) -> Listing:
        missing: dict[str, str] = {}
        named = await self._name_prompts(view, missing)
        entries = [{**prompt.raw, "name": name} for name, (_, prompt) in named.items()]
        return Listing(entries=entries, missing=missing, asked=len(self.servers(view)))

    async def find_prompt(self, name: str, view: View) -> tuple[MCPPlugin, MCPPromptInfo] | None:
        """Return the server and the prompt of a name, or None."""
        return (await self._name_prompts(view, {})).get(name)

    async def list_resources(self, view: View) -> Listing:
        missing: dict[str, str] = {}
        found: dict[str, dict[str, Any]] = {}
        for _, resources in await self._collect_resources(view, missing):
            for resource in resources:
                found.setdefault(resource.uri, {**resource.raw, "uri": resource.uri})
        return Listing(entries=list(found.values()), missing=missing, asked=len(self._readable_servers(view)))

    async def list_resource_templates(self, view: View) -> Listing:
        missing: dict[str, str] = {}
        parts = await self._collect_templates(view, missing)
        entries = [{**each.raw, "uriTemplate": each.uri_template} for _, part in parts for each in part]
        return Listing(entries=entries, missing=missing, asked=len(self._readable_servers(view)))

    async def find_resource_server(self, uri: str, view: View) -> MCPPlugin | None:
        """Return the server that lists a resource, or has a template for it; or else the only one with resources."""
        for server, resources in await self._collect_resources(view, {}):
            if any(each.uri == uri for each in resources):
                return server
        for server, templates in await self._collect_templates(view, {}):
            if any(match_template(each.uri_template, uri) is not None for each in templates):
                return server
        able = [server for server in self._readable_servers(view) if server.has_resources]
        return able[0] if len(able) == 1 else None

    def find_linked_server(self, name: str | None, view: View) -> MCPPlugin | None:
        """Return the server of this name, if the client may read what its tools link to."""
        server = None if name is None or not view.has_links(name) else self.executor.servers.get(name)
        return None if server is None or is_denied(server.config, READ_RESOURCE_TOOL) else server

    async def find_template_server(self, template: str, view: View) -> MCPPlugin | None:
        """Return the server that has a template of this text, or a resource of this address."""
        for server, templates in await self._collect_templates(view, {}):
            if any(each.uri_template == template for each in templates):
                return server
        return await self.find_resource_server(template, view)

    def servers(self, view: View) -> list[MCPPlugin]:
        """Return the servers that a client may use, as they are configured."""
        return [server for name, server in self.executor.servers.items() if view.has_server(name)]

    def _readable_servers(self, view: View) -> list[MCPPlugin]:
        """Return the servers whose resources a client may read, by its scope and by the patterns of the server."""
        return [
            server
            for server in self.servers(view)
            if view.has_resources(server.name) and is_allowed(server.config, READ_RESOURCE_TOOL)
        ]

    def _agent_name(self, agent: AgentTool) -> str:
        """Return the name of an agent's tool, which gives way to a tool of any server: models know that by its name."""
        listed = (offer.latest_tools or () for offer in self.executor.server_tools.values())
        is_taken = any(tool.model_name == agent.name for tools in listed for tool in tools)
        return f"{agent.name}-agent" if is_taken else agent.name

    def _select(self, view: View) -> MCPExecutor:
        """Return an executor of the servers that a client may use. The others are neither asked nor started.

        They do not count for names either: clients remember the names of tools, for example which ones may be called
        without a question, so a name must not change because another client lists another server.
        """
        names = frozenset(name for name in self.executor.server_tools if view.has_server(name))
        if len(names) == len(self.executor.server_tools):
            return self.executor
        if names not in self._selections:
            if len(self._selections) >= MAX_SELECTIONS:
                self._selections.pop(next(iter(self._selections)))
            self._selections[names] = self.executor.isolate(names)
        return self._selections[names]

    async def _list_servers(self, executor: MCPExecutor, on_wait: OnWait | None = None) -> None:
        """Have the servers of an executor listed, and wait for those that are starting."""
        await executor.specs()
        is_awaited = False
        while starting := [offer for offer in executor.selected.values() if offer.is_starting]:
            is_awaited = True
            if on_wait is not None:
                on_wait(f"Waiting for {', '.join(offer.server.name for offer in starting)} to start")
            await asyncio.gather(*(offer.wait_listing(REPORT_INTERVAL) for offer in starting))
        if is_awaited:
            await executor.specs()

    async def _name_prompts(self, view: View, missing: dict[str, str]) -> dict[str, tuple[MCPPlugin, MCPPromptInfo]]:
        named: dict[str, tuple[MCPPlugin, MCPPromptInfo]] = {}
        parts = await self._collect(self.servers(view), lambda server: server.list_prompts(), missing)
        for server, prompts in parts:
            for prompt in prompts:
                name = prompt.name if prompt.name not in named else f"{server.name}__{prompt.name}"
                named.setdefault(name, (server, prompt))
        # Those out of scope count for names, so that a name does not change with the scope of a key.
        return {name: found for name, found in named.items() if view.has_prompt(found[0].name, found[1].name)}

    async def _collect_resources(self, view: View, missing: dict[str, str]) -> list[Part[MCPResourceInfo]]:
        return await self._collect(self._readable_servers(view), lambda server: server.list_resources(), missing)

    async def _collect_templates(self, view: View, missing: dict[str, str]) -> list[Part[MCPResourceTemplateInfo]]:
        servers = self._readable_servers(view)
        return await self._collect(servers, lambda server: server.list_resource_templates(), missing)

    async def _collect(
        self,
        servers: Sequence[MCPPlugin],
        fetch: Callable[[MCPPlugin], Awaitable[Sequence[T]]],
        missing: dict[str, str],
    ) -> list[Part[T]]:
        """Return the lists of servers, in their order; those that are not there are added to `missing`."""
        parts = await asyncio.gather(*(self._fetch(one, fetch) for one in servers))
        missing.update({one.name: part for one, part in zip(servers, parts, strict=True) if isinstance(part, str)})
        return [(one, part) for one, part in zip(servers, parts, strict=True) if not isinstance(part, str)]

    async def _fetch(
        self, server: MCPPlugin, fetch: Callable[[MCPPlugin], Awaitable[Sequence[T]]]
    ) -> Sequence[T] | str:
        """Return the list of a server, or why it is not there."""
        offer = self.executor.server_tools[server.name]
        # A server that is down is being reconnected in the background.
        if offer.failure is not None:
            return offer.missing_reason
        is_connected = server.state is ConnectionState.CONNECTED
        try:
            async with asyncio.timeout(PART_TIMEOUT if is_connected else offer.startup_seconds):
                return await fetch(server)
        except MCPError as error:
            reason = server.explain(error)
        except TimeoutError:
            reason = f"Server '{server.name}' has not answered in time, or is still starting."
        log.debug("mcp_server.part_missing", server=server.name, error=reason)
        # Clients are told when it is there: its tools are listed then.
        offer.request_listing()
        offer.mark_missed()
        return reason


def _find_missing(executor: MCPExecutor) -> dict[str, str]:
    return {each.name: each.reason for each in executor.missing_servers()}


def _tool_entry(route: ToolRoute) -> dict[str, Any]:
    kept = {key: value for key, value in route.tool.raw.items() if key not in _HIDDEN_FIELDS}
    return {**kept, "name": route.spec.name}
