"""Edits of YAML files: an item of a list is added, changed or removed, an entry of a mapping set or removed.

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
from holodeck.config.files import file_error
from holodeck.config.problems import value_at
from holodeck.config.yaml_reader import KeyPath, YAMLLoader, format_key_path, parse_document, parse_scalar
from holodeck.lib.errors import ConfigError

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./@+ -]*|https?://[A-Za-z0-9_./:@%+-]+")
# Booleans of YAML 1.1, which other programs may still read as such.
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_COMMENT_LINE = re.compile(r"([ ]*)#")


def append_yaml_item(text: str, key: str, item: Mapping[str, Any] | str, shown_as: str) -> str:
    """Return the text with an item behind the last one of the list at a top-level key, which may be missing.

    Raises `ConfigError` for a text that is not valid YAML, or cannot be edited safely.
    """
    file = _YAMLFile(text, shown_as)
    listed = file.value.get(key)
    if listed is not None and not isinstance(listed, list):
        raise file_error(shown_as, f"'{key}' must be a list")
    meant = copy.deepcopy(file.value)
    meant[key] = [*(listed or []), item]
    return _parse_edited(file.add_child((key,), "", item), meant, shown_as).text


def remove_yaml_item(text: str, key: str, index: int, shown_as: str) -> str:
    """Return the text without an item of the list at a top-level key. Raises as `append_yaml_item` does."""
    file = _YAMLFile(text, shown_as)
    edited = file.remove_child((key,), index)
    meant = copy.deepcopy(file.value)
    del meant[key][index]
    return _parse_edited(edited, meant, shown_as).text


def change_yaml_item(text: str, key: str, index: int, changes: Mapping[str, Any], shown_as: str) -> str:
    """Return the text with fields of an item of the list at a top-level key set, or removed where they are None.

    A field with another value keeps its place. One that is a mapping and becomes another one is changed field by field,
    so that comments in it stay. A new field stands behind the field of `changes` that was set before it, or behind the
    last field of the item. The item must be a mapping. Raises as `append_yaml_item` does.
    """
    return _change_fields(_YAMLFile(text, shown_as), (key, index), changes, shown_as).text


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
    return _parse_edited(edited, meant, shown_as).text


def remove_yaml_entry(text: str, list_path: KeyPath, name: str, shown_as: str) -> str:
    """Return the text without an entry of a mapping; the same text if there is none. Raises as above."""
    file = _YAMLFile(text, shown_as)
    entries = value_at(file.value, list_path)
    if not isinstance(entries, dict) or name not in entries:
        return text
    edited = file.remove_child(list_path, list(entries).index(name))
    meant = copy.deepcopy(file.value)
    del value_at(meant, list_path)[name]
    return _parse_edited(edited, meant, shown_as).text


def format_yaml(value: Mapping[str, Any], *, indent: str = "", newline: str = "\n") -> str:
    """Return a mapping in block style, with lists of plain values on one line. Every line is indented and ended."""
    lines: list[str] = []
    for key, inner in value.items():
        name = f"{indent}{_format_scalar(key)}:"
        if isinstance(inner, Mapping) and inner:
            lines.append(name + newline + format_yaml(inner, indent=indent + "  ", newline=newline))
        else:
            lines.append(f"{name} {_format_value(inner)}{newline}")
    return "".join(lines)


def format_yaml_item(item: Mapping[str, Any], *, indent: str = "", newline: str = "\n") -> str:
    """Return an item of a list as `append_yaml_item` writes it, from its dash on."""
    body = format_yaml(item, indent=f"{indent}  ", newline=newline)
    return f"{indent}- {body[len(indent) + 2 :]}"


class _YAMLFile:
    """A text with its nodes. The root is a mapping; an empty text counts as an empty one."""

    def __init__(self, text: str, shown_as: str) -> None:
        document = parse_document(text, shown_as)
        if document.problems:
            raise ConfigError.of(document.problems)
        if document.value is not None and not isinstance(document.value, dict):
            raise file_error(shown_as, "the file must be a mapping (key: value), not a list or a text")
        self.value: dict[str, Any] = document.value or {}
        self.text = text
        self._shown_as = shown_as
        self._newline = find_newline(text)
        root = yaml.compose(text, Loader=YAMLLoader)
        self._root = root if isinstance(root, yaml.MappingNode) else None

    def add_child(self, path: KeyPath, head: str, value: Mapping[str, Any] | str) -> str:
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
            prefix = f"{json.dumps(head[:-1])}: " if head else ""
            return self._insert_flow(node, prefix + json.dumps(value, ensure_ascii=False))
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
            colon = self.text.index(":", name.end_mark.index) + 1
            empty = " []" if isinstance(node, yaml.SequenceNode) else " {}"
            removed = Splice(*self._lines_of(node, children, index), "")
            return apply_splices(self.text, [Splice(colon, colon, empty), removed])
        if last.start_mark.index < first.start_mark.index:
            raise cannot_edit(self._shown_as)
        return apply_splices(self.text, [Splice(*self._lines_of(node, children, index), "")])

    def change_field(self, path: KeyPath, field: str, value: Any, behind: str | None) -> str:
        """Set a field of the mapping at a path, or remove it for None. A new one goes behind another, or the last."""
        mapping = self._require_mapping(path)
        fields = [name.value for name, _ in mapping.value]
        if field not in fields:
            return self.text if value is None else self._add_field(mapping, field, value, behind)
        if value is None:
            return self._remove_field(mapping, fields.index(field))
        name, node = mapping.value[fields.index(field)]
        start = node.start_mark.index
        if start < name.end_mark.index:
            # An alias.
            raise cannot_edit(self._shown_as, line=name.start_mark.line + 1)
        written = _format_flow(value) if _is_flow(mapping) else _format_value(value)
        end = self._content_end(node)
        if isinstance(node, yaml.CollectionNode) and not _is_flow(node):
            # In block style it stands below its name: the new value goes behind the colon, and these lines go.
            colon = self.text.index(":", name.end_mark.index) + 1
            lines = Splice(start_of_line(self.text, start), self._own_end(end, name.start_mark.column), "")
            return apply_splices(self.text, [Splice(colon, colon, f" {written}"), lines])
        # Nothing behind the colon is an empty scalar there.
        space = " " if self.text[start - 1] == ":" else ""
        return apply_splices(self.text, [Splice(start, end, space + written)])

    def _require_mapping(self, path: KeyPath) -> yaml.MappingNode:
        """Return the node of a mapping whose fields are its own: no alias on the way to it, and nothing merged into
        it."""
        node: yaml.Node | None = self._root
        line = 1
        for step in path:
            if isinstance(node, yaml.MappingNode):
                pair = next((each for each in node.value if each[0].value == step), None)
                if pair is None:
                    raise cannot_edit(self._shown_as)
                line, before, node = pair[0].start_mark.line + 1, pair[0].end_mark.index, pair[1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
                before, node = node.start_mark.index, node.value[step]
            else:
                raise cannot_edit(self._shown_as, line=line)
            if node.start_mark.index < before:
                raise cannot_edit(self._shown_as, line=line)
        if not isinstance(node, yaml.MappingNode) or [each.value for each, _ in node.value] != list(
            value_at(self.value, path)
        ):
            raise cannot_edit(self._shown_as, line=line)
        return node

    def _add_field(self, item: yaml.MappingNode, field: str, value: Any, behind: str | None) -> str:
        fields = [name.value for name, _ in item.value]
        if not fields:
            raise cannot_edit(self._shown_as, line=item.start_mark.line + 1)
        name, node = item.value[fields.index(behind) if behind in fields else -1]
        end = self._content_end(node, at_least=name.end_mark.index)
        if _is_flow(item):
            return apply_splices(self.text, [Splice(end, end, f", {_format_scalar(field)}: {_format_flow(value)}")])
        column = name.start_mark.column
        line = format_yaml({field: value}, indent=" " * column, newline=self._newline)
        return self._insert_lines(self._own_end(end, column), line)

    def _remove_field(self, item: yaml.MappingNode, number: int) -> str:
        if len(item.value) == 1:
            raise cannot_edit(self._shown_as, line=item.start_mark.line + 1)
        if _is_flow(item):
            return self._remove_flow(item.value, number)
        start, end = self._lines_of(item, item.value, number)
        before = self.text[start : item.value[number][0].start_mark.index]
        if before.strip():
            # Behind the dash of the item: the next field takes its place, if no comment is between them.
            next_field = item.value[1][0].start_mark.index
            if number or self.text[end:next_field].strip():
                raise cannot_edit(self._shown_as, line=item.start_mark.line + 1)
            start, end = start + len(before), next_field
        return apply_splices(self.text, [Splice(start, end, "")])

    def _lines_of(
        self, node: yaml.CollectionNode, children: Sequence[tuple[yaml.Node, yaml.Node]], index: int
    ) -> tuple[int, int]:
        """Return the lines of a child in block style, from its dash or key on."""
        first, last = children[index]
        column = node.start_mark.column
        # The value of an entry stands behind its key; an item is one node.
        at_least = 0 if first is last else first.end_mark.index
        end = self._own_end(self._content_end(last, at_least=at_least), column)
        start = start_of_line(self.text, first.start_mark.index)
        if isinstance(node, yaml.SequenceNode):
            dash = re.compile(rf"[ ]{{{column}}}-(?:\s|$)")
            while not dash.match(self.text, start) and start:
                start = start_of_line(self.text, start - 1)
        return start, end

    def _add_key(self, key: str, head: str, value: Mapping[str, Any] | str) -> str:
        if self._root is None:
            block = self._format_child(head, value, "  ")
            return self._insert_lines(len(self.text), f"{key}:{self._newline}{block}")
        if _is_flow(self._root):
            added = {head[:-1]: value} if head else [value]
            return self._insert_flow(self._root, f"{json.dumps(key)}: {json.dumps(added, ensure_ascii=False)}")
        column = self._root.start_mark.column
        indent = " " * column
        block = self._format_child(head, value, f"{indent}  ")
        end = self._own_end(self._content_end(self._root), column)
        return self._insert_lines(end, f"{indent}{key}:{self._newline}{block}")

    def _fill_empty(self, name: yaml.Node, node: yaml.Node, head: str, value: Mapping[str, Any] | str) -> str:
        """Write the first child of a collection that is `[]`, `{}`, null or nothing."""
        start, end = node.start_mark.index, node.end_mark.index
        if "\n" in self.text[name.end_mark.index : end] or (self._root is not None and _is_flow(self._root)):
            raise cannot_edit(self._shown_as, line=name.start_mark.line + 1)
        while start > name.end_mark.index and self.text[start - 1] == " ":
            start -= 1
        block = self._format_child(head, value, " " * (name.start_mark.column + 2))
        after = end_of_line(self.text, end)
        broken = "" if self.text[after - 1 : after] == "\n" else self._newline
        return apply_splices(self.text, [Splice(start, end, ""), Splice(after, after, broken + block)])

    def _insert_flow(self, node: yaml.CollectionNode, child: str) -> str:
        children = _children_of(node)
        if not children:
            offset = node.start_mark.index + 1
            return apply_splices(self.text, [Splice(offset, offset, child)])
        end = children[-1][1].end_mark.index
        return apply_splices(self.text, [Splice(end, end, f", {child}")])

    def _remove_flow(self, children: Sequence[tuple[yaml.Node, yaml.Node]], index: int) -> str:
        first, last = children[index]
        start, end = first.start_mark.index, last.end_mark.index
        if index + 1 < len(children):
            end = children[index + 1][0].start_mark.index
        elif index:
            start = children[index - 1][1].end_mark.index
        return apply_splices(self.text, [Splice(start, end, "")])

    def _insert_lines(self, offset: int, lines: str) -> str:
        is_at_line_start = offset == 0 or self.text[offset - 1] == "\n"
        return apply_splices(self.text, [Splice(offset, offset, lines if is_at_line_start else self._newline + lines)])

    def _format_child(self, head: str, value: Mapping[str, Any] | str, indent: str) -> str:
        if isinstance(value, str):
            return f"{indent}- {_format_scalar(value)}{self._newline}"
        if not head:
            return format_yaml_item(value, indent=indent, newline=self._newline)
        body = format_yaml(value, indent=f"{indent}  ", newline=self._newline)
        return f"{indent}{head}{self._newline}{body}" if value else f"{indent}{head} {{}}{self._newline}"

    def _find_pair(self, key: str) -> tuple[yaml.Node, Any] | None:
        pairs = self._root.value if self._root is not None else []
        return next(((name, node) for name, node in pairs if name.value == key), None)

    def _content_end(self, node: yaml.Node, *, at_least: int = 0) -> int:
        """Return the end of what a node says, without the comments and blank lines behind it."""
        start, end = node.start_mark.index, node.end_mark.index
        if start < at_least:
            # An alias, whose node stands elsewhere: it is on the line of its key.
            return at_least
        if isinstance(node, yaml.ScalarNode) and node.style in {"|", ">"}:
            header = self.text[start : end_of_line(self.text, start)]
            # Blank lines behind the text belong to it only with '+'.
            return end if "+" in header else start + len(self.text[start:end].rstrip())
        if isinstance(node, yaml.ScalarNode) or _is_flow(node):
            return end
        first, last = _children_of(node)[-1]
        is_item = first is last
        if is_item and first.start_mark.index < start:
            raise cannot_edit(self._shown_as, line=node.start_mark.line + 1)
        return self._content_end(last, at_least=0 if is_item else first.end_mark.index)

    def _own_end(self, offset: int, column: int) -> int:
        """Return the end of the line, and of the comments behind it that are indented deeper than the column."""
        is_at_line_start = offset > 0 and self.text[offset - 1] == "\n"
        end = offset if is_at_line_start else end_of_line(self.text, offset)
        while (match := _COMMENT_LINE.match(self.text, end)) and len(match[1]) > column:
            end = end_of_line(self.text, end)
        return end


def _parse_edited(text: str, meant: Mapping[str, Any], shown_as: str) -> _YAMLFile:
    """Parse an edited text, and raise `ConfigError` unless it has exactly the data that was meant."""
    try:
        file = _YAMLFile(text, shown_as)
    except ConfigError:
        # Its problems have lines of a text that the user does not see.
        raise cannot_edit(shown_as) from None
    require_same_data(file.value, meant, shown_as)
    return file


def _change_fields(file: _YAMLFile, path: KeyPath, changes: Mapping[str, Any], shown_as: str) -> _YAMLFile:
    """Return the file with fields of the mapping at a path set, or removed where they are None."""
    behind: str | None = None
    for field, value in changes.items():
        old = value_at(file.value, (*path, field))
        if isinstance(old, dict) and old and isinstance(value, Mapping) and value:
            # Those that go are last, so that the mapping is never empty.
            inner = {**value, **{name: None for name in old if name not in value}}
            file = _change_fields(file, (*path, field), inner, shown_as)
        elif old is None or not is_same_data(old, value):
            edited = file.change_field(path, field, value, behind)
            meant = copy.deepcopy(file.value)
            mapping = value_at(meant, path)
            changed = _change_mapping(mapping, field, value, behind)
            mapping.clear()
            mapping.update(changed)
            # Parsed again for each field, so that no two replaced ranges can overlap.
            file = _parse_edited(edited, meant, shown_as)
        behind = field if value is not None else behind
    return file


def _change_mapping(mapping: Mapping[str, Any], field: str, value: Any, behind: str | None) -> dict[str, Any]:
    """Return the mapping with a field set or removed, in the order that `_YAMLFile.change_field` writes."""
    if value is None:
        return {name: each for name, each in mapping.items() if name != field}
    if field in mapping or behind not in mapping:
        return {**mapping, field: value}
    result: dict[str, Any] = {}
    for name, each in mapping.items():
        result[name] = each
        if name == behind:
            result[field] = value
    return result


def _is_flow(node: yaml.Node) -> bool:
    return isinstance(node, yaml.CollectionNode) and bool(node.flow_style)


def _children_of(node: yaml.Node) -> list[tuple[yaml.Node, yaml.Node]]:
    """Return the first and the last node of each item or entry; for an item they are the same."""
    if isinstance(node, yaml.MappingNode):
        return list(node.value)
    return [(item, item) for item in node.value]


def _format_value(value: Any) -> str:
    if isinstance(value, str):
        return _format_scalar(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_format_flow, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_format_scalar(key)}: {_format_flow(inner)}' for key, inner in value.items())}}}"
    return json.dumps(value)


def _format_flow(value: Any) -> str:
    """Return a value within a collection in flow style, where a text is always quoted."""
    return _quote(value) if isinstance(value, str) else _format_value(value)


def _format_scalar(text: str) -> str:
    is_plain = (
        bool(_PLAIN.fullmatch(text))
        and not text.endswith((" ", ":"))
        and text.lower() not in _WORDS
        and isinstance(parse_scalar(text), str)
    )
    return text if is_plain else _quote(text)


def _quote(text: str) -> str:
    """Return a text in double quotes, with codes for what YAML does not allow as it is."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(char if char.isprintable() else _escape(char) for char in quoted)


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"  # noqa: PLR2004 - the BMP
