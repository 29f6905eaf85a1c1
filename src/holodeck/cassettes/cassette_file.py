"""The file of a cassette: YAML that people read and review, with texts as blocks and nothing twice.

Repetition is removed from the entries before they are written, and restored after they are read:

- A model request that continues the one before has only what it `adds`, with `answer_of` for the answer in between, and
  what it `changes`.
- Tools are described once, under `tools`; those of a server only as a reference to its list, under `tool_lists`.
- Long base64 is written in lines, with the number of its bytes.
"""

from __future__ import annotations

import base64
import binascii
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from holodeck.cassettes.cassette import ANSWERS, Cassette, Entry, TrackData
from holodeck.cassettes.model_data import decode_events, list_answer_items
from holodeck.config.files import read_text
from holodeck.config.problems import problem_at
from holodeck.config.yaml_reader import Document, KeyPath, parse_document, parse_scalar
from holodeck.lib.errors import ConfigError, ExecutionError
from holodeck.lib.limits import MIB
from holodeck.lib.system.files import replace_file

Data = dict[str, Any]

# Characters from which base64 is written in lines.
_MIN_BINARY_CHARS = 200
_BINARY_COLUMNS = 100
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_BINARY = "$base64"
VERSION = 1
# A recording of hundreds of turns, with images. A larger file is no test that people review.
MAX_CASSETTE_BYTES = 64 * MIB
MAX_CASSETTE_NODES = 2_000_000
_COLUMNS = 120
# Characters of texts that share a line with others of their list.
_SHORT_CHARS = 40
_HEAD = """\
# A cassette of HoloDeck: what an agent and its model and MCP servers said to each other, for replay in tests.
# Secrets are masked. Do not edit it by hand; record it anew.
"""
_KINDS = ("model", "server", "answer_to")
_REFERENCES = frozenset({"from", "answer_of", "tool_list"})
_FIX = "Record it anew, or take it back from version control."


class BadReferenceError(ValueError):
    """An entry refers to something that the cassette does not have. `path` leads to it in the entry."""

    def __init__(self, message: str, *path: str | int) -> None:
        super().__init__(message)
        self.path = path


