"""References to variables in configuration: the syntax of `${...}`, and its replacement in texts and documents.

A reference is `${NAME}`, `${env:NAME}` or `${NAME:-default}`, or has a fixed value in the file's `Vocabulary`, such as
`${workspaceFolder}`; `$${` is a literal `${`. `substitute` replaces the references of one text, `resolve` those of all
values of a document, with a problem for each reference that has no value. Keys are never changed.

A changed text is a `Substituted`, which remembers the text as written, because values of variables are never shown.
Values that are secrets, by their name or their key, are registered for redaction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from holodeck.config.problems import problem_at
from holodeck.config.yaml_reader import Document, KeyPath
from holodeck.lib.errors import Problem
from holodeck.lib.net.urls import shown_origin
from holodeck.lib.record import record
from holodeck.lib.redaction import LOG_SECRETS, is_secret_name, register_secrets, secrets_in, url_secrets
from holodeck.models.file_model import Substituted

Lookup = Callable[[str], str | None]
"""Returns the value of a variable, or None when it is not set."""

_REFERENCE = re.compile(r"\$\$\{|\$\{([^{}]*)\}|\$\{")
_VARIABLE = re.compile(r"(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)
# The prefix of a reference whose fixed value is a user's answer to a question in a file of another program.
_INPUT_PREFIX = "input:"
_ADDRESSES = ("url", "Url", "endpoint", "issuer")


@record
class Substitution:
    """A text after its references were replaced, and the references that could not be."""

    text: str
    missing: tuple[str, ...] = ()
    """Names that are not set and have no default."""
    empty: tuple[str, ...] = ()
    """Names that are set to an empty text, without a default."""
    malformed: tuple[str, ...] = ()
    """References that do not match the syntax, as written."""
    is_changed: bool = False
    values: tuple[tuple[str, str], ...] = ()
    """Name and value of every variable that was inserted. Without defaults and folders: they are no secrets."""


def missing_variable_problem(name: str) -> Problem:
    """Return the problem of a variable that is not set. Its message is part of the documented API."""
    return Problem(
        message=f"Environment variable '{name}' not found",
        fix=f"Set it (export {name}=...), put it in a .env file beside the agent file, or write ${{{name}:-default}}.",
    )


def malformed_reference_problem(written: str) -> Problem:
    """Return the problem of a `${` that does not match the syntax."""
    if written == "${":
        return Problem(message="'${' has no closing '}'", fix="Close it, or write '$${' for a literal '${'.")
    return Problem(
        message=f"'{written}' is not a reference that HoloDeck knows",
        fix="Use ${NAME}, ${NAME:-default}, ${workspaceFolder} or ${userHome}; write '$${' for a literal '${'.",
    )


@record
class Vocabulary:
    """The references of a kind of file besides variables, and the texts of its problems."""

    fixed_values: Mapping[str, str] = field(default_factory=dict)
    """Values by reference, such as `workspaceFolder`."""
    missing_problem: Callable[[str], Problem] = missing_variable_problem
    malformed_problem: Callable[[str], Problem] = malformed_reference_problem


def substitute(text: str, lookup: Lookup, fixed_values: Mapping[str, str]) -> Substitution:
    """Replace every reference in a text. One without a value stays as written. `fixed_values`: see `Vocabulary`."""
    missing: list[str] = []
    empty: list[str] = []
    malformed: list[str] = []
    values: list[tuple[str, str]] = []

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        reference = match[1]
        if reference in fixed_values:
            if reference.startswith(_INPUT_PREFIX):
                values.append((reference, fixed_values[reference]))
            return fixed_values[reference]
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


def map_references(text: str, replace: Callable[[str, str | None], str], fixed_values: Mapping[str, str]) -> str:
    """Return the text with each reference replaced by what `replace` returns for its name and its default.

    `fixed_values`: see `Vocabulary`. What is no reference, such as the literal `$${`, stays as it is.
    """

    def replace_match(match: re.Match[str]) -> str:
        reference = match[1]
        if reference in fixed_values:
            return fixed_values[reference]
        variable = _VARIABLE.fullmatch(reference) if reference is not None else None
        return match[0] if variable is None else replace(variable["name"], variable["default"])

    return _REFERENCE.sub(replace_match, text)


def chain_lookups(sources: Sequence[Mapping[str, str]]) -> Lookup:
    """Look a name up in several sources; the first that has it wins."""

    def lookup(name: str) -> str | None:
        return next((source[name] for source in sources if name in source), None)

    return lookup


def resolve(
    value: Any, path: KeyPath, document: Document, lookup: Lookup, vocabulary: Vocabulary
) -> tuple[Any, list[Problem]]:
    """Return the value with the references in its texts replaced, and the problems of those references. Keys stay as
    written.

    `path` is the key path of the value in `document`.
    """
    if isinstance(value, dict):
        pairs = {key: resolve(item, (*path, key), document, lookup, vocabulary) for key, item in value.items()}
        return {key: item for key, (item, _) in pairs.items()}, [p for _, found in pairs.values() for p in found]
    if isinstance(value, list):
        items = [resolve(item, (*path, index), document, lookup, vocabulary) for index, item in enumerate(value)]
        return [item for item, _ in items], [problem for _, found in items for problem in found]
    if not isinstance(value, str) or "${" not in value:
        return value, []
    done = substitute(value, lookup, vocabulary.fixed_values)
    causes = [*map(vocabulary.missing_problem, done.missing), *map(vocabulary.malformed_problem, done.malformed)]
    problems = [problem_at(document, path, cause.message, fix=cause.fix) for cause in causes]
    problems += [
        problem_at(document, path, f"Environment variable '{name}' is set, but empty", severity="warning")
        for name in done.empty
    ]
    _register_secrets(path, done)
    return (Substituted(done.text, written=value) if done.is_changed else value), problems


def _register_secrets(path: KeyPath, done: Substitution) -> None:
    """Register the secret values in one text of a file for redaction.

    Values in headers, and in the parts of an address that are not shown, are redacted in logs only.
    """
    key = next((part for part in reversed(path) if isinstance(part, str)), "")
    for name, value in done.values:
        if is_secret_name(key) or is_secret_name(name):
            register_secrets(value, *url_secrets(value))
            continue
        register_secrets(*secrets_in(key, value))
        is_address = key.endswith(_ADDRESSES) and value in shown_origin(done.text)
        if "headers" in path or (key.endswith(_ADDRESSES) and not is_address):
            LOG_SECRETS.add(value)
