"""The grammar of `${...}` in configuration: what is a reference, what it falls back to, and what is missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

_REFERENCE = re.compile(r"\$\$\{|\$\{([^{}]*)\}|\$\{")
_VARIABLE = re.compile(r"(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)
_INPUT_PREFIX = "input:"  # of a person, to a question that a file of another program asks

Lookup = Callable[[str], str | None]


@dataclass(frozen=True, kw_only=True)
class Substitution:
    """A text after its references were replaced, and what went wrong on the way."""

    text: str
    missing: tuple[str, ...] = ()
    """Names that are set nowhere and have no default."""
    empty: tuple[str, ...] = ()
    """Names that are set, but to nothing."""
    malformed: tuple[str, ...] = ()
    """References that are not in the grammar, as written."""
    is_changed: bool = False
    values: tuple[tuple[str, str], ...] = ()
    """Name and value of every variable that was put in. Defaults and folders are none: they stand in the file."""


def substitute(text: str, lookup: Lookup, words: Mapping[str, str]) -> Substitution:
    """Replace every reference in a text. `words` holds the folders by their names, such as `workspaceFolder`."""
    missing: list[str] = []
    empty: list[str] = []
    malformed: list[str] = []
    values: list[tuple[str, str]] = []

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        reference = match[1]
        if reference in words:
            if reference.startswith(_INPUT_PREFIX):
                values.append((reference, words[reference]))
            return words[reference]
        variable = _VARIABLE.fullmatch(reference) if reference is not None else None
        if variable is None:
            malformed.append(match[0])
            return match[0]
        name, default = variable["name"], variable["default"]
        value = lookup(name)
        if value:
            values.append((name, value))
        if default is not None:
            return value or default
        if value is None:
            missing.append(name)
            return match[0]
        if not value:
            empty.append(name)
        return value

    result = _REFERENCE.sub(replace, text)
    return Substitution(
        text=result,
        missing=tuple(dict.fromkeys(missing)),
        empty=tuple(dict.fromkeys(empty)),
        malformed=tuple(dict.fromkeys(malformed)),
        is_changed=result != text or bool(empty),
        values=tuple(values),
    )


def chain_lookups(sources: Sequence[Mapping[str, str]]) -> Lookup:
    """Look a name up in several places; the first that has it wins."""

    def lookup(name: str) -> str | None:
        return next((source[name] for source in sources if name in source), None)

    return lookup
