"""Locked definitions of what a server lists, and drift: the differences between an entry and its locked definition.

An entry is a tool, a prompt, a resource or a resource template. Its lock covers everything that the server says of it,
because all of that is passed on to MCP clients: short values as they were accepted, long ones by a pin, and schemas by
a digest. The instructions of the server are locked the same way. Whatever differs is drift. A tool may have fields that
do not count, for servers that put a date or a version into a description.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field, replace
from typing import Any, Literal, Protocol, TypeVar

import orjson

from holodeck.lib.escape import one_line
from holodeck.lib.record import record

FIELDS = ("title", "description", "input_schema", "output_schema", "annotations")
"""The fields of a tool that are locked, by the names that a lock file has for them. All others begin with `OTHER`."""
OTHER = "other."
"""Begins the name of every other field of an entry: `other._meta`."""
MAX_VALUE_CHARS = 2_000
"""Characters of JSON up to which a lock has a value whole. A longer one is pinned."""
_HEAD_CHARS = 500
_DIGEST_BYTES = 16
_MAX_SHOWN_CHARS = 300
_NAMES_OF_FIELDS = {"inputSchema": "input_schema", "outputSchema": "output_schema"}
_TIME = re.compile(r"[0-9T:.+Z-]{4,40}")

Noun = Literal["tool", "prompt", "resource", "template", "instructions"]
LISTS: Mapping[Noun, str] = {"tool": "tools", "prompt": "prompts", "resource": "resources", "template": "templates"}
"""The lists of a lock, each a field of `ServerLock`, by what is in them."""


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
    @property
    def raw(self) -> Mapping[str, Any]: ...


class ListedEntry(Protocol):
    """An entry of a list of a server. `raw` is what is passed on of it, without its name."""

    @property
    def raw(self) -> Mapping[str, Any]: ...


EntryT = TypeVar("EntryT", bound=ListedEntry)


@record
class Pin:
    """A value that is too long for a lock, by its digest. In a lock file it is an object of its own, never a text."""

    begins: str
    characters: int
    sha256: str

    def __str__(self) -> str:
        return f"{self.begins}… ({self.characters} characters, sha256:{self.sha256})"


@record
class LockedEntry:
    """The definition of a tool, prompt, resource or resource template as it was accepted."""

    values: Mapping[str, Any]
    """By name of a field, its value in the lock, or a `Pin`. A field that the entry does not have is absent."""
    parameters: str = ""
    """The parameters of a tool in words, for readers of the lock and of differences. They do not count themselves."""
    ignored: frozenset[str] = frozenset()
    """The fields that may change."""

    def without_fields(self, ignored: frozenset[str]) -> LockedEntry:
        """Return the entry with these fields as those that may change."""
        values = {key: value for key, value in self.values.items() if key not in ignored}
        return replace(self, values=values, ignored=ignored)


@record
class FieldChange:
    """One difference of an entry from its lock."""

    field: str
    locked: str
    current: str


@record
class ToolDrift:
    """A tool, or another thing that a lock has, that differs from the lock, or is only in one of both."""

    tool: str
    """Name of the tool or prompt, URI of the resource or template; empty for the instructions of a server."""
    kind: Literal["changed", "new", "missing"]
    noun: Noun = "tool"
    changes: tuple[FieldChange, ...] = ()
    current: LockedEntry | None = None
    """It as the server has it now; None if it is missing."""

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
        return None if self.current is None else digest_json(encode_values(self.current))

    @property
    def shown_changes(self) -> tuple[FieldChange, ...]:
        """What a person looks at before the tool is accepted: the changes, or every field of a new tool."""
        if self.kind != "new" or self.current is None:
            return self.changes
        shown = [(key, _shown_value(self.current, key)) for key in _sort_fields(self.current.values)]
        return tuple(FieldChange(field=key, locked="", current=value) for key, value in shown)

    @property
    def notice(self) -> str:
        """The drift as a sentence for people, with what accepts it."""
        what = f"The {self.noun} '{self.tool}'" if self.tool else "The text of the server's instructions"
        return f"{what} is withheld: {self.reason}. 'holodeck mcp lock --accept' accepts it."

    @property
    def reason(self) -> str:
        """The drift with both values of each field, in one line, for operators."""
        return "; ".join([self.summary, *map(_describe_change, self.changes)])


@record
class ServerLock:
    """The lists that were accepted of one server. Each list has the entries by their names, or by their URIs."""

    tools: Mapping[str, LockedEntry] = field(default_factory=dict)
    prompts: Mapping[str, LockedEntry] = field(default_factory=dict)
    resources: Mapping[str, LockedEntry] = field(default_factory=dict)
    templates: Mapping[str, LockedEntry] = field(default_factory=dict)
    instructions: LockedEntry | None = None
    ignored: frozenset[str] = frozenset()
    """The lists that may change, by their names here; `tools` is never among them."""
    launch: str = ""
    """How the server is started or reached, as the file says it."""
    version: str = ""
    """Name and version that the server declared."""

    def entries(self, noun: Noun) -> Mapping[str, LockedEntry]:
        """Return the accepted entries of a list. The instructions are a list of at most one, without a name."""
        if noun == "instructions":
            return {} if self.instructions is None else {"": self.instructions}
        found: Mapping[str, LockedEntry] = getattr(self, LISTS[noun])
        return found

    def may_change(self, noun: Noun) -> bool:
        """Return whether the list, or the instructions, may change unseen."""
        return LISTS.get(noun, noun) in self.ignored

    def split_entries(
        self, noun: Noun, entries: Sequence[EntryT], key_of: Callable[[EntryT], str]
    ) -> tuple[tuple[EntryT, ...], tuple[ToolDrift, ...]]:
        """Return the entries that are as they were accepted, and the drift of all others."""
        if self.may_change(noun):
            return tuple(entries), ()
        drift = {key_of(entry): self._find_drift(noun, key_of(entry), lock_entry(noun, entry.raw)) for entry in entries}
        accepted = tuple(entry for entry in entries if drift[key_of(entry)] is None)
        return accepted, tuple(each for each in drift.values() if each is not None)

    def find_instructions_drift(self, text: str | None) -> ToolDrift | None:
        """Return the drift of the instructions that the server sends now. None: they are as they were accepted."""
        if text is None or self.may_change("instructions"):
            return None
        return self._find_drift("instructions", "", lock_instructions(text))

    def compare(self, current: ServerLock) -> tuple[ToolDrift, ...]:
        """Return the drift of everything that the server has now, and what is locked and it lacks."""
        drift: list[ToolDrift | None] = []
        for noun in (*LISTS, "instructions"):
            if self.may_change(noun):
                continue
            entries = current.entries(noun)
            drift += [self._find_drift(noun, name, entry) for name, entry in entries.items()]
            drift += [
                ToolDrift(tool=name, kind="missing", noun=noun) for name in self.entries(noun) if name not in entries
            ]
        return tuple(each for each in drift if each is not None)

    def _find_drift(self, noun: Noun, name: str, current: LockedEntry) -> ToolDrift | None:
        locked = self.entries(noun).get(name)
        if locked is None:
            return ToolDrift(tool=name, kind="new", noun=noun, current=current)
        changes = [
            FieldChange(field=key, locked=_shown_value(locked, key), current=_shown_value(current, key))
            for key in _sort_fields({**locked.values, **current.values})
            if key not in locked.ignored and locked.values.get(key) != current.values.get(key)
        ]
        if not changes:
            return None
        return ToolDrift(tool=name, kind="changed", noun=noun, changes=tuple(changes), current=current)

    def accept(self, drift: ToolDrift) -> ServerLock:
        """Return the lock with one entry as it is now, less the fields that may change, or without a missing one."""
        if drift.noun == "instructions":
            return replace(self, instructions=drift.current)
        entries = {name: entry for name, entry in self.entries(drift.noun).items() if name != drift.tool}
        if drift.current is not None:
            locked = self.entries(drift.noun).get(drift.tool)
            entries[drift.tool] = drift.current if locked is None else drift.current.without_fields(locked.ignored)
        changed: dict[str, Any] = {LISTS[drift.noun]: entries}
        return replace(self, **changed)


def lock_tool(tool: ToolDefinition) -> LockedEntry:
    """Return the definition of a tool as a lock keeps it."""
    return lock_entry("tool", tool.raw)


def lock_entry(noun: Noun, raw: Mapping[str, Any]) -> LockedEntry:
    """Return an entry of a list as a lock keeps it: every field, whatever it is, except the name or URI."""
    values: dict[str, Any] = {}
    for key, value in raw.items():
        if key in ("name", "uriTemplate") or (key == "uri" and noun == "resource") or value is None:
            continue
        name = _NAMES_OF_FIELDS.get(key, key if key in ("title", "description", "annotations") else OTHER + key)
        kept = _without_volatile(key, value) if noun == "resource" else value
        if kept is not None:
            values[name] = digest_json(kept) if key in _NAMES_OF_FIELDS else _pin_long(kept)
    schema = raw.get("inputSchema")
    return LockedEntry(values=values, parameters=describe_parameters(schema) if isinstance(schema, dict) else "")


def lock_instructions(text: str) -> LockedEntry:
    """Return the instructions of a server as a lock keeps them."""
    return LockedEntry(values={"description": _pin_long(text)})


def encode_values(entry: LockedEntry) -> dict[str, Any]:
    """Return the values of an entry as JSON: pins in an object of their own, which no value can imitate."""
    plain = {key: value for key, value in entry.values.items() if not isinstance(value, Pin)}
    known = {key: plain[key] for key in FIELDS if key in plain}
    other = {key.removeprefix(OTHER): plain[key] for key in sorted(plain) if key.startswith(OTHER)}
    pins = {key: asdict(value) for key, value in sorted(entry.values.items()) if isinstance(value, Pin)}
    return known | ({"other": other} if other else {}) | ({"pinned": pins} if pins else {})


def decode_values(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that `encode_values` has encoded. Raises `TypeError` or `AttributeError` for others."""
    values = {key: plain[key] for key in FIELDS if key in plain}
    values |= {OTHER + key: value for key, value in plain.get("other", {}).items()}
    return values | {key: Pin(**pin) for key, pin in plain.get("pinned", {}).items()}


