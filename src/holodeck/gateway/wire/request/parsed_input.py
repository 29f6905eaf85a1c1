"""`Input`, the result of reading the `input` of a request, with what all readers of its items need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holodeck.gateway.wire.request.sealed_input import SealedInput
from holodeck.lib.record import record
from holodeck.models.items import FunctionCall, Item
from holodeck.tools.mcp.names import normalize_tool_name

WireItem = dict[str, Any]
FindItem = Callable[[str], Mapping[str, Any] | None]
"""Finds the stored item of an id that the caller may refer to."""
ToolNameOf = Callable[[str, str], str]
"""Maps a server's label and the name of its tool to the name of the tool for the model."""


def find_nothing(item_id: str) -> None:
    """Find no item, where there is no store."""


def plain_tool_name(server_label: str, tool: str) -> str:
    """Return the name of a tool for the model, if no other tool has the same."""
    return normalize_tool_name(tool)


@record
class ApprovalAnswer:
    """The answer to an approval request."""

    request_id: str
    approve: bool
    reason: str | None = None
    param: str = ""
    """The path of the answer in the request."""
    position: int = 0
    """The number of items before it."""
    is_past: bool = False
    """True for an answer that was processed by an earlier request: a message of the assistant follows it."""


@dataclass(kw_only=True, slots=True)
class Input:
    """A parsed input. `items` are for the model, `wire_items` for the client that lists its input again."""

    items: list[Item] = field(default_factory=list)
    wire_items: list[WireItem] = field(default_factory=list)
    approvals: list[ApprovalAnswer] = field(default_factory=list)
    pending_calls: list[FunctionCall] = field(default_factory=list)
    """Calls whose approval requests are in the input."""
    targets: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The target of each call of an MCP server, as label and tool, by call id."""
    tool_lists: dict[str, WireItem] = field(default_factory=dict)
    """`mcp_list_tools` items of the input, by the label of their server."""
    shown_calls: set[str] = field(default_factory=set)
    """Ids of calls that the gateway has run and a message has shown, which come back with their results."""
    compaction_trigger: str | None = None
    """The path of the item that asks to compact the context. None: there is none."""
    generated_ids: set[str] = field(default_factory=set)
    """Item ids that were generated for calls without one."""
    find_item: FindItem = find_nothing
    tool_name_of: ToolNameOf = plain_tool_name
    list_file_paths: Callable[[], Mapping[str, str]] | None = None
    """Lists the links to files with the paths of their fields. None: `wire_items` have them."""
    file_advice: str = "send the content as 'file_data'"
    """What a client can do instead of a link to a file."""
    sealed: SealedInput | None = None
    """The opened sealed items. None: a sealed item is refused."""
