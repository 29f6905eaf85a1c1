"""Stand-ins for secrets that are not there, for files whose models and servers are replayed and need none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from holodeck.config.agent_loader import SHARED_FILE
from holodeck.config.interpolation import substitute
from holodeck.config.yaml_reader import read_document
from holodeck.lib.errors import ConfigError
from holodeck.lib.redaction import is_secret_name, register_secrets

_SECRET_MAPPINGS = ("env", "headers", "auth")
"""Keys whose values only the process or the connection of a server gets."""


def add_missing_secrets(path: Path, environ: Mapping[str, str], home: Path | None) -> Mapping[str, str]:
    """Return the variables with a stand-in for each secret that an agent file refers to and that is not among them.

    A variable is a secret by its name, by the name of the key that gets it, or because it goes to `env`, `headers` or
    `auth` of a server. The stand-ins are masked as secrets are. Raises nothing: a file that cannot be read has no
    secrets, and its loader reports it.
    """
    names: set[str] = set()
    for file in (path, path.parent / SHARED_FILE, (home or Path.home()) / ".holodeck" / SHARED_FILE):
        if file.is_file():
            try:
                names.update(_find_secrets(read_document(file, str(file)).value, ""))
            except ConfigError:
                continue
    stand_ins = {name: f"stand-in-for-{name}" for name in names.difference(environ)}
    register_secrets(*stand_ins.values())
    return {**environ, **stand_ins} if stand_ins else environ


def _find_secrets(value: Any, key: str, *, is_secret: bool = False) -> Iterator[str]:
    """Yield the variables in the texts of a value that are secrets."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _find_secrets(item, str(name), is_secret=is_secret or name in _SECRET_MAPPINGS)
    elif isinstance(value, list):
        for item in value:
            yield from _find_secrets(item, key, is_secret=is_secret)
    elif isinstance(value, str) and "${" in value:
        names: list[str] = []
        # The lookup gets the names and finds nothing.
        substitute(value, names.append, {})
        yield from (name for name in names if is_secret or is_secret_name(key) or is_secret_name(name))
