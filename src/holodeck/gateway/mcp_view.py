"""The MCP servers of one request: which it may use, which of their tools, and which calls must be approved."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, is_dataclass, replace
from typing import Any

from holodeck.engine.kept_steps import OUTCOME_UNKNOWN
from holodeck.gateway.pool import ServerPool
from holodeck.gateway.problems import server_unavailable
from holodeck.gateway.wire.fields import refuse
from holodeck.gateway.wire.mcp_declarations import MCPDeclaration
from holodeck.gateway.wire.mcp_items import Listing, MCPRoute
from holodeck.lib.errors import MCPError
from holodeck.models.events import MissingServer
from holodeck.models.exchange import ToolSpec
from holodeck.models.items import FunctionCall
from holodeck.tools.executor import ToolCall, ToolKind, ToolResult
from holodeck.tools.mcp.executor import MCPExecutor, Route
from holodeck.tools.mcp.names import full_name
from holodeck.tools.mcp.offer import ServerOffer
from holodeck.tools.mcp.plugin import MCPPlugin
from holodeck.tools.mcp.results import NEVER_SENT
from holodeck.tools.mcp.tool_patterns import needs_approval

_COUNTED_AS = {"server": "(of a request)", "tool": "(of a request)"}
"""Names that a client makes up would be labels without end on a dashboard."""


class RequestServers:
    """A view of the gateway's servers. With declarations only those are seen; without, all of them.

    Names mean what they meant at the latest `specs` of this request, whatever other requests find out meanwhile.
    """

    def __init__(
        self,
        executor: MCPExecutor,
        declarations: Sequence[MCPDeclaration],
        *,
        pool: ServerPool,
        caller: str,
        can_ask: bool = False,
        approved: Collection[str] = (),
        unknown: Collection[str] = (),
    ) -> None:
        """`can_ask`: the client can be shown a request for approval. `approved`: ids of calls that were approved.

        `unknown`: ids of calls that somebody who died may have run; they are not run again.

        Raises `BadRequestError` for a server that may not be used.
        """
        self._configured = self._executor = executor
        self._routes: Mapping[str, Route] = {}
        self._targets: dict[str, tuple[str, str]] = {}
        """The server and the tool for which calls that waited are meant, by the ids of the calls."""
        self._declared = {declaration.server_label: declaration for declaration in declarations}
        self._brought = [each for each in declarations if each.server_url is not None or each.has_credentials]
        self._brought_labels = {each.server_label for each in self._brought}
        # One that is reached with its caller's credentials is never reached with the operator's instead.
        self._configured_labels = [label for label in self._declared if label not in self._brought_labels]
        self._unavailable: dict[str, MCPError] = {}
        self._pool = pool
        self._caller = caller
        self._can_ask = can_ask
        self._approved = frozenset(approved)
        self._unknown = frozenset(unknown)
        self._vanished: dict[str, MCPRoute] = {}
        """Where calls that waited were to go, by the names that nothing has any more."""
        self.begun: set[str] = set()
        """The ids of calls that may have reached their tools."""
        if declarations:
            pool.rules.check(declarations, executor.offers)
            _check_configured(declarations, executor.servers)
            self._executor = executor.select(self._configured_labels)

    @property
    def kind(self) -> ToolKind:
        return ToolKind.MCP

    async def specs(self) -> tuple[ToolSpec, ...]:
        if not self._brought:
            return await self._read_specs()
        with self._with_brought():
            return await self._read_specs()

    async def _read_specs(self) -> tuple[ToolSpec, ...]:
        specs = await self._executor.specs()
        self._routes = self._executor.routes
        return tuple(spec for spec in specs if self._sees(spec.name))

    def can_execute(self, name: str) -> bool:
        return self._sees(name)

    def may_repeat(self, name: str) -> bool:
        route = self._routes.get(name)
        return route is not None and self._sees(name) and route.server.may_repeat(route.tool)

    def target_of(self, name: str) -> tuple[str, str] | None:
        """The server and the tool behind a name."""
        route = self._routes.get(name)
        return None if route is None else route.target

    async def execute(self, call: ToolCall) -> ToolResult:
        if call.call_id in self._unknown:
            return ToolResult.failed(call.call_id, OUTCOME_UNKNOWN, outcome="unknown")
        route = self._routes.get(call.name)
        if call.call_id in self._targets:  # it goes where it was approved for, whatever has its name now
            route = self._route_to(self._targets[call.call_id])
        if route is None or not self._sees_route(route):
            return ToolResult.failed(call.call_id, f"There is no tool '{call.name}'.")
        is_approved, ours = call.call_id in self._approved, self._configured.offers.get(route.server.name)
        if not is_approved and self._must_not_run(route):
            about = {"server": route.server.name, "tool": route.tool.name}
            return ToolResult.failed(call.call_id, _nobody_to_ask(route), **(_COUNTED_AS if ours is None else about))
        if ours is not None and ours.server is route.server:
            return await self._called(route, call, is_approved=is_approved)
        with self._with_brought() as offers:
            if not any(offer.server is route.server for offer in offers):  # its connection was given up
                await self._read_specs()
                anew = self._route_to(route.target)
                if anew is None or not self._sees_route(anew):
                    return ToolResult.failed(call.call_id, f"There is no tool '{call.name}' any more.")
                route = anew
            result = await self._called(route, call, is_approved=is_approved)
        return replace(result, metadata={**result.metadata, **(_COUNTED_AS if ours is None else {})})

    async def _called(self, route: Route, call: ToolCall, *, is_approved: bool) -> ToolResult:
        self.begun.add(call.call_id)
        result = await self._executor.execute_at(route, call, is_approved=is_approved, caller=self._caller)
        if result.metadata.get(NEVER_SENT):
            self.begun.discard(call.call_id)
        return result

    def _route_to(self, target: tuple[str, str]) -> Route | None:
        return next((route for route in self._routes.values() if route.target == target), None)

    def missing_servers(self) -> list[MissingServer]:
        """The servers that are missing from the latest offer. Callers are told no more than that they are.

        One that is reached with its caller's credentials is never required: they may be what is wrong.
        """
        required = {one.name for one in self._executor.missing_servers() if one.required} - self._brought_labels
        names = [*self._unavailable, *(one.name for one in self._executor.missing_servers())]
        reason = "It is not available at this moment."
        return [MissingServer(name=name, reason=reason, required=name in required) for name in dict.fromkeys(names)]

    async def check_required(self) -> None:
        """Raises the 503 of a server that the operator requires and that is not there."""
        if not any(offer.server.config.required for offer in self._executor.selected.values()):
            return
        await self.specs()
        for server in self.missing_servers():
            if server.required:
                raise server_unavailable(server.name)

    def holds(self, call: FunctionCall) -> bool:
        """True for a call that a person must approve first, and can: by the operator's rules or by the client's."""
        route = self.route(call.name)
        return route is not None and route.needs_approval

    def route(self, name: str) -> MCPRoute | None:
        route = self._routes.get(name)
        if route is None or not self._sees(name):
            return self._vanished.get(name)
        asks = self._can_ask and (needs_approval(route.server.config, route.tool) or self._client_asks(route))
        return MCPRoute(server_label=route.server.name, tool=route.tool.name, needs_approval=asks)

    def places(self, calls: Iterable[FunctionCall]) -> dict[str, tuple[str, str]]:
        """The server and the tool of each call, by the id of the call."""
        routes = ((call.call_id, self.route(call.name)) for call in calls)
        return {call_id: (route.server_label, route.tool) for call_id, route in routes if route is not None}

    def own(self, calls: Iterable[FunctionCall]) -> frozenset[str]:
        """The ids of calls for whose servers the request brought credentials of its caller."""
        labels = {each.server_label for each in self._brought if each.has_credentials}
        routes = ((call.call_id, self.route(call.name)) for call in calls)
        return frozenset(call_id for call_id, route in routes if route is not None and route.server_label in labels)

    def check_own(self, places: Iterable[tuple[str, str]]) -> None:
        """Refuse to go on with calls that wait for their caller's credentials without any: they are never kept."""
        for label, _ in places:
            declaration = self._declared.get(label)
            if declaration is None or not declaration.has_credentials:
                message = (
                    f"A call of server '{label}' waits that was asked for with credentials of your own. They are not "
                    "kept: declare the server in 'tools' with its 'authorization' or 'headers' again."
                )
                refuse(message, "tools" if declaration is None else declaration.param, "missing_credentials")

    def bound(self, call: FunctionCall, place: tuple[str, str] | None) -> FunctionCall:
        """A call that waited, under the name that its tool has now: it was approved for that server and no other."""
        if place is None:
            return call
        label, tool = self._targets[call.call_id] = place
        name = next(iter(self.names(label, tool)), None)
        if name is None:
            name = full_name(label, tool)
            self._vanished[name] = MCPRoute(server_label=label, tool=tool)
        return replace(call, name=name)

    def listings(self) -> list[Listing]:
        """What the declared servers offer, or why it is not known."""
        found = []
        for label in self._declared:
            tools = [_shown(route) for route in self._routes_of(label)]
            found.append(Listing(server_label=label, tools=tools, error=self._reason(label)))
        return found

    def names(self, label: str, tool: str | None) -> Iterable[str]:
        """The names under which the model knows a server's tool, or all of them."""
        for name, route in self._routes.items():
            if route.server.name == label and (tool is None or route.tool.name == tool) and self._sees(name):
                yield name

    @contextmanager
    def _with_brought(self) -> Iterator[list[ServerOffer]]:
        """The servers that the request brought along, open for as long as this lasts."""
        with ExitStack() as stack:
            offers: list[ServerOffer] = []
            self._unavailable.clear()
            for declaration in self._brought:
                try:
                    offers.append(stack.enter_context(self._used(declaration)))
                except MCPError as error:
                    self._unavailable[declaration.server_label] = error
            known = self._executor.offers
            if any(known.get(offer.server.name) is not offer for offer in offers):
                self._executor = self._configured.select(self._configured_labels, offers)
            yield offers

    def _used(self, declaration: MCPDeclaration) -> AbstractContextManager[ServerOffer]:
        ours = None if declaration.server_url is not None else self._configured.offers[declaration.server_label].server
        return self._pool.used(declaration, self._caller, ours)

    def _must_not_run(self, route: Route) -> bool:
        """A call that needs approval was held, and has it by now; unless nobody could be asked."""
        if needs_approval(route.server.config, route.tool):
            return True
        return not self._can_ask and self._client_asks(route)

    def _client_asks(self, route: Route) -> bool:
        declaration = self._declared.get(route.server.name)
        return declaration is not None and declaration.asks(route.tool)

    def _reason(self, label: str) -> str | None:
        if label in self._unavailable:
            return str(self._unavailable[label])
        offer = self._executor.offers.get(label)
        return offer.why_missing or None if offer is not None else None

    def _routes_of(self, label: str) -> Iterable[Route]:
        return (route for name, route in self._routes.items() if route.server.name == label and self._sees(name))

    def _sees(self, name: str) -> bool:
        route = self._routes.get(name)
        return route is not None and self._sees_route(route)

    def _sees_route(self, route: Route) -> bool:
        if not self._declared:
            return True
        declaration = self._declared.get(route.server.name)
        return declaration is not None and declaration.allows(route.tool)


