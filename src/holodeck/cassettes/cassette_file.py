"""The file of a cassette: YAML that people read and review, with texts as blocks and nothing twice."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from holodeck.cassettes.cassette import ANSWERS, Cassette, Entry, TrackData
from holodeck.cassettes.definitions import BadReferenceError, Definitions
from holodeck.cassettes.model_data import decode_events
from holodeck.config.files import read_text
from holodeck.config.problems import problem_at
from holodeck.config.yaml_reader import Document, KeyPath, parse_document, parse_scalar
from holodeck.lib.errors import ConfigError, ExecutionError
from holodeck.lib.limits import MIB
from holodeck.lib.system.file_replacement import replace_file

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
