"""Tool calls in the output of a response.

A call of a client's tool is streamed as the model writes it, and the call of an action tool written once it is
complete. A call that the gateway runs appears when it starts: as an `mcp_call` if the client expects such items,
otherwise as a `function_call` with a `function_call_output`; a call of a hosted tool is an item of its own type in any
case. A pending call does not appear, except as the request for its approval. The tools of a declared server are an
`mcp_list_tools` item.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from holodeck.gateway.api.models.create_response import ENCRYPTED_REASONING
from holodeck.gateway.sealing import Seal
from holodeck.gateway.wire.item_ids import action_id_of, approval_id, custom_id_of, derive_id, mcp_call_id, search_id_of
from holodeck.gateway.wire.request.action_tools import ActionTool
from holodeck.gateway.wire.request.body import ResponseRequest
from holodeck.gateway.wire.request.content_parts import output_to_wire
from holodeck.gateway.wire.request.tools import ClientToolAlias, arguments_to_text
from holodeck.gateway.wire.response.hosted_calls import OpenHostedCall
from holodeck.gateway.wire.response.output_items import ItemEvents, OutputItems, TextEvents, WireItem
from holodeck.gateway.wire.sealed_calls import build_sealed_call
from holodeck.lib.json.parse import parse_json
from holodeck.lib.record import record
from holodeck.models.events import CallAdded, ToolFinished, ToolStarted
from holodeck.models.items import FileData, FunctionCall, FunctionCallOutput, ImageLink, TextContent, describe_block

# The internal error of JSON-RPC, for a failure that has no code of its own.
_INTERNAL_ERROR = -32603
_CALL_NOT_FINISHED = "The run ended before this call had a result."


@record
class DeclaredTool:
    """The target of a call: the client's label for the server, and the server's own name for the tool."""

    server_label: str
    tool: str
    needs_approval: bool = False


@record
class ServerListing:
    """The tools of a server as it described them, or the error that prevented it."""

    server_label: str
    tools: Sequence[Mapping[str, Any]] = ()
    """Each with `name`, `description`, `input_schema` and `annotations`."""
    error: str | None = None


class DeclaredServers(Protocol):
    """The servers that the client declared in its request, as the writer needs them."""

    def find_declared_tool(self, name: str) -> DeclaredTool | None:
        """Find the target of a tool name. None: calls of this tool appear as `function_call` items."""
        ...

    def get_listings(self) -> Sequence[ServerListing]:
        """List every declared server. Called once the tools are known."""
        ...


def write_listing(listing: ServerListing, output: OutputItems, response_id: str) -> None:
    """Write the `mcp_list_tools` item of a server."""
    label = listing.server_label
    item: WireItem = {"id": derive_id("mcpl", response_id, label), "type": "mcp_list_tools", "server_label": label}
    events = ItemEvents(output.encoder, output.reserve(item["id"]), item["id"])
    events.start({**item, "tools": []})
    events.emit("response.mcp_list_tools.in_progress")
    item["tools"] = [dict(tool) for tool in listing.tools]
    if listing.error is not None:
        item["error"] = listing.error
    events.emit_end("response.mcp_list_tools", is_completed=listing.error is None)
    events.finish(item)
    output.put(events.output_index, item)


def build_approval_request(call: FunctionCall, tool: DeclaredTool) -> WireItem:
    return {
        "id": approval_id(call),
        "type": "mcp_approval_request",
        "server_label": tool.server_label,
        "name": tool.tool,
        "arguments": call.arguments,
    }


class OpenMCPCall:
    """An `mcp_call` item that is being written. Creating it emits everything but the result."""

    def __init__(
        self, call: FunctionCall, tool: DeclaredTool, output: OutputItems, *, approval_request_id: str | None = None
    ) -> None:
        self._output = output
        self._item: WireItem = {
            "id": mcp_call_id(call),
            "type": "mcp_call",
            "status": "in_progress",
            "server_label": tool.server_label,
            "name": tool.tool,
            "arguments": "",
            "approval_request_id": approval_request_id,
            "output": None,
            "error": None,
        }
        self._events = ItemEvents(output.encoder, output.reserve(self._item["id"]), self._item["id"])
        if not output.encoder.is_silent:
            self._events.start(self._item)
            self._events.emit("response.mcp_call.in_progress")
            self._events.emit_text("response.mcp_call_arguments", call.arguments, arguments=call.arguments)
        self._item["arguments"] = call.arguments

    def finish(self, output: FunctionCallOutput, metadata: Mapping[str, Any]) -> None:
        if output.is_error:
            self._close("failed", error=build_call_error(output, metadata))
            return
        wire_output = output_to_wire(output.content)
        self._close("completed", output=wire_output if isinstance(wire_output, str) else _output_as_text(output))

    def abandon(self) -> None:
        """Close the item as incomplete: the run has ended before the server answered."""
        self._close("incomplete")

    def _close(self, status: str, **result: Any) -> None:
        item = {**self._item, "status": status, **result}
        if not self._output.encoder.is_silent:
            self._events.emit_end("response.mcp_call", is_completed=status == "completed")
            self._events.finish(item)
        self._output.put(self._events.output_index, item)


def build_call_error(output: FunctionCallOutput, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Build the `error` of a failed call: an error of the tool, of the MCP protocol, or of HTTP."""
    message = "\n".join(part.text for part in output.content if isinstance(part, TextContent))
    code = metadata.get("error_code")
    kind = metadata.get("error_kind", "tool")
    if kind == "tool":
        return {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": message}]}
    number = code if isinstance(code, int) else _INTERNAL_ERROR
    return {"type": "http_error" if kind == "http" else "mcp_protocol_error", "code": number, "message": message}


def _output_as_text(output: FunctionCallOutput) -> str:
    # The `output` of an `mcp_call` is a string, so other parts are only named; the model has received them.
    return "\n".join(
        f"[{part.type}]" if isinstance(part, ImageLink | FileData) else describe_block(part) for part in output.content
    )


class OpenClientCall:
    """A call of a tool that the client runs. Collects the arguments; `close` depends on the form of the tool."""

    def __init__(self, output: OutputItems, item: WireItem, namespace: str | None = None) -> None:
        self.output_index = output.reserve(item["id"])
        self._item = item if namespace is None else {**item, "namespace": namespace}
        self._events = ItemEvents(output.encoder, self.output_index, item["id"])
        self._arguments: list[str] = []
        self._events.start(self._item)

    @property
    def is_complete(self) -> bool:
        """True once the arguments are valid JSON, so that no more of them can follow."""
        return _is_json("".join(self._arguments))

    def append(self, arguments: str) -> None:
        self._arguments.append(arguments)

    def close(self, status: str = "completed") -> WireItem:
        raise NotImplementedError

    def _finish(self, **fields: object) -> WireItem:
        item = {**self._item, **fields}
        self._events.finish(item)
        return item


class OpenFunctionCall(OpenClientCall):
    """A call of a function. Its arguments are streamed."""

    def __init__(
        self, output: OutputItems, item_id: str, call_id: str, name: str, namespace: str | None = None
    ) -> None:
        item = {"id": item_id, "type": "function_call", "status": "in_progress", "call_id": call_id, "name": name}
        super().__init__(output, {**item, "arguments": ""}, namespace)
        self._text = TextEvents(output.encoder, "response.function_call_arguments", self._events.position)

    def append(self, arguments: str) -> None:
        super().append(arguments)
        self._text.append(arguments)

    def close(self, status: str = "completed") -> WireItem:
        arguments = self._text.text
        self._text.finish(name=self._item["name"], arguments=arguments)
        return self._finish(status=status, arguments=arguments)


class OpenCustomCall(OpenClientCall):
    """A call of a tool that takes text.

    The model writes the text as the argument of a function, so it is known, and streamed, only at the end.
    """

    def __init__(self, output: OutputItems, item_id: str, call_id: str, alias: ClientToolAlias) -> None:
        item = {"id": custom_id_of(item_id), "type": "custom_tool_call", "status": "in_progress", "call_id": call_id}
        super().__init__(output, {**item, "name": alias.name, "input": ""}, alias.namespace)

    def close(self, status: str = "completed") -> WireItem:
        text = arguments_to_text("".join(self._arguments))
        self._events.emit_text("response.custom_tool_call_input", text, input=text)
        return self._finish(status=status, input=text)


class OpenToolSearch(OpenClientCall):
    """A search for tools. Its arguments are an object, which the API does not stream."""

    def __init__(self, output: OutputItems, item_id: str, call_id: str) -> None:
        item = {"id": search_id_of(item_id), "type": "tool_search_call", "status": "in_progress", "call_id": call_id}
        super().__init__(output, {**item, "execution": "client", "arguments": {}})

    def close(self, status: str = "completed") -> WireItem:
        text = "".join(self._arguments)
        return self._finish(status=status, arguments=parse_json(text) if _is_json(text) else {"query": text})


def _is_json(text: str) -> bool:
    try:
        parse_json(text)
    except ValueError:
        return False
    return True


class CallItems:
    """Writes the calls of a run, and their results.

    A call that the gateway runs is not written before it starts. Until then its turn may turn out to have calls of the
    client as well, and then the call stays pending.
    """

    def __init__(
        self,
        output: OutputItems,
        request: ResponseRequest,
        *,
        servers: DeclaredServers | None,
        pending: Sequence[FunctionCall],
        approved: Collection[str],
        default_label: str | None = None,
        seal: Seal | None = None,
    ) -> None:
        """`approved`: ids of calls that a person approved.

        `default_label`: the server label of a call that has no declared server. None: it is a `function_call` item.
        `seal`: encrypts calls with their outputs into reasoning items, for clients that do not send `mcp_call` items
        back. Only used with a `default_label`, when the response is not stored and such items are requested.
        """
        self._output = output
        self._request = request
        self._servers = servers
        self._default_label = default_label
        self._approved = frozenset(approved)
        self._not_started = {call.call_id: call for call in pending}
        self._open_items: dict[str, OpenClientCall] = {}
        self._aliases = request.tools.aliases
        self._closed: set[str] = set()
        self._server_calls: dict[str, OpenMCPCall | OpenHostedCall] = {}
        self._hosted = {tool.name for tool in request.tools.hosted}
        can_carry = default_label is not None and not request.store and ENCRYPTED_REASONING in request.include
        self._seal = seal if can_carry else None
        self._to_seal: dict[str, tuple[FunctionCall, DeclaredTool]] = {}
        self._as_functions: set[str] = set()
        self.has_client_calls = False
        """True once the model has called a tool of the client."""

    def append_arguments(self, event: CallAdded) -> None:
        """Stream more of the arguments of a client's call. Other calls are not written yet."""
        if self._request.is_client_function(event.name) and event.item_id not in self._closed:
            if event.item_id not in self._open_items:
                self._close_complete()
            if self._find_action_tool(event.name) is not None:
                return
            self._get_open_item(event.item_id, event.call_id, event.name).append(event.arguments)

    def finish_call(self, call: FunctionCall, status: str = "completed") -> None:
        """Write a finished client's call, or remember a call that the gateway may run."""
        if self._request.is_client_call(call):
            self.has_client_calls = True
            if (tool := self._find_action_tool(call.name)) is not None:
                self._write_action(call, tool, status)
            elif call.id not in self._closed:
                self._write_call(call, status)
        else:
            self._not_started[call.call_id] = call

    def start_execution(self, event: ToolStarted) -> None:
        """Write the start of a call. One over the limit of the request is ignored: only the model learns of it."""
        call_id = event.call_id
        call = self._not_started.pop(call_id, None)
        if call is None or event.is_over_limit:
            return
        target = self._find_declared_tool(call)
        if call.name in self._hosted:
            server = target.server_label if target is not None else call.name
            self._server_calls[call_id] = OpenHostedCall(
                call, self._output, server=server, include=self._request.include
            )
        elif target is None:
            self._write_call(call)
            self._as_functions.add(call_id)
        else:
            approval = approval_id(call) if call_id in self._approved else None
            self._server_calls[call_id] = OpenMCPCall(call, target, self._output, approval_request_id=approval)
            if self._seal is not None:
                self._to_seal[call_id] = (call, target)

    def finish_execution(self, event: ToolFinished) -> None:
        call = self._server_calls.pop(event.call_id, None)
        if call is not None:
            call.finish(event.output, event.metadata)

    def write_result(self, output: FunctionCallOutput) -> None:
        """Write the output of a call that is a `function_call` item. An `mcp_call` item contains its own."""
        if output.call_id in self._as_functions:
            self._as_functions.remove(output.call_id)
            self._write_output(output.call_id, output.id, output_to_wire(output.content), "completed")
        elif self._seal is not None and output.call_id in self._to_seal:
            call, target = self._to_seal.pop(output.call_id)
            self._output.write(
                build_sealed_call(call, output, server_label=target.server_label, tool=target.tool, seal=self._seal)
            )

    def close_incomplete(self) -> None:
        """Close all unfinished items as incomplete: the run has ended."""
        if self._open_items:
            self.close_client_calls()
        for call in self._server_calls.values():
            call.abandon()
        for call_id in sorted(self._as_functions):
            self._write_output(call_id, derive_id("out", call_id), _CALL_NOT_FINISHED, "incomplete")

    def close_client_calls(self) -> None:
        """Close the unfinished calls of the client's tools as incomplete."""
        for item in self._open_items.values():
            self._output.put(item.output_index, item.close("incomplete"))
        self._open_items = {}

    def request_approvals(self, pending: Sequence[FunctionCall]) -> bool:
        """Write an approval request for each pending call that needs one. Returns whether there was any."""
        targets = [(call, self._find_declared_tool(call)) for call in pending]
        unapproved = [(call, target) for call, target in targets if target is not None and target.needs_approval]
        for call, target in unapproved:
            self._output.write(build_approval_request(call, target))
        return bool(unapproved)

    def _find_action_tool(self, name: str) -> ActionTool | None:
        alias = self._aliases.get(name)
        return None if alias is None else alias.action

    def _find_declared_tool(self, call: FunctionCall) -> DeclaredTool | None:
        target = None if self._servers is None else self._servers.find_declared_tool(call.name)
        if target is None and self._default_label is not None:
            return DeclaredTool(server_label=self._default_label, tool=call.name)
        return target

    def _get_open_item(self, item_id: str, call_id: str, name: str) -> OpenClientCall:
        found = self._open_items.get(item_id)
        if found is None:
            found = self._open_items[item_id] = self._open_item(item_id, call_id, name)
        return found

    def _open_item(self, item_id: str, call_id: str, name: str) -> OpenClientCall:
        alias, output = self._aliases.get(name), self._output
        if alias is None:
            return OpenFunctionCall(output, item_id, call_id, name)
        if alias.form == "custom":
            return OpenCustomCall(output, item_id, call_id, alias)
        if alias.form == "search":
            return OpenToolSearch(output, item_id, call_id)
        return OpenFunctionCall(output, item_id, call_id, alias.name, alias.namespace)

    def _close_complete(self) -> None:
        """Close the calls whose arguments are complete. Some clients follow only one item at a time."""
        for item_id, item in list(self._open_items.items()):
            if item.is_complete:
                del self._open_items[item_id]
                self._closed.add(item_id)
                self._output.put(item.output_index, item.close())

    def _write_call(self, call: FunctionCall, status: str = "completed") -> None:
        item_id = call.id or call.call_id
        is_streamed = item_id in self._open_items
        opened = self._get_open_item(item_id, call.call_id, call.name)
        if not is_streamed:
            opened.append(call.arguments)
        del self._open_items[item_id]
        self._output.put(opened.output_index, opened.close(status))

    def _write_action(self, call: FunctionCall, tool: ActionTool, status: str) -> None:
        fields = tool.find_fields(call.arguments)
        # The calls of an answer that was cut are not run, and some of these items have no status for that.
        if fields is None or status != "completed":
            return
        item: WireItem = {"id": action_id_of(call.id or call.call_id, tool.id_prefix), "type": tool.item_type}
        item |= {"status": "in_progress", "call_id": call.call_id, **fields}
        events = ItemEvents(self._output.encoder, self._output.reserve(item["id"]), item["id"])
        events.start(item)
        item = {**item, "status": status}
        events.finish(item)
        self._output.put(events.output_index, item)

    def _write_output(self, call_id: str, item_id: str, output: object, status: str) -> None:
        self._output.write(
            {"id": item_id, "type": "function_call_output", "status": status, "call_id": call_id, "output": output}
        )
