"""Edits of one list in a YAML file by the names of its entries; everything else stays as it was written.

`append_entry`, `remove_entry` and `change_entry` take the text of a file and return another one, in which comments,
order, quotes and line endings outside the edited entry are the same. Block lists and flow lists are both edited in
their own form. Each result is parsed again and compared with the values that were meant: an edit that cannot be made
raises `ConfigError`, and nothing is written. `rewrite_file` applies an edit to a file, all or nothing.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from holodeck.config.files import file_error, read_bytes
from holodeck.config.known_keys import closest_match
from holodeck.config.yaml_reader import parse_document
from holodeck.lib.errors import ConfigError
from holodeck.lib.record import record
from holodeck.lib.system.files import draft_of

# Spaces before the dash of the first entry of a list.
_INDENT = 2
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BY_HAND = "Change the file by hand, with the same keys."


@record
class _Edit:
    """A replacement of a part of a text."""

    start: int
    end: int
    text: str


def rewrite_file(path: Path, edit: Callable[[str], str]) -> None:
    """Replace the text of a file by what `edit` makes of it. Its permissions stay, and a link to it stays a link.

    Raises `ConfigError` when the file cannot be read or written, or has changed meanwhile.
    """
    before = read_bytes(path, str(path))
    mark = "\ufeff" if before.startswith(b"\xef\xbb\xbf") else ""
    try:
        text = before.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise file_error(str(path), "the file is not UTF-8 text", fix="Save it as UTF-8.") from None
    after = edit(text)
    target = path.resolve()
    try:
        with draft_of(target) as draft:
            draft.write_bytes((mark + after).encode())
            shutil.copymode(target, draft)
            if read_bytes(path, str(path)) != before:
                raise file_error(str(path), "the file was changed at this moment by another program", fix="Try again.")
            draft.replace(target)
    except OSError as error:
        raise file_error(str(path), f"the file cannot be written: {error.strerror}") from None


def append_entry(text: str, key: str, entry: Mapping[str, Any], shown_as: str) -> str:
    """Add an entry at the end of the list at a top-level key, which is made if it is missing."""
    value, root = _read(text, shown_as)
    expected = {**value, key: [*(value.get(key) or ()), dict(entry)]}
    pair = _find_pair(root, key)
    newline = _newline_of(text)
    if pair is None:
        lines = [f"{key}:", *_block_lines(entry, _INDENT)]
        start = "" if not text or text.endswith("\n") else newline
        edit = _Edit(start=len(text), end=len(text), text=start + newline.join(lines) + newline)
    else:
        edit = _append_to(text, *pair, entry, newline)
    return _verify(_apply(text, [edit]), expected, shown_as)


def remove_entry(text: str, key: str, name: str, shown_as: str) -> str:
    """Remove the entry with this `name` from the list at a top-level key. Comments before and after it stay."""
    value, root = _read(text, shown_as)
    index = require_index(value, key, name, shown_as)
    expected = {**value, key: [entry for number, entry in enumerate(value[key]) if number != index]}
    key_node, items = _require_list(root, key, shown_as)
    item = items.value[index]
    if items.flow_style:
        edits = [_remove_from_flow(items.value, items.value, index)]
    else:
        start = text.rfind("\n", 0, item.start_mark.index) + 1
        edits = [_Edit(start=start, end=_next_line(text, _content_end(text, item)), text="")]
        if len(items.value) == 1:
            colon = text.index(":", key_node.end_mark.index) + 1
            edits.append(_Edit(start=colon, end=colon, text=" []"))
    return _verify(_apply(text, edits), expected, shown_as)


def change_entry(text: str, key: str, name: str, changes: Mapping[str, str | None], shown_as: str) -> str:
    """Set texts of the entry with this `name`, and remove those that are None. New ones follow the first change."""
    value, root = _read(text, shown_as)
    index = require_index(value, key, name, shown_as)
    changed = {**value[key][index], **changes}
    expected = {**value, key: [*value[key]]}
    expected[key][index] = {field: each for field, each in changed.items() if each is not None}
    item = _require_list(root, key, shown_as)[1].value[index]
    pairs: list[tuple[yaml.Node, yaml.Node]] = item.value
    fields = [str(each.value) for each, _ in pairs]
    edits, added = [], []
    for field, new in changes.items():
        number = fields.index(field) if field in fields else None
        if number is None:
            added += [f"{field}: {json.dumps(new)}"] if new is not None else []
        elif new is not None:
            node = pairs[number][1]
            edits.append(_Edit(start=node.start_mark.index, end=node.end_mark.index, text=json.dumps(new)))
        elif item.flow_style:
            edits.append(_remove_from_flow([each for each, _ in pairs], [each for _, each in pairs], number))
        else:
            start = text.rfind("\n", 0, pairs[number][0].start_mark.index) + 1
            edits.append(_Edit(start=start, end=_next_line(text, _content_end(text, pairs[number][1])), text=""))
    if added:
        first_key, first = pairs[fields.index(next(iter(changes)))]
        separator = ", " if item.flow_style else _newline_of(text) + " " * first_key.start_mark.column
        after = first.end_mark.index if item.flow_style else _line_end(text, first.end_mark.index)
        edits.append(_Edit(start=after, end=after, text="".join(separator + line for line in added)))
    return _verify(_apply(text, edits), expected, shown_as)


def require_index(value: Mapping[str, Any], key: str, name: str, shown_as: str) -> int:
    """The index of the entry with this name. Raises `ConfigError` with the names that there are."""
    entries = value.get(key)
    names = [entry.get("name") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    if name in names and len(names) == len(entries or ()):
        return names.index(name)
    known = [str(each) for each in names if each is not None]
    close = closest_match(name, known)
    listed = f"There are: {', '.join(known)}." if known else f"'{key}' has no entries."
    raise file_error(shown_as, f"'{key}' has no '{name}'", fix=f"Did you mean '{close}'?" if close else listed)


def format_entry(entry: Mapping[str, Any]) -> list[str]:
    """An entry as lines of a block list, from its dash."""
    return _block_lines(entry, 0)


def _read(text: str, shown_as: str) -> tuple[dict[str, Any], yaml.MappingNode | None]:
    value = parse_document(text, shown_as).value
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if root is None:
        return {}, None
    if not isinstance(root, yaml.MappingNode) or not isinstance(value, dict):
        raise file_error(shown_as, "the file does not have keys at its top level")
    return value, root


def _find_pair(root: yaml.MappingNode | None, key: str) -> tuple[yaml.Node, yaml.Node] | None:
    pairs = () if root is None else root.value
    return next((pair for pair in pairs if pair[0].value == key), None)


def _require_list(root: yaml.MappingNode | None, key: str, shown_as: str) -> tuple[yaml.Node, yaml.SequenceNode]:
    pair = _find_pair(root, key)
    if pair is None or not isinstance(pair[1], yaml.SequenceNode):
        raise file_error(shown_as, f"'{key}' is not written as a list here", fix=_BY_HAND)
    return pair[0], pair[1]


def _append_to(text: str, key: yaml.Node, node: yaml.Node, entry: Mapping[str, Any], newline: str) -> _Edit:
    if isinstance(node, yaml.SequenceNode) and node.flow_style and node.value:
        end = node.end_mark.index - 1
        return _Edit(start=end, end=end, text=f", {_flow_text(entry)}")
    if isinstance(node, yaml.SequenceNode) and node.value:
        end = _line_end(text, _content_end(text, node))
        lines = _block_lines(entry, node.start_mark.column)
        return _Edit(start=end, end=end, text="".join(newline + line for line in lines))
    # An empty list, or no value: what follows on the line is a comment.
    colon = text.index(":", key.end_mark.index) + 1
    end = _line_end(text, node.end_mark.index)
    rest = text[node.end_mark.index : end] if node.end_mark.index >= colon else text[colon:end]
    lines = _block_lines(entry, key.start_mark.column + _INDENT)
    return _Edit(start=colon, end=end, text=rest.rstrip() + "".join(newline + line for line in lines))


def _remove_from_flow(starts: list[Any], ends: list[Any], index: int) -> _Edit:
    """Remove one of the parts of a flow list or mapping, with the comma that belongs to it."""
    if index:
        return _Edit(start=ends[index - 1].end_mark.index, end=ends[index].end_mark.index, text="")
    end = starts[1].start_mark.index if len(starts) > 1 else ends[0].end_mark.index
    return _Edit(start=starts[0].start_mark.index, end=end, text="")


def _content_end(text: str, node: yaml.Node) -> int:
    """Where the last value of a node ends. The end of a block node itself is that of the comments behind it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        key_end = last[0].end_mark.index if isinstance(last, tuple) else 0
        return max(key_end, _content_end(text, last[1] if isinstance(last, tuple) else last))
    return len(text[: node.end_mark.index].rstrip())


