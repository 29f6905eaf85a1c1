"""URI templates of RFC 6570, as far as a client needs them: does a URI fit, and which variable is being typed.

Values are the texts that stand in the URI, not decoded. Matching takes time in proportion to the length of the URI, so
that a template of an untrusted server cannot delay anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field

from holodeck.lib.record import record

_EXPRESSION = re.compile(r"\{([+#./;?&]?)([^{}]*)\}")
# Operators whose expression begins with the operator itself, and is empty without values.
_PREFIXED = frozenset("#./;?&")


@record
class _Expression:
    """A `{...}` of a template."""

    operator: str
    names: tuple[str, ...]

    def read_value(self, text: str) -> str | None:
        """Return the value in a part of a URI that this expression could have become; None if it could not."""
        if self.operator in _PREFIXED:
            if not text:
                return ""
            return text[1:].removeprefix(f"{self.names[0]}=") if text[0] == self.operator else None
        if not text or (self.operator == "" and "/" in text):
            return None
        return text


@record
class TypedVariable:
    """The variable of a template that the end of an unfinished URI is in."""

    name: str
    value: str
    """What has been typed of it."""
    following: str = ""
    """The text of the template up to the next variable."""
    others: Mapping[str, str] = field(default_factory=dict)
    """The values of the variables before it."""


def match_template(template: str, uri: str) -> dict[str, str] | None:
    """Return the values of the variables with which the template becomes this URI; None if it cannot."""
    parts = _split(template)
    values: dict[str, str] = {}
    position = 0
    for index, part in enumerate(parts):
        if isinstance(part, str):
            if not uri.startswith(part, position):
                return None
            position += len(part)
            continue
        end = _find_end(parts, index, uri, position)
        value = part.read_value(uri[position:end]) if end >= position else None
        if value is None:
            return None
        values[",".join(part.names)] = value
        position = end
    return values if position == len(uri) else None


def find_typed_variable(template: str, start: str) -> TypedVariable | None:
    """Return the variable that the end of `start`, the beginning of a URI, is in; None if it is in none."""
    values: dict[str, str] = {}
    parts = _split(template)
    position = 0
    for index, part in enumerate(parts):
        if isinstance(part, str):
            if not start.startswith(part, position):
                return None
            position += len(part)
            continue
        following = parts[index + 1] if index + 1 < len(parts) else None
        end = start.find(following, position) if isinstance(following, str) else -1
        text = start[position:] if end < 0 else start[position:end]
        if len(part.names) != 1 or (part.operator == "" and "/" in text):
            return None
        if end < 0:
            value = text.removeprefix(part.operator) if part.operator in _PREFIXED else text
            return TypedVariable(
                name=part.names[0],
                value=value.removeprefix(f"{part.names[0]}="),
                following=following if isinstance(following, str) else "",
                others=values,
            )
        values[part.names[0]] = part.read_value(text) or ""
        position = end
    return None


def literal_start(template: str) -> str:
    """Return the text before the first variable."""
    return template.partition("{")[0]


def _split(template: str) -> list[str | _Expression]:
    parts: list[str | _Expression] = []
    position = 0
    for found in _EXPRESSION.finditer(template):
        if found.start() > position:
            parts.append(template[position : found.start()])
        # A modifier (`*`, `:3`) changes how a value is written, not where it stands.
        names = tuple(name.partition(":")[0].rstrip("*") for name in found[2].split(","))
        parts.append(_Expression(operator=found[1], names=names))
        position = found.end()
    if position < len(template):
        parts.append(template[position:])
    return parts


def _find_end(parts: list[str | _Expression], index: int, uri: str, position: int) -> int:
    """Return where the expression at `index` ends in the URI; -1 if what must follow it is not there."""
    if index + 1 == len(parts):
        return len(uri)
    following = parts[index + 1]
    if isinstance(following, str):
        if index + 2 == len(parts):
            return len(uri) - len(following) if uri.endswith(following) else -1
        return uri.find(following, position)
    # Two expressions in a row: the operator of the second one separates them, if it is there at all.
    found = uri.find(following.operator, position + 1) if following.operator in _PREFIXED else -1
    return len(uri) if found < 0 else found
