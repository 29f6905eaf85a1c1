"""How MCP shows to a client that asked for it: lists of tools, calls with typed errors, requests to approve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from holodeck.gateway.wire.ids import approval_id, mcp_call_id
from holodeck.gateway.wire.output import Output, WireItem
from holodeck.gateway.wire.parts import show_output
from holodeck.lib.ids import new_id
from holodeck.models.content import TextContent
from holodeck.models.items import FunctionCall, FunctionCallOutput

_INTERNAL_ERROR = -32603  # of JSON-RPC: for a failure that has no code of its own


@dataclass(frozen=True, kw_only=True, slots=True)
class MCPRoute:
    """Where a name that the model knows leads, in the client's words."""

    server_label: str
    tool: str
    needs_approval: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """The tools of a server as it described them, or why they are not known."""

    server_label: str
    tools: Sequence[Mapping[str, Any]] = ()
    """Each with `name`, `description`, `input_schema` and `annotations`."""
    error: str | None = None


class Routes(Protocol):
    """What the writer asks about the servers that the client declared."""

    def route(self, name: str) -> MCPRoute | None:
        """None for a tool that is shown as a function."""
        ...

    def listings(self) -> Sequence[Listing]:
        """Every declared server. Asked once the tools are known."""
        ...


def write_listing(listing: Listing, output: Output) -> None:
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


def approval_request(call: FunctionCall, route: MCPRoute) -> WireItem:
    return {
        "id": approval_id(call),
        "type": "mcp_approval_request",
        "server_label": route.server_label,
        "name": route.tool,
        "arguments": call.arguments,
    }


class OpenMCPCall:
    """A call at a server, from its start to its result."""

    def __init__(self, call: FunctionCall, route: MCPRoute, output: Output, *, approval: str | None = None) -> None:
        self._output = output
        self._encoder = encoder = output.encoder
        self._index = index = output.reserve()
        self._item: WireItem = {
            "id": mcp_call_id(call),
            "type": "mcp_call",
            "status": "in_progress",
            "server_label": route.server_label,
            "name": route.tool,
            "arguments": "",
            "approval_request_id": approval,
            "output": None,
            "error": None,
        }
        self._at = {"item_id": self._item["id"], "output_index": index}
        encoder.emit("response.output_item.added", output_index=index, item=self._item)
        encoder.emit("response.mcp_call.in_progress", **self._at)
        if call.arguments:
            encoder.delta(encoder.head("response.mcp_call_arguments.delta", **self._at), call.arguments)
        encoder.emit("response.mcp_call_arguments.done", **self._at, arguments=call.arguments)
        self._item["arguments"] = call.arguments

    def finish(self, output: FunctionCallOutput, metadata: Mapping[str, Any]) -> None:
        if output.is_error:
            self._close("failed", error=call_error(output, metadata))
            return
        shown = show_output(output.content)
        self._close("completed", output=shown if isinstance(shown, str) else _flat(output))

    def abandon(self) -> None:
        """The run has ended before the server answered."""
        self._close("incomplete")

    def _close(self, status: str, **result: Any) -> None:
        item = {**self._item, "status": status, **result}
        self._encoder.emit(f"response.mcp_call.{'completed' if status == 'completed' else 'failed'}", **self._at)
        self._encoder.emit("response.output_item.done", output_index=self._index, item=item)
        self._output.put(self._index, item)


def call_error(output: FunctionCallOutput, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Why a call failed: the tool said so, the protocol did, or the server could not be reached."""
    message = "\n".join(part.text for part in output.content if isinstance(part, TextContent))
    code = metadata.get("error_code")
    kind = metadata.get("error_kind", "tool")
    if kind == "tool":
        return {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": message}]}
    number = code if isinstance(code, int) else _INTERNAL_ERROR
    return {"type": "http_error" if kind == "http" else "mcp_protocol_error", "code": number, "message": message}


def _flat(output: FunctionCallOutput) -> str:
    """The output as a string, which is all that this item has room for; pictures went to the model."""
    lines = []
    for part in output.content:
        name = getattr(part, "mime_type", None) or part.type
        lines.append(part.text if isinstance(part, TextContent) else f"[{part.type}: {name}]")
    return "\n".join(lines)
