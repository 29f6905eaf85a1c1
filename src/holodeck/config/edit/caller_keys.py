"""The callers with keys in a gateway file: listed, added, changed, given a new key, and removed.

An edit changes the entry in the text of the file and leaves the rest as it is written. Entries are plain data with the
keys of `CallerKey`; a file has hashes only, so the key itself is never seen here. What is added or changed is checked
before it is written, by itself and with the whole file. An error that the file had before does not matter: it may be
one of a variable that is not set here.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from holodeck.config.edit.file_edit import FileEdit
from holodeck.config.edit.yaml_entries import append_yaml_item, change_yaml_item, remove_yaml_item
from holodeck.config.files import file_error
from holodeck.config.gateway_loader import load_gateway_file
from holodeck.config.known_keys import closest_match
from holodeck.config.validation import validate
from holodeck.config.yaml_reader import Document, parse_document, read_document
from holodeck.lib.errors import ConfigError, Problem
from holodeck.models.callers import CallerKey

# Characters of a hash that are shown: enough to tell two apart.
# Stands for the name and the hash of an entry, which may be variables in the file, while its settings are checked.
_ANY_CALLER = {"name": "caller", "hash": f"sha256:{'0' * 64}"}

# Characters of a new id: no two callers of one name have the same.
_ID_CHARS = 12

# Begins a reference to a variable.
_REFERENCE = "${"

SETTINGS = ("role", "group", "allow", "limits", "budget", "expires", "paused")
"""Fields of an entry that say what its caller may do."""


class DuplicateKeyError(ConfigError):
    """The file has a key of this name already."""


class UnknownKeyError(ConfigError):
    """The file has no key of this name."""


class LastKeyError(ConfigError):
    """Without the key, callers of the file would not authenticate any more."""


class CallerKeyFile:
    """The `keys` of one gateway file. Methods block, and raise `ConfigError` for a file that they cannot change."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def list_entries(self) -> list[dict[str, Any]]:
        """Return the entries as written, without values of variables."""
        return _entries_of(read_document(self.path, str(self.path)))

    def add(self, entry: Mapping[str, Any]) -> None:
        """Add an entry. Raises `DuplicateKeyError`, and `ConfigError` for one that a gateway would refuse."""
        check_entry(entry)

        def edit(text: str) -> str:
            if any(each.get("name") == entry["name"] for each in self._parse(text)):
                message = f"'keys' has '{entry['name']}' already"
                fix = f"Use another name, or give it a new key: holodeck keys rotate {entry['name']}"
                raise DuplicateKeyError(problems=file_error(str(self.path), message, fix=fix).problems)
            return append_yaml_item(text, "keys", dict(entry), str(self.path))

        FileEdit(path=self.path, edit=edit, check=self._check).apply()

    def update(self, name: str, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        """Change the settings of a caller. Its key stays.

        `change` takes the entry as it is written, and returns the `SETTINGS` that become others: None removes one.
        Raises `UnknownKeyError`, and `ConfigError` for what a gateway would refuse.
        """

        def edit(text: str) -> str:
            index, entry = self._require(text, name)
            changes = {field: _drop_absent(value) for field, value in change(entry).items()}
            # A setting with a variable is checked with the whole file only, where its value is known.
            known = {field: value for field, value in changes.items() if not has_reference(value)}
            if "role" in known and "group" not in changes:
                # A role may need a group.
                known["group"] = entry.get("group")
            check_entry(_drop_absent({**_ANY_CALLER, **known}), shown_as=f"the key '{name}'")
            return change_yaml_item(text, "keys", index, changes, str(self.path))

        FileEdit(path=self.path, edit=edit, check=self._check).apply()

    def rotate(self, name: str, new_hash: str, grace: timedelta | None = None) -> dict[str, Any]:
        """Give a caller another key, and return the new entry. `grace`: how long the key before is accepted as well."""
        expires = None if grace is None else format_expiry(grace)
        rotated: dict[str, Any] = {}

        def edit(text: str) -> str:
            index, entry = self._require(text, name)
            old_hash = str(entry.get("hash")) if expires is not None else None
            changes = {"hash": new_hash, "old_hash": old_hash, "old_hash_expires": expires}
            rotated.update({**entry, **changes})
            return change_yaml_item(text, "keys", index, changes, str(self.path))

        FileEdit(path=self.path, edit=edit).apply()
        return {field: value for field, value in rotated.items() if value is not None}

    def remove(self, name: str) -> None:
        """Remove a caller: its keys are refused from then on. Raises `UnknownKeyError`.

        Raises `LastKeyError` for the only key of a file without `jwt`: without it, every request is an operator's.
        """

        def edit(text: str) -> str:
            index, _ = self._require(text, name)
            document = parse_document(text, str(self.path))
            if len(_entries_of(document)) == 1 and document.value.get("jwt") is None:
                message = f"'{name}' is the only key, and without one everybody would be the operator"
                fix = f"Make another key before, or replace this one: holodeck keys rotate {name}"
                raise LastKeyError(problems=file_error(str(self.path), message, fix=fix).problems)
            return remove_yaml_item(text, "keys", index, str(self.path))

        FileEdit(path=self.path, edit=edit).apply()

    def _check(self, text: str) -> None:
        """Raise `ConfigError` for errors of the file with this text that it does not have as it is."""
        found = self._find_errors(text)
        if found:
            known = {(problem.key, problem.message) for problem in self._find_errors(None)}
            new = [problem for problem in found if (problem.key, problem.message) not in known]
            # Their lines are those of a text that the user does not see.
            new = [replace(problem, line=None, column=None) for problem in new]
            if new:
                raise ConfigError.of(new)

    def _find_errors(self, text: str | None) -> list[Problem]:
        try:
            load_gateway_file(self.path, text=text)
        except ConfigError as error:
            return [problem for problem in error.problems if problem.severity == "error"]
        return []

    def _parse(self, text: str) -> list[dict[str, Any]]:
        return _entries_of(parse_document(text, str(self.path)))

    def _require(self, text: str, name: str) -> tuple[int, dict[str, Any]]:
        """Return the entry of this name and its index in `keys`.

        Raises `UnknownKeyError` with the names that there are.
        """
        entries = self._parse(text)
        for index, entry in enumerate(entries):
            if entry.get("name") == name:
                return index, entry
        names = [str(entry["name"]) for entry in entries if entry.get("name") is not None]
        close = closest_match(name, names)
        known = f"There are: {', '.join(names)}." if names else "'keys' has no entries."
        error = file_error(
            str(self.path), f"'keys' has no '{name}'", fix=f"Did you mean '{close}'?" if close else known
        )
        raise UnknownKeyError(problems=error.problems)


def build_entry(name: str, key_hash: str) -> dict[str, Any]:
    """Return the entry of a new caller, which is another one than any earlier caller of its name."""
    # Letters only: YAML would read a text of digits as a number.
    key_id = "".join(secrets.choice(string.ascii_lowercase) for _ in range(_ID_CHARS))
    return {"name": name, "id": key_id, "hash": key_hash}


def format_expiry(duration: timedelta) -> str:
    """Return the time after a duration from now, as entries have it."""
    return (datetime.now(UTC) + duration).isoformat(timespec="seconds").replace("+00:00", "Z")


def has_reference(value: object) -> bool:
    """Return whether a setting refers to a variable somewhere in it."""
    if isinstance(value, Mapping):
        return any(has_reference(each) for each in value.values())
    if isinstance(value, list):
        return any(has_reference(each) for each in value)
    return isinstance(value, str) and _REFERENCE in value


def check_entry(entry: Mapping[str, Any], *, shown_as: str = "the new key") -> None:
    """Raise `ConfigError` for an entry that a gateway would refuse. `shown_as`: in place of a file, in messages."""
    _, problems = validate(CallerKey, dict(entry), Document(file=shown_as, value=entry))
    if problems:
        raise ConfigError.of(problems)


def _drop_absent(value: Any) -> Any:
    """Return a mapping without its fields that are null, which say the same as absent ones.

    Other values stay as they are.
    """
    if not isinstance(value, Mapping):
        return value
    return {name: each for name, each in value.items() if each is not None}


def describe_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return what may be shown of an entry: nothing of its key, and nothing of the hash."""
    return {
        "name": entry.get("name"),
        "id": entry.get("id"),
        "role": entry.get("role"),
        "group": entry.get("group"),
        "owner": entry.get("owner"),
        "allow": entry.get("allow"),
        "limits": entry.get("limits"),
        "budget": entry.get("budget"),
        "expires": entry.get("expires"),
        "paused": entry.get("paused", False),
        "old_hash_expires": entry.get("old_hash_expires"),
    }


def _entries_of(document: Document) -> list[dict[str, Any]]:
    errors = [problem for problem in document.problems if problem.severity == "error"]
    if errors:
        raise ConfigError.of(errors)
    listed = document.value.get("keys") or []
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise file_error(document.file, "'keys' is not a list of entries", fix="See 'holodeck validate'.")
    return listed
