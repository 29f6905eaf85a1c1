"""Trust in files: what a file would do is done only after a person has said yes to exactly that.

The trust store is one file in the user's own folder, with a trust record for each file that the user trusts. It is
written whole, under a lock, and readable only by the user. `check_trust` compares a record with the actions of a file,
unless a variable of the process allows them. Nothing here asks: the command line does.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import orjson

from holodeck.config.actions import Action, Actions
from holodeck.lib.errors import ConfigError, ExecutionError, Problem
from holodeck.lib.json.parse import parse_json
from holodeck.lib.record import record
from holodeck.lib.system.files import make_private_folder, open_private_file, replace_private_file

# Seconds to wait for another process, whose write takes milliseconds.
LOCK_TIMEOUT = 10.0
_LOCK_POLL = 0.02
_VERSION = 1
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
VARIABLE = "HOLODECK_TRUST"
"""Environment variable with trust digests, or `all`. It is read from the process only, never from a `.env` file."""
ALL = "all"
_NAMES_DO_NOT_ACT = frozenset({"process", "connection", "variables", "script"})
State = Literal["trusted", "new", "changed"]


@record
class TrustRecord:
    """A file that the user trusts, with what it did when the user said yes."""

    path: str
    digest: str
    trusted_at: float
    """Seconds since 1970."""
    actions: tuple[Action, ...]

    def to_data(self) -> dict[str, Any]:
        """Return the record as plain data, without its path."""
        actions = [
            {**action.to_data(), **({"personal": True} if action.is_personal else {})} for action in self.actions
        ]
        return {"digest": self.digest, "trusted_at": self.trusted_at, "actions": actions}


def record_path(file: Path) -> str:
    """Return the path that identifies a file: absolute, without symbolic links in its folder.

    A link that is the file itself stays: what the file names is relative to the folder of the link.
    """
    path = file.absolute()
    return str(path.parent.resolve() / path.name)


class TrustStore:
    """The records of one user. Nothing is created before the first record."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.file = folder / "trust.json"

    def list_records(self) -> list[TrustRecord]:
        """Return all records, sorted by path. Raises `ConfigError` for a store that cannot be trusted or read."""
        return [_parse_record(path, data) for path, data in sorted(self._read().items())]

    def find_record(self, file: Path) -> TrustRecord | None:
        """Return the record of a file. Raises as `list_records` does."""
        path = record_path(file)
        data = self._read().get(path)
        return None if data is None else _parse_record(path, data)

    def save_record(self, new: TrustRecord) -> None:
        """Add or replace a record. Raises `ExecutionError` when the store cannot be written."""
        self._update(lambda files: files | {new.path: new.to_data()})

    def delete_record(self, file: Path) -> bool:
        """Delete the record of a file, and return whether there was one."""
        path = record_path(file)
        if path not in self._read():
            return False
        self._update(lambda files: {each: data for each, data in files.items() if each != path})
        return True

    def _read(self) -> dict[str, Mapping[str, Any]]:
        try:
            handle = os.open(self.file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._error(f"cannot be read: {error.strerror}") from None
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            if status.st_uid != os.geteuid():
                raise self._error("belongs to another user", "Remove it, or use the HOME of this user.")
            if status.st_mode & _WRITABLE_BY_OTHERS:
                raise self._error("can be written by other users", f"Look at it, then: chmod 600 {self.file}")
            data = file.read()
        try:
            content = parse_json(data)
            files = content["files"] if content["version"] == _VERSION else None
        except (ValueError, KeyError, TypeError):
            files = None
        if not isinstance(files, dict) or not all(isinstance(each, dict) for each in files.values()):
            raise self._error("is not a trust store that this version can read", "Remove it: you are asked again.")
        return files

    def _update(self, change: Callable[[dict[str, Mapping[str, Any]]], dict[str, Mapping[str, Any]]]) -> None:
        try:
            make_private_folder(self._folder)
            with self._lock():
                content = {"version": _VERSION, "files": change(self._read())}
                data = orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
                replace_private_file(self.file, data)
        except OSError as error:
            raise ExecutionError(f"Cannot write {self.file}: {error.strerror}.") from None

    @contextmanager
    def _lock(self) -> Iterator[None]:
        handle = open_private_file(self.file.with_suffix(".lock"), os.O_RDWR | os.O_NOFOLLOW)
        try:
            _wait_lock(handle, self.file)
            yield
        finally:
            os.close(handle)

    def _error(self, what: str, fix: str = "") -> ConfigError:
        return ConfigError.of([Problem(message=f"the trust store {what}", file=str(self.file), fix=fix)])


def open_trust_store(home: Path | None = None) -> TrustStore:
    """Return the store of this user. `home` replaces the home folder of the process."""
    return TrustStore((home or Path.home()) / ".holodeck")


def _wait_lock(handle: int, file: Path) -> None:
    end = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise ExecutionError(f"{file} is being written by another process, which does not end.") from None
            time.sleep(_LOCK_POLL)
        else:
            return


def _parse_record(path: str, data: Mapping[str, Any]) -> TrustRecord:
    try:
        actions = tuple(
            Action(
                kind=each["kind"],
                name=each["name"],
                details=tuple((str(label), str(text)) for label, text in each["details"]),
                is_personal=bool(each.get("personal")),
            )
            for each in data["actions"]
        )
        return TrustRecord(path=path, digest=str(data["digest"]), trusted_at=float(data["trusted_at"]), actions=actions)
    except (KeyError, TypeError, AttributeError, ValueError):
        # Like no record: the user is asked again.
        return TrustRecord(path=path, digest="", trusted_at=0.0, actions=())


@record
class Change:
    """An action that was not there when the file was trusted, or was another one. `before` is None for a new one."""

    action: Action
    before: Action | None = None


@record
class Verdict:
    """The trust in a file. `changes` has what is new or different, for one that has changed."""

    state: State
    changes: tuple[Change, ...] = ()


def check_trust(file: Path, actions: Actions, *, environ: Mapping[str, str], store: TrustStore) -> Verdict:
    """Compare the actions of a file with what the user has agreed to. Raises `ConfigError` for an unusable store.

    A file that does nothing needs no trust. What a file no longer does is no change.
    """
    if not actions.actions or is_allowed_by_variable(actions, environ):
        return Verdict(state="trusted")
    known = store.find_record(file)
    if known is None:
        return Verdict(state="new")
    changes = tuple(find_changes(actions, known.actions))
    return Verdict(state="changed" if changes else "trusted", changes=changes)


def is_allowed_by_variable(actions: Actions, environ: Mapping[str, str]) -> bool:
    """Return whether the variable has the digest of these actions, or allows every file."""
    allowed = environ.get("HOLODECK_TRUST", "").replace(",", " ").split()
    return ALL in allowed or actions.digest in allowed


def save_trust(file: Path, actions: Actions, store: TrustStore) -> TrustRecord:
    """Store that the user has agreed to these actions, and return the record.

    Where only the servers were read, what was agreed to before stays, except for servers that are different now.
    """
    kept: tuple[Action, ...] = ()
    if not actions.is_whole and (known := store.find_record(file)) is not None:
        replaced = {(action.kind, action.name) for action in actions.actions}
        kept = tuple(action for action in known.actions if (action.kind, action.name) not in replaced)
    new = TrustRecord(
        path=record_path(file),
        digest=actions.digest,
        trusted_at=time.time(),
        actions=(*actions.actions, *kept),
    )
    store.save_record(new)
    return new


def is_part_of(actions: Actions, agreed: Sequence[Action]) -> bool:
    """Return whether all of these actions are among those that the user has agreed to."""
    return not list(find_changes(actions, agreed))


def find_changes(actions: Actions, agreed: Sequence[Action]) -> Iterator[Change]:
    """Yield the actions that are not among those that the user has agreed to."""
    known = {_identity(action) for action in agreed}
    before = {(action.kind, action.name): action for action in agreed}
    for action in actions.actions:
        if _identity(action) not in known:
            yield Change(action=action, before=before.get((action.kind, action.name)))


def _identity(action: Action) -> object:
    """Return what makes two actions the same.

    The name of a server does not act; in a gateway it begins with its agent's.
    """
    return (action.kind, "" if action.kind in _NAMES_DO_NOT_ACT else action.name, action.details)
