"""The MCP servers of an agent as one `ToolExecutor`.

Servers are started on first use, concurrently. Their tools are named by `names.assign_names` and routed by that name.
A server that is down, slow or broken is missing from an offer and does not fail it. The executor owns its
`ServerTools` and, through them, the servers; `close` closes all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from holodeck.lib import log
from holodeck.lib.call_errors import TOOL_CHANGED
from holodeck.lib.errors import MCPConnectionError, MCPError, MCPProtocolError
from holodeck.lib.record import record
from holodeck.models.events import MissingServer
from holodeck.models.items import ContentBlock, TextContent
from holodeck.models.model_io import ToolSpec
from holodeck.tools.executor import (
    CHANGED,
    SERVER_ABSENT,
    CallRules,
    CallTarget,
    QuestionHandler,
    ToolCall,
    ToolExecutor,
    ToolKind,
    ToolOffer,
    ToolResult,
)
from holodeck.tools.mcp.call_limit import QUEUE_PHASE
from holodeck.tools.mcp.content import NEVER_SENT, MCPToolResult
from holodeck.tools.mcp.discovery import READ_RESOURCE_TOOL, MCPToolInfo
from holodeck.tools.mcp.names import assign_names
from holodeck.tools.mcp.plugin import MCPPlugin
from holodeck.tools.mcp.protocol.peer import ELICITATION_METHOD, Peer
from holodeck.tools.mcp.protocol.server_requests import with_defaults
from holodeck.tools.mcp.resource_discovery import MCPResourceInfo, MCPResourceTemplateInfo
from holodeck.tools.mcp.server_tools import ServerTools
from holodeck.tools.mcp.tool_patterns import may_browse_resources, may_read_resources, needs_approval
from holodeck.tools.resource_reader import ResourceEntry

# Unavailable servers that one executor reconnects at the same time.
MAX_REVIVALS = 8

ToolFilter = Callable[[str, str], bool]
"""Whether a tool is offered: `(server, tool)`, by the server's own name of the tool."""


@record
class ToolRoute:
    """The server and the tool behind an offered name."""

    server: MCPPlugin
    tool: MCPToolInfo
    spec: ToolSpec
    """The tool as it is offered to models."""
    target: tuple[str, str]
    """The names of the server and of its tool. An approval is valid for this pair."""

    def find_rules(self) -> CallRules:
        """Return the rules of the server's definition for a call of the tool."""
        server, tool = self.target
        target = CallTarget(server=server, tool=tool)
        return CallRules(target=target, needs_approval=needs_approval(self.server.config, self.tool))


def build_offer(routes: Mapping[str, ToolRoute], specs: Sequence[ToolSpec]) -> ToolOffer:
    """Return tools by name, with the targets of their routes: an offer of 1,000 tools takes one call."""
    by_name = {spec.name: spec for spec in specs}
    return ToolOffer(specs=specs, by_name=by_name, targets={name: routes[name].target for name in by_name})


_NO_OFFER = build_offer({}, ())


