"""What was read of an input, and what it takes to read one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holodeck.gateway.wire.request.sealed_input import SealedInput
from holodeck.models.items import FunctionCall, Item
from holodeck.tools.mcp.names import normalize_tool_name

WireItem = dict[str, Any]
FindItem = Callable[[str], Mapping[str, Any] | None]
"""The wire item of an id that the caller may refer to."""
ToolNameOf = Callable[[str, str], str]
"""From a server's label and its tool to the name under which the model knows it."""


def find_nothing(item_id: str) -> None:
    """Finds no item: for a place without a store."""


def plain_tool_name(server_label: str, tool: str) -> str:
    """The name of a tool when no other tool has it."""
    return normalize_tool_name(tool)


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalAnswer:
    """A person's word about a call that waits."""

    request_id: str
    approve: bool
    reason: str | None = None
    param: str = ""
    """Where in the request it stands."""
    position: int = 0
    """How many items stand before it."""
    is_past: bool = False
    """True when the model has spoken since: it was given earlier, and is only told again."""


@dataclass(kw_only=True, slots=True)
class Input:
    """What was read. `items` are for the model, `wire_items` for the client that lists its input again."""

    items: list[Item] = field(default_factory=list)
    wire_items: list[WireItem] = field(default_factory=list)
    approvals: list[ApprovalAnswer] = field(default_factory=list)
    pending_calls: list[FunctionCall] = field(default_factory=list)
    """Calls whose request for approval the client sent along."""
    targets: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The server and the tool of each call of an MCP server, by the id of the call."""
    tool_lists: dict[str, WireItem] = field(default_factory=dict)
    """Tool lists that are in the context already, by the label of their server."""
    generated_ids: set[str] = field(default_factory=set)
    """The ids that we gave to calls which came without one."""
    find_item: FindItem = find_nothing
    tool_name_of: ToolNameOf = plain_tool_name
    sealed: SealedInput | None = None
    """The sealed items, opened; None: no sealed item is read here."""
