"""Differences between two lists of tools of one server, in words for its author."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from holodeck.lib.escape import one_line
from holodeck.lib.limits import MAX_DESCRIPTION_SHOWN
from holodeck.lib.record import record
from holodeck.tools.mcp.lock.drift import describe_parameters

if TYPE_CHECKING:
    from holodeck.tools.mcp.discovery import MCPToolInfo

# Lines of the difference of one schema: more than a change of one parameter has.
MAX_DIFF_LINES = 30


@record
class ToolChange:
    """A tool that one list has and the other has not, or has differently."""

    kind: Literal["added", "removed", "changed"]
    tool: str
    details: tuple[str, ...] = ()
    """What is different, in lines."""


def find_tool_changes(before: Sequence[MCPToolInfo], now: Sequence[MCPToolInfo]) -> tuple[ToolChange, ...]:
    """Return the changes in the order of the new list, then the tools that it lacks."""
    earlier = {tool.name: tool for tool in before}
    names = {tool.name for tool in now}
    changes = [_compare_tool(earlier.get(tool.name), tool) for tool in now]
    removed = [ToolChange(kind="removed", tool=name) for name in earlier if name not in names]
    return (*(change for change in changes if change is not None), *removed)


def _compare_tool(before: MCPToolInfo | None, now: MCPToolInfo) -> ToolChange | None:
    if before is None:
        return ToolChange(kind="added", tool=now.name)
    details = [
        *_compare_text("title", before.title, now.title),
        *_compare_text("description", before.description, now.description),
        *_compare_parameters(before.input_schema, now.input_schema),
        *_compare_json("output schema", before.output_schema, now.output_schema),
        *_compare_json("annotations", before.annotations, now.annotations),
    ]
    return ToolChange(kind="changed", tool=now.name, details=tuple(details)) if details else None


def _compare_text(field: str, before: str | None, now: str | None) -> list[str]:
    if before == now:
        return []
    old, new = one_line(before or "", MAX_DESCRIPTION_SHOWN), one_line(now or "", MAX_DESCRIPTION_SHOWN)
    return [f'{field}: "{old}" is now "{new}"' if old != new else f"{field}: changed behind its beginning"]


def _compare_parameters(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    old, new = describe_parameters(before), describe_parameters(now)
    return [f"parameters: ({old}) is now ({new})"] if old != new else _compare_json("input schema", before, now)


def _compare_json(field: str, before: object, now: object) -> list[str]:
    if before == now:
        return []
    old, new = (json.dumps(value, indent=2, ensure_ascii=False).splitlines() for value in (before, now))
    # Without the two lines that name the files.
    lines = list(difflib.unified_diff(old, new, lineterm="", n=1))[2:]
    hidden = len(lines) - MAX_DIFF_LINES
    rest = [f"  ... and {hidden} more lines"] if hidden > 0 else []
    return [f"{field}:", *(f"  {line}" for line in lines[:MAX_DIFF_LINES]), *rest]