def _line_end(text: str, index: int) -> int:
    end = text.find("\n", index)
    end = len(text) if end < 0 else end
    return end - 1 if text[end - 1 : end] == "\r" else end


def _next_line(text: str, index: int) -> int:
    end = text.find("\n", index)
    return len(text) if end < 0 else end + 1


def _newline_of(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _block_lines(entry: Mapping[str, Any], column: int) -> list[str]:
    lines = [f"{key}: {_flow_text(value)}" for key, value in entry.items()]
    return [" " * column + ("- " if number == 0 else "  ") + line for number, line in enumerate(lines)]


def _flow_text(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = (
            f"{key if _PLAIN_KEY.fullmatch(key) else json.dumps(key)}: {_flow_text(each)}"
            for key, each in value.items()
        )
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow_text, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _apply(text: str, edits: list[_Edit]) -> str:
    for edit in sorted(edits, key=lambda each: each.start, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _verify(text: str, expected: Mapping[str, Any], shown_as: str) -> str:
    """Return the text if it has the values that were meant. Raises `ConfigError`."""
    try:
        is_right = parse_document(text, shown_as).value == expected
    # The text is ours: the error would name a line that the user's file does not have.
    except ConfigError:
        is_right = False
    if not is_right:
        raise file_error(shown_as, "the list is written in a form that cannot be changed here", fix=_BY_HAND)
    return text
