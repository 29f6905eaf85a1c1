"""Decides whether a file may do what it would do: by a variable of the process, or by its trust record."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from holodeck.config.actions import Action, Actions
from holodeck.lib.record import record
from holodeck.trust.store import TrustRecord, TrustStore, record_path

VARIABLE = "HOLODECK_TRUST"
"""Environment variable with trust digests, or `all`. It is read from the process only, never from a `.env` file."""
ALL = "all"
_NAMES_DO_NOT_ACT = frozenset({"process", "connection", "variables", "script"})

State = Literal["trusted", "new", "changed"]


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
