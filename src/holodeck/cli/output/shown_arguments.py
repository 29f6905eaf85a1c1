"""The arguments of a call as a person sees them, before it is approved or with `--verbose`: all of them, as lines.

What replaces a text by another is shown as their difference, a text of several lines as lines, and the rest as JSON.
Every line of a text has a mark before it, so that none can pass for a part of the question.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from holodeck.cli.output.events_json import json_text, to_plain_data
from holodeck.config.yaml_reader import KeyPath, format_key_path
from holodeck.lib.record import record

# Characters of arguments that a person approves: all of them, unless they would scroll the question away.
MAX_APPROVAL_SHOWN = 10_000
# Lines of both texts that are compared; longer ones are shown one after the other.
_MAX_COMPARED = 2_000
# By what tools call a text and the one that replaces it.
_EDITS = (
    ("oldText", "newText"),
    ("old_text", "new_text"),
    ("old_string", "new_string"),
    ("old_str", "new_str"),
    ("old", "new"),
    ("search", "replace"),
)
_COLOURS = {"-": "red", "+": "green"}


@record
class ShownLine:
    """A line, not escaped yet, and its colour."""

    text: str
    colour: str | None = None


def show_arguments(arguments: Mapping[str, Any]) -> list[ShownLine]:
    """Return the arguments as lines of at most `MAX_APPROVAL_SHOWN` characters together."""
    texts: list[ShownLine] = []
    rest = _take_texts(to_plain_data(arguments), (), texts)
    lines = [ShownLine(text=each) for each in json_text(rest, indent=2).split("\n")] if rest or not texts else []
    return _cut([*lines, *texts] if arguments else [ShownLine(text="(none)")])


def _take_texts(value: Any, path: KeyPath, texts: list[ShownLine]) -> Any:
    """Return a value without the texts that are shown as lines, which are added to `texts`."""
    if isinstance(value, list):
        return [_take_texts(each, (*path, at), texts) for at, each in enumerate(value)]
    if not isinstance(value, dict):
        return value
    rest: dict[str, Any] = {}
    taken: set[str] = set()
    for old, new in _EDITS:
        if isinstance(value.get(old), str) and isinstance(value.get(new), str) and not taken & {old, new}:
            taken |= {old, new}
            texts.append(ShownLine(text=f"{_title(path, old)} -> {new}:"))
            texts += _show_difference(value[old], value[new])
    for key, item in value.items():
        if key in taken:
            continue
        if isinstance(item, str) and "\n" in item:
            texts.append(ShownLine(text=f"{_title(path, key)}:"))
            texts += [ShownLine(text=f"  | {line}") for line in item.split("\n")]
        else:
            rest[key] = _take_texts(item, (*path, key), texts)
    return rest


def _title(path: KeyPath, key: str) -> str:
    # A key is of the model as well: it stays on one line.
    return json_text(format_key_path((*path, key)))[1:-1]


def _show_difference(old: str, new: str) -> Iterator[ShownLine]:
    before, after = old.split("\n"), new.split("\n")
    if len(before) + len(after) > _MAX_COMPARED:
        yield from _mark("-", before)
        yield from _mark("+", after)
        return
    for kind, start, end, new_start, new_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            yield from _mark(" ", before[start:end])
        else:
            yield from _mark("-", before[start:end])
            yield from _mark("+", after[new_start:new_end])


def _mark(mark: str, lines: Sequence[str]) -> Iterator[ShownLine]:
    return (ShownLine(text=f"  {mark} {line}", colour=_COLOURS.get(mark)) for line in lines)


def _cut(lines: Sequence[ShownLine]) -> list[ShownLine]:
    shown: list[ShownLine] = []
    left = MAX_APPROVAL_SHOWN
    for line in lines:
        if left > 0:
            shown.append(ShownLine(text=line.text[:left], colour=line.colour))
        left -= len(line.text) + 1
    return shown if left >= 0 else [*shown, ShownLine(text=f"... and {-left} more characters that are not shown")]
