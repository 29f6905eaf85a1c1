"""The MCP servers of one request: the servers and tools that it sees, and the calls that need approval.

A request without declarations sees every server of its backend that is in the scope of its caller. With declarations it
sees only those: servers of the operator by their labels, reached with the operator's credentials or the caller's, and
untrusted servers by their URLs. Connections that need the caller's credentials or a URL of the request come from the
`CallerConnectionPool` and are open only while tools are listed or called.

A server out of scope is as one that does not exist; a tool out of scope is in no list, and a call of it is refused. The
names of the other tools are those that every caller sees.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, is_dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import orjson

from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.http.errors import server_unavailable_error
from holodeck.gateway.mcp.connection_pool import CallerConnectionPool
from holodeck.gateway.mcp.elicitations import RunElicitations
from holodeck.gateway.mcp.request_server_policy import check_configured_servers, check_labels_of_urls
from holodeck.gateway.wire.request.json_fields import refuse
from holodeck.gateway.wire.request.mcp_declarations import MCPDeclaration
from holodeck.gateway.wire.response.call_items import DeclaredTool, ServerListing
from holodeck.lib import log
from holodeck.lib.call_errors import CHANGED_SINCE_APPROVAL, OUT_OF_SCOPE, PROCESS_ENDED
from holodeck.lib.errors import MCPError
from holodeck.lib.record import record
from holodeck.mcp_server.approval import PeerApprover
from holodeck.models.events import MissingServer
from holodeck.models.items import FunctionCall
from holodeck.models.model_io import ToolSpec
from holodeck.tools.calls import Approver, CallPipeline, build_unapproved
from holodeck.tools.executor import (
    REQUEST_SERVER_LABELS,
    TOOL_CHANGED,
    UNKNOWN_TARGET,
    UNKNOWN_TOOL,
    CallRules,
    CallTarget,
    Refusal,
    ToolCall,
    ToolExecutor,
    ToolKind,
    ToolOffer,
    ToolResult,
)
from holodeck.tools.mcp.content import NEVER_SENT
from holodeck.tools.mcp.discovery import READ_RESOURCE_TOOL
from holodeck.tools.mcp.executor import MCPExecutor, ToolRoute, build_offer
from holodeck.tools.mcp.lock.drift import digest_tool
from holodeck.tools.mcp.names import full_name
from holodeck.tools.mcp.protocol.peer import Peer
from holodeck.tools.mcp.server_tools import ServerTools
from holodeck.tools.mcp.tool_patterns import may_read_resources, needs_approval
from holodeck.tools.resource_reader import ResourceEntry


@record
class MappedTool:
    """The MCP tool behind a hosted tool of a request."""

    target: tuple[str, str]
    settings: Mapping[str, Any]
    """The settings of the request for the hosted tool, which the model reads."""


class RequestServers(ToolExecutor):
    """A `ToolExecutor` for one request: a view of the gateway's servers, and the untrusted servers that it declares.

    Tool names are resolved as of the latest `specs` of this request, even if another request lists tools anew
    meanwhile. `_targets` has the targets of pending calls, by the ids of the calls.
    """

    def __init__(
        self,
        executor: MCPExecutor,
        declarations: Sequence[MCPDeclaration],
        *,
        pool: CallerConnectionPool,
        caller: Caller,
        can_request_approval: bool = False,
        approved: Collection[str] = (),
        calls_with_unknown_outcome: Collection[str] = (),
        hosted: Mapping[str, MappedTool] | None = None,
        peer: Peer | None = None,
        elicitations: RunElicitations | None = None,
    ) -> None:
        """Check the declarations. Raises `BadRequestError` for one of a server that may not be used.

        `executor`: a selection of the servers and tools that the caller may use.
        `can_request_approval`: the client can answer approval requests. `approved`: ids of calls that were approved.
        `calls_with_unknown_outcome`: ids of calls that a gateway that died may have run; they are not run again.
        `hosted`: by name, hosted tools. The MCP tool of each is offered under that name, and under no other.
        `peer`: the MCP client that the request comes from.
        `elicitations`: asks the questions of servers, where no peer is there. None: they are declined.
        """
        self._elicitations = elicitations
        self._peer = peer
        self.approver: Approver = PauseApprover() if peer is None else PeerApprover(peer)
        """Decides about the calls of the request that need an approval."""
        self._hosted = hosted or {}
        self._hosted_targets = {each.target for each in self._hosted.values()}
        self._configured = self._executor = executor
        self._routes: Mapping[str, ToolRoute] = {}
        self._offer: ToolOffer | None = None
        self._targets: dict[str, tuple[str, str]] = {}
        self._changed_since_approval: set[str] = set()
        self._declared = {declaration.server_label: declaration for declaration in declarations}
        self._request_declared = [each for each in declarations if each.server_url is not None or each.has_credentials]
        self._request_declared_labels = {each.server_label for each in self._request_declared}
        # A server with the caller's credentials is never reached with the operator's instead.
        self._configured_labels = [label for label in self._declared if label not in self._request_declared_labels]
        self._unavailable: dict[str, MCPError] = {}
        self._pool = pool
        self._caller_id = caller.id
        self._scope = caller.scope
        self.scope = caller.scope if caller.scope.is_limited else None
        """What the caller may use; None: everything."""
        self._can_request_approval = can_request_approval
        self._approved = frozenset(approved)
        self._calls_with_unknown_outcome = frozenset(calls_with_unknown_outcome)
        self._missing_routes: dict[str, DeclaredTool] = {}
        """The targets of pending calls whose tools do not exist any more, by made-up names."""
        self.started: set[str] = set()
        """Ids of calls that may have reached their tools."""
        if declarations:
            pool.policy.check(declarations, executor.selected)
            check_configured_servers(declarations, {name: offer.server for name, offer in executor.selected.items()})
            check_labels_of_urls(declarations, caller.scope)
            # A hosted tool works beside declarations, without a declaration of its server.
            servers = (label for label, _ in self._hosted_targets if label not in self._request_declared_labels)
            self._configured_labels = list(dict.fromkeys([*self._configured_labels, *servers]))
            self._executor = executor.select(self._configured_labels)

    @property
    def kind(self) -> ToolKind:
        return ToolKind.MCP

    @property
    def has_servers(self) -> bool:
        """Whether the request sees any server, available or not."""
        return bool(self._executor.selected) or bool(self._request_declared)

    async def specs(self) -> tuple[ToolSpec, ...]:
        if not self._request_declared:
            return await self._read_specs()
        with self._open_request_servers():
            return await self._read_specs()

    async def _read_specs(self) -> tuple[ToolSpec, ...]:
        executor = self._executor
        specs = await executor.specs()
        self._routes, self._offer = executor.routes, executor.offer
        if self._hosted:
            specs = self._rename_hosted_tools(specs)
        return tuple(spec for spec in specs if self._is_visible(spec.name)) if self._declared else specs

    def _rename_hosted_tools(self, specs: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
        """Return the tools, those behind hosted tools under their hosted names. Another tool of such a name moves."""
        routes, renamed = {}, []
        for spec in specs:
            route = self._routes[spec.name]
            names = [name for name, mapped in self._hosted.items() if mapped.target == route.target]
            if not names:
                names = [full_name(route.server.name, spec.name) if spec.name in self._hosted else spec.name]
            for name in names:
                renamed.append(replace(spec, name=name, description=self._describe(name, spec.description)))
                routes[name] = replace(route, spec=renamed[-1])
        self._routes = routes
        return tuple(renamed)

    def _describe(self, name: str, description: str) -> str:
        settings = self._hosted[name].settings if name in self._hosted else None
        if not settings:
            return description
        return f"{description}\n\nFollow these settings of the request where you can: {orjson.dumps(settings).decode()}"

    def can_execute(self, name: str) -> bool:
        return self._is_visible(name)

    def find_missing_reason(self, name: str) -> str | None:
        """Return why a pending call cannot run, where its tool is out of the caller's scope by now."""
        route = self._missing_routes.get(name)
        if route is None or self._scope.allows_tool(route.server_label, route.tool):
            return None
        return OUT_OF_SCOPE.format(tool=route.tool, server=route.server_label)

    def may_repeat(self, name: str) -> bool:
        route = self._routes.get(name)
        return route is not None and self._is_visible(name) and route.server.may_repeat(route.tool)

    def target_of(self, name: str) -> tuple[str, str] | None:
        """Return the server and the tool behind a name of the model."""
        route = self._routes.get(name)
        return None if route is None else route.target

    def find_offer(self, specs: Sequence[ToolSpec]) -> ToolOffer:
        offer = self._offer
        return offer if offer is not None and specs is offer.specs else build_offer(self._routes, specs)

    def find_bound_target(self, call: ToolCall) -> CallTarget | None:
        """Return the server and the tool that a call goes to, with the host of a server that is declared by URL."""
        server, tool = self._targets.get(call.call_id) or self.target_of(call.name) or ("", "")
        declaration = self._declared.get(server)
        url = declaration.server_url if declaration is not None else None
        host = "" if url is None else urlsplit(url).hostname or ""
        return CallTarget(server=server, tool=tool, host=host) if server else None

    def find_rules(self, call: ToolCall) -> CallRules:
        """Return the target of a call, and the rules for it: of the operator, of the request, and of an approval."""
        target, route = self.find_bound_target(call) or UNKNOWN_TARGET, self._find_route(call)
        if call.call_id in self._calls_with_unknown_outcome:
            return CallRules(target=target, result=ToolResult.failure(call.call_id, PROCESS_ENDED, outcome="unknown"))
        if route is None or (self._declared and not self._is_route_visible(route)):
            refusal = Refusal(code=UNKNOWN_TOOL, text=f"There is no tool '{call.name}'.")
            return CallRules(target=target, refusal=refusal)
        if call.call_id in self._changed_since_approval:
            log.warning("mcp.changed_since_approval", server=route.server.name, tool=route.tool.name)
            text = CHANGED_SINCE_APPROVAL.format(tool=route.tool.name)
            return CallRules(target=target, refusal=Refusal(code=TOOL_CHANGED, text=text))
        # Where the client can be asked, a call that needs its approval is pending until it has one.
        is_blocked = needs_approval(route.server.config, route.tool) or (
            not self._can_request_approval and self._is_approval_declared(route)
        )
        return CallRules(target=target, needs_approval=is_blocked, is_approved=call.call_id in self._approved)

    async def execute(self, call: ToolCall) -> ToolResult:
        route = self._find_route(call)
        if route is None:
            return ToolResult.failure(call.call_id, f"There is no tool '{call.name}'.")
        configured = self._configured.server_tools.get(route.server.name)
        if configured is not None and configured.server is route.server:
            return await self._execute_at(route, call)
        with self._open_request_servers() as offers:
            # The pool has closed the connection since the tools were listed.
            if not any(offer.server is route.server for offer in offers):
                await self._read_specs()
                new_route = self._route_to(route.target)
                if new_route is None or not self._is_route_visible(new_route):
                    return ToolResult.failure(call.call_id, f"There is no tool '{call.name}' any more.")
                route = new_route
            result = await self._execute_at(route, call)
        return self._label_result(result, route.server.name)

    async def _execute_at(self, route: ToolRoute, call: ToolCall) -> ToolResult:
        self.started.add(call.call_id)
        with self._follow_call(route, call) as peer:
            result = await self._executor.execute_at(route, call, caller_id=self._caller_id, peer=peer)
        if result.metadata.get(NEVER_SENT):
            self.started.discard(call.call_id)
        return result

    def _label_result(self, result: ToolResult, server: str) -> ToolResult:
        """Return the result of a call of an untrusted server, without the names that the client has invented for it."""
        if server in self._configured.server_tools:
            return result
        return replace(result, metadata={**result.metadata, **REQUEST_SERVER_LABELS})

    def _follow_call(self, route: ToolRoute, call: ToolCall) -> AbstractContextManager[Peer | None]:
        """Return a context in which the server of a call is answered."""
        if self._peer is not None or self._elicitations is None:
            return nullcontext(self._peer)
        return self._elicitations.follow_call(route.server.name, call, is_hosted=call.name in self._hosted)

    def find_resource_server(self, name: str) -> str | None:
        """Return the server of a name, if its resources may be read without an approval of the client or a person."""
        route = self._routes.get(name)
        if route is None or not self._is_visible(name) or not route.server.has_resources:
            return None
        if not self._scope.allows_links(route.server.name):
            return None
        label, declaration = route.server.name, self._declared.get(route.server.name)
        if self._declared and (declaration is None or declaration.needs_approval(READ_RESOURCE_TOOL)):
            return None
        return label if may_read_resources(route.server.config, READ_RESOURCE_TOOL) else None

    def browsable_servers(self) -> tuple[str, ...]:
        """Return the servers whose resources the request may read, by the rules of operator, scope and client."""
        names = self._executor.browsable_servers()
        return tuple(name for name in names if self._may_browse(name)) if names else names

    def _may_browse(self, label: str) -> bool:
        # Reading what a server lists is a tool of its own. A link comes from a tool that is allowed already.
        if not self._scope.allows_resources(label):
            return False
        declaration = self._declared.get(label)
        if declaration is None:
            return not self._declared
        return declaration.is_allowed(READ_RESOURCE_TOOL) and not declaration.needs_approval(READ_RESOURCE_TOOL)

    async def list_resources(self, server: str) -> tuple[ResourceEntry, ...] | None:
        """Return the resources of a server, listed with the credentials that its tools are called with."""
        if server not in self._request_declared_labels:
            return await self._executor.list_resources(server)
        with self._open_request_servers() as offers:
            is_open = any(offer.server.name == server for offer in offers)
            return await self._executor.list_resources(server) if is_open else None

    async def read_resource(self, server: str, uri: str, call: ToolCall) -> ToolResult:
        """Read a resource with the connection, and so the credentials, that the tools of the server are called with."""
        if server not in self._request_declared_labels:
            return await self._executor.read_resource(server, uri, call, caller_id=self._caller_id)
        with self._open_request_servers() as offers:
            if not any(offer.server.name == server for offer in offers):
                return ToolResult.failure(call.call_id, f"The server '{server}' is not available at this moment.")
            result = await self._executor.read_resource(server, uri, call, caller_id=self._caller_id)
        return self._label_result(result, server)

    def _find_route(self, call: ToolCall) -> ToolRoute | None:
        # An approval is for one target, whichever tool has its name now.
        target = self._targets.get(call.call_id)
        return self._routes.get(call.name) if target is None else self._route_to(target)

    def _route_to(self, target: tuple[str, str]) -> ToolRoute | None:
        return next((route for route in self._routes.values() if route.target == target), None)

    def missing_servers(self) -> list[MissingServer]:
        """Return the servers that were unavailable at the latest `specs`. The reason hides the cause from callers.

        A server with the caller's credentials is never required: the credentials may be what is wrong.
        """
        missing = self._executor.missing_servers()
        if not missing and not self._unavailable:
            return []
        required = {one.name for one in missing if one.required} - self._request_declared_labels
        names = [*self._unavailable, *(one.name for one in missing)]
        reason = "It is not available at this moment."
        return [MissingServer(name=name, reason=reason, required=name in required) for name in dict.fromkeys(names)]

    async def check_required(self) -> None:
        """Raise the 503 for a server that the operator requires and that is not available."""
        if not [offer for offer in self._executor.selected.values() if offer.server.config.required]:
            return
        await self.specs()
        for server in self.missing_servers():
            if server.required:
                raise server_unavailable_error(server.name)

    def needs_approval_first(self, call: FunctionCall) -> bool:
        """Return whether a call must be approved, by a rule of operator or client, and the client can be asked."""
        if not self._can_request_approval:
            return False
        route = self.find_declared_tool(call.name)
        return route is not None and route.needs_approval

    def find_declared_tool(self, name: str) -> DeclaredTool | None:
        """Return the target of a name, with whether the client must be asked first. None: no tool here has the name."""
        route = self._routes.get(name)
        if route is None or (self._declared and not self._is_route_visible(route)):
            return self._missing_routes.get(name)
        must_ask = self._can_request_approval and (
            needs_approval(route.server.config, route.tool) or self._is_approval_declared(route)
        )
        return DeclaredTool(server_label=route.server.name, tool=route.tool.name, needs_approval=must_ask)

    def call_targets(self, calls: Iterable[FunctionCall]) -> dict[str, tuple[str, str]]:
        """Return the targets of calls, by the ids of the calls; without calls of tools of other servers."""
        routes = ((call.call_id, self.find_declared_tool(call.name)) for call in calls)
        return {call_id: (route.server_label, route.tool) for call_id, route in routes if route is not None}

    def call_definitions(self, calls: Iterable[FunctionCall]) -> dict[str, bytes]:
        """Return the digests of the tools of calls as described now, by the ids of the calls."""
        routes = ((call.call_id, self._routes.get(call.name)) for call in calls)
        return {call_id: digest_tool(route.tool) for call_id, route in routes if route is not None}

    def calls_with_caller_credentials(self, calls: Iterable[FunctionCall]) -> frozenset[str]:
        """Return the ids of calls to servers for which the request has credentials of its caller."""
        labels = {each.server_label for each in self._request_declared if each.has_credentials}
        routes = ((call.call_id, self.find_declared_tool(call.name)) for call in calls)
        return frozenset(call_id for call_id, route in routes if route is not None and route.server_label in labels)

    def check_caller_credentials(self, targets: Iterable[tuple[str, str]]) -> None:
        """Refuse pending calls that need their caller's credentials in a request without: they are never stored."""
        for label, _ in targets:
            declaration = self._declared.get(label)
            if declaration is None or not declaration.has_credentials:
                message = (
                    f"A call of server '{label}' waits that was asked for with credentials of your own. They are not "
                    "kept: declare the server in 'tools' with its 'authorization' or 'headers' again."
                )
                refuse(message, "tools" if declaration is None else declaration.param, "missing_credentials")

    def bind_call(
        self, call: FunctionCall, target: tuple[str, str] | None, definition: bytes | None = None
    ) -> FunctionCall:
        """Bind a pending call to its target. Returns the call under the name that the tool has now.

        A call was approved for one server and one tool, and runs at no other. `target` None: it is no MCP call.
        `definition`: the digest of the tool when approval was requested. The call is not run if the tool has changed.
        """
        if target is None:
            return call
        label, tool = self._targets[call.call_id] = target
        route = self._route_to(target)
        if definition is not None and route is not None and digest_tool(route.tool) != definition:
            self._changed_since_approval.add(call.call_id)
        name = next(iter(self.tool_names(label, tool)), None)
        if name is None:
            name = full_name(label, tool)
            self._missing_routes[name] = DeclaredTool(server_label=label, tool=tool)
        return replace(call, name=name)

    def get_listings(self) -> list[ServerListing]:
        """Return the tools of each declared server, or the error that prevented listing them."""
        listings = []
        for label in self._declared:
            tools = [_listed_tool_of(route) for route in self._routes_of(label)]
            listings.append(ServerListing(server_label=label, tools=tools, error=self._find_error_text(label)))
        return listings

    def tool_names(self, label: str, tool: str | None) -> Iterable[str]:
        """Yield the model's names for one tool of a server, or for all of its tools where `tool` is None."""
        for name, route in self._routes.items():
            if route.server.name == label and (tool is None or route.tool.name == tool) and self._is_visible(name):
                yield name

    @contextmanager
    def _open_request_servers(self) -> Iterator[list[ServerTools]]:
        """Open the connections that need a URL or credentials of the request, during the `with` block.

        A connection that fails is noted in `_unavailable`; the others are open nevertheless.
        """
        with ExitStack() as stack:
            offers: list[ServerTools] = []
            self._unavailable.clear()
            for declaration in self._request_declared:
                try:
                    offers.append(stack.enter_context(self._acquire_connection(declaration)))
                except MCPError as error:
                    self._unavailable[declaration.server_label] = error
            known = self._executor.server_tools
            if any(known.get(offer.server.name) is not offer for offer in offers):
                self._executor = self._configured.select(self._configured_labels, offers)
            yield offers

    def _acquire_connection(self, declaration: MCPDeclaration) -> AbstractContextManager[ServerTools]:
        server = None
        if declaration.server_url is None:
            server = self._configured.server_tools[declaration.server_label].server
        return self._pool.acquire(declaration, self._caller_id, server)

    def _is_approval_declared(self, route: ToolRoute) -> bool:
        declaration = self._declared.get(route.server.name)
        return declaration is not None and declaration.needs_approval(route.tool)

    def _find_error_text(self, label: str) -> str | None:
        if label in self._unavailable:
            return str(self._unavailable[label])
        offer = self._executor.server_tools.get(label)
        return offer.missing_reason or None if offer is not None else None

    def _routes_of(self, label: str) -> Iterable[ToolRoute]:
        return (route for name, route in self._routes.items() if route.server.name == label and self._is_visible(name))

    def _is_visible(self, name: str) -> bool:
        route = self._routes.get(name)
        return route is not None and self._is_route_visible(route)

    def _is_route_visible(self, route: ToolRoute) -> bool:
        if not self._declared or route.target in self._hosted_targets:
            return True
        declaration = self._declared.get(route.server.name)
        return declaration is not None and declaration.is_allowed(route.tool)


class PauseApprover(Approver):
    """The approver of requests whose client approves calls between two responses, if it can.

    Such a call is pending until it is approved, so that one that comes here has a client that cannot be asked.
    """

    async def approve(self, call: ToolCall, rules: CallRules, pipeline: CallPipeline) -> Refusal:
        declaration = f'{{"type": "mcp", "server_label": "{rules.target.server}"}}'
        reason = f"this client cannot be asked. It can when it declares {declaration} in a request to /v1/responses."
        return build_unapproved(rules.target, reason)


def _listed_tool_of(route: ToolRoute) -> dict[str, Any]:
    """Return a tool as an `mcp_list_tools` item lists it. Missing texts are empty: the AI SDK accepts no null there."""
    tool = route.tool
    annotations = asdict(tool.annotations) if is_dataclass(tool.annotations) else dict(tool.annotations)
    return {
        "name": tool.name,
        "description": tool.description or "",
        "input_schema": dict(tool.input_schema),
        "annotations": annotations,
    }
