"""How MCP shows to a client that asked for it: lists of tools, calls with typed errors, requests to approve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from holodeck.gateway.wire.item_ids import approval_id, mcp_call_id
from holodeck.gateway.wire.request.content_parts import output_to_wire
from holodeck.gateway.wire.response.output import OutputItems, WireItem
from holodeck.lib.ids import new_id
from holodeck.models.content import TextContent
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
