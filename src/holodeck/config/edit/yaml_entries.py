"""Edits of YAML files: an item of a list, or an entry of a mapping, is added or removed.

The places come from the nodes of the parser. Block style is edited line by line: a new item has the indentation of
the others and goes behind the last one, and a comment that is indented below an item belongs to it. Flow style
(`[...]`, `{...}`) is edited in place. An alias in the way, and what else would change other data, is refused.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from holodeck.config.edit.splices import (
    Splice,
    apply_splices,
    cannot_edit,
    end_of_line,
    find_newline,
    is_same_data,
    require_same_data,
    start_of_line,
)
from holodeck.config.files import file_error
from holodeck.config.problems import value_at
from holodeck.config.yaml_reader import KeyPath, format_key_path, parse_document, parse_scalar
from holodeck.lib.errors import ConfigError

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./@+ -]*|https?://[A-Za-z0-9_./:@%+-]+")
# Booleans of YAML 1.1, which other programs may still read as such.
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_COMMENT_LINE = re.compile(r"([ ]*)#")


def append_yaml_item(text: str, key: str, item: Mapping[str, Any], shown_as: str) -> str:
    """Return the text with an item behind the last one of the list at a top-level key, which may be missing.

    Raises `ConfigError` for a text that is not valid YAML, or cannot be edited safely.
    """
    file = _YAMLFile(text, shown_as)
    listed = file.value.get(key)
    if listed is not None and not isinstance(listed, list):
        raise file_error(shown_as, f"'{key}' must be a list")
    edited = file.add_child((key,), "", item)
    meant = copy.deepcopy(file.value)
    meant[key] = [*(listed or []), item]
    require_same_data(_YAMLFile(edited, shown_as).value, meant, shown_as)
    return edited


def remove_yaml_item(text: str, key: str, index: int, shown_as: str) -> str:
    """Return the text without an item of the list at a top-level key. Raises as `append_yaml_item` does."""
    file = _YAMLFile(text, shown_as)
    edited = file.remove_child((key,), index)
    meant = copy.deepcopy(file.value)
    del meant[key][index]
    require_same_data(_YAMLFile(edited, shown_as).value, meant, shown_as)
    return edited


def set_yaml_entry(text: str, list_path: KeyPath, name: str, value: Mapping[str, Any], shown_as: str) -> str:
    """Return the text with an entry of a mapping added or replaced. An empty text is a new file. Raises as above."""
    file = _YAMLFile(text, shown_as)
    entries = value_at(file.value, list_path)
    if entries is not None and not isinstance(entries, dict):
        raise file_error(shown_as, f"'{format_key_path(list_path)}' must be a mapping: each server by its name")
    entries = entries or {}
    if name in entries and is_same_data(entries[name], value):
        return text
    if name in entries:
        # Removed and added again: it becomes the last one.
        text = remove_yaml_entry(text, list_path, name, shown_as)
        file = _YAMLFile(text, shown_as)
    edited = file.add_child(list_path, f"{_format_scalar(name)}:", value)
    meant = copy.deepcopy(file.value)
    meant[str(list_path[0])] = {**(value_at(meant, list_path) or {}), name: value}
    require_same_data(_YAMLFile(edited, shown_as).value, meant, shown_as)
    return edited


def remove_yaml_entry(text: str, list_path: KeyPath, name: str, shown_as: str) -> str:
    """Return the text without an entry of a mapping; the same text if there is none. Raises as above."""
    file = _YAMLFile(text, shown_as)
    entries = value_at(file.value, list_path)
    if not isinstance(entries, dict) or name not in entries:
        return text
    edited = file.remove_child(list_path, list(entries).index(name))
    meant = copy.deepcopy(file.value)
    del value_at(meant, list_path)[name]
    require_same_data(_YAMLFile(edited, shown_as).value, meant, shown_as)
    return edited


def format_yaml(value: Mapping[str, Any], *, indent: str = "", newline: str = "\n") -> str:
    """Return a mapping in block style, with lists of plain values on one line. Every line is indented and ended."""
    lines: list[str] = []
    for key, item in value.items():
        name = f"{indent}{_format_scalar(key)}:"
        if isinstance(item, Mapping) and item:
            lines.append(name + newline + format_yaml(item, indent=indent + "  ", newline=newline))
        else:
            lines.append(f"{name} {_format_value(item)}{newline}")
    return "".join(lines)


class _YAMLFile:
    """A text with its nodes. The root is a mapping; an empty text counts as an empty one."""

    def __init__(self, text: str, shown_as: str) -> None:
        document = parse_document(text, shown_as)
        if document.problems:
            raise ConfigError.of(document.problems)
        if document.value is not None and not isinstance(document.value, dict):
            raise file_error(shown_as, "the file must be a mapping (key: value), not a list or a text")
        self.value: dict[str, Any] = document.value or {}
        self._text = text
        self._shown_as = shown_as
        self._newline = find_newline(text)
        root = yaml.compose(text, Loader=_Loader)
        self._root = root if isinstance(root, yaml.MappingNode) else None

    def add_child(self, path: KeyPath, head: str, value: Mapping[str, Any]) -> str:
        """Add an item (for an empty `head`), or an entry with this head, to the collection at a top-level key."""
        key = str(path[0])
        pair = self._find_pair(key)
        if pair is None:
            return self._add_key(key, head, value)
        name, node = pair
        if isinstance(node, yaml.ScalarNode) or (_is_flow(node) and not node.value):
            return self._fill_empty(name, node, head, value)
        if node.start_mark.index < name.end_mark.index:
            # An alias.
            raise cannot_edit(self._shown_as, line=name.start_mark.line + 1)
        if _is_flow(node):
            item = f"{json.dumps(head[:-1])}: " if head else ""
            return self._insert_flow(node, item + json.dumps(value, ensure_ascii=False))
        column = node.start_mark.column
        end = self._own_end(self._content_end(node), column)
        return self._insert_lines(end, self._format_child(head, value, " " * column))

    def remove_child(self, path: KeyPath, index: int) -> str:
        """Remove an item or an entry of the collection at a top-level key."""
        pair = self._find_pair(str(path[0]))
        if pair is None or isinstance(pair[1], yaml.ScalarNode) or pair[1].start_mark.index < pair[0].end_mark.index:
            raise cannot_edit(self._shown_as)
        name, node = pair
        children = _children_of(node)
        first, last = children[index]
        if _is_flow(node):
            return self._remove_flow(children, index)
        if len(children) == 1:
            colon = self._text.index(":", name.end_mark.index) + 1
            empty = " []" if isinstance(node, yaml.SequenceNode) else " {}"
            removed = Splice(*self._lines_of(node, children, index), "")
            return apply_splices(self._text, [Splice(colon, colon, empty), removed])
        if last.start_mark.index < first.start_mark.index:
            raise cannot_edit(self._shown_as)
        return apply_splices(self._text, [Splice(*self._lines_of(node, children, index), "")])

    def _lines_of(
        self, node: yaml.CollectionNode, children: Sequence[tuple[yaml.Node, yaml.Node]], index: int
    ) -> tuple[int, int]:
        """The lines of a child in block style, from its dash or key on."""
        first, last = children[index]
        column = node.start_mark.column
        # The value of an entry stands behind its key; an item is one node.
        at_least = 0 if first is last else first.end_mark.index
        end = self._own_end(self._content_end(last, at_least=at_least), column)
        start = start_of_line(self._text, first.start_mark.index)
        if isinstance(node, yaml.SequenceNode):
            dash = re.compile(rf"[ ]{{{column}}}-(?:\s|$)")
            while not dash.match(self._text, start) and start:
                start = start_of_line(self._text, start - 1)
        return start, end

    def _add_key(self, key: str, head: str, value: Mapping[str, Any]) -> str:
        if self._root is None:
            block = self._format_child(head, value, "  ")
            return self._insert_lines(len(self._text), f"{key}:{self._newline}{block}")
        if _is_flow(self._root):
            added = {head[:-1]: value} if head else [value]
            return self._insert_flow(self._root, f"{json.dumps(key)}: {json.dumps(added, ensure_ascii=False)}")
        column = self._root.start_mark.column
        indent = " " * column
        block = self._format_child(head, value, f"{indent}  ")
        end = self._own_end(self._content_end(self._root), column)
        return self._insert_lines(end, f"{indent}{key}:{self._newline}{block}")

    def _fill_empty(self, name: yaml.Node, node: yaml.Node, head: str, value: Mapping[str, Any]) -> str:
        """Write the first child of a collection that is `[]`, `{}`, null or nothing."""
        start, end = node.start_mark.index, node.end_mark.index
        if "\n" in self._text[name.end_mark.index : end] or (self._root is not None and _is_flow(self._root)):
            raise cannot_edit(self._shown_as, line=name.start_mark.line + 1)
        while start > name.end_mark.index and self._text[start - 1] == " ":
            start -= 1
        block = self._format_child(head, value, " " * (name.start_mark.column + 2))
        after = end_of_line(self._text, end)
        broken = "" if self._text[after - 1 : after] == "\n" else self._newline
        return apply_splices(self._text, [Splice(start, end, ""), Splice(after, after, broken + block)])

    def _insert_flow(self, node: yaml.CollectionNode, item: str) -> str:
        children = _children_of(node)
        if not children:
            offset = node.start_mark.index + 1
            return apply_splices(self._text, [Splice(offset, offset, item)])
        end = children[-1][1].end_mark.index
        return apply_splices(self._text, [Splice(end, end, f", {item}")])

    def _remove_flow(self, children: Sequence[tuple[yaml.Node, yaml.Node]], index: int) -> str:
        first, last = children[index]
        start, end = first.start_mark.index, last.end_mark.index
        if index + 1 < len(children):
            end = children[index + 1][0].start_mark.index
        elif index:
            start = children[index - 1][1].end_mark.index
        return apply_splices(self._text, [Splice(start, end, "")])

    def _insert_lines(self, offset: int, lines: str) -> str:
        is_at_line_start = offset == 0 or self._text[offset - 1] == "\n"
        return apply_splices(self._text, [Splice(offset, offset, lines if is_at_line_start else self._newline + lines)])

    def _format_child(self, head: str, value: Mapping[str, Any], indent: str) -> str:
        if head:
            body = format_yaml(value, indent=f"{indent}  ", newline=self._newline)
            return f"{indent}{head}{self._newline}{body}" if value else f"{indent}{head} {{}}{self._newline}"
        body = format_yaml(value, indent=f"{indent}  ", newline=self._newline)
        return f"{indent}- {body[len(indent) + 2 :]}"

    def _find_pair(self, key: str) -> tuple[yaml.Node, Any] | None:
        pairs = self._root.value if self._root is not None else []
        return next(((name, node) for name, node in pairs if name.value == key), None)

    def _content_end(self, node: yaml.Node, *, at_least: int = 0) -> int:
        """The end of what a node says, without the comments and blank lines behind it."""
        start, end = node.start_mark.index, node.end_mark.index
        if start < at_least:
            # An alias, whose node stands elsewhere: it is on the line of its key.
            return at_least
        if isinstance(node, yaml.ScalarNode) and node.style in {"|", ">"}:
            header = self._text[start : end_of_line(self._text, start)]
            # Blank lines behind the text belong to it only with '+'.
            return end if "+" in header else start + len(self._text[start:end].rstrip())
        if isinstance(node, yaml.ScalarNode) or _is_flow(node):
            return end
        first, last = _children_of(node)[-1]
        is_item = first is last
        if is_item and first.start_mark.index < start:
            raise cannot_edit(self._shown_as, line=node.start_mark.line + 1)
        return self._content_end(last, at_least=0 if is_item else first.end_mark.index)

    def _own_end(self, offset: int, column: int) -> int:
        """The end of the line, and of the comments behind it that are indented deeper than the column."""
        is_at_line_start = offset > 0 and self._text[offset - 1] == "\n"
        end = offset if is_at_line_start else end_of_line(self._text, offset)
        while (match := _COMMENT_LINE.match(self._text, end)) and len(match[1]) > column:
            end = end_of_line(self._text, end)
        return end


def _is_flow(node: yaml.Node) -> bool:
    return isinstance(node, yaml.CollectionNode) and bool(node.flow_style)


def _children_of(node: yaml.Node) -> list[tuple[yaml.Node, yaml.Node]]:
    """The first and the last node of each item or entry; for an item they are the same."""
    if isinstance(node, yaml.MappingNode):
        return list(node.value)
    return [(item, item) for item in node.value]


def _format_value(value: Any) -> str:
    if isinstance(value, str):
        return _format_scalar(value)
    if isinstance(value, list):
        return f"[{', '.join(_quote(item) if isinstance(item, str) else _format_value(item) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_quote(key)}: {_format_value(item)}' for key, item in value.items())}}}"
    return json.dumps(value)


def _format_scalar(text: str) -> str:
    is_plain = (
        bool(_PLAIN.fullmatch(text))
        and not text.endswith((" ", ":"))
        and text.lower() not in _WORDS
        and isinstance(parse_scalar(text), str)
    )
    return text if is_plain else _quote(text)


def _quote(text: str) -> str:
    """A text in double quotes, with codes for what YAML does not allow as it is."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(char if char.isprintable() else _escape(char) for char in quoted)


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"  # noqa: PLR2004 - the BMP
