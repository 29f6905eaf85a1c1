"""A cassette: what it was recorded from, and its tracks with their entries.

An entry is plain data. Its number, `entry`, counts from 1 in its track; the entries are in the order of the recording.
One of these keys says what it is:

- `model`: a request to the model of this name; `request`, and `answer` or `error`.
- `request`: a request to `server`; `id` in the protocol, `params`, and `result` or `error` of the server, or `failure`
  of the connection.
- `notification_sent`: a notification to `server`.
- `notification`: a notification of `server`; `about` is the entry of the request that it belongs to.
- `asked`: a request of `server` to the agent; `reply` is what the agent answered.
- `opened`: a connection to `server`; `failure` if it failed. `lost`: the end of one that the agent did not close.
- `answer_to`: the rest of an earlier entry, where other entries came between the request and its answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from holodeck import __version__
from holodeck.lib.record import record
from holodeck.tools.mcp.discovery import escape_entry
from holodeck.tools.mcp.lock.drift import ServerLock, ToolDefinition, ToolDrift, digest_tool, lock_tool
from holodeck.tools.mcp.protocol.versions import META_SERVER, mapping

Entry = dict[str, Any]

ANSWERS = ("answer", "result", "error", "failure", "reply")
"""The keys of an entry that say how a request ended."""
_HANDSHAKES = ("initialize", "server/discover")


@dataclass(kw_only=True)
class TrackData:
    """The entries of one track: of one test case, or of everything that ran while the cassette was open."""

    name: str = ""
    recorded_at: datetime
    entries: list[Entry] = field(default_factory=list)

    def find_lists(self, server: str) -> Iterator[Mapping[str, Any]]:
        """Yield the lists of tools that a server gave, page by page."""
        requests = {
            entry["entry"]: entry
            for entry in self.entries
            if entry.get("server") == server and entry.get("request") == "tools/list"
        }
        for entry in self.entries:
            if entry.get("answer_to", entry["entry"]) in requests and isinstance(entry.get("result"), dict):
                yield entry["result"]


@dataclass(kw_only=True)
class Cassette:
    """The content of a cassette."""

    path: Path
    holodeck: str = __version__
    """The version of HoloDeck that recorded the latest track."""
    recorded_at: datetime
    agent: str = ""
    """Name of the agent file."""
    tracks: dict[str, TrackData] = field(default_factory=dict)

    @property
    def age(self) -> timedelta:
        """How long ago the latest track was recorded."""
        return datetime.now(UTC) - self.recorded_at

    @property
    def servers(self) -> list[str]:
        """Names of all servers that were used, in the order of their first use."""
        entries = (entry for track in self.tracks.values() for entry in track.entries if "server" in entry)
        return list(dict.fromkeys(entry["server"] for entry in entries))

    def list_tools(self, server: str) -> list[RecordedTool]:
        """Return the tools of a server, as the latest list has them."""
        found: dict[str, RecordedTool] = {}
        for track in sorted(self.tracks.values(), key=lambda each: each.recorded_at):
            listed = [tool for page in track.find_lists(server) for tool in _parse_tools(page)]
            found = {tool.name: tool for tool in listed} or found
        return list(found.values())

    def describe_server(self, server: str) -> dict[str, str]:
        """Return the name, version and protocol that a server declared last."""
        found: dict[str, str] = {}
        for track in self.tracks.values():
            numbers = {
                entry["entry"]
                for entry in track.entries
                if entry.get("server") == server and entry.get("request") in _HANDSHAKES
            }
            for entry in track.entries:
                result = entry.get("result")
                if entry.get("answer_to", entry["entry"]) in numbers and isinstance(result, dict):
                    found = _parse_declaration(result)
        return found


@record
class RecordedTool:
    """A tool as its server described it during a recording. A `ToolDefinition`."""

    name: str
    title: str | None
    description: str | None
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None
    annotations: Mapping[str, Any]
    raw: Mapping[str, Any]
    """The entry of the list, with all texts escaped."""

    @property
    def digest(self) -> str:
        return digest_tool(self).hex()


def find_drift(cassette: Cassette, current: Mapping[str, Sequence[ToolDefinition]]) -> dict[str, tuple[ToolDrift, ...]]:
    """Return by server how its tools differ from those of the cassette; without the servers that are the same.

    `current`: by server, its tools as they are now. Servers of which the cassette has no list are left out.
    """
    found: dict[str, tuple[ToolDrift, ...]] = {}
    for server, tools in current.items():
        recorded = cassette.list_tools(server)
        if recorded:
            before = ServerLock(tools={tool.name: lock_tool(tool) for tool in recorded})
            drift = before.compare(ServerLock(tools={tool.name: lock_tool(tool) for tool in tools}))
            if drift:
                found[server] = drift
    return found


def describe_drift(drift: Mapping[str, Sequence[ToolDrift]]) -> list[str]:
    """Return a line for each tool that is new, changed or missing since a recording."""
    lines = []
    for server, tools in drift.items():
        for tool in tools:
            fields = f" ({', '.join(change.field for change in tool.changes)})" if tool.changes else ""
            lines.append(f"{server}.{tool.tool}: {tool.kind}{fields}")
    return lines


def describe_age(age: timedelta) -> str:
    """Return how long ago something was: `12 days ago`."""
    for unit, seconds in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        count = int(age.total_seconds() // seconds)
        if count > 0:
            return f"{count} {unit}{'' if count == 1 else 's'} ago"
    return "just now"


def _parse_tools(page: Mapping[str, Any]) -> Iterator[RecordedTool]:
    tools = page.get("tools")
    for raw in tools if isinstance(tools, list) else ():
        if isinstance(raw, dict) and isinstance(raw.get("name"), str):
            tool = escape_entry(raw)
            output = tool.get("outputSchema")
            yield RecordedTool(
                name=raw["name"],
                title=_text_or_none(tool.get("title")),
                description=_text_or_none(tool.get("description")),
                input_schema=mapping(tool.get("inputSchema")),
                output_schema=output if isinstance(output, dict) else None,
                annotations=mapping(tool.get("annotations")),
                raw=tool,
            )


def _parse_declaration(result: Mapping[str, Any]) -> dict[str, str]:
    info = mapping(result.get("serverInfo")) or mapping(mapping(result.get("_meta")).get(META_SERVER))
    versions = result.get("supportedVersions")
    protocol = result.get("protocolVersion") or (versions[-1] if isinstance(versions, list) and versions else None)
    known = {"name": info.get("name"), "version": info.get("version"), "protocol": protocol}
    return {key: str(value) for key, value in known.items() if value}


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None