class Definitions:
    """The tools and lists of tools of a cassette, each with a name that is unique in it."""

    def __init__(self, tools: Mapping[str, Data] | None = None, tool_lists: Mapping[str, Data] | None = None) -> None:
        self.tools: dict[str, Data] = dict(tools or {})
        self.tool_lists: dict[str, Data] = dict(tool_lists or {})

    def compact_track(self, entries: list[Entry]) -> list[Entry]:
        """Return the entries of a track as they are written."""
        answers = dict(_find_answers(entries))
        servers = {entry["entry"]: entry.get("server") for entry in entries if entry.get("request") == "tools/list"}
        compacted: list[Entry] = []
        previous: Entry | None = None
        for entry in entries:
            written = dict(entry)
            server = servers.get(entry.get("answer_to", entry["entry"]))
            if server is not None and isinstance(entry.get("result"), dict):
                written["result"] = {"tool_list": _name_of(self.tool_lists, server, entry["result"])}
            if "model" in entry:
                written["request"] = self._compact_request(entry["request"], previous, answers)
                previous = entry
            compacted.append(_map_leaves(written, _wrap_binary))
        return compacted

    def expand_track(self, entries: list[Entry]) -> list[Entry]:
        """Return the entries of a track with everything that they refer to. Raises `BadReferenceError`."""
        expanded: list[Entry] = []
        requests: dict[int, Data] = {}
        plain = [_unwrap_binary(entry) for entry in entries]
        answers = dict(_find_answers(plain))
        for index, entry in enumerate(plain):
            try:
                if isinstance(result := entry.get("result"), dict) and result.keys() == {"tool_list"}:
                    entry["result"] = self._require(self.tool_lists, result["tool_list"], "result", "tool_list")
                if "model" in entry:
                    entry["request"] = self._expand_request(entry["request"], requests, answers)
                    requests[entry["entry"]] = entry["request"]
            except BadReferenceError as error:
                raise BadReferenceError(str(error), index, *error.path) from None
            expanded.append(entry)
        return expanded

    def _compact_request(self, request: Data, previous: Entry | None, answers: Mapping[int, list[Data]]) -> Data:
        written = dict(request)
        if "tools" in request:
            written["tools"] = [self._name_tool(spec) for spec in request["tools"]]
        if previous is None:
            return written
        before, number = previous["request"], previous["entry"]
        items, known = request["items"], before["items"]
        if not known or items[: len(known)] != known:
            return written
        adds = items[len(known) :]
        answered = answers.get(number, [])
        if answered and adds[: len(answered)] == answered:
            adds = [{"answer_of": number}, *adds[len(answered) :]]
        names = [name for name in (*request, *before) if name != "items" and request.get(name) != before.get(name)]
        changes = {name: written.get(name) for name in dict.fromkeys(names)}
        return {"continues": number, **({"changes": changes} if changes else {}), "adds": adds}

    def _expand_request(self, written: Data, requests: Mapping[int, Data], answers: Mapping[int, list[Data]]) -> Data:
        number = written.get("continues")
        if number is None:
            return self._expand_tools(dict(written))
        if number not in requests:
            raise BadReferenceError(f"there is no request of a model in entry {number} above", "request", "continues")
        items = list(requests[number]["items"])
        for added in written.get("adds") or ():
            if "answer_of" not in added:
                items.append(added)
            elif added["answer_of"] in answers:
                items += answers[added["answer_of"]]
            else:
                raise BadReferenceError(f"there is no answer of entry {added['answer_of']}", "request", "adds")
        request = {**requests[number], **self._expand_tools(dict(written.get("changes") or {})), "items": items}
        return {name: value for name, value in request.items() if value is not None}

    def _expand_tools(self, written: Data) -> Data:
        if written.get("tools") is None:
            return written
        written["tools"] = [self._expand_tool(name) for name in written["tools"]]
        return written

    def _expand_tool(self, name: str) -> Data:
        described = self._require(self.tools, name, "request", "tools")
        spec = {"name": name, **described}
        source = spec.pop("from", None)
        if source is None:
            return spec
        list_name, _, tool_name = str(source).partition("/")
        for listed in self._require(self.tool_lists, list_name, "request", "tools").get("tools", ()):
            if listed.get("name") == tool_name:
                return {"name": spec["name"], **_describe_listed(listed), **spec}
        raise BadReferenceError(f"there is no tool '{source}' in 'tool_lists'", "request", "tools")

    def _name_tool(self, spec: Data) -> str:
        described = {name: value for name, value in spec.items() if name != "name"}
        for list_name, listing in self.tool_lists.items():
            for listed in listing.get("tools", ()):
                if isinstance(listed, dict) and _describe_listed(listed) == described:
                    return _name_of(self.tools, spec["name"], {"from": f"{list_name}/{listed['name']}"}, spec["name"])
        return _name_of(self.tools, spec["name"], described, spec["name"])

    def _require(self, definitions: Mapping[str, Data], name: object, *path: str) -> Data:
        found = definitions.get(name) if isinstance(name, str) else None
        if found is None:
            raise BadReferenceError(f"'{name}' is not defined in this cassette", *path)
        return found


def _describe_listed(listed: Data) -> Data:
    return {
        "description": listed.get("description") or listed.get("title") or "",
        "parameters": listed.get("inputSchema"),
    }


def _name_of(definitions: dict[str, Data], name: str, value: Data, own_name: str | None = None) -> str:
    """Return the name of a definition, which is added if it is new. `own_name`: stored where the names differ."""
    key, number = name, 1
    while True:
        stored = value if own_name is None or own_name == key else {"name": own_name, **value}
        if definitions.setdefault(key, stored) == stored:
            return key
        number += 1
        key = f"{name}~{number}"


