"""The formats of files with server entries, each with its parser and its edits.

An entry of JSON with comments is set in, or removed from, the object at a key path. A new one has the indentation and
the line ending of the file, and goes behind the last one. A comment on the line of an entry belongs to the entry. No
trailing comma is added: some programs refuse it.

An entry of TOML is a table such as `[mcp_servers.files]`. A new table goes to the end of the file, where it changes
nothing else. The lines of a table that is there run from its header to its last key, with the tables below it. Every
edit is parsed again: a header inside a text of several lines, or a table in another form, is noticed by the difference,
and refused.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from holodeck.config.edit.file_edit import (
    Splice,
    apply_splices,
    cannot_edit,
    end_of_line,
    find_newline,
    is_same_data,
    require_same_data,
    start_of_line,
)
from holodeck.config.edit.yaml_entries import format_yaml, remove_yaml_entry, set_yaml_entry
from holodeck.config.files import file_error
from holodeck.config.jsonc import WHITESPACE_OR_COMMENTS, parse_jsonc, parse_jsonc_spans
from holodeck.config.mcp_json.toml_reader import find_headers, parse_toml
from holodeck.config.problems import value_at
from holodeck.config.yaml_reader import Document, KeyPath, format_key_path, parse_document
from holodeck.lib.errors import ConfigError
from holodeck.lib.record import record

# Plain values, or characters, of a list that stays on one line: most command lines do, whatever the length of a path.
_MAX_LIST_VALUES = 6
_MAX_LIST_CHARS = 100
_DEFAULT_INDENT = "  "
_SAME_LINE = re.compile(r"[ \t]*(?:/\*[^\n]*?\*/[ \t]*)*(?://[^\n\r]*)?")
_EMPTY_FILE = "{}\n"
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


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


def set_toml_entry(text: str, list_path: KeyPath, name: str, value: Mapping[str, Any], shown_as: str) -> str:
    """Return the text with the table added or replaced. An equal one stays as it is. An empty text is a new file.

    Raises `ConfigError` for a text that is not valid TOML, or cannot be edited safely.
    """
    data = parse_toml(text, shown_as).value
    entries = value_at(data, list_path)
    if entries is not None and not isinstance(entries, dict):
        raise file_error(shown_as, f"'{format_key_path(list_path)}' must be a table: each server by its name")
    if is_same_data((entries or {}).get(name), value):
        return text
    shorter = remove_toml_entry(text, list_path, name, shown_as)
    newline = find_newline(text)
    gap = "" if not shorter else newline if shorter.endswith("\n") else newline * 2
    edited = shorter + gap + format_toml(value, (*list_path, name), newline=newline)
    meant = copy.deepcopy(data)
    target = meant
    for part in list_path:
        target = target.setdefault(str(part), {})
    target.pop(name, None)
    target[name] = value
    _require_data(edited, meant, shown_as)
    return edited


def remove_toml_entry(text: str, list_path: KeyPath, name: str, shown_as: str) -> str:
    """Return the text without the table; the same text if there is none. Raises as `set_toml_entry` does."""
    data = parse_toml(text, shown_as).value
    path = (*list_path, name)
    if name not in (value_at(data, list_path) or {}):
        return text
    edited = apply_splices(text, [Splice(start, end, "") for start, end in _find_tables(text, path)])
    meant = copy.deepcopy(data)
    parents = [value_at(meant, path[:length]) for length in range(len(path))]
    del parents[-1][name]
    # A table that no header names any more is gone with its last entry.
    found = _parse_edited(edited, shown_as)
    for length in range(len(list_path), 0, -1):
        if not parents[length] and value_at(found, path[:length]) is None:
            del parents[length - 1][path[length - 1]]
    _require_data(edited, meant, shown_as)
    return edited


def format_toml(value: Mapping[str, Any], path: KeyPath, *, newline: str = "\n") -> str:
    """Return a table with its header. Mappings inside it are inline tables; a value of None is left out."""
    header = ".".join(_format_key(str(part)) for part in path)
    keys = [f"{_format_key(key)} = {_format_value(item)}" for key, item in value.items() if item is not None]
    return newline.join([f"[{header}]", *keys, ""])


def _find_tables(text: str, path: KeyPath) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the table at a path, and of those below it, each with one blank line before it."""
    headers = list(find_headers(text))
    for index, (start, found) in enumerate(headers):
        if found[: len(path)] != path:
            continue
        limit = headers[index + 1][0] if index + 1 < len(headers) else len(text)
        end = end_of_line(text, start)
        offset = end
        while offset < limit:
            line = text[offset : end_of_line(text, offset)]
            offset += len(line)
            # Comments and blank lines behind the last key belong to the next table.
            if line.strip() and not line.lstrip().startswith("#"):
                end = offset
        before = text[:start]
        blank = len(before) - len(before.rstrip("\r\n"))
        newline = find_newline(text)
        yield (start - len(newline) if blank > len(newline) or blank == len(before) > 0 else start), end


def _require_data(text: str, meant: Any, shown_as: str) -> None:
    # The order of tables in a file means nothing.
    require_same_data(_sort(_parse_edited(text, shown_as)), _sort(meant), shown_as)


def _parse_edited(text: str, shown_as: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise cannot_edit(shown_as) from None


def _sort(value: Any) -> Any:
    return {key: _sort(value[key]) for key in sorted(value)} if isinstance(value, dict) else value


def _format_key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _quote(key)


def _format_value(value: Any) -> str:
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_format_value, value))}]"
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_format_key(key)} = {_format_value(item)}" for key, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    return json.dumps(value)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


@record
class EntryFormat:
    """The functions for files of one format. See `set_json_entry` and `remove_json_entry` for the edits."""

    parse: Callable[[str, str], Document]
    """From the text and the name for messages. Raises `ConfigError`."""
    set_entry: Callable[[str, KeyPath, str, Mapping[str, Any], str], str]
    remove_entry: Callable[[str, KeyPath, str, str], str]
    format_entries: Callable[[KeyPath, Mapping[str, Mapping[str, Any]]], str]
    """A file with nothing but these entries, for a person to copy from."""


def _nest(list_path: KeyPath, entries: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = dict(entries)
    for part in reversed(list_path):
        nested = {str(part): nested}
    return nested


FORMATS: Mapping[str, EntryFormat] = {
    "json": EntryFormat(
        parse=parse_jsonc,
        set_entry=set_json_entry,
        remove_entry=remove_json_entry,
        format_entries=lambda path, entries: format_json(_nest(path, entries)) + "\n",
    ),
    "yaml": EntryFormat(
        parse=parse_document,
        set_entry=set_yaml_entry,
        remove_entry=remove_yaml_entry,
        format_entries=lambda path, entries: format_yaml(_nest(path, entries)),
    ),
    "toml": EntryFormat(
        parse=parse_toml,
        set_entry=set_toml_entry,
        remove_entry=remove_toml_entry,
        format_entries=lambda path, entries: "\n".join(
            format_toml(entry, (*path, name)) for name, entry in entries.items()
        ),
    ),
}
