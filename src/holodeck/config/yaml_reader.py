"""Reader of YAML files: plain values, each with its position in the file.

It accepts the core schema of YAML 1.2, without tags that construct objects. Depth and number of values are limited,
with aliases expanded. A duplicate key is a problem; PyYAML would use the last one. `Document` is also what other
readers return, such as that of JSON with comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import yaml

from holodeck.config.files import file_error, read_text
from holodeck.lib.errors import ConfigError, Problem
from holodeck.lib.limits import MAX_YAML_DEPTH
from holodeck.lib.record import record

# Values of one file, counted after aliases are expanded: bounds the memory of a "billion laughs" file.
MAX_YAML_NODES = 100_000

KeyPath = tuple[str | int, ...]
"""The keys and indexes that lead to a value."""

YAMLLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The faster one of two classes, if this PyYAML has it."""
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEAN = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
# Longer ones are texts: Python refuses to convert thousands of digits.
_INTEGER = re.compile(r"[-+]?[0-9]{1,300}")
_BASED = re.compile(r"0o[0-7]{1,64}|0x[0-9a-fA-F]{1,64}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_CORE = "tag:yaml.org,2002:"
_QUOTE_COLON = "A text with ': ' in it is written in quotes, and the keys of one mapping begin in the same column."
_QUOTE_MARKS = "A text that begins with '!', '*' or '&' is written in quotes."


def parse_scalar(text: str) -> Any:
    """Return the value of an unquoted scalar."""
    if text in _NULL:
        return None
    if text in _BOOLEAN:
        return _BOOLEAN[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _SPECIAL.fullmatch(text):
        return float(text.replace(".", ""))
    return text


def parse_tagged_scalar(tag: str, text: str) -> Any:
    """Return the value of a scalar with one of YAML's own tags. Raises `ValueError` for every other tag."""
    if tag == f"{_CORE}str":
        return text
    if tag in {f"{_CORE}{name}" for name in ("int", "float", "bool", "null")}:
        return parse_scalar(text)
    raise ValueError(tag)


class Position(NamedTuple):
    """A position in a file, counted from 1."""

    line: int
    column: int


@record
class Document:
    """The values of a file with their positions."""

    file: str
    value: Any
    positions: dict[KeyPath, Position] = field(default_factory=dict)
    """The position of each value; for a value in a mapping, that of its key."""
    texts: dict[KeyPath, str] = field(default_factory=dict)
    """Each scalar as written, for keys whose value `1.10` is a text."""
    problems: tuple[Problem, ...] = ()
    variables: dict[KeyPath, str] = field(default_factory=dict)
    """The environment variable of each value that overrides one of the file."""

    def find_variable(self, path: KeyPath) -> str | None:
        """Return the environment variable of a value, or of the nearest value that contains it."""
        prefixes = (path[:length] for length in range(len(path), 0, -1))
        return next((self.variables[prefix] for prefix in prefixes if prefix in self.variables), None)

    def position_of(self, path: KeyPath) -> Position:
        """Return the position of a key path, or of the nearest value that contains it."""
        while path and path not in self.positions:
            path = path[:-1]
        return self.positions.get(path, Position(1, 1))


def read_document(path: Path, shown_as: str) -> Document:
    """Read a YAML file. Raises `ConfigError` for a file that cannot be read or parsed at all."""
    text = read_text(path, shown_as, missing="Check the name, or make an agent with 'holodeck init'.")
    return parse_document(text, shown_as)


def parse_document(text: str, shown_as: str, *, max_nodes: int = MAX_YAML_NODES) -> Document:
    """Parse YAML text. Raises `ConfigError` when it is not YAML or exceeds a limit; other problems are collected."""
    builder = _Builder(shown_as, max_nodes)
    try:
        root = builder.build_tree(yaml.parse(text, Loader=YAMLLoader))
    except yaml.YAMLError as error:
        raise ConfigError.of([_syntax_problem(error, text, shown_as)]) from None
    value = builder.build_value(root, ()) if root is not None else None
    return Document(
        file=shown_as, value=value, positions=builder.positions, texts=builder.texts, problems=tuple(builder.problems)
    )


def _syntax_problem(error: yaml.YAMLError, text: str, shown_as: str) -> Problem:
    line = column = None
    message, fix = "this is not valid YAML", ""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        if mark is not None:
            line, column = mark.line + 1, mark.column + 1
        message = f"this is not valid YAML: {error.problem or error.context or 'syntax error'}"
        lines = text.splitlines()
        if line is not None and line <= len(lines) and "\t" in lines[line - 1][: (column or 1)]:
            fix = "Indent with spaces; YAML does not allow tabs there."
        elif (error.context or "").endswith((" tag", " alias", " anchor")):
            fix = _QUOTE_MARKS
        elif error.problem == "mapping values are not allowed in this context":
            fix = _QUOTE_COLON
    elif isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        message = "the file has a control character that YAML does not allow"
    return Problem(message=message, file=shown_as, line=line, column=column, fix=fix)


@dataclass(eq=False)
class _Node:
    """A node of the parser, before aliases are expanded."""

    position: Position
    scalar: Any = None
    text: str = ""
    items: list[_Node] | None = None
    pairs: list[tuple[_Node, _Node]] | None = None


class _Builder:
    """Builds nodes from parser events, then plain values from nodes, within limits."""

    def __init__(self, shown_as: str, max_nodes: int) -> None:
        self.file = shown_as
        self._max_nodes = max_nodes
        self.positions: dict[KeyPath, Position] = {}
        self.texts: dict[KeyPath, str] = {}
        self.problems: list[Problem] = []
        self._anchors: dict[str, _Node] = {}
        self._open: set[int] = set()
        self._count = 0

    def build_tree(self, events: Iterator[yaml.Event]) -> _Node | None:
        root: _Node | None = None
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._fail(event, "the file holds more than one YAML document", "Keep one; '---' starts another.")
            elif isinstance(event, yaml.NodeEvent):
                root = self._build_node(event, events, 0)
        return root

    def _build_node(self, event: yaml.Event, events: Iterator[yaml.Event], depth: int) -> _Node:
        if depth > MAX_YAML_DEPTH:
            self._fail(event, f"the file nests deeper than {MAX_YAML_DEPTH} levels")
        if isinstance(event, yaml.AliasEvent):
            target = self._anchors.get(event.anchor or "")
            if target is not None:
                return target
            self._fail(event, "'*' refers to an anchor that is not defined above", _QUOTE_MARKS)
        node = _Node(position=_position_of_event(event))
        anchor = event.anchor if isinstance(event, yaml.NodeEvent) else None
        if anchor:
            self._anchors[anchor] = node
        if isinstance(event, yaml.ScalarEvent):
            node.text = event.value
            node.scalar = self._parse_scalar_event(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            node.items = []
            while not isinstance(child := next(events), yaml.SequenceEndEvent):
                node.items.append(self._build_node(child, events, depth + 1))
        else:
            node.pairs = []
            while not isinstance(child := next(events), yaml.MappingEndEvent):
                key = self._build_node(child, events, depth + 1)
                node.pairs.append((key, self._build_node(next(events), events, depth + 1)))
        return node

    def _parse_scalar_event(self, event: yaml.ScalarEvent) -> Any:
        if event.tag and not event.implicit[0] and event.tag != "!":
            try:
                return parse_tagged_scalar(event.tag, event.value)
            except ValueError:
                self._fail(event, "this tag is not allowed here", f"Write the plain value. {_QUOTE_MARKS}")
        return parse_scalar(event.value) if event.implicit[0] and not event.style else event.value

    def build_value(self, node: _Node, path: KeyPath) -> Any:
        self._count += 1
        if self._count > self._max_nodes:
            self._fail_at(node.position, f"the file expands to more than {self._max_nodes} values")
        if len(path) > MAX_YAML_DEPTH:
            self._fail_at(node.position, f"the file nests deeper than {MAX_YAML_DEPTH} levels")
        if id(node) in self._open:
            self._fail_at(node.position, "an alias refers to the value that contains it")
        self.positions.setdefault(path, node.position)
        if node.items is None and node.pairs is None:
            self.texts[path] = node.text
            return node.scalar
        self._open.add(id(node))
        try:
            if node.items is not None:
                return [self.build_value(item, (*path, index)) for index, item in enumerate(node.items)]
            return self._build_mapping(node, path)
        finally:
            self._open.discard(id(node))

    def _build_mapping(self, node: _Node, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        merged: list[_Node] = []
        for key, value in node.pairs or ():
            if key.items is not None or key.pairs is not None:
                self._add_problem(key.position, path, "a key must be plain text")
                continue
            name = key.text
            if name == "<<":
                merged += value.items if value.items is not None else [value]
                continue
            if name in result:
                first = self.positions[(*path, name)]
                self._add_problem(
                    key.position,
                    (*path, name),
                    f"this key is given twice (first in line {first.line})",
                    "Keep one of them.",
                )
                continue
            self.positions[(*path, name)] = key.position
            result[name] = self.build_value(value, (*path, name))
        for source in merged:
            if source.pairs is None:
                self._add_problem(source.position, path, "'<<' needs a mapping")
                continue
            for name, value in self._build_mapping(source, path).items():
                result.setdefault(name, value)
        return result

    def _add_problem(self, position: Position, path: KeyPath, message: str, fix: str = "") -> None:
        key = format_key_path(path)
        self.problems.append(
            Problem(message=message, file=self.file, line=position.line, column=position.column, key=key, fix=fix)
        )

    def _fail(self, event: yaml.Event, message: str, fix: str = "") -> NoReturn:
        self._fail_at(_position_of_event(event), message, fix)

    def _fail_at(self, position: Position, message: str, fix: str = "") -> NoReturn:
        raise file_error(self.file, message, fix=fix, line=position.line, column=position.column)


def _position_of_event(event: yaml.Event) -> Position:
    mark = event.start_mark
    return Position(mark.line + 1, mark.column + 1) if mark is not None else Position(1, 1)


def format_key_path(path: KeyPath) -> str:
    """Return a key path as text: `tools[0].env.API_KEY`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
