"""Locked definitions of tools, and drift: the differences between a tool and its locked definition.

A locked tool has its title, description and annotations as they were accepted, and digests of its schemas. Whatever
differs is drift. A tool may have fields that do not count, for servers that put a date or a version into a description.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal, Protocol, TypeVar

import orjson

from holodeck.lib.escape import one_line
from holodeck.lib.record import record

FIELDS = ("title", "description", "input_schema", "output_schema", "annotations")
"""The fields of a tool that are locked, by the names that a lock file has for them."""
MAX_TEXT_CHARS = 2_000
"""Characters up to which a lock has a text whole. A longer one is its beginning and a digest."""
_HEAD_CHARS = 500
_DIGEST_BYTES = 16
_MAX_SHOWN_CHARS = 300


class ToolDefinition(Protocol):
    """A tool as its server describes it."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str | None: ...
    @property
    def description(self) -> str | None: ...
    @property
    def input_schema(self) -> Mapping[str, Any]: ...
    @property
    def output_schema(self) -> Mapping[str, Any] | None: ...
    @property
    def annotations(self) -> Mapping[str, Any]: ...


ToolT = TypeVar("ToolT", bound=ToolDefinition)


@record
class LockedTool:
    """The definition of a tool as it was accepted."""

    values: Mapping[str, Any]
    """By name of a field, its value in the lock. A field that the tool does not have is absent."""
    parameters: str = ""
    """The parameters in words, for readers of the lock and of differences. They do not count themselves."""
    ignored: frozenset[str] = frozenset()
    """The fields that may change."""

    def without_fields(self, ignored: frozenset[str]) -> LockedTool:
        """The tool with these fields as those that may change."""
        values = {key: value for key, value in self.values.items() if key not in ignored}
        return replace(self, values=values, ignored=ignored)


@record
class FieldChange:
    """One difference of a tool from its lock."""

    field: str
    locked: str
    current: str


@record
class ToolDrift:
    """A tool that differs from the lock, or is only in one of both."""

    tool: str
    kind: Literal["changed", "new", "missing"]
    changes: tuple[FieldChange, ...] = ()
    current: LockedTool | None = None
    """The tool as the server has it now; None if it is missing."""

    @property
    def summary(self) -> str:
        """The drift without any text of the server, which a model may read."""
        if self.kind == "new":
            return "it is not in holodeck.lock"
        if self.kind == "missing":
            return "it is in holodeck.lock, and the server does not have it any more"
        return f"it differs from holodeck.lock in {', '.join(change.field for change in self.changes)}"

    @property
    def digest(self) -> str | None:
        """Digest of the tool as the server has it now, by which a person says which definition is accepted."""
        return None if self.current is None else digest_json(dict(self.current.values))

    @property
    def shown_changes(self) -> tuple[FieldChange, ...]:
        """What a person looks at before the tool is accepted: the changes, or every field of a new tool."""
        if self.kind != "new" or self.current is None:
            return self.changes
        shown = [(key, _shown_value(self.current, key)) for key in FIELDS if key in self.current.values]
        return tuple(FieldChange(field=key, locked="", current=value) for key, value in shown)

    @property
    def reason(self) -> str:
        """The drift with both values of each field, in one line, for operators."""
        return "; ".join([self.summary, *map(_describe_change, self.changes)])


@record
class ServerLock:
    """The accepted tools of one server."""

    tools: Mapping[str, LockedTool] = field(default_factory=dict)
    launch: str = ""
    """How the server is started or reached, as the file says it."""
    version: str = ""
    """Name and version that the server declared."""

    def split_tools(self, tools: Sequence[ToolT]) -> tuple[tuple[ToolT, ...], tuple[ToolDrift, ...]]:
        """Return the tools that are as they were accepted, and the drift of all others."""
        drift = {tool.name: self._find_drift(tool.name, lock_tool(tool)) for tool in tools}
        accepted = tuple(tool for tool in tools if drift[tool.name] is None)
        return accepted, tuple(each for each in drift.values() if each is not None)

    def compare(self, current: ServerLock) -> tuple[ToolDrift, ...]:
        """Return the drift of every tool of the server as it is now, and the locked tools that it lacks."""
        found = [self._find_drift(name, tool) for name, tool in current.tools.items()]
        missing = [ToolDrift(tool=name, kind="missing") for name in self.tools if name not in current.tools]
        return (*(each for each in found if each is not None), *missing)

    def _find_drift(self, name: str, current: LockedTool) -> ToolDrift | None:
        locked = self.tools.get(name)
        if locked is None:
            return ToolDrift(tool=name, kind="new", current=current)
        changes = [
            FieldChange(field=key, locked=_shown_value(locked, key), current=_shown_value(current, key))
            for key in FIELDS
            if key not in locked.ignored and locked.values.get(key) != current.values.get(key)
        ]
        return ToolDrift(tool=name, kind="changed", changes=tuple(changes), current=current) if changes else None

    def accept_tool(self, name: str, current: LockedTool | None) -> ServerLock:
        """The lock with one tool as it is now, without the fields that may change. None: the tool is removed."""
        tools = {other: tool for other, tool in self.tools.items() if other != name}
        if current is not None:
            locked = self.tools.get(name)
            tools[name] = current if locked is None else current.without_fields(locked.ignored)
        return replace(self, tools=tools)


def lock_tool(tool: ToolDefinition) -> LockedTool:
    """Return the definition of a tool as a lock keeps it."""
    values = {
        "title": _pin_text(tool.title),
        "description": _pin_text(tool.description),
        "input_schema": digest_json(tool.input_schema),
        "output_schema": None if tool.output_schema is None else digest_json(tool.output_schema),
        "annotations": dict(tool.annotations) or None,
    }
    kept = {name: value for name, value in values.items() if value is not None}
    return LockedTool(values=kept, parameters=describe_parameters(tool.input_schema))


def digest_json(value: object) -> str:
    """Digest of a JSON value. The order of keys does not change it."""
    return "sha256:" + hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


def digest_tool(tool: ToolDefinition) -> bytes:
    """Digest of everything that a server says about a tool. An approval is valid for one such definition."""
    parts = (tool.name, tool.title, tool.description, tool.input_schema, tool.output_schema, tool.annotations)
    return hashlib.blake2b(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS), digest_size=_DIGEST_BYTES).digest()


def describe_parameters(schema: Mapping[str, Any]) -> str:
    """The parameters of a schema in one line: `path*: string, depth: integer`. An asterisk marks a required one."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict):
        return ""
    wanted = set(map(str, required)) if isinstance(required, list) else set()
    return ", ".join(
        f"{name}{'*' if name in wanted else ''}: {_type_of(described)}" for name, described in properties.items()
    )


def _type_of(described: object) -> str:
    kind = described.get("type") if isinstance(described, dict) else None
    if isinstance(kind, list):
        return " | ".join(map(str, kind))
    return kind if isinstance(kind, str) else "any"


def _pin_text(text: str | None) -> str | None:
    if text is None or len(text) <= MAX_TEXT_CHARS:
        return text
    return f"{text[:_HEAD_CHARS]}… ({len(text)} characters, {digest_json(text)})"


def _shown_value(tool: LockedTool, name: str) -> str:
    value = tool.values.get(name)
    if name == "input_schema":
        return f"({tool.parameters}) {value}"
    if value is None:
        return ""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _describe_change(change: FieldChange) -> str:
    locked, current = one_line(change.locked, _MAX_SHOWN_CHARS), one_line(change.current, _MAX_SHOWN_CHARS)
    return f"{change.field} was {locked!r} and is {current!r}"
