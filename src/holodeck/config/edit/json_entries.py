"""Edits of entries in JSON with comments: an entry is set in, or removed from, the object at a key path.

A new entry has the indentation and the line ending of the file, and goes behind the last one. A comment on the line of
an entry belongs to the entry. No trailing comma is added: some programs refuse it.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from holodeck.config.edit.splices import (
    Splice,
    apply_splices,
    end_of_line,
    find_newline,
    is_same_data,
    require_same_data,
    start_of_line,
)
from holodeck.config.files import file_error
from holodeck.config.jsonc import WHITESPACE_OR_COMMENTS, parse_jsonc_spans
from holodeck.config.problems import value_at
from holodeck.config.yaml_reader import KeyPath, format_key_path
from holodeck.lib.errors import ConfigError

# Plain values, or characters, of a list that stays on one line: most command lines do, whatever the length of a path.
_MAX_LIST_VALUES = 6
_MAX_LIST_CHARS = 100
_DEFAULT_INDENT = "  "
_SAME_LINE = re.compile(r"[ \t]*(?:/\*[^\n]*?\*/[ \t]*)*(?://[^\n\r]*)?")
_EMPTY_FILE = "{}\n"


def set_json_entry(text: str, list_path: KeyPath, name: str, value: Mapping[str, Any], shown_as: str) -> str:
    """Return the text with the entry added or replaced. An equal entry stays as it is. An empty text is a new file.

    Raises `ConfigError` for a text that is not valid JSON, or has something other than an object at the path.
    """
    file = _JSONFile(text if text.strip() else _EMPTY_FILE, shown_as)
    path = (*list_path, name)
    if path in file.spans and is_same_data(value_at(file.value, path), value):
        return text
    if path in file.spans:
        edited = file.replace_value(path, value)
    else:
        prefix = file.require_object(list_path)
        added: Any = value
        for part in reversed(path[len(prefix) + 1 :]):
            added = {part: added}
        edited = file.add_item(prefix, str(path[len(prefix)]), added)
    meant = copy.deepcopy(file.value)
    _set_value(meant, path, value)
    require_same_data(_JSONFile(edited, shown_as).value, meant, shown_as)
    return edited


def remove_json_entry(text: str, list_path: KeyPath, name: str, shown_as: str) -> str:
    """Return the text without the entry; the same text if there is none. Raises as `set_json_entry` does."""
    file = _JSONFile(text if text.strip() else _EMPTY_FILE, shown_as)
    path = (*list_path, name)
    if path not in file.spans:
        return text
    edited = file.remove_item(path)
    meant = copy.deepcopy(file.value)
    del value_at(meant, list_path)[name]
    require_same_data(_JSONFile(edited, shown_as).value, meant, shown_as)
    return edited


def format_json(value: Any, *, indent: str = "", unit: str = _DEFAULT_INDENT, newline: str = "\n") -> str:
    """Return JSON with an item on each line, and short lists of plain values on one. `indent` is for further lines."""
    inner = indent + unit
    if isinstance(value, Mapping) and value:
        items = [
            f"{_dump(key)}: {format_json(item, indent=inner, unit=unit, newline=newline)}"
            for key, item in value.items()
        ]
    elif isinstance(value, list) and not _fits_one_line(value):
        items = [format_json(item, indent=inner, unit=unit, newline=newline) for item in value]
    else:
        return _dump(value)
    opening, closing = "{}" if isinstance(value, Mapping) else "[]"
    lines = f",{newline}{inner}".join(items)
    return f"{opening}{newline}{inner}{lines}{newline}{indent}{closing}"


class _JSONFile:
    """A text with the offsets of all its values."""

    def __init__(self, text: str, shown_as: str) -> None:
        document, self.spans = parse_jsonc_spans(text, shown_as)
        if document.problems:
            raise ConfigError.of(document.problems)
        if not isinstance(document.value, dict):
            raise file_error(shown_as, "the file must hold a JSON object")
        self.value: dict[str, Any] = document.value
        self._text = text
        self._shown_as = shown_as
        self._newline = find_newline(text)

    def require_object(self, path: KeyPath) -> KeyPath:
        """Return the longest part of the path at which there is an object."""
        for length in range(len(path) + 1):
            prefix = path[:length]
            if prefix not in self.spans:
                return prefix[:-1]
            if not isinstance(value_at(self.value, prefix), dict):
                key = format_key_path(prefix)
                raise file_error(self._shown_as, f"'{key}' must be an object: each server by its name")
        return path

    def replace_value(self, path: KeyPath, value: Any) -> str:
        span = self.spans[path]
        return apply_splices(self._text, [Splice(span.start, span.end, self._format(value, self._indent_of(path)))])

    def add_item(self, path: KeyPath, key: str, value: Any) -> str:
        """Add an item behind the last one of the object at the path."""
        items = self._items_of(path)
        if not items:
            return self._add_first_item(path, key, value)
        last = self.spans[items[-1]]
        indent = self._indent_of(items[-1])
        formatted = f"{_dump(key)}: {self._format(value, indent)}"
        comma = self._find_comma(last.end)
        if indent is None and comma is not None:
            return apply_splices(self._text, [Splice(comma + 1, comma + 1, f" {formatted},")])
        if indent is None:
            return apply_splices(self._text, [Splice(last.end, last.end, f", {formatted}")])
        # Behind a comment on the line of the last item, which stays with that item.
        match = _SAME_LINE.match(self._text, last.end if comma is None else comma + 1)
        end = match.end() if match else last.end
        trailing = "" if comma is None else ","
        splices = [Splice(end, end, f"{self._newline}{indent}{formatted}{trailing}")]
        if comma is None:
            splices.append(Splice(last.end, last.end, ","))
        return apply_splices(self._text, splices)

    def remove_item(self, path: KeyPath) -> str:
        items = self._items_of(path[:-1])
        index, span = items.index(path), self.spans[path]
        outer = self.spans[path[:-1]]
        around = self._text[outer.start + 1 : span.key_start] + self._text[span.end : outer.end - 1]
        if len(items) == 1 and not around.replace(",", "").strip():
            return apply_splices(self._text, [Splice(outer.start + 1, outer.end - 1, "")])
        comma = self._find_comma(span.end)
        before = self._find_comma(self.spans[items[index - 1]].end) if index else None
        start, end = span.key_start, span.end if comma is None else comma + 1
        if self._indent_of(path) is not None:
            start = start_of_line(self._text, start)
            match = _SAME_LINE.match(self._text, end)
            behind = match.end() if match else end
            # The whole line goes, unless something else follows on it.
            if not self._text[behind : end_of_line(self._text, behind)].strip():
                end = end_of_line(self._text, behind)
        elif comma is not None:
            end += len(self._text[end:]) - len(self._text[end:].lstrip(" \t"))
        elif before is not None and not self._text[before + 1 : start].strip():
            return apply_splices(self._text, [Splice(before, end, "")])
        splices = [Splice(start, end, "")]
        if comma is None and before is not None:
            splices.append(Splice(before, before + 1, ""))
        return apply_splices(self._text, splices)

    def _add_first_item(self, path: KeyPath, key: str, value: Any) -> str:
        span = self.spans[path]
        inside = self._text[span.start + 1 : span.end - 1]
        outer = (self._indent_of(path) or "") if path else ""
        indent = outer + self._find_unit()
        end = span.start + 1 + len(inside.rstrip())
        rest = self._text[end : span.end - 1]
        closing = "" if "\n" in rest else f"{self._newline}{outer}"
        replaced = rest if closing else ""
        item = f"{self._newline}{indent}{_dump(key)}: {self._format(value, indent)}{closing}"
        return apply_splices(self._text, [Splice(end, end + len(replaced), item)])

    def _items_of(self, path: KeyPath) -> list[KeyPath]:
        inside = [each for each in self.spans if len(each) == len(path) + 1 and each[:-1] == path]
        return sorted(inside, key=lambda each: self.spans[each].start)

    def _indent_of(self, path: KeyPath) -> str | None:
        """Return the whitespace before the key of an item; None for an item that does not begin its line."""
        start = self.spans[path].key_start
        before = self._text[start_of_line(self._text, start) : start]
        return before if not before.strip() else None

    def _find_comma(self, offset: int) -> int | None:
        """Return the offset of the comma behind an item; None for the last one without."""
        match = WHITESPACE_OR_COMMENTS.match(self._text, offset)
        end = match.end() if match else offset
        return end if self._text[end : end + 1] == "," else None

    def _find_unit(self) -> str:
        """Return one level of indentation: that of the first item of the file."""
        items = self._items_of(())
        return (self._indent_of(items[0]) if items else None) or _DEFAULT_INDENT

    def _format(self, value: Any, indent: str | None) -> str:
        if indent is None:
            return _dump(value)
        return format_json(value, indent=indent, unit=self._find_unit(), newline=self._newline)


def _set_value(data: dict[str, Any], path: KeyPath, value: Any) -> None:
    for part in path[:-1]:
        data = data.setdefault(str(part), {})
    data[str(path[-1])] = value


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _fits_one_line(values: Sequence[Any]) -> bool:
    is_plain = not any(isinstance(item, (dict, list)) for item in values)
    return is_plain and (len(values) <= _MAX_LIST_VALUES or len(_dump(values)) <= _MAX_LIST_CHARS)
