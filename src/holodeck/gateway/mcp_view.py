"""The MCP servers of one request: which it may use, which of their tools, and which calls must be approved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

from holodeck.gateway.problems import WireError
from holodeck.gateway.wire.mcp_declarations import MCPDeclaration
from holodeck.gateway.wire.mcp_items import Listing, MCPRoute
from holodeck.models.exchange import ToolSpec
from holodeck.models.items import FunctionCall
from holodeck.tools.executor import ToolCall, ToolKind, ToolResult
from holodeck.tools.mcp.executor import MCPExecutor, Route


class RequestServers:
    """A view of the gateway's servers. With declarations only those are seen; without, all of them."""

    def __init__(self, executor: MCPExecutor, declarations: Sequence[MCPDeclaration]) -> None:
        self._executor = executor
        self._declared = {declaration.server_label: declaration for declaration in declarations}
        for label, declaration in self._declared.items():
            if declaration.server_url is not None:
                message = "This gateway does not dial servers that a request names. Use the label of a configured one."
                raise WireError(400, message, kind="invalid_request", code="unsupported_value", param="tools")
            if label not in executor.servers:
                message = f"There is no MCP server '{label}' here."
                raise WireError(400, message, kind="invalid_request", code="invalid_value", param="tools")

    @property
    def kind(self) -> ToolKind:
        return ToolKind.MCP

    async def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(spec for spec in await self._executor.specs() if self._sees(spec.name))

    def can_execute(self, name: str) -> bool:
        return self._sees(name)

    def may_repeat(self, name: str) -> bool:
        return self._sees(name) and self._executor.may_repeat(name)

    async def execute(self, call: ToolCall) -> ToolResult:
        if not self._sees(call.name):
            return ToolResult.failed(call.call_id, f"There is no tool '{call.name}'.")
        return await self._executor.execute(call)

    def holds(self, call: FunctionCall) -> bool:
        """True for a call that a person must approve first, by the client's own rules."""
        route = self.route(call.name)
        return route is not None and route.needs_approval

    def route(self, name: str) -> MCPRoute | None:
        route = self._executor.route(name)
        if route is None or not self._sees(name):
            return None
        declaration = self._declared.get(route.server.name)
        asks = declaration is not None and declaration.approval.asks(route.tool.name, is_read_only=_reads(route))
        return MCPRoute(server_label=route.server.name, tool=route.tool.name, needs_approval=asks)

    def listings(self) -> list[Listing]:
        """What the declared servers offer, or why it is not known."""
        found = []
        for label in self._declared:
            error = self._executor.failures.get(label)
            tools = [_shown(route) for route in self._routes_of(label)]
            found.append(Listing(server_label=label, tools=tools, error=str(error) if error is not None else None))
        return found

    def names(self, label: str, tool: str | None) -> Iterable[str]:
        """The names under which the model knows a server's tool, or all of them."""
        for name, route in self._executor.routes():
            if route.server.name == label and (tool is None or route.tool.name == tool) and self._sees(name):
                yield name

    def _routes_of(self, label: str) -> Iterable[Route]:
        return (route for name, route in self._executor.routes() if route.server.name == label and self._sees(name))

    def _sees(self, name: str) -> bool:
        route = self._executor.route(name)
        if route is None:
            return False
        if not self._declared:
            return True
        declaration = self._declared.get(route.server.name)
        if declaration is None:
            return False
        return declaration.allowed is None or declaration.allowed.matches(route.tool.name, is_read_only=_reads(route))


def _reads(route: Route) -> bool:
    return route.tool.annotations.get("readOnlyHint") is True


def _shown(route: Route) -> dict[str, Any]:
    tool = route.tool
    annotations = asdict(tool.annotations) if is_dataclass(tool.annotations) else dict(tool.annotations)
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": dict(tool.input_schema),
        "annotations": annotations or None,
    }
