"""Secrets in gateway files: each is a reference to a variable or a mounted file (`*_file`); a literal is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from holodeck.config.files import read_text
from holodeck.config.problems import problem_at
from holodeck.config.yaml_reader import Document, KeyPath
from holodeck.lib.errors import ConfigError, Problem
from holodeck.lib.limits import MAX_SECRET_FILE_BYTES, MIN_SEAL_KEY_BYTES
from holodeck.lib.redaction import ends_in_secret_word, register_secrets, url_secrets
from holodeck.models.file_model import Substituted

SECRET_FIELDS = frozenset({"api_key", "token", "client_secret", "seal_key"})
_MAPPINGS = frozenset({"headers", "env"})
_UNREAD_PLACEHOLDER = "sqlite:///unread"
"""The value of a secret that could not be read. It is valid for every secret key, so that it has no further problem."""
_NEW_SEAL_KEY = 'Make one with: python3 -c "import secrets; print(secrets.token_urlsafe(32))"'
_DATABASE: KeyPath = ("storage", "url")
"""A URL that is a secret when it contains a password."""


class SecretResolver:
    """Reads the secrets of a file from their `*_file`s, refuses literal ones, and collects the problems."""

    def __init__(self, document: Document, folder: Path) -> None:
        self._document = document
        self._folder = folder
        self.problems: list[Problem] = []

    def resolve(self, value: Any, path: KeyPath = ()) -> Any:
        """Return the value with each `NAME_file` replaced by `NAME`. What was read is registered for redaction."""
        if isinstance(value, list):
            return [self.resolve(item, (*path, index)) for index, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        result: dict[str, Any] = {}
        for key, item in value.items():
            base = key.removesuffix("_file")
            if key.endswith("_file") and (base in SECRET_FIELDS or (*path, base) == _DATABASE):
                if base in value:
                    self._add_problem((*path, key), f"'{base}' and '{key}' are given; one is enough")
                else:
                    result[base] = self._read_secrets(item, (*path, key))
                continue
            if key in SECRET_FIELDS or ((*path, key) == _DATABASE and _has_password(item)):
                self._refuse_literal(item, (*path, key), key)
            if key in _MAPPINGS and isinstance(item, dict):
                for name, text in item.items():
                    if ends_in_secret_word(str(name)):
                        self._refuse_literal(text, (*path, key, name), name)
            result[key] = self.resolve(item, (*path, key))
        if not path and "seal_key" in result:
            self._check_seal_keys(result["seal_key"], ("seal_key" if "seal_key" in value else "seal_key_file",))
        return result

    def _read_secrets(self, value: Any, path: KeyPath) -> Any:
        """Return the secret in the file of this name. For the seal key, also a list of secrets for a list of names."""
        if isinstance(value, str):
            return self._read_secret_file(value, path)
        if path == ("seal_key_file",) and isinstance(value, list):
            return [self._read_secrets(each, (*path, index)) for index, each in enumerate(value)]
        self._add_problem(path, f"'{path[0] if isinstance(path[-1], int) else path[-1]}' must be the path of a file")
        return Substituted(_UNREAD_PLACEHOLDER, written=f"({path[-1]})")

    def _read_secret_file(self, name: str, path: KeyPath) -> Substituted:
        try:
            text = read_text(self._folder / Path(name).expanduser(), name, MAX_SECRET_FILE_BYTES)
        except (ConfigError, RuntimeError) as error:
            reason = error.problems[0].message if isinstance(error, ConfigError) else "the home folder is not known"
            self._add_problem(path, f"cannot read the secret: {reason}")
            return Substituted(_UNREAD_PLACEHOLDER, written=f"({path[-1]})")
        text = text.strip("\r\n")
        if not text.strip():
            self._add_problem(path, "the secret's file is empty")
        elif not text.isprintable():
            self._add_problem(
                path, "the secret's file holds more than one line, or characters that no header can carry"
            )
        register_secrets(text, *url_secrets(text))
        return Substituted(text, written=f"({path[-1]})")

    def _check_seal_keys(self, value: Any, path: KeyPath) -> None:
        """Refuse short keys, and literal keys in a list. A key that could not be read has a problem already."""
        if value == []:
            self._add_problem(path, f"'{path[-1]}' is an empty list", _NEW_SEAL_KEY)
        for index, key in enumerate(value if isinstance(value, list) else [value]):
            where = (*path, index) if isinstance(value, list) else path
            if isinstance(value, list):
                self._refuse_literal(key, where, "seal_key")
            is_read = isinstance(key, Substituted) and key != _UNREAD_PLACEHOLDER
            if is_read and len(key.strip().encode("utf-8", "surrogateescape")) < MIN_SEAL_KEY_BYTES:
                message = f"a key that seals has at least {MIN_SEAL_KEY_BYTES} bytes, and this one has fewer"
                self._add_problem(where, message, _NEW_SEAL_KEY)

    def _refuse_literal(self, value: Any, path: KeyPath, name: str) -> None:
        if isinstance(value, str) and value and not isinstance(value, Substituted) and "${" not in value:
            is_database = path == _DATABASE
            variable = "DATABASE_URL" if is_database else re.sub(r"[^A-Za-z0-9]+", "_", name).upper()
            fix = f"Write ${{{variable}}} and set the variable"
            fix += f", or mount a file and name it in '{name}_file'." if name in SECRET_FIELDS or is_database else "."
            self._add_problem(path, "a secret must not be written into this file", fix)

    def _add_problem(self, path: KeyPath, message: str, fix: str = "") -> None:
        self.problems.append(problem_at(self._document, path, message, fix=fix))


def _has_password(url: Any) -> bool:
    """Return whether a value has the form `scheme://user:password@host`, also when the rest is not a valid URL."""
    authority = str(url).partition("://")[2].partition("/")[0]
    return ":" in authority.rpartition("@")[0]
