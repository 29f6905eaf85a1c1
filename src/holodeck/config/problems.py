"""Problems of a document, with the position of the key that each is about."""

from __future__ import annotations

from typing import Any

from holodeck.config.yaml_reader import Document, KeyPath, format_key_path
from holodeck.lib.errors import ConfigError, Problem, Severity


def problem_at(
    document: Document,
    path: KeyPath,
    message: str,
    *,
    fix: str = "",
    severity: Severity = "error",
    kind: type[ConfigError] | None = None,
) -> Problem:
    """Return a problem of a key, with the position of the key, or with the environment variable that overrides it."""
    variable = document.find_variable(path)
    if variable is not None:
        return Problem(message=message, file=variable, key=format_key_path(path), fix=fix, severity=severity, kind=kind)
    position = document.position_of(path)
    return Problem(
        message=message,
        file=document.file,
        line=position.line,
        column=position.column,
        key=format_key_path(path),
        fix=fix,
        severity=severity,
        kind=kind,
    )


def value_at(data: Any, path: KeyPath) -> Any:
    """Return the value at a key path, or None when there is none."""
    for part in path:
        if isinstance(data, dict) and isinstance(part, str):
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return None
    return data
