"""Edits of entries in TOML files: a table such as `[mcp_servers.files]` is added, replaced or removed.

A new table goes to the end of the file, where it changes nothing else. The lines of a table that is there run from its
header to its last key, with the tables below it. Every edit is parsed again: a header inside a text of several lines,
or a table in another form, is noticed by the difference, and refused.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from holodeck.config.edit.splices import (
    Splice,
    apply_splices,
    cannot_edit,
    end_of_line,
    find_newline,
    is_same_data,
    require_same_data,
)
from holodeck.config.files import file_error
from holodeck.config.mcp_json.toml_reader import find_headers, parse_toml
from holodeck.config.problems import value_at
from holodeck.config.yaml_reader import KeyPath, format_key_path

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


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
