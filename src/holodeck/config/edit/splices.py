"""Replacements of ranges in a text, and the check of what they did."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from holodeck.config.files import file_error
from holodeck.lib.errors import ConfigError

BY_HAND = "Make the change by hand."


class Splice(NamedTuple):
    """The range from `start` to `end` of a text, and what replaces it. An empty range is an insertion."""

    start: int
    end: int
    text: str


def apply_splices(text: str, splices: Iterable[Splice]) -> str:
    """Return the text with all ranges replaced. Ranges must not overlap; what is outside them stays as it is."""
    result = text
    for splice in sorted(splices, key=lambda each: (each.start, each.end), reverse=True):
        result = result[: splice.start] + splice.text + result[splice.end :]
    return result


def is_same_data(one: Any, other: Any) -> bool:
    """Return whether two values are the same, with the same order of keys and the same types of numbers."""
    return json.dumps(one, default=repr) == json.dumps(other, default=repr)


def require_same_data(found: Any, meant: Any, shown_as: str) -> None:
    """Raise `ConfigError` unless an edited text has exactly the data that was meant."""
    if not is_same_data(found, meant):
        raise cannot_edit(shown_as)


def cannot_edit(shown_as: str, *, line: int | None = None) -> ConfigError:
    """Return the error for a file whose form is too unusual for an edit that leaves everything else as it is."""
    message = "the file cannot be edited here without a change to something else, so it was left as it is"
    return file_error(shown_as, message, fix=BY_HAND, line=line)


def find_newline(text: str) -> str:
    """Return the line ending of a text: that of its first line."""
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


def start_of_line(text: str, offset: int) -> int:
    return text.rfind("\n", 0, offset) + 1


def end_of_line(text: str, offset: int) -> int:
    """Return the offset behind the line break of the line, or the end of the text."""
    found = text.find("\n", offset)
    return len(text) if found < 0 else found + 1
