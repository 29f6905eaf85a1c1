"""Removes repetition from the entries of a cassette before they are written, and restores it after they are read.

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
from typing import Any

from holodeck.cassettes.cassette import Entry
from holodeck.cassettes.model_data import list_answer_items

Data = dict[str, Any]

# Characters from which base64 is written in lines.
_MIN_BINARY_CHARS = 200
_BINARY_COLUMNS = 100
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_BINARY = "$base64"


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
        if isinstance(value.get(_BINARY), str):
            return "".join(value[_BINARY].split())
        return {key: _unwrap_binary(item) for key, item in value.items()}
    return [_unwrap_binary(item) for item in value] if isinstance(value, list) else value