def _find_answers(entries: list[Entry]) -> Iterator[tuple[int, list[Data]]]:
    """Yield by number of an entry the items that its answer adds to the conversation."""
    for entry in entries:
        if isinstance(entry.get("answer"), list):
            number: int = entry.get("answer_to", entry["entry"])  # type: ignore[assignment] # one of both is there
            yield number, list_answer_items(entry["answer"])


def _map_leaves(value: Any, change: Callable[[str], Any]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _map_leaves(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_map_leaves(item, change) for item in value]
    return value


def _wrap_binary(text: str) -> Any:
    if len(text) < _MIN_BINARY_CHARS or len(text) % 4 or not _BASE64.fullmatch(text):
        return text
    try:
        size = len(base64.b64decode(text, validate=True))
    except binascii.Error:
        return text
    return {"bytes": size, _BINARY: "\n".join(textwrap.wrap(text, _BINARY_COLUMNS))}


def _unwrap_binary(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"bytes", _BINARY} and isinstance(value[_BINARY], str):
            return "".join(value[_BINARY].split())
        return {key: _unwrap_binary(item) for key, item in value.items()}
    return [_unwrap_binary(item) for item in value] if isinstance(value, list) else value


def read_cassette(path: Path) -> Cassette:
    """Read a cassette. Raises `ConfigError`, with the line, for one that is damaged or of a newer version."""
    document = parse_document(read_text(path, str(path), MAX_CASSETTE_BYTES), str(path), max_nodes=MAX_CASSETTE_NODES)
    if document.problems:
        raise ConfigError.of(document.problems)
    return _Reader(document).read(path)


def write_cassette(cassette: Cassette) -> None:
    """Write a cassette, all or nothing. Raises `ExecutionError`."""
    try:
        cassette.path.parent.mkdir(parents=True, exist_ok=True)
        # Private when it is new: it has what was said. The mode of an existing one is its owner's choice.
        replace_file(cassette.path, format_cassette(cassette).encode())
    except OSError as error:
        raise ExecutionError(f"Cannot write the cassette {cassette.path}: {error.strerror}.") from None


def format_cassette(cassette: Cassette) -> str:
    """Return the text of the file."""
    definitions = Definitions()
    tracks = [
        {
            **({"name": track.name} if track.name else {}),
            "recorded_at": _format_time(track.recorded_at),
            "entries": definitions.compact_track(track.entries),
        }
        for track in cassette.tracks.values()
    ]
    data = {
        "version": VERSION,
        "holodeck": cassette.holodeck,
        "recorded_at": _format_time(cassette.recorded_at),
        "agent": cassette.agent,
        "servers": {
            name: {
                **cassette.describe_server(name),
                "tools": {tool.name: tool.digest for tool in cassette.list_tools(name)},
            }
            for name in cassette.servers
        },
        "tracks": tracks,
        "tools": definitions.tools,
        "tool_lists": definitions.tool_lists,
    }
    return _HEAD + format_yaml({key: value for key, value in data.items() if value not in ({}, "")})


def format_yaml(value: Any) -> str:
    """Return plain data as YAML, with texts of several lines as blocks."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_COLUMNS)
    return text


class _Reader:
    """Checks a document and builds the cassette from it."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def read(self, path: Path) -> Cassette:
        data = self._require((), dict)
        version = self._require(("version",), int)
        if version > VERSION:
            message = f"this cassette has version {version}, and this HoloDeck reads versions up to {VERSION}"
            raise self._error(("version",), message, "Use the version of HoloDeck that recorded it, or record it anew.")
        definitions = Definitions(data.get("tools"), data.get("tool_lists"))
        tracks = [self._read_track(index, definitions) for index in range(len(self._require(("tracks",), list)))]
        return Cassette(
            path=path,
            holodeck=str(data.get("holodeck", "")),
            recorded_at=self._read_time(("recorded_at",)),
            agent=str(data.get("agent", "")),
            tracks={track.name: track for track in tracks},
        )

    def _read_track(self, index: int, definitions: Definitions) -> TrackData:
        path: KeyPath = ("tracks", index)
        track = self._require(path, dict)
        entries = self._require((*path, "entries"), list)
        for place in range(len(entries)):
            self._check_entry((*path, "entries", place), place + 1)
        try:
            expanded = definitions.expand_track(entries)
            self._check_answers(expanded, (*path, "entries"))
        except BadReferenceError as error:
            raise self._error((*path, "entries", *error.path), str(error)) from None
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            message = f"the entries are not as they were written ({type(error).__name__}: {error})"
            raise self._error((*path, "entries"), message) from None
        name = str(track.get("name") or "")
        return TrackData(name=name, recorded_at=self._read_time((*path, "recorded_at")), entries=expanded)

    def _check_entry(self, path: KeyPath, number: int) -> None:
        entry = self._require(path, dict)
        if self._require((*path, "entry"), int) != number:
            raise self._error((*path, "entry"), f"entry {number} is expected here: the entries are not complete")
        if not any(kind in entry for kind in _KINDS):
            raise self._error(path, f"an entry has one of {', '.join(_KINDS)}")
        if "model" in entry:
            self._require((*path, "request"), dict)
        answered = entry.get("answer_to")
        if "answer_to" in entry and not (isinstance(answered, int) and 0 < answered < number):
            raise self._error((*path, "answer_to"), "this is not the number of an entry above")

    def _check_answers(self, entries: list[Entry], path: KeyPath) -> None:
        for index, entry in enumerate(entries):
            if "answer" in entry:
                try:
                    decode_events(entry["answer"])
                except (KeyError, TypeError, AttributeError, ValueError) as error:
                    message = f"this is no answer of a model ({type(error).__name__}: {error})"
                    raise self._error((*path, index, "answer"), message) from None
            if "answer_to" in entry and not any(key in entry for key in ANSWERS):
                raise self._error((*path, index), "this entry has no answer")

    def _read_time(self, path: KeyPath) -> datetime:
        text = self._require(path, str)
        try:
            return datetime.fromisoformat(text).astimezone(UTC)
        except ValueError:
            raise self._error(path, "this is not a time such as 2026-01-31T12:00:00Z") from None

    def _require(self, path: KeyPath, kind: type) -> Any:
        value = self._document.value
        for part in path:
            is_there = part in value if isinstance(value, Mapping) else isinstance(value, list)
            if not is_there:
                raise self._error(path[:-1], f"'{path[-1]}' is missing: this is not a cassette, or not all of it")
            value = value[part]
        if not isinstance(value, kind) or isinstance(value, bool):
            what = {dict: "a mapping", list: "a list", int: "a number", str: "a text"}[kind]
            raise self._error(path, f"this must be {what}: it is not a cassette, or not all of it")
        return value

    def _error(self, path: KeyPath, message: str, fix: str = _FIX) -> ConfigError:
        return ConfigError.of([problem_at(self._document, path, message, fix=fix)])


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc] # the faster one of two classes
    """Writes texts of several lines as blocks, and quotes what YAML 1.2 would not read as a text."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if "\n" in text:
        style = "|"
    elif not isinstance(parse_scalar(text), str):
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def _represent_list(dumper: yaml.SafeDumper, values: list[Any]) -> yaml.SequenceNode:
    is_short = all(
        isinstance(value, int | float) or (isinstance(value, str) and len(value) < _SHORT_CHARS) for value in values
    )
    return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=is_short)


_Dumper.add_representer(list, _represent_list)


def _represent_mapping(dumper: yaml.SafeDumper, values: dict[str, Any]) -> yaml.MappingNode:
    is_reference = len(values) == 1 and not _REFERENCES.isdisjoint(values)
    return dumper.represent_mapping("tag:yaml.org,2002:map", values, flow_style=is_reference)


_Dumper.add_representer(dict, _represent_mapping)


def _format_time(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