def digest_json(value: object) -> str:
    """Return the digest of a JSON value. The order of keys does not change it."""
    return "sha256:" + hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


def digest_tool(tool: ToolDefinition) -> bytes:
    """Return the digest of all that a server says about a tool. An approval is valid for one such definition."""
    parts = (tool.name, tool.title, tool.description, tool.input_schema, tool.output_schema, tool.annotations)
    return hashlib.blake2b(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS), digest_size=_DIGEST_BYTES).digest()


def describe_parameters(schema: Mapping[str, Any]) -> str:
    """Describe the parameters of a schema in one line: `path*: string, depth: integer`. `*` marks a required one."""
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


def _pin_long(value: Any) -> Any:
    text = value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    if len(text) <= MAX_VALUE_CHARS:
        return value
    digest = digest_json(value).removeprefix("sha256:")
    return Pin(begins=text[:_HEAD_CHARS], characters=len(text), sha256=digest)


def _without_volatile(key: str, value: Any) -> Any:
    """Return a field of a resource without what changes with its content: a number of bytes, a time."""
    if key == "size" and isinstance(value, int):
        return None
    if key == "annotations" and isinstance(value, dict) and _TIME.fullmatch(str(value.get("lastModified"))):
        return {name: item for name, item in value.items() if name != "lastModified"} or None
    return value


def _sort_fields(values: Mapping[str, Any]) -> list[str]:
    return [*(key for key in FIELDS if key in values), *sorted(key for key in values if key not in FIELDS)]


def _shown_value(entry: LockedEntry, name: str) -> str:
    value = entry.values.get(name)
    if name == "input_schema":
        return f"({entry.parameters}) {value}"
    if value is None:
        return ""
    return str(value) if isinstance(value, str | Pin) else orjson.dumps(value).decode()


def _describe_change(change: FieldChange) -> str:
    locked, current = one_line(change.locked, _MAX_SHOWN_CHARS), one_line(change.current, _MAX_SHOWN_CHARS)
    return f"{change.field} was {locked!r} and is {current!r}"
