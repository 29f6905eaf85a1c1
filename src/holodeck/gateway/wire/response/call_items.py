"""Tool calls on the wire: the client's own as they come, ours once they run, and those that wait not at all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from holodeck.gateway.sealing import Seal
from holodeck.gateway.wire.item_ids import approval_id, mcp_call_id
from holodeck.gateway.wire.request.body import ResponseRequest
from holodeck.gateway.wire.request.content_parts import output_to_wire
from holodeck.gateway.wire.request.options import ENCRYPTED_REASONING
from holodeck.gateway.wire.response.event_encoder import OutputItems, WireItem
from holodeck.gateway.wire.response.open_items import OpenCall, OpenCustomCall, OpenToolSearch
from holodeck.gateway.wire.sealed_calls import build_sealed_call
from holodeck.lib.ids import new_id
from holodeck.models.content import TextContent
from holodeck.models.events import CallAdded, ToolFinished
from holodeck.models.items import FunctionCall, FunctionCallOutput

_INTERNAL_ERROR = -32603  # of JSON-RPC: for a failure that has no code of its own


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclaredTool:
    """Where a name that the model knows leads, in the client's words."""

    server_label: str
    tool: str
    needs_approval: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerListing:
    """The tools of a server as it described them, or why they are not known."""

    server_label: str
    tools: Sequence[Mapping[str, Any]] = ()
    """Each with `name`, `description`, `input_schema` and `annotations`."""
    error: str | None = None


class DeclaredServers(Protocol):
    """What the writer asks about the servers that the client declared."""

    def find_declared_tool(self, name: str) -> DeclaredTool | None:
        """None for a tool that is shown as a function."""
        ...

    def get_listings(self) -> Sequence[ServerListing]:
        """Every declared server. Asked once the tools are known."""
        ...


def write_listing(listing: ServerListing, output: OutputItems) -> None:
    """The item for a server's tools, with its events."""
    encoder, index = output.encoder, output.reserve()
    item: WireItem = {"id": new_id("mcpl"), "type": "mcp_list_tools", "server_label": listing.server_label}
    place = {"item_id": item["id"], "output_index": index}
    encoder.emit("response.output_item.added", output_index=index, item={**item, "tools": []})
    encoder.emit("response.mcp_list_tools.in_progress", **place)
    item["tools"] = [dict(tool) for tool in listing.tools]
    if listing.error is not None:
        item["error"] = listing.error
    encoder.emit(f"response.mcp_list_tools.{'completed' if listing.error is None else 'failed'}", **place)
    encoder.emit("response.output_item.done", output_index=index, item=item)
    output.put(index, item)


def build_approval_request(call: FunctionCall, tool: DeclaredTool) -> WireItem:
    return {
        "id": approval_id(call),
        "type": "mcp_approval_request",
        "server_label": tool.server_label,
        "name": tool.tool,
        "arguments": call.arguments,
    }


class OpenMCPCall:
    """A call at a server, from its start to its result."""

    def __init__(
        self, call: FunctionCall, tool: DeclaredTool, output: OutputItems, *, approval_request_id: str | None = None
    ) -> None:
        self._output = output
        self._encoder = encoder = output.encoder
        self._index = index = output.reserve()
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
        self._position = {"item_id": self._item["id"], "output_index": index}
        encoder.emit("response.output_item.added", output_index=index, item=self._item)
        encoder.emit("response.mcp_call.in_progress", **self._position)
        if call.arguments:
            encoder.emit_delta(
                encoder.build_delta_head("response.mcp_call_arguments.delta", **self._position), call.arguments
            )
        encoder.emit("response.mcp_call_arguments.done", **self._position, arguments=call.arguments)
        self._item["arguments"] = call.arguments

    def finish(self, output: FunctionCallOutput, metadata: Mapping[str, Any]) -> None:
        if output.is_error:
            self._close("failed", error=build_call_error(output, metadata))
            return
        shown = output_to_wire(output.content)
        self._close("completed", output=shown if isinstance(shown, str) else _output_as_text(output))

    def abandon(self) -> None:
        """The run has ended before the server answered."""
        self._close("incomplete")

    def _close(self, status: str, **result: Any) -> None:
        item = {**self._item, "status": status, **result}
        self._encoder.emit(f"response.mcp_call.{'completed' if status == 'completed' else 'failed'}", **self._position)
        self._encoder.emit("response.output_item.done", output_index=self._index, item=item)
        self._output.put(self._index, item)


