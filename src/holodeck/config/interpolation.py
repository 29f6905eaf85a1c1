"""Variables in a whole document: every string value is resolved, every missing name is reported in its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holodeck.config.env_loader import malformed_reference_problem, missing_variable_problem
from holodeck.config.problems import problem_at
from holodeck.config.variable_syntax import Lookup, Substitution, substitute
from holodeck.config.yaml_reader import Document, KeyPath
from holodeck.lib.errors import Problem
from holodeck.lib.net.urls import shown_origin
from holodeck.lib.redaction import LOG_SECRETS, is_secret_name, register_secrets, secrets_in, url_secrets
from holodeck.models.file_model import Substituted

_ADDRESSES = ("url", "Url", "endpoint", "issuer")


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """What `${...}` may say besides the names of variables, and how to speak of what it may not."""

    words: Mapping[str, str] = field(default_factory=dict)
    """Such as `workspaceFolder`."""
    missing_problem: Callable[[str], Problem] = missing_variable_problem
    malformed_problem: Callable[[str], Problem] = malformed_reference_problem


def resolve(
    value: Any, path: KeyPath, document: Document, lookup: Lookup, vocabulary: Vocabulary
) -> tuple[Any, list[Problem]]:
    """The value with its references replaced, and what is wrong with them. Keys are never touched."""
    if isinstance(value, dict):
        pairs = {key: resolve(item, (*path, key), document, lookup, vocabulary) for key, item in value.items()}
        return {key: item for key, (item, _) in pairs.items()}, [p for _, found in pairs.values() for p in found]
    if isinstance(value, list):
        items = [resolve(item, (*path, index), document, lookup, vocabulary) for index, item in enumerate(value)]
        return [item for item, _ in items], [problem for _, found in items for problem in found]
    if not isinstance(value, str) or "${" not in value:
        return value, []
    done = substitute(value, lookup, vocabulary.words)
    causes = [*map(vocabulary.missing_problem, done.missing), *map(vocabulary.malformed_problem, done.malformed)]
    problems = [problem_at(document, path, cause.message, fix=cause.fix) for cause in causes]
    problems += [
        problem_at(document, path, f"Environment variable '{name}' is set, but empty", severity="warning")
        for name in done.empty
    ]
    _register_secrets(path, done)
    return (Substituted(done.text, written=value) if done.is_changed else value), problems


def _register_secrets(path: KeyPath, done: Substitution) -> None:
    """Make known what no log may show, and what no server may repeat, of the variables in one text of a file."""
    key = next((part for part in reversed(path) if isinstance(part, str)), "")
    for name, value in done.values:
        if is_secret_name(key) or is_secret_name(name):
            register_secrets(value, *url_secrets(value))
            continue
        register_secrets(*secrets_in(key, value))
        is_address = key.endswith(_ADDRESSES) and value in shown_origin(done.text)
        if "headers" in path or (key.endswith(_ADDRESSES) and not is_address):
            LOG_SECRETS.add(value)
