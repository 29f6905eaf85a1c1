"""The methods of the protocol that clients call, without the transport and without what differs between the eras.

Each call of a tool, resource, prompt or agent passes the `CallPipeline` that the calls of models pass, with the person
at the client as its approver. A failed call of a tool is a result that says so, which the model of the client can read;
what else fails is a JSON-RPC error.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NoReturn

import orjson

from holodeck.lib import log
from holodeck.lib.errors import MCPError, MCPProtocolError
from holodeck.lib.escape import one_line
from holodeck.lib.ids import new_id
from holodeck.mcp_server.agent_tools import AgentTool
from holodeck.mcp_server.approval import PeerApprover
from holodeck.mcp_server.catalogue import Catalogue, Listing
from holodeck.mcp_server.context import RequestContext
from holodeck.mcp_server.errors import (
    RESOURCE_NOT_FOUND,
    RPCError,
    build_failure,
    error_of,
    invalid_params,
)
from holodeck.mcp_server.view import View
from holodeck.models.model_io import ToolSpec
from holodeck.tools.agents import QUESTION_SCHEMA
from holodeck.tools.calls import ArgumentChecker, CallPipeline
from holodeck.tools.executor import (
    CHANGED,
    NOT_RECORDED,
    OUT_OF_SCOPE,
    UNKNOWN_TARGET,
    UNKNOWN_TOOL,
    CallRecorder,
    CallRules,
    CallTarget,
    Refusal,
    TargetKind,
    ToolCall,
    ToolResult,
)
from holodeck.tools.mcp.content import blocks_of
from holodeck.tools.mcp.discovery import READ_RESOURCE_TOOL
from holodeck.tools.mcp.executor import ToolRoute, describe_failure
from holodeck.tools.mcp.plugin import MCPPlugin
from holodeck.tools.mcp.protocol.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from holodeck.tools.mcp.protocol.versions import META_RELATED_TASK, ProtocolEra, mapping
from holodeck.tools.mcp.resource_subscriptions import OnUpdate, ResourceSubscription
from holodeck.tools.mcp.tool_patterns import needs_approval

META_MISSING = "dev.holodeck/missing_servers"
"""In `_meta` of a list: by server, why what it has is missing."""
# Characters of what a server says about itself: enough to know what it is for.
MAX_QUOTED_CHARS = 500
# Entries of one page of a list: more than most clients ever see, and few enough for one message.
PAGE_SIZE = 1_000
# Resources that one session, or one request that listens, may watch.
MAX_SUBSCRIPTIONS = 1_000

CAPABILITIES: Mapping[str, Any] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "completions": {},
    "logging": {},
}
"""What servers behind may have. They are not started to find out."""

Result = Mapping[str, Any]
Handler = Callable[[Mapping[str, Any], RequestContext], Awaitable[Result]]
Send = Callable[[ToolCall], Awaitable[Result]]
"""Sends a call to its server. Raises MCPError."""
OnCall = Callable[[View, CallTarget, float, bool], None]
"""Called at the end of a call with the view of its client, its target, its seconds, and whether it failed."""
BuildRecorder = Callable[[View], CallRecorder | None]
"""Builds what records the calls of a request for its operator; None where calls are not recorded."""


class Methods:
    """Answers the requests of all clients. Owns its argument checker; the catalogue belongs to the caller."""

    def __init__(
        self, catalogue: Catalogue, on_call: OnCall | None = None, build_recorder: BuildRecorder | None = None
    ) -> None:
        self.catalogue = catalogue
        self._on_call = on_call
        self._build_recorder = build_recorder
        self._checker = ArgumentChecker()
        self._links = ResourceLinks()
        self._handlers: Mapping[str, Handler] = {
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_resource_templates,
            "resources/read": self._read_resource,
            "completion/complete": self._complete,
        }

    async def handle(self, method: str, params: Mapping[str, Any], context: RequestContext) -> Result:
        """Return the result of one request. Raises RPCError."""
        handler = self._handlers.get(method)
        if handler is None:
            raise RPCError(METHOD_NOT_FOUND, f"Method not found: {method}")
        return await handler(params, context)

    def describe(self, view: View) -> str | None:
        """Return the instructions for a client: what stands behind this server."""
        lines = [f"- {server.name}{_describe_server(server)}" for server in self.catalogue.servers(view)]
        return "\n".join(["The tools of these servers:", *lines]) if lines else None

    async def subscribe(self, uri: str, view: View, listener: OnUpdate) -> ResourceSubscription:
        """Call the listener with the address of a resource whenever it changes. Raises RPCError."""
        server = await self.catalogue.find_resource_server(uri, view)
        if server is None:
            raise RPCError(RESOURCE_NOT_FOUND, f"Resource not found: {uri}", {"uri": uri})
        try:
            return await server.subscribe(uri, listener)
        except MCPError as error:
            raise error_of(error, _server_text(server, error)) from error

    async def request_log_level(self, level: str, view: View) -> None:
        """Let the servers of a client send log messages of this level, if they do not yet."""
        await asyncio.gather(*(server.lower_log_level(level) for server in self.catalogue.servers(view)))

    async def announce_roots(self, view: View) -> None:
        """Tell the servers of a client that its roots have changed: those that were given its roots."""
        await asyncio.gather(*(server.announce_roots() for server in self.catalogue.servers(view)))

    async def close(self) -> None:
        await self._checker.close()

    async def _list_tools(self, params: Mapping[str, Any], context: RequestContext) -> Result:
        listing = await self.catalogue.list_tools(
            context.view, lambda text: context.report_progress(None, message=text)
        )
        return _build_page("tools", listing, params)

    async def _list_prompts(self, params: Mapping[str, Any], context: RequestContext) -> Result:
        return _build_page("prompts", await self.catalogue.list_prompts(context.view), params)

    async def _list_resources(self, params: Mapping[str, Any], context: RequestContext) -> Result:
        return _build_page("resources", await self.catalogue.list_resources(context.view), params)

    async def _list_resource_templates(self, params: Mapping[str, Any], context: RequestContext) -> Result:
        listing = await self.catalogue.list_resource_templates(context.view)
        return _build_page("resourceTemplates", listing, params)

    async def _call_tool(self, params: Mapping[str, Any], context: RequestContext) -> Result:
        name, arguments = _require_text(params, "name"), params.get("arguments")
        if arguments is not None and not isinstance(arguments, dict):
            raise invalid_params("'arguments' must be an object")
        found, not_found = await self.catalogue.find_tool(name, context.view), invalid_params(f"Unknown tool: {name}")
        spec = found.spec if isinstance(found, ToolRoute) else None
        if isinstance(found, AgentTool):
            spec = ToolSpec(name=name, description="", parameters=QUESTION_SCHEMA)
        call = ToolCall(call_id=new_id("call"), name=name, arguments=arguments or {}, spec=spec)
        if found is None:
            return await self._refuse_unknown(call, context, not_found)
        if isinstance(found, AgentTool):
            rules = CallRules(target=CallTarget(server="", tool=found.agent, kind=TargetKind.AGENT))
            answer = await self._run(call, rules, partial(_ask_agent, found, context), context, not_found)
        else:
            answer = await self._run(call, found.find_rules(), partial(_call_tool, found, context), context, not_found)
        if isinstance(answer, Refusal):
            return build_failure(answer.text)
        if isinstance(found, AgentTool):
            return answer if not isinstance(answer, MCPError) else build_failure(str(answer))
        if isinstance(answer, MCPError):
            return await self._build_call_failure(found.server, answer, context.view)
        self._links.add(context.view.caller_id, found.server.name, answer)
        return _without_task(answer)

    async def _build_call_failure(self, server: MCPPlugin, error: MCPError, view: View) -> Result:
        """Build the result of a call without an answer. Raises the JSON-RPC error that the server itself has sent."""
        if CHANGED in error.details:
            await self.catalogue.refresh_tools(view)
        if isinstance(error, MCPProtocolError) and "code" in error.details:
            raise error_of(error, _server_text(server, error)) from error
        return build_failure(server.explain(error), server=error.server, phase=error.phase)

    async def _get_prompt(self, params: Mapping[str, Any], context: RequestContext) -> Result:
        name, arguments = _require_text(params, "name"), mapping(params.get("arguments"))
        found = await self.catalogue.find_prompt(name, context.view)
        not_found = invalid_params(f"Unknown prompt: {name}")
        call = ToolCall(call_id=new_id("call"), name=name, arguments=arguments)
        if found is None:
            return await self._refuse_unknown(call, context, not_found)
        server, prompt = found

        async def send(call: ToolCall) -> Result:
            report = context.report_progress
            return await server.request_prompt(prompt.name, call.arguments, on_progress=report, peer=context)

        rules = CallRules(target=CallTarget(server=server.name, tool=prompt.name, kind=TargetKind.PROMPT))
        return _require_result(server, await self._run(call, rules, send, context, not_found))

    async def _read_resource(self, params: Mapping[str, Any], context: RequestContext) -> Result:
        uri, view, kind = _require_text(params, "uri"), context.view, TargetKind.RESOURCE
        server = await self.catalogue.find_resource_server(uri, view)
        if server is None:
            kind = TargetKind.LINK
            server = self.catalogue.find_linked_server(self._links.find_server(view.caller_id, uri), view)
        call = ToolCall(call_id=new_id("call"), name=READ_RESOURCE_TOOL.name, arguments={"uri": uri})
        code = INVALID_PARAMS if context.era is ProtocolEra.MODERN else RESOURCE_NOT_FOUND
        not_found = RPCError(code, f"Resource not found: {uri}", {"uri": uri})
        if server is None:
            return await self._refuse_unknown(call, context, not_found)
        target = CallTarget(server=server.name, tool=READ_RESOURCE_TOOL.name, kind=kind)
        rules = CallRules(target=target, needs_approval=needs_approval(server.config, READ_RESOURCE_TOOL))
        send = partial(_read_resource, server, context)
        return _require_result(server, await self._run(call, rules, send, context, not_found))

    async def _refuse_unknown(self, call: ToolCall, context: RequestContext, error: RPCError) -> NoReturn:
        """Record a call of something that does not exist for this client. Raises the error."""
        rules = CallRules(target=UNKNOWN_TARGET, refusal=Refusal(code=UNKNOWN_TOOL, text=str(error)))
        await self._build_pipeline(context).find_refusal(call, rules)
        missing = self.catalogue.find_missing(context.view)
        text = f". Not there at this moment: {' '.join(missing.values())}" if missing else ""
        raise RPCError(error.code, f"{error}{text}", error.data)

    async def _run(
        self, call: ToolCall, rules: CallRules, send: Send, context: RequestContext, not_found: RPCError
    ) -> Result | MCPError | Refusal:
        """Have a call pass the pipeline. Raises `not_found` for one out of scope, as for what does not exist."""

        async def send_call(call: ToolCall) -> Result | MCPError:
            try:
                return await send(call)
            except MCPError as error:
                return error

        answer = await self._build_pipeline(context).run(call, rules, send_call, _to_result)
        assert not isinstance(answer, ToolResult)  # noqa: S101 - only hooks answer in the place of a tool
        if isinstance(answer, Refusal) and answer.code == OUT_OF_SCOPE:
            raise not_found
        return answer

    def _build_pipeline(self, context: RequestContext) -> CallPipeline:
        return CallPipeline(
            self._checker,
            approver=PeerApprover(context),
            recorder=None if self._build_recorder is None else self._build_recorder(context.view),
            scope=context.view,
            on_end=partial(self._finish_call, context.view),
        )

    def _finish_call(
        self, view: View, target: CallTarget, answer: Result | MCPError | Refusal | None, seconds: float
    ) -> None:
        """Log how a call ended, and count it."""
        match answer:
            case None:
                outcome = "cancelled"
            case Refusal():
                outcome = "refused"
            case MCPError():
                outcome = "failed"
            case _:
                outcome = "tool_error" if answer.get("isError") is True else "ok"
        about = {"error": answer} if isinstance(answer, MCPError) else {}
        write = log.info if outcome in ("ok", "tool_error") else log.warning
        write(
            "mcp_server.call",
            caller=view.caller_id,
            server=target.server,
            tool=target.shown_tool,
            outcome=outcome,
            seconds=round(seconds, 4),
            **about,
        )
        if self._on_call is not None:
            self._on_call(view, target, seconds, outcome != "ok")

    async def _complete(self, params: Mapping[str, Any], context: RequestContext) -> Result:
        ref, argument = mapping(params.get("ref")), mapping(params.get("argument"))
        kind, server, sent, uses = ref.get("type"), None, dict(ref), TargetKind.RESOURCE
        if kind == "ref/prompt":
            found, uses = await self.catalogue.find_prompt(_require_text(ref, "name"), context.view), TargetKind.PROMPT
            if found is not None:
                server, sent["name"] = found[0], found[1].name
        elif kind == "ref/resource":
            server = await self.catalogue.find_template_server(_require_text(ref, "uri"), context.view)
        else:
            raise invalid_params("'ref.type' must be 'ref/prompt' or 'ref/resource'")
        not_found = invalid_params("There is no such prompt or resource")
        if server is None:
            raise not_found
        name = sent["name"] if uses is TargetKind.PROMPT else READ_RESOURCE_TOOL.name
        # Sent while a person types: a record of each letter would bury the others.
        rules = CallRules(target=CallTarget(server=server.name, tool=name, kind=uses), is_recorded=False)
        complete = partial(server.complete, sent, argument, params.get("context"), peer=context)
        call = ToolCall(call_id=new_id("call"), name=name, arguments=argument)
        return _require_result(server, await self._run(call, rules, lambda _: complete(), context, not_found))


def _describe_server(server: MCPPlugin) -> str:
    """Return what follows the name of a server: the operator's description, or else a quotation of the server itself.

    Instructions that differ from the lock are none.
    """
    if server.config.description:
        return f": {server.config.description.strip()}"
    if server.instructions is None:
        return ""
    quoted = orjson.dumps(one_line(server.instructions, MAX_QUOTED_CHARS)).decode()
    return f" (in its own words: {quoted})"


def _server_text(server: MCPPlugin, error: MCPError) -> str:
    """Return the words of the server itself for its own error, or else what the client may know of the cause."""
    said = error.details.get("message")
    return said if isinstance(said, str) else server.explain(error)


def _without_task(result: Result) -> Result:
    """Return the result of a call without the task behind, which the client cannot ask for."""
    meta = mapping(result.get("_meta"))
    if META_RELATED_TASK not in meta:
        return result
    rest = {key: value for key, value in meta.items() if key != META_RELATED_TASK}
    bare = {key: value for key, value in result.items() if key != "_meta"}
    return {**bare, "_meta": rest} if rest else bare


def _require_text(params: Mapping[str, Any], key: str) -> str:
    value = params.get(key)
    if not isinstance(value, str) or not value:
        raise invalid_params(f"'{key}' must be a text")
    return value


async def _call_tool(route: ToolRoute, context: RequestContext, call: ToolCall) -> Result:
    return await route.server.request_call(
        route.tool.name,
        call.arguments,
        on_progress=context.report_progress,
        caller_id=context.view.caller_id,
        # An approval, and what the client knows of the tool, is for its definition as it was listed.
        expected=route.tool,
        peer=context,
    )


async def _ask_agent(tool: AgentTool, context: RequestContext, call: ToolCall) -> Result:
    return await tool.answer(call.arguments["question"], context)


async def _read_resource(server: MCPPlugin, context: RequestContext, call: ToolCall) -> Result:
    return await server.request_resource(call.arguments["uri"], caller_id=context.view.caller_id, peer=context)


def _to_result(call: ToolCall, answer: Result | MCPError) -> ToolResult:
    """Return an answer as the result that is recorded."""
    if isinstance(answer, MCPError):
        return ToolResult.failure(call.call_id, str(answer), **describe_failure(answer))
    is_error = answer.get("isError") is True
    blocks, _ = blocks_of(answer.get("content"))
    failure = {"error_kind": "tool"} if is_error else {}
    return ToolResult(call_id=call.call_id, content=tuple(blocks), is_error=is_error, metadata=failure)


def _require_result(server: MCPPlugin, answer: Result | MCPError | Refusal) -> Result:
    """Return the answer of a server to a request that has no failed results. Raises RPCError."""
    if isinstance(answer, Refusal):
        raise RPCError(INTERNAL_ERROR if answer.code == NOT_RECORDED else INVALID_PARAMS, answer.text)
    if isinstance(answer, MCPError):
        raise error_of(answer, _server_text(server, answer)) from answer
    return answer


def _build_page(key: str, listing: Listing, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return one page of a list, with the servers that are missing from it. Raises RPCError where no server is there.

    A cursor of a list that has changed meanwhile is refused: the pages would not fit.
    """
    entries, missing = listing.entries, listing.missing
    if listing.is_void:
        text = f"There is no list, because no server is there: {' '.join(missing.values())}"
        raise RPCError(INTERNAL_ERROR, text, {META_MISSING: missing})
    note = {"_meta": {META_MISSING: missing}} if missing else {}
    if len(entries) <= PAGE_SIZE and params.get("cursor") is None:
        return {key: list(entries), **note}
    digest = hashlib.sha256(orjson.dumps([entry.get("name") for entry in entries])).hexdigest()[:16]
    start = 0
    if (cursor := params.get("cursor")) is not None:
        offset, _, wanted = str(cursor).partition(".")
        # Compared as a text: a number of thousands of digits cannot be parsed.
        start = next((each for each in range(0, len(entries), PAGE_SIZE) if str(each) == offset), 0)
        if start == 0 or wanted != digest:
            raise invalid_params("This cursor is not known, or the list has changed: start again without a cursor.")
    page: dict[str, Any] = {key: list(entries[start : start + PAGE_SIZE]), **note}
    if start + PAGE_SIZE < len(entries):
        page["nextCursor"] = f"{start + PAGE_SIZE}.{digest}"
    return page


