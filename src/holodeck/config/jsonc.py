"""Reader of JSON with comments and trailing commas, as editors write it: plain values with their positions.

A duplicate key is a problem, and the first one is used.
"""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from holodeck.config.files import file_error, read_text
from holodeck.config.yaml_reader import Document, KeyPath, Position, format_key_path
from holodeck.lib.errors import Problem
from holodeck.lib.json.parse import TooManyValuesError, check_value_count
from holodeck.lib.limits import MAX_YAML_DEPTH, MIB

# Largest file. ~/.claude.json has histories beside its servers, so it is much larger than a list of servers.
MAX_EDITOR_FILE_BYTES = 16 * MIB

WHITESPACE_OR_COMMENTS = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_NUMBER = re.compile(r"-?[0-9]{1,300}(\.[0-9]+)?([eE][-+]?[0-9]{1,5})?")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LITERALS = {"true": True, "false": False, "null": None}


class Span(NamedTuple):
    """The place of a value in a text, as offsets. `key_start` is that of its key, or of the value itself in a list."""

    key_start: int
    start: int
    end: int


def read_jsonc(path: Path, shown_as: str) -> Document:
    """Read a JSON file. Raises `ConfigError`, with the position, when it cannot be read or parsed."""
    return parse_jsonc(read_text(path, shown_as, MAX_EDITOR_FILE_BYTES), shown_as)


def parse_jsonc(text: str, shown_as: str) -> Document:
    """Parse JSON with comments. Raises `ConfigError`, with the position, when it is not valid."""
    parser = _JSONCParser(text, shown_as)
    value = parser.parse()
    return Document(
        file=shown_as, value=value, positions=parser.positions, texts=parser.texts, problems=tuple(parser.problems)
    )


def parse_jsonc_spans(text: str, shown_as: str) -> tuple[Document, dict[KeyPath, Span]]:
    """Parse JSON with comments, with the offsets of each value, for edits of the text. Raises as `parse_jsonc` does."""
    parser = _JSONCParser(text, shown_as)
    value = parser.parse()
    document = Document(file=shown_as, value=value, positions=parser.positions, problems=tuple(parser.problems))
    return document, parser.spans


class _JSONCParser:
    """A recursive-descent parser that records the position and the text of each value."""

    def __init__(self, text: str, shown_as: str) -> None:
        self.file = shown_as
        self.positions: dict[KeyPath, Position] = {}
        self.texts: dict[KeyPath, str] = {}
        self.problems: list[Problem] = []
        self.spans: dict[KeyPath, Span] = {}
        self._text = text
        self._offset = 0
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def parse(self) -> Any:
        try:
            check_value_count(self._text)
        except TooManyValuesError as error:
            raise file_error(self.file, f"the file is {error}") from None
        self._skip_whitespace()
        if self._offset == len(self._text):
            raise file_error(self.file, "the file is empty")
        value = self._parse_value(())
        self._skip_whitespace()
        if self._offset < len(self._text):
            self._fail("there is more after the end of the value")
        return value

    def _parse_value(self, path: KeyPath, key_start: int | None = None) -> Any:
        if len(path) > MAX_YAML_DEPTH:
            self._fail(f"the file nests deeper than {MAX_YAML_DEPTH} levels", is_syntax=False)
        self.positions.setdefault(path, self._position_at(self._offset))
        char, start = self._char, self._offset
        value: Any
        if char == "{":
            value = self._parse_mapping(path)
        elif char == "[":
            value = self._parse_list(path)
        else:
            value = self._parse_string() if char == '"' else self._parse_scalar()
            self.texts[path] = value if char == '"' else self._text[start : self._offset]
        self.spans[path] = Span(start if key_start is None else key_start, start, self._offset)
        return value

    def _parse_mapping(self, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for start in self._iterate_items("}"):
            if self._char != '"':
                self._fail("a key in double quotes is expected")
            key = self._parse_string()
            self._skip_whitespace()
            if self._char != ":":
                self._fail("':' is expected after the key")
            self._offset += 1
            self._skip_whitespace()
            where = (*path, key)
            if key in result:
                self._add_duplicate_problem(start, where)
                self._parse_value((*path, f"{key} (again)"))
                continue
            self.positions[where] = self._position_at(start)
            result[key] = self._parse_value(where, start)
        return result

    def _parse_list(self, path: KeyPath) -> list[Any]:
        result: list[Any] = []
        for _ in self._iterate_items("]"):
            result.append(self._parse_value((*path, len(result))))
        return result

    def _iterate_items(self, end: str) -> Iterator[int]:
        """Yield the offset of each item of a list or mapping, for the caller to parse. Allows a trailing comma."""
        self._offset += 1
        self._skip_whitespace()
        while self._char != end:
            yield self._offset
            self._skip_whitespace()
            if self._char == ",":
                self._offset += 1
                self._skip_whitespace()
            elif self._char != end:
                self._fail(f"',' or '{end}' is expected")
        self._offset += 1

    def _parse_string(self) -> str:
        try:
            value, self._offset = scanstring(self._text, self._offset + 1, True)
        except json.JSONDecodeError as error:
            self._offset = error.pos
            self._fail(f"{error.msg[:1].lower()}{error.msg[1:].removesuffix(' at')}")
        try:
            value.encode()
        except UnicodeEncodeError:
            self._fail("this text has half of a surrogate pair")
        return str(value)

    def _parse_scalar(self) -> Any:
        number = _NUMBER.match(self._text, self._offset)
        if number:
            self._offset = number.end()
            is_whole = number[1] is None and number[2] is None
            return int(number[0]) if is_whole else float(number[0])
        literal = _WORD.match(self._text, self._offset)
        if literal is None or literal[0] not in _LITERALS:
            self._fail("a value is expected")
        self._offset = literal.end()
        return _LITERALS[literal[0]]

    @property
    def _char(self) -> str:
        return self._text[self._offset : self._offset + 1]

    def _skip_whitespace(self) -> None:
        match = WHITESPACE_OR_COMMENTS.match(self._text, self._offset)
        if match:
            self._offset = match.end()
        if self._text.startswith("/*", self._offset):
            self._fail("the comment is not closed")

    def _position_at(self, offset: int) -> Position:
        line = bisect.bisect_right(self._line_starts, offset)
        return Position(line, offset - self._line_starts[line - 1] + 1)

    def _add_duplicate_problem(self, offset: int, path: KeyPath) -> None:
        position, first = self._position_at(offset), self.positions[path]
        message = f"this key is given twice (first in line {first.line})"
        self.problems.append(
            Problem(
                message=message,
                file=self.file,
                line=position.line,
                column=position.column,
                key=format_key_path(path),
                fix="Keep one of them.",
            )
        )

    def _fail(self, message: str, *, is_syntax: bool = True) -> NoReturn:
        position = self._position_at(self._offset)
        message = f"this is not valid JSON: {message}" if is_syntax else message
        raise file_error(self.file, message, line=position.line, column=position.column)
