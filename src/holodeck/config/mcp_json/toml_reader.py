"""Reader of TOML files, as Codex has one: plain values, each table with its position in the file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holodeck.config.files import file_error, read_text
from holodeck.config.yaml_reader import Document, KeyPath, Position

_HEADER = re.compile(r"^[ \t]*\[[^\n]*\][^\n]*$", re.MULTILINE)
_PLACE = re.compile(r"\(at line (\d+), column (\d+)\)$")


def read_toml(path: Path, shown_as: str) -> Document:
    """Read a TOML file. Raises `ConfigError`, with the position, when it cannot be read or parsed."""
    return parse_toml(read_text(path, shown_as), shown_as)


def parse_toml(text: str, shown_as: str) -> Document:
    """Parse TOML. Raises `ConfigError`, with the position, when it is not valid.

    A value has the position of its table. Dates become texts.
    """
    try:
        value = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        place = _PLACE.search(str(error))
        line, column = (int(place[1]), int(place[2])) if place else (None, None)
        reason = _PLACE.sub("", str(error)).strip() or "it nests too deep"
        message = f"this is not valid TOML: {reason[:1].lower()}{reason[1:]}"
        raise file_error(shown_as, message, line=line, column=column) from None
    positions = {path: Position(text.count("\n", 0, start) + 1, 1) for start, path in find_headers(text)}
    return Document(file=shown_as, value=value, positions=positions)


def find_headers(text: str) -> Iterator[tuple[int, KeyPath]]:
    """Yield the start of each line that is the header of a table or of an item of tables, with its key path.

    Such a line inside a text of several lines is taken for one, too.
    """
    for match in _HEADER.finditer(text):
        try:
            table: Any = tomllib.loads(match[0])
        except tomllib.TOMLDecodeError:
            continue
        path: list[str | int] = []
        while isinstance(table, dict) and len(table) == 1:
            (key,) = table
            path.append(key)
            table = table[key]
        if path and table in ({}, [{}]):
            yield match.start(), tuple(path)