# Links of one caller: more than a model reads of the results of one conversation.
MAX_PER_CALLER = 100
# Callers with links: together with the others, a bound of a few MB.
MAX_CALLERS = 100
# Characters of an address. A longer one is not remembered.
MAX_URI_CHARS = 1_024


class ResourceLinks:
    """The resources that results of tools have linked to, by the caller that got the result.

    A server need not list what its tools link to. So a caller may read what it was sent a link to, at the server that
    sent it. Each caller has its own links, of which the latest are remembered.
    """

    def __init__(self) -> None:
        self._by_caller: OrderedDict[str, OrderedDict[str, str]] = OrderedDict()

    def add(self, caller_id: str, server: str, result: Mapping[str, Any]) -> None:
        """Remember the links in the result of a tool."""
        blocks = result.get("content")
        for block in blocks if isinstance(blocks, list) else ():
            if isinstance(block, dict) and block.get("type") == "resource_link":
                self._add_link(caller_id, server, block.get("uri"))

    def find_server(self, caller_id: str, uri: str) -> str | None:
        """Return the server whose tool has linked to a resource in a result for this caller, or None."""
        links = self._by_caller.get(caller_id)
        return None if links is None else links.get(uri)

    def _add_link(self, caller_id: str, server: str, uri: object) -> None:
        if not isinstance(uri, str) or len(uri) > MAX_URI_CHARS:
            return
        links = self._by_caller.setdefault(caller_id, OrderedDict())
        links[uri] = server
        links.move_to_end(uri)
        self._by_caller.move_to_end(caller_id)
        if len(links) > MAX_PER_CALLER:
            links.popitem(last=False)
        if len(self._by_caller) > MAX_CALLERS:
            self._by_caller.popitem(last=False)