class MCPExecutor(ToolExecutor):
    """Executes calls of the tools of several servers."""

    def __init__(
        self,
        servers: Sequence[MCPPlugin] = (),
        *,
        discovery_timeout: float | None = None,
        can_revive: bool = False,
    ) -> None:
        """`discovery_timeout`: seconds that an offer waits for a server. None: the default of its transport.

        `can_revive`: an unavailable server is reconnected in the background, and offers do not wait for it. Otherwise
        each offer tries it again.
        """
        revivals = asyncio.Semaphore(MAX_REVIVALS) if can_revive else None
        self.server_tools: Mapping[str, ServerTools] = {
            server.name: ServerTools(server, discovery_timeout=discovery_timeout, revival_slots=revivals)
            for server in servers
        }
        self.selected = self.server_tools
        """The servers whose tools are offered: all of them, unless this is a selection."""
        self.routes: Mapping[str, ToolRoute] = {}
        """The routes of all names of the latest offer. Replaced as a whole: a reader has a snapshot."""
        self._latest_lists: list[tuple[ServerTools, list[MCPToolInfo], Sequence[MCPToolInfo] | None]] = []
        """The lists behind `offer`: every turn of a model asks for one, and the lists rarely change."""
        self.offer = _NO_OFFER
        """The latest offer, which is replaced as a whole."""
        self._specs: tuple[ToolSpec, ...] = ()
        self._allows_tool: ToolFilter | None = None
        self._logged_names: dict[str, str] | None = {}
        """By server, the full names that were logged last. None: they are not logged."""

    def select(
        self,
        names: Collection[str],
        others: Iterable[ServerTools] = (),
        *,
        allows_tool: ToolFilter | None = None,
    ) -> MCPExecutor:
        """Return an executor of some of these servers and of `others`, which come last in the order of names.

        Servers that are not selected are neither asked nor used, but still count for names: the name of a tool does
        not depend on the selection. One of `others` replaces a server of the same name. `allows_tool`: which tools of
        the selection are offered, those of `others` included; a selection of the result has the same.
        """
        added = {offer.server.name: offer for offer in others}
        selection = MCPExecutor()
        selection.server_tools = {**self.server_tools, **added}
        chosen = {*names, *added}
        selection.selected = {name: offer for name, offer in selection.server_tools.items() if name in chosen}
        selection._allows_tool = allows_tool or self._allows_tool
        # A log line for each request would bury the others.
        selection._logged_names = None
        return selection

    def isolate(self, names: Collection[str]) -> MCPExecutor:
        """Return an executor of some of these servers, whose names depend on nothing but these servers.

        Unlike those of a selection, they do not change when a server that is left out lists its tools.
        """
        isolated = MCPExecutor()
        isolated.use_servers({name: offer for name, offer in self.server_tools.items() if name in names})
        isolated._logged_names = None
        return isolated

    @classmethod
    def merge(cls, executors: Iterable[MCPExecutor]) -> MCPExecutor:
        """Return an executor of all servers of others, which own and close them. The first server of a name wins.

        Another one of that name which is defined otherwise is logged: its tools cannot be used by this executor.
        """
        merged = cls()
        found: dict[str, ServerTools] = {}
        for executor in executors:
            for name, offer in executor.server_tools.items():
                if found.setdefault(name, offer).server.config != offer.server.config:
                    log.warning("mcp.server_hidden", server=name)
        merged.use_servers(found)
        merged._logged_names = None
        return merged

    def use_servers(self, server_tools: Mapping[str, ServerTools]) -> None:
        """Use these in place of the servers of the same names. Only before the first offer; not for a selection."""
        self.server_tools = self.selected = {**self.server_tools, **server_tools}

    @property
    def servers(self) -> Mapping[str, MCPPlugin]:
        return {name: offer.server for name, offer in self.server_tools.items()}

    @property
    def failures(self) -> Mapping[str, MCPError]:
        """By server, the error for which it is missing from the latest offer."""
        return {name: offer.failure for name, offer in self.server_tools.items() if offer.failure is not None}

    def missing_servers(self) -> list[MissingServer]:
        """Return the servers that are missing from the latest offer: failed, or without a list of tools in time."""
        return [
            MissingServer(name=name, reason=offer.missing_reason, required=offer.server.config.required)
            for name, offer in self.selected.items()
            if offer.failure is not None or offer.is_listing_pending
        ]

    @property
    def kind(self) -> ToolKind:
        return ToolKind.MCP

    async def specs(self) -> tuple[ToolSpec, ...]:
        """Return the tools of all selected servers that have answered, named as `names` describes.

        The first offer waits for each server up to its discovery timeout; later ones do not wait again.
        """
        selected = self.selected
        if self._is_unchanged():
            return self._specs
        await self._request_listings(selected.values())
        found = [
            (offer, self._filter_tools(offer) if name in selected else [], offer.latest_tools)
            for name, offer in self.server_tools.items()
        ]
        if found != self._latest_lists:
            names = assign_names([(offer.server.name, _model_names(listed)) for offer, _, listed in found])
            self._log_full_names(names)
            routes = [
                ToolRoute(
                    server=offer.server,
                    tool=info,
                    spec=_build_spec(names[target], info),
                    target=target,
                )
                for offer, tools, _ in found
                for info in tools
                for target in ((offer.server.name, info.name),)
            ]
            self.routes = {route.spec.name: route for route in routes}
            self._latest_lists = found
            self._specs = tuple(route.spec for route in self.routes.values())
            self.offer = build_offer(self.routes, self._specs)
        return self._specs

    def _is_unchanged(self) -> bool:
        """Return whether the latest offer is that of now, and no server has to be asked for that."""
        if len(self._latest_lists) != len(self.server_tools):
            return False
        selected = self.selected
        for offer, _, latest in self._latest_lists:
            if offer.latest_tools is not latest or (offer.server.name in selected and not offer.is_unchanged()):
                return False
        return True

    def can_execute(self, name: str) -> bool:
        return name in self.routes

    def find_route(self, name: str) -> ToolRoute | None:
        """Return the route of an offered name, or None."""
        return self.routes.get(name)

    def target_of(self, name: str) -> tuple[str, str] | None:
        """Return the names of the server and the tool behind an offered name, or None."""
        route = self.routes.get(name)
        return None if route is None else route.target

    def find_offer(self, specs: Sequence[ToolSpec]) -> ToolOffer:
        return self.offer if specs is self.offer.specs else build_offer(self.routes, specs)

    def may_repeat(self, name: str) -> bool:
        """Return True for a tool that the definition of its server calls idempotent."""
        route = self.routes.get(name)
        return route is not None and route.server.may_repeat(route.tool)

    def find_rules(self, call: ToolCall) -> CallRules:
        """Return the target of a call, and whether it needs a person's approval by the definition of its server."""
        return self.routes[call.name].find_rules()

    async def execute(self, call: ToolCall) -> ToolResult:
        """Call the tool behind the offered name. Every failure is a result; only cancellation is raised."""
        route = self.routes.get(call.name)
        if route is None:
            return ToolResult.failure(call.call_id, f"There is no tool '{call.name}'.")
        return await self.execute_at(route, call)

    async def execute_at(
        self,
        route: ToolRoute,
        call: ToolCall,
        *,
        caller_id: str = "",
        peer: Peer | None = None,
    ) -> ToolResult:
        """Call the tool of a route, whatever the name of the call means now.

        `caller_id`: callers of a busy server take turns. `peer`: the client that the call is made for.
        """
        server, tool = route.server, route.tool
        about = {"server": server.name, "tool": tool.name}
        if call.spec is not None and call.spec is not route.spec and call.spec != route.spec:
            return ToolResult.failure(call.call_id, TOOL_CHANGED.format(tool=tool.name), **about, **{CHANGED: True})
        progress = call.on_progress
        result = await server.call(
            tool.name,
            call.arguments,
            on_progress=(lambda *report: progress(_describe_progress(report))) if progress is not None else None,
            key=call.key,
            caller_id=caller_id,
            expected=tool,
            peer=_PersonPeer(server.name, call.on_question) if peer is None and call.on_question else peer,
            resume=call.resume,
        )
        return _build_result(call, result, about)

    def find_resource_server(self, name: str) -> str | None:
        """Return the server of an offered name, if its resources may be read; else None."""
        route = self.routes.get(name)
        if route is None or not route.server.has_resources:
            return None
        return route.server.name if may_read_resources(route.server.config, READ_RESOURCE_TOOL) else None

    def browsable_servers(self) -> tuple[str, ...]:
        """Return the selected servers whose resources models may read, as far as they are available now."""
        names = [
            name
            for name, offer in self.selected.items()
            if offer.server.config.load_resources
            and offer.failure is None
            and offer.server.has_resources
            and may_browse_resources(offer.server.config, READ_RESOURCE_TOOL)
        ]
        return tuple(names)

    async def list_resources(self, server: str) -> tuple[ResourceEntry, ...] | None:
        """Return the resources and templates of a server; None if it cannot list them."""
        plugin = self.selected[server].server
        try:
            resources, templates = await plugin.list_resources(), await plugin.list_resource_templates()
        except MCPError as error:
            log.warning("mcp.resources_unlisted", server=server, error=error)
            return None
        return (
            *(_build_entry(info.uri, info) for info in resources),
            *(_build_entry(info.uri_template, info, is_template=True) for info in templates),
        )

    async def read_resource(self, server: str, uri: str, call: ToolCall, *, caller_id: str = "") -> ToolResult:
        """Read a resource of one of the servers. Every failure is a result; only cancellation is raised."""
        offer = self.selected.get(server)
        if offer is None:
            return ToolResult.failure(call.call_id, f"The server '{server}' is not available at this moment.")
        result = await offer.server.read_resource(uri, caller_id=caller_id)
        return _build_result(call, result, {"server": server, "tool": READ_RESOURCE_TOOL.name})

    async def close(self) -> None:
        """Close all servers concurrently, in time bounded by their own limits."""
        await asyncio.gather(*(offer.close() for offer in self.server_tools.values()))

    def _filter_tools(self, offer: ServerTools) -> list[MCPToolInfo]:
        """Return the tools of a server that are offered: all of them, unless this is a selection of tools."""
        tools, allows = offer.collect_tools(), self._allows_tool
        return list(tools) if allows is None else [tool for tool in tools if allows(offer.server.name, tool.name)]

    async def _request_listings(self, server_tools: Collection[ServerTools]) -> None:
        """Start listing the tools of servers, and wait for the lists that no earlier offer has waited for."""
        requests = ((offer, offer.request_listing()) for offer in server_tools)
        pending = {task: offer.discovery_timeout for offer, task in requests if task is not None}
        began = asyncio.get_running_loop().time()
        while pending:
            elapsed = asyncio.get_running_loop().time() - began
            pending = {task: limit for task, limit in pending.items() if not task.done() and limit > elapsed}
            if pending:
                timeout = min(pending.values()) - elapsed
                await asyncio.wait(pending, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        # Only after the full wait: one that was cancelled must not spare other runs theirs.
        for offer in server_tools:
            offer.mark_waited()

    def _log_full_names(self, names: Mapping[tuple[str, str], str]) -> None:
        """Log which tools have their full names, and why, whenever that changes."""
        if self._logged_names is None:
            return
        unlisted: list[str] = []
        for server, offer in self.server_tools.items():
            if offer.latest_tools is None:
                unlisted.append(server)
                continue
            full = ", ".join(
                name for info in offer.latest_tools if (name := names[server, info.name]) != info.model_name
            )
            if full == self._logged_names.get(server, ""):
                continue
            self._logged_names[server] = full
            if full and unlisted:
                log.info("mcp.full_names", server=server, offered_as=full, unlisted=", ".join(unlisted))
            elif full:
                log.warning("mcp.same_names", server=server, offered_as=full)


class _PersonPeer:
    """A person as the peer of a call: answers questions of its server, and nothing else.

    The calls of one run have one handler, and so count as one client: a question that could belong to calls of several
    runs is not asked.
    """

    log_level: str | None = None
    meta: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, server: str, on_question: QuestionHandler) -> None:
        self._server = server
        self._on_question = on_question

    @property
    def client(self) -> object:
        return self._on_question

    def can_answer(self, method: str, params: Mapping[str, Any]) -> bool:
        return method == ELICITATION_METHOD

    async def ask(self, method: str, params: Mapping[str, Any], key: str = "") -> Mapping[str, Any]:
        return with_defaults(await self._on_question(self._server, params), params)

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Drop the notification: a person is asked, not notified."""


def _model_names(listed: Sequence[MCPToolInfo] | None) -> dict[str, str] | None:
    return None if listed is None else {info.name: info.model_name for info in listed}


def _build_spec(name: str, info: MCPToolInfo) -> ToolSpec:
    return ToolSpec(name=name, description=info.description or info.title or "", parameters=info.input_schema)


def _build_entry(
    uri: str, info: MCPResourceInfo | MCPResourceTemplateInfo, *, is_template: bool = False
) -> ResourceEntry:
    about = info.description or info.title or ""
    return ResourceEntry(uri=uri, name=info.name, description=about, is_template=is_template)


def _build_result(call: ToolCall, result: MCPToolResult, about: Mapping[str, str]) -> ToolResult:
    metadata = {**result.metadata, **about}
    if not result.success:
        failure = _failure_metadata(result)
        log.warning("mcp.call_failed", call=call.call_id, **about, **failure)
        metadata |= failure | ({SERVER_ABSENT: True} if _is_server_absent(result) else {})
    return ToolResult(call_id=call.call_id, content=_content_of(result), is_error=not result.success, metadata=metadata)


def _is_server_absent(result: MCPToolResult) -> bool:
    # A call that waited too long for its turn was not sent either, and its server is there.
    error = result.error if result.metadata.get(NEVER_SENT) else None
    return isinstance(error, MCPConnectionError) and error.phase != QUEUE_PHASE


def _failure_metadata(result: MCPToolResult) -> dict[str, Any]:
    """Return the kind of a failure (of the tool, of the protocol, or of the transport) and what is known of it."""
    return {"error_kind": "tool"} if result.is_error or result.error is None else describe_failure(result.error)


def describe_failure(error: MCPError) -> dict[str, Any]:
    """Return the metadata of a call without an answer: the kind of its error, and what is known of it."""
    if CHANGED in error.details:
        return {CHANGED: True}
    found: dict[str, Any] = {"error_kind": "protocol" if isinstance(error, MCPProtocolError) else "http"}
    if isinstance(code := error.details.get("code"), int):
        found["error_code"] = code
    if error.details.get("outcome") == "unknown":
        found["outcome"] = "unknown"
    return found


def _content_of(result: MCPToolResult) -> tuple[ContentBlock, ...]:
    blocks = tuple(result.content)
    if {TextContent}.issuperset(map(type, blocks)):
        return (TextContent(text=result.text),)
    if result.structured is not None and not any(isinstance(block, TextContent) for block in blocks):
        return (*blocks, TextContent(text=MCPToolResult(success=True, structured=result.structured).text))
    return blocks


def _describe_progress(report: tuple[Any, ...]) -> str:
    """Return a progress report as text; all of its parts are optional."""
    progress, total, message = (*report, None, None, None)[:3]
    if progress is None:
        return message or ""
    share = f"{progress:g} of {total:g}" if isinstance(total, int | float) else f"{progress}"
    return f"{message} ({share})" if message else share