def build_call_error(output: FunctionCallOutput, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Why a call failed: the tool said so, the protocol did, or the server could not be reached."""
    message = "\n".join(part.text for part in output.content if isinstance(part, TextContent))
    code = metadata.get("error_code")
    kind = metadata.get("error_kind", "tool")
    if kind == "tool":
        return {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": message}]}
    number = code if isinstance(code, int) else _INTERNAL_ERROR
    return {"type": "http_error" if kind == "http" else "mcp_protocol_error", "code": number, "message": message}


def _output_as_text(output: FunctionCallOutput) -> str:
    """The output as a string, which is all that this item has room for; pictures went to the model."""
    lines = []
    for part in output.content:
        name = getattr(part, "mime_type", None) or part.type
        lines.append(part.text if isinstance(part, TextContent) else f"[{part.type}: {name}]")
    return "\n".join(lines)


CALL_NOT_FINISHED = "The run ended before this call had a result."


class CallItems:
    """A call of ours is not shown before it runs: until its turn is whole, the turn may be a mixed one."""

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
        """`default_label`: who shows as the server of a call that is at none. None: such a call shows as a function.

        `seal`: for what came of our calls; only those who take every function for their own may fail to send it back.
        """
        self._output = output
        self._request = request
        self._servers = servers
        self._default_label = default_label
        self._approved = frozenset(approved)
        self._not_started = {call.call_id: call for call in pending}
        self._open_items: dict[str, OpenCall | OpenCustomCall | OpenToolSearch] = {}
        self._aliases = request.tools.aliases
        self._closed: set[str] = set()
        self._mcp_calls: dict[str, OpenMCPCall] = {}
        can_carry = default_label is not None and not request.store and ENCRYPTED_REASONING in request.include
        self._seal = seal if can_carry else None
        self._to_seal: dict[str, tuple[FunctionCall, DeclaredTool]] = {}
        self._as_functions: set[str] = set()
        self.has_client_calls = False
        """True once the model has called a function of the client."""

    def append_arguments(self, event: CallAdded) -> None:
        """More of a call's arguments."""
        if self._request.is_client_function(event.name) and event.item_id not in self._closed:
            if event.item_id not in self._open_items:
                self._close_complete()
            self._get_open_item(event.item_id, event.call_id, event.name).append(event.arguments)

    def finish_call(self, call: FunctionCall, status: str = "completed") -> None:
        """A call is whole, or will never be."""
        if self._request.is_client_function(call.name):
            self.has_client_calls = True
            if call.id not in self._closed:
                self._write_call(call, status)
        else:
            self._not_started[call.call_id] = call

    def start_execution(self, call_id: str) -> None:
        call = self._not_started.pop(call_id, None)
        if call is None:
            return
        route = self._find_declared_tool(call)
        if route is None:
            self._write_call(call)
            self._as_functions.add(call_id)
        else:
            approval = approval_id(call) if call_id in self._approved else None
            self._mcp_calls[call_id] = OpenMCPCall(call, route, self._output, approval_request_id=approval)
            if self._seal is not None:
                self._to_seal[call_id] = (call, route)

    def finish_execution(self, event: ToolFinished) -> None:
        call = self._mcp_calls.pop(event.call_id, None)
        if call is not None:
            call.finish(event.output, event.metadata)

    def write_result(self, output: FunctionCallOutput) -> None:
        """The output of a call that shows as a function; one at a server has its output in itself."""
        if output.call_id in self._as_functions:
            self._as_functions.remove(output.call_id)
            self._write_output(output.call_id, output.id, output_to_wire(output.content), "completed")
        elif self._seal is not None and output.call_id in self._to_seal:
            call, route = self._to_seal.pop(output.call_id)
            self._output.write(
                build_sealed_call(call, output, server_label=route.server_label, tool=route.tool, seal=self._seal)
            )

    def close_incomplete(self) -> None:
        """The run has ended: whatever is half done is closed as incomplete."""
        for item in self._open_items.values():
            self._output.put(item.output_index, item.close("incomplete"))
        for call in self._mcp_calls.values():
            call.abandon()
        for call_id in sorted(self._as_functions):
            self._write_output(call_id, new_id("out"), CALL_NOT_FINISHED, "incomplete")

    def request_approvals(self, pending: Sequence[FunctionCall]) -> bool:
        """Write a request for each call that a person must approve. True when there was one."""
        routes = [(call, self._find_declared_tool(call)) for call in pending]
        asked = [(call, route) for call, route in routes if route is not None and route.needs_approval]
        for call, route in asked:
            self._output.write(build_approval_request(call, route))
        return bool(asked)

    def _find_declared_tool(self, call: FunctionCall) -> DeclaredTool | None:
        route = None if self._servers is None else self._servers.find_declared_tool(call.name)
        if route is None and self._default_label is not None:
            return DeclaredTool(server_label=self._default_label, tool=call.name)
        return route

    def _get_open_item(self, item_id: str, call_id: str, name: str) -> OpenCall | OpenCustomCall | OpenToolSearch:
        found = self._open_items.get(item_id)
        if found is None:
            found = self._open_items[item_id] = self._open_item(item_id, call_id, name)
        return found

    def _open_item(self, item_id: str, call_id: str, name: str) -> OpenCall | OpenCustomCall | OpenToolSearch:
        guise, encoder, place = self._aliases.get(name), self._output.encoder, self._output.reserve()
        if guise is None:
            return OpenCall(encoder, place, item_id, call_id, name)
        if guise.form == "custom":
            return OpenCustomCall(encoder, place, item_id, call_id, guise)
        if guise.form == "search":
            return OpenToolSearch(encoder, place, item_id, call_id)
        return OpenCall(encoder, place, item_id, call_id, guise.name, guise.namespace)

    def _close_complete(self) -> None:
        """Another call begins: those that can have nothing more are done. Some clients follow one item at a time."""
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

    def _write_output(self, call_id: str, item_id: str, output: object, status: str) -> None:
        self._output.write(
            {"id": item_id, "type": "function_call_output", "status": status, "call_id": call_id, "output": output}
        )
