"""The part of the servers and agents that one client may see and use."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field
from typing import Protocol

from holodeck.lib.record import record
from holodeck.tools.executor import CallTarget, TargetKind


class Scope(Protocol):
    """The rules for what a caller may use, by name."""

    def allows_server(self, server: str) -> bool: ...

    def allows_tool(self, server: str, tool: str) -> bool: ...

    def allows_agent(self, name: str) -> bool: ...

    def allows_resources(self, server: str) -> bool: ...

    def allows_links(self, server: str) -> bool: ...

    def allows_prompt(self, server: str, prompt: str) -> bool: ...

    def allows(self, target: CallTarget) -> bool: ...


@record
class View:
    """A caller, its scope, and the one server that it has chosen, if any."""

    caller_id: str
    scope: Scope
    server: str | None = None
    """Only this server, and no agents. None: all of them."""
    has_agents: bool = True
    """Whether agents are offered as tools."""
    account: object = field(default=None, compare=False)
    """Who is charged for the runs of agents, as the door knows it that made the view."""

    def has_server(self, server: str) -> bool:
        return self.server in (None, server) and self.scope.allows_server(server)

    def has_any_server(self, servers: Collection[str] | None) -> bool:
        """Return whether the client may use one of these servers. None: it may be any."""
        return servers is None or any(map(self.has_server, servers))

    def has_tool(self, server: str, tool: str) -> bool:
        return self.has_server(server) and self.scope.allows_tool(server, tool)

    def has_resources(self, server: str) -> bool:
        return self.has_server(server) and self.scope.allows_resources(server)

    def has_links(self, server: str) -> bool:
        return self.has_server(server) and self.scope.allows_links(server)

    def has_prompt(self, server: str, prompt: str) -> bool:
        return self.has_server(server) and self.scope.allows_prompt(server, prompt)

    def has_agent(self, name: str) -> bool:
        return self.has_agents and self.server is None and self.scope.allows_agent(name)

    def allows(self, target: CallTarget) -> bool:
        """Return whether the client may make a call: the rule that its pipeline asks, whatever the lists have."""
        if target.kind is TargetKind.AGENT:
            return self.has_agent(target.tool)
        return self.has_server(target.server) and self.scope.allows(target)
