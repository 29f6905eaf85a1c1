"""The methods of the protocol that clients call, without the transport and without what differs between the eras.

Every rule that holds for the calls of a model holds here: the patterns of a server, its lock, approvals, the limits of
calls, times and sizes. A failed call of a tool is a result that says so, which the model of the client can read; what
else fails is a JSON-RPC error.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson

from holodeck.lib.errors import MCPError, MCPProtocolError
from holodeck.lib.escape import one_line
from holodeck.mcp_server.agent_tools import QUESTION_SCHEMA, AgentTool
from holodeck.mcp_server.approval import find_refusal
from holodeck.mcp_server.call_log import CallLog
from holodeck.mcp_server.catalogue import Catalogue, Listing
from holodeck.mcp_server.context import RequestContext
from holodeck.mcp_server.errors import (
    RESOURCE_NOT_FOUND,
    RPCError,
    build_failure,
    error_of,
    invalid_params,
)
from holodeck.mcp_server.links import ResourceLinks
from holodeck.mcp_server.view import View
from holodeck.tools.arguments import ArgumentChecker, BadArgumentsError
from holodeck.tools.executor import CHANGED, INVALID_ARGUMENTS
from holodeck.tools.mcp.discovery import READ_RESOURCE_TOOL
from holodeck.tools.mcp.executor import ToolRoute
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


class Methods:
    """Answers the requests of all clients. Owns its argument checker; the catalogue belongs to the caller."""

    def __init__(self, catalogue: Catalogue, *, call_log: CallLog | None = None) -> None:
        self.catalogue = catalogue
        self._call_log = call_log or CallLog()
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
        target = await self.catalogue.find_tool(name, context.view)
        if target is None:
            raise invalid_params(f"Unknown tool: {name}{_describe_missing(self.catalogue.find_missing(context.view))}")
        if isinstance(target, AgentTool):
            return await self._ask_agent(target, name, arguments or {}, context)
        return await self._call_server_tool(target, name, arguments or {}, context)

    async def _call_server_tool(
        self, route: ToolRoute, name: str, arguments: Mapping[str, Any], context: RequestContext
    ) -> Result:
        server, tool, view = route.server, route.tool, context.view
        async with self._call_log.open(view, server.name, tool.name, arguments) as entry:
            problem = await self._find_bad_arguments(name, tool.input_schema, arguments)
            if problem is not None:
                return await entry.refuse(problem, INVALID_ARGUMENTS)
            needs_person = needs_approval(server.config, tool)
            if needs_person:
                refusal = await find_refusal(context, server.name, tool.name, arguments)
                if refusal is not None:
                    return await entry.refuse(refusal.text, refusal.code)
            reason = await entry.start(is_approved=needs_person)
            if reason is not None:
                return build_failure(reason)
            try:
                result = await server.request_call(
                    tool.name,
                    arguments,
                    on_progress=context.report_progress,
                    caller_id=view.caller_id,
                    # An approval, and what the client knows of the tool, is for its definition as it was listed.
                    expected=tool,
                    peer=context,
                )
            except MCPError as error:
                await entry.fail(error)
                return await self._build_call_failure(server, error, view)
            await entry.finish(result)
            self._links.add(view.caller_id, server.name, result)
            return _without_task(result)

    async def _build_call_failure(self, server: MCPPlugin, error: MCPError, view: View) -> Result:
        """Build the result of a call without an answer. Raises the JSON-RPC error that the server itself has sent."""
        if CHANGED in error.details:
            await self.catalogue.refresh_tools(view)
        if isinstance(error, MCPProtocolError) and "code" in error.details:
            raise error_of(error, _server_text(server, error)) from error
        return build_failure(server.explain(error), server=error.server, phase=error.phase)

    async def _find_bad_arguments(
        self, name: str, schema: Mapping[str, Any], arguments: Mapping[str, Any]
    ) -> str | None:
        try:
            await self._checker.check_arguments(name, schema, arguments)
        except BadArgumentsError as error:
            return str(error)
        return None

    async def _ask_agent(
        self, tool: AgentTool, name: str, arguments: Mapping[str, Any], context: RequestContext
    ) -> Result:
        problem = await self._find_bad_arguments(name, QUESTION_SCHEMA, arguments)
        if problem is not None:
            return build_failure(problem)
        return await tool.answer(arguments["question"], context)

    async def _get_prompt(self, params: Mapping[str, Any], context: RequestContext) -> Result:
        name, arguments = _require_text(params, "name"), mapping(params.get("arguments"))
        found = await self.catalogue.find_prompt(name, context.view)
        if found is None:
            missing = _describe_missing(self.catalogue.find_missing(context.view))
            raise invalid_params(f"Unknown prompt: {name}{missing}")
        server, prompt = found
        try:
            return await server.request_prompt(
                prompt.name, arguments, on_progress=context.report_progress, peer=context
            )
        except MCPError as error:
            raise error_of(error, _server_text(server, error)) from error

    async def _read_resource(self, params: Mapping[str, Any], context: RequestContext) -> Result:
        uri = _require_text(params, "uri")
        server = await self.catalogue.find_resource_server(uri, context.view)
        if server is None:
            linked = self._links.find_server(context.view.caller_id, uri)
            server = self.catalogue.find_linked_server(linked, context.view)
        if server is None:
            code = INVALID_PARAMS if context.era is ProtocolEra.MODERN else RESOURCE_NOT_FOUND
            missing = _describe_missing(self.catalogue.find_missing(context.view))
            raise RPCError(code, f"Resource not found: {uri}{missing}", {"uri": uri})
        reading = READ_RESOURCE_TOOL
        async with self._call_log.open(context.view, server.name, reading.name, {"uri": uri}) as entry:
            needs_person = needs_approval(server.config, reading)
            if needs_person:
                refusal = await find_refusal(context, server.name, reading.name, {"uri": uri})
                if refusal is not None:
                    await entry.refuse(refusal.text, refusal.code)
                    raise invalid_params(refusal.text)
            reason = await entry.start(is_approved=needs_person)
            if reason is not None:
                raise RPCError(INTERNAL_ERROR, reason)
            try:
                result = await server.request_resource(uri, caller_id=context.view.caller_id, peer=context)
            except MCPError as error:
                await entry.fail(error)
                raise error_of(error, _server_text(server, error)) from error
            await entry.finish({})
            return result

    async def _complete(self, params: Mapping[str, Any], context: RequestContext) -> Result:
        ref, argument = mapping(params.get("ref")), mapping(params.get("argument"))
        kind, server, sent = ref.get("type"), None, dict(ref)
        if kind == "ref/prompt":
            found = await self.catalogue.find_prompt(_require_text(ref, "name"), context.view)
            if found is not None:
                server, sent["name"] = found[0], found[1].name
        elif kind == "ref/resource":
            server = await self.catalogue.find_template_server(_require_text(ref, "uri"), context.view)
        else:
            raise invalid_params("'ref.type' must be 'ref/prompt' or 'ref/resource'")
        if server is None:
            raise invalid_params("There is no such prompt or resource")
        try:
            return await server.complete(sent, argument, context=params.get("context"), peer=context)
        except MCPError as error:
            raise error_of(error, _server_text(server, error)) from error


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


def _describe_missing(missing: Mapping[str, str]) -> str:
    """Return what follows a sentence about something that is not there, if that may be because of a server."""
    return f". Not there at this moment: {' '.join(missing.values())}" if missing else ""


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
