"""Events of `holodeck mcp dev`: what happens to a server while it is written.

`event_data` is the form of an event for programs (`--json`); `event_text` has the lines for a terminal.

A change of the server's tools is told as the difference between two lists, in words for its author.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from holodeck.cli.output.events_json import to_plain_data
from holodeck.lib.errors import MCPError
from holodeck.lib.escape import one_line
from holodeck.lib.limits import MAX_DESCRIPTION_SHOWN
from holodeck.lib.record import record
from holodeck.models.items import TextContent, describe_block
from holodeck.tools.mcp.lock.drift import describe_parameters

if TYPE_CHECKING:
    from holodeck.models.items import ContentBlock
    from holodeck.tools.mcp.content import MCPToolResult
    from holodeck.tools.mcp.discovery import MCPToolInfo
    from holodeck.tools.mcp.lint.finding import Finding

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


@record
class Watching:
    """The files whose changes restart the server."""

    kind: ClassVar[str] = "watching"
    paths: tuple[str, ...]
    files: int
    is_cut: bool
    """Whether there are more files than can be watched."""


@record
class Starting:
    """The program is started."""

    kind: ClassVar[str] = "starting"
    command: str
    reason: str
    """Why it is started again; empty for the first start."""


@record
class Connected:
    """The server has answered the handshake."""

    kind: ClassVar[str] = "connected"
    server: str
    """Name and version that the server declares."""
    protocol: str
    era: str
    seconds: float


@record
class ToolsListed:
    """The tools of the server, after a start or because it announced a change."""

    kind: ClassVar[str] = "tools"
    tools: tuple[MCPToolInfo, ...]
    changes: tuple[ToolChange, ...] | None
    """The differences from the list before; None if this is the first one."""
    findings: tuple[Finding, ...]
    """What `holodeck mcp lint` finds in the tools."""
    new_findings: tuple[Finding, ...]
    """Those that the list before did not have."""


@record
class OthersListed:
    """The resources and prompts of the server, after a start at which they are new or different."""

    kind: ClassVar[str] = "others"
    resources: tuple[str, ...]
    """URIs of resources, and templates of URIs."""
    prompts: tuple[str, ...]


@record
class StderrLine:
    """A line that the server wrote to standard error."""

    kind: ClassVar[str] = "stderr"
    line: str


@record
class Notice:
    """A sentence for the user: a message of the server's log, a mistake in what was typed."""

    kind: ClassVar[str] = "notice"
    text: str
    is_warning: bool = False


@record
class CallStarted:
    """A tool is called."""

    kind: ClassVar[str] = "call"
    tool: str
    arguments: Mapping[str, Any]


@record
class CallProgress:
    """The server reports progress of the call."""

    kind: ClassVar[str] = "progress"
    tool: str
    done: float | None
    """None for the state of a task, which is only a message."""
    total: float | None
    message: str


@record
class CallFinished:
    """The call has its result, or has failed."""

    kind: ClassVar[str] = "result"
    tool: str
    result: MCPToolResult
    seconds: float
    is_server_lost: bool
    """Whether the process ended during the call; `ServerFailed` has told why."""


@record
class CallCancelled:
    """The user has cancelled the call."""

    kind: ClassVar[str] = "cancelled"
    tool: str
    seconds: float


@record
class ServerFailed:
    """The server did not start, or has ended. It is not running."""

    kind: ClassVar[str] = "failed"
    phase: str
    reason: str
    """The reason without the name of the server and without its last output."""
    exit_code: int | None
    stderr: str
    """The last lines of standard error."""
    has_shown_stderr: bool
    """Whether each of these lines was an event before."""


DevEvent: TypeAlias = (
    Watching
    | Starting
    | Connected
    | ToolsListed
    | OthersListed
    | StderrLine
    | Notice
    | CallStarted
    | CallProgress
    | CallFinished
    | CallCancelled
    | ServerFailed
)


def event_data(event: DevEvent) -> dict[str, Any]:
    """Return an event as data for `--json`."""
    return {"event": event.kind, **_fields_data(event)}


def _fields_data(event: DevEvent) -> dict[str, Any]:
    match event:
        case ToolsListed():
            return {
                "tools": [tool_data(tool) for tool in event.tools],
                "changes": to_plain_data(event.changes),
                "findings": to_plain_data(event.findings),
            }
        case CallFinished():
            return {"tool": event.tool, **result_data(event.result), "seconds": round(event.seconds, 4)}
        case ServerFailed():
            return {
                "phase": event.phase,
                "reason": event.reason,
                "exit_code": event.exit_code,
                "stderr": event.stderr,
            }
        case _:
            data: dict[str, Any] = to_plain_data(event)
            return data


def tool_data(tool: MCPToolInfo) -> dict[str, Any]:
    """Return a tool as its server describes it."""
    return {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "input_schema": to_plain_data(tool.input_schema),
        "output_schema": to_plain_data(tool.output_schema),
        "annotations": to_plain_data(tool.annotations),
    }


def result_data(result: MCPToolResult) -> dict[str, Any]:
    """Return the result of a call. Images, sounds and bytes are described, not repeated."""
    data: dict[str, Any] = {
        "success": result.success,
        "is_error": result.is_error,
        "content": [_block_data(block) for block in result.content],
        "structured": to_plain_data(result.structured),
        "warnings": to_plain_data(result.metadata.get("warnings", [])),
    }
    return data if result.error is None else {**data, "error": reason_of(result.error)}


def reason_of(error: MCPError) -> str:
    """Return the text of an error without the name of the server, of which there is only one."""
    return str(error).removeprefix(f"Server '{error.server}' ({error.phase}): ")


def _block_data(block: ContentBlock) -> dict[str, Any]:
    if isinstance(block, TextContent):
        return {"type": "text", "text": block.text}
    return {"type": block.type, "mime_type": block.mime_type, "about": describe_block(block)}
