"""JSON as editors write it, with comments and trailing commas: plain values, each with its place in the file."""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any, NoReturn

from holodeck.config.document import Document, KeyPath, Place, dotted
from holodeck.config.files import read_text, refuse
from holodeck.lib.errors import Problem
from holodeck.lib.limits import MAX_EDITOR_FILE_BYTES, MAX_YAML_DEPTH

_BETWEEN = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_NUMBER = re.compile(r"-?[0-9]{1,300}(\.[0-9]+)?([eE][-+]?[0-9]{1,5})?")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS = {"true": True, "false": False, "null": None}


def read_jsonc(path: Path, shown_as: str) -> Document:
    """Read a JSON file. Raises `ConfigError`, with the line, for one that cannot be read or parsed."""
    return parse_jsonc(read_text(path, shown_as, MAX_EDITOR_FILE_BYTES), shown_as)


def parse_jsonc(text: str, shown_as: str) -> Document:
    """Parse JSON with comments. Raises `ConfigError` where it is not JSON."""
    parser = _Parser(text, shown_as)
    value = parser.whole()
    return Document(
        file=shown_as, value=value, places=parser.places, texts=parser.texts, problems=tuple(parser.problems)
    )


class _Parser:
    """Reads one value after the other, and remembers where each of them stood."""

    def __init__(self, text: str, shown_as: str) -> None:
        self.file = shown_as
        self.places: dict[KeyPath, Place] = {}
        self.texts: dict[KeyPath, str] = {}
        self.problems: list[Problem] = []
        self._text = text
        self._at = 0
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]

    def whole(self) -> Any:
        self._skip()
        if self._at == len(self._text):
            raise refuse(self.file, "the file is empty")
        value = self._value(())
        self._skip()
        if self._at < len(self._text):
            self._fail("there is more after the end of the value")
        return value

    def _value(self, path: KeyPath) -> Any:
        if len(path) > MAX_YAML_DEPTH:
            self._fail(f"the file nests deeper than {MAX_YAML_DEPTH} levels", is_syntax=False)
        self.places.setdefault(path, self._place(self._at))
        char = self._char
        if char == "{":
            return self._mapping(path)
        if char == "[":
            return self._list(path)
        start = self._at
        value = self._string() if char == '"' else self._scalar()
        self.texts[path] = value if char == '"' else self._text[start : self._at]
        return value

    def _mapping(self, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for start in self._items("}"):
            if self._char != '"':
                self._fail("a key in double quotes is expected")
            key = self._string()
            self._skip()
            if self._char != ":":
                self._fail("':' is expected after the key")
            self._at += 1
            self._skip()
            where = (*path, key)
            if key in result:
                self._twice(start, where)
                self._value((*path, f"{key} (again)"))
                continue
            self.places[where] = self._place(start)
            result[key] = self._value(where)
        return result

    def _list(self, path: KeyPath) -> list[Any]:
        result: list[Any] = []
        for _ in self._items("]"):
            result.append(self._value((*path, len(result))))
        return result

    def _items(self, end: str) -> Iterator[int]:
        """Where each item of a list or mapping begins; a comma after the last one is allowed."""
        self._at += 1
        self._skip()
        while self._char != end:
            yield self._at
            self._skip()
            if self._char == ",":
                self._at += 1
                self._skip()
            elif self._char != end:
                self._fail(f"',' or '{end}' is expected")
        self._at += 1

    def _string(self) -> str:
        try:
            value, self._at = scanstring(self._text, self._at + 1, True)
        except json.JSONDecodeError as error:
            self._at = error.pos
            self._fail(f"{error.msg[:1].lower()}{error.msg[1:].removesuffix(' at')}")
        try:
            value.encode()
        except UnicodeEncodeError:
            self._fail("this text has half of a surrogate pair")
        return str(value)

    def _scalar(self) -> Any:
        number = _NUMBER.match(self._text, self._at)
        if number:
            self._at = number.end()
            is_whole = number[1] is None and number[2] is None
            return int(number[0]) if is_whole else float(number[0])
        word = _WORD.match(self._text, self._at)
        if word is None or word[0] not in _WORDS:
            self._fail("a value is expected")
        self._at = word.end()
        return _WORDS[word[0]]

    @property
    def _char(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self) -> None:
        match = _BETWEEN.match(self._text, self._at)
        if match:
            self._at = match.end()
        if self._text.startswith("/*", self._at):
            self._fail("the comment is not closed")

    def _place(self, at: int) -> Place:
        line = bisect.bisect_right(self._lines, at)
        return Place(line, at - self._lines[line - 1] + 1)

    def _twice(self, at: int, path: KeyPath) -> None:
        place, first = self._place(at), self.places[path]
        message = f"this key is given twice (first in line {first.line})"
        self.problems.append(
            Problem(
                message=message,
                file=self.file,
                line=place.line,
                column=place.column,
                key=dotted(path),
                fix="Keep one of them.",
            )
        )

    def _fail(self, message: str, *, is_syntax: bool = True) -> NoReturn:
        place = self._place(self._at)
        message = f"this is not valid JSON: {message}" if is_syntax else message
        raise refuse(self.file, message, line=place.line, column=place.column)