def _check_configured(declarations: Sequence[MCPDeclaration], configured: Mapping[str, MCPPlugin]) -> None:
    for declaration in declarations:
        if declaration.server_url is not None:
            continue
        label, where = declaration.server_label, f"{declaration.param}.server_label"
        if label not in configured:
            refuse(f"There is no MCP server '{label}' here.", where)
        if declaration.has_credentials and not configured[label].config.caller_authorization:
            given = "authorization" if declaration.authorization is not None else "headers"
            message = (
                f"The server '{label}' is reached with its operator's credentials: leave out '{given}', "
                "unless the operator writes 'caller_authorization: true' for this server into the gateway's file."
            )
            refuse(message, f"{declaration.param}.{given}", "unsupported_parameter")


def _nobody_to_ask(route: Route) -> str:
    server, tool = route.server.name, route.tool.name
    return (
        f"The tool '{tool}' of server '{server}' needs a person's approval, and this client cannot be asked. "
        f'It can when it declares {{"type": "mcp", "server_label": "{server}"}} in a request to /v1/responses.'
    )


def _shown(route: Route) -> dict[str, Any]:
    """A tool in a list. What its server left out is empty: the AI SDK takes no null in such a list."""
    tool = route.tool
    annotations = asdict(tool.annotations) if is_dataclass(tool.annotations) else dict(tool.annotations)
    return {
        "name": tool.name,
        "description": tool.description or "",
        "input_schema": dict(tool.input_schema),
        "annotations": annotations,
    }
